import Foundation
import MuxKit

/// The sender of one lane; each *step* tries to send the next change.
final class OutboxSender: Sendable {
    /// The reason of a wait.
    enum Wait: Sendable {
        /// The last step failed without a connection to the server.
        case connection
        /// The last step failed for another reason.
        case other
    }

    private struct State: Sendable {
        var task: Task<Void, Never>?
        var wait: Wait?
        /// Whether ``retryNow()`` was called since the beginning of the last step.
        var wasWoken = false
        /// See ``OutboxSender/change``.
        var change: OutboxStateMachine.ID?
    }

    let lane: String
    private let signal = RetrySignal()
    private let state = Locked(State())

    init(_ lane: String) { self.lane = lane }

    /// The reason of the wait after a failed step, until the next step begins; otherwise `nil`.
    ///
    /// Also set after the last attempt of a change, which no wait follows.
    var wait: Wait? {
        get { self.state.withLock { $0.wait } }
        set { self.state.withLock { $0.wait = newValue } }
    }

    /// The change that the last step chose to send; `nil` if the last step ended before the choice.
    var change: OutboxStateMachine.ID? {
        get { self.state.withLock { $0.change } }
        set { self.state.withLock { $0.change = newValue } }
    }

    /// Prepares a step: a call of ``retryNow()`` from now on ends the wait after the step.
    func begin() {
        self.state.withLock { state in
            state.wait = nil
            state.wasWoken = false
            state.change = nil
        }
    }

    /// Ends the wait for the next attempt, or the next wait if a step is running.
    func retryNow() {
        self.state.withLock { $0.wasWoken = true }
        self.signal.retryNow()
    }

    /// Ends a wait at ``retryNow()``, also if the call precedes the wait.
    var wakeUp: RetrySignal.WakeUp {
        let wakeUp = RetrySignal.WakeUp.signal(self.signal)
        return RetrySignal.WakeUp("outbox", .demand) { [state] loop, wake in
            let end = wakeUp.setUp(loop, wake)
            if state.withLock({ $0.wasWoken }) { wake() }
            return end
        }
    }

    func setTask(_ task: Task<Void, Never>) { self.state.withLock { $0.task = task } }

    func cancel() { self.state.withLock { $0.task }?.cancel() }
}

/// The senders: one task for each active lane.
///
/// A sender acquires a slot and the lease of the folder in its first step, and in the first step after a
/// wait. A failed step releases both.
extension OutboxCore {
    /// The state machine permits no attempt: see ``OutboxStateMachine/beginAttempt(_:at:)``.
    private struct NotSendable: RetryableError {
        var retryAdvice: RetryAdvice { .permanent }
    }

    /// The lease has ended: another process may be sending.
    private struct LostLease: RetryableError {
        var retryAdvice: RetryAdvice { .permanent }
    }

    /// Replaces a cancellation error of a step in a task that is not cancelled.
    ///
    /// A cancellation error would end the loop of attempts.
    private struct CancelledAttempt: Error {}

    /// The progress of a sender.
    private final class Run: Sendable {
        let sender: OutboxSender
        let use = Locked<LeaseHolder.Use?>(nil)
        /// Whether this sender has waited, and the number of failures without an attempt since the last
        /// attempt.
        let state = Locked((hasWaited: false, stalls: 0))

        init(_ sender: OutboxSender) { self.sender = sender }
    }

    func start(_ lanes: [String]) {
        for lane in lanes {
            let sender = OutboxSender(lane)
            // The lock is held during the start: the end of the sender must not precede the registration.
            self.state.withLock { state in
                guard !state.isStopped else { return }
                state.senders[lane] = sender
                // The sender outlives the caller, so the sender's task is not part of the caller's operation.
                ReentrantAsyncMutex.outside {
                    sender.setTask(self.repository.spawn(name: "mux.outbox") { [self] in await self.sendAll(sender) })
                }
            }
        }
    }

    /// Sends the changes of a lane, one after another.
    private func sendAll(_ sender: OutboxSender) async {
        let run = Run(sender)
        var loop = self.loop
        loop.wakeUps.append(sender.wakeUp)
        do {
            while try await loop.run(nil, { await self.step(run, failures: $0.index) }) {}
        } catch let error as RetryError {
            await self.giveUp(run, error)
        } catch {
            // The session has ended, or the app has released the outbox.
        }
        await self.release(run)
        await self.updateEvenWithoutFile { log in
            log.machine.endSender(sender.lane)
            self.state.withLock { $0.senders[sender.lane] = nil }
        }
    }

    /// Refuses the change of the last attempt, because the policy permits no further attempt; no effect after
    /// a failure that counts as no attempt.
    private func giveUp(_ run: Run, _ error: RetryError) async {
        guard let id = run.sender.change, run.state.withLock({ $0.stalls == 0 }) else { return }
        let message = (error.lastError ?? error).sentence
        let hasFailed = await self.updateEvenWithoutFile { log in
            guard let item = log.machine.refuseWaiting(id, message) else { return false }
            try? log.write(item)
            return true
        }
        if hasFailed { self.tell(.changeFailed, reason: MuxEvent.Reason(of: error)) }
    }

    private func release(_ run: Run) async {
        guard let use = run.use.withLock({ $0.take() }) else { return }
        await self.lease.release(use)
        self.slots.leave()
    }

    /// Sends the next change of the lane.
    ///
    /// - Parameters:
    ///   - run: The run of the sender.
    ///   - failures: The number of failures since the last output.
    /// - Returns: The output `true` for another run, such as for the next change, or after a wait before the
    ///   first attempt; `false` if the sender must end; or a failure with the wait before the next step.
    private func step(_ run: Run, failures: Int) async -> RetryResult<Bool> {
        run.sender.begin()
        do {
            if run.use.withLock({ $0 == nil }) {
                try await self.slots.enter(run.sender.lane, isUrgent: { false }, reportWait: {})
                do {
                    let use = try await self.lease.acquire(self.repository.spawn)
                    run.use.withLock { $0 = use }
                } catch {
                    self.slots.leave()
                    throw error
                }
                // The time limit of the policy counts from the first attempt, and not from the waits before.
                if run.state.withLock({ $0.stalls >= failures }) { return .output(true) }
            }
            guard let (id, payload) = try await self.nextChange(run) else { return .output(false) }
            guard let change = self.decoded(payload) else {
                await self.updateEvenWithoutFile { log in log.machine.markUnreadable(id) }
                return .output(true)
            }
            run.sender.change = id
            let result = await self.attempt(id, change)
            if case .stalled(let error, let wasUnsent) = result {
                return await self.stall(run, after: error, wasUnsent: wasUnsent)
            }
            run.state.withLock { $0.stalls = 0 }
            guard case .failed(let error, let attempts) = result else { return .output(true) }
            let isLast = attempts >= max(1, self.policy.retry.maxAttempts)
            let plan = isLast ? RetryProvider.Plan.never : .retry
            return await self.endFailedStep(run, after: error, plan, wasUnsent: error.isUnsent)
        } catch {
            return await self.stall(run, after: error, wasUnsent: true)
        }
    }

    /// Ends a step whose failure counts as no attempt.
    ///
    /// The request did not begin, because of the disk, the lease or the token, or the change was removed in
    /// the meantime. Returns the failure with the wait before the next step.
    private func stall(_ run: Run, after error: any Error, wasUnsent: Bool) async -> RetryResult<Bool> {
        let stalls = run.state.withLock { state in
            state.stalls += 1
            return state.stalls
        }
        // From 1 to 64 seconds, also with a policy without a delay.
        let delay = Duration.seconds(1 << min(stalls - 1, 6))
        return await self.endFailedStep(run, after: error, .after(delay), wasUnsent: wasUnsent)
    }

    /// Frees the lease and the slot, and returns the failure with the wait before the next attempt, if any.
    ///
    /// - Parameters:
    ///   - run: The run of the sender.
    ///   - error: The failure.
    ///   - plan: The wait before the next attempt.
    ///   - wasUnsent: Whether the request certainly did not reach the server: then a connectivity failure
    ///     counts as a missing connection.
    /// - Returns: The failure with the wait.
    private func endFailedStep(
        _ run: Run,
        after error: any Error,
        _ plan: RetryProvider.Plan,
        wasUnsent: Bool
    ) async -> RetryResult<Bool> {
        await self.release(run)
        let isOffline =
            wasUnsent && SilenceableError.isSilenceable(error) && RetryAdvice.of(error).retryAfter == nil
        let failures = self.state.withLock { state in
            if isOffline { state.offlineFailures += 1 }
            run.sender.wait = isOffline ? .connection : .other
            return isOffline ? state.offlineFailures : 0
        }
        run.state.withLock { $0.hasWaited = true }
        // Starts other lanes, if any, and refreshes the values of sent changes if no change is being sent.
        await self.updateEvenWithoutFile { _ in }
        let error = error.isCancellation && !Task.isCancelled ? CancelledAttempt() : error
        // Without a connection, the delay grows with the failures of all lanes, because the lanes take turns.
        guard failures > 0, case .retry = plan else { return .failure(error, plan) }
        return .failure(error, .after(self.loop.policy.delay(beforeAttempt: failures, random: self.loop.random())))
    }

    /// The next change of the lane; `nil` if the sender ends.
    private func nextChange(_ run: Run) async throws -> (ID, Data?)? {
        let lane = run.sender.lane
        // Without a connection, this sender ends after its wait in favour of a lane without a sender, unless
        // another sender waits for the connection.
        let isTurnOver =
            run.state.withLock { $0.hasWaited }
            && self.state.withLock { $0.offlineFailures > 0 && $0.offlineCount == 0 }
        while true {
            let blocked = try await self.blockedChanges(in: lane)
            guard let tenure = self.lease.tenure else { throw LostLease() }
            let now = self.repository.time.now.nanoseconds
            let next = try await self.perform { log throws(MuxStoreError) -> (OutboxStateMachine.NextAction, Data?)? in
                if isTurnOver, log.machine.hasCandidates { return (.rest, nil) }
                try self.writeInterruptedAttempts(log, tenure, of: lane)
                guard blocked?.isCurrent(in: log.machine, lane) ?? true else { return nil }
                if let blocked { log.machine.block(blocked.ids, in: lane) }
                let action = log.machine.nextChange(in: lane, at: now)
                switch action {
                case .send(let id): return (action, log.contents[id]?.payload)
                case .expire(let item): try log.write(item)
                case .rest: break
                }
                return (action, nil)
            }
            switch next {
            case (.send(let id), let payload)?: return (id, payload)
            case (.expire, _)?: self.tell(.changeFailed, reason: .other("expired"))
            case (.rest, _)?: return nil
            case nil: continue  // `blocked` is outdated
            }
        }
    }

    /// Writes the states of changes whose attempts have no outcome: once per tenure of the lease, and
    /// whenever such a change delays `lane`.
    private func writeInterruptedAttempts(
        _ log: OutboxLog,
        _ tenure: UInt64,
        of lane: String? = nil
    ) throws(MuxStoreError) {
        let isNew = self.state.withLock { $0.tenure } != tenure
        guard isNew || lane.map({ log.machine.isInterrupted($0) }) ?? false else { return }
        let items = log.machine.resolveInterruptedAttempts(isIdempotent: self.policy.serverDetectsRepetitions)
        // After a failed write, the other states are still written; the next operation repeats the write.
        var failure: MuxStoreError?
        for item in items {
            do throws(MuxStoreError) { try log.write(item) } catch { failure = failure ?? error }
        }
        if let failure { throw failure }
        self.state.withLock { $0.tenure = tenure }
    }

    /// The changes of a lane that are blocked according to the app.
    private struct Blocked: Sendable {
        var ids: Set<ID> = []
        /// All changes of the lane, with the states at the time of the decision.
        let changes: [Item]

        func isCurrent(in machine: OutboxStateMachine, _ lane: String) -> Bool {
            let current = machine.changes(in: lane)
            return current.map(\.id) == self.changes.map(\.id)
                && current.map(\.progress.status) == self.changes.map(\.progress.status)
        }
    }

    /// Asks the app which changes of the lane are blocked; `nil` without a rule, or without a failed change.
    ///
    /// The closure of the app runs outside the log, so the caller must check ``Blocked/isCurrent(in:_:)``.
    private func blockedChanges(in lane: String) async throws -> Blocked? {
        guard let isBlocked = self.state.withLock({ $0.isBlocked }) else { return nil }
        let changes = try await self.perform { log throws(MuxStoreError) in
            log.machine.changes(in: lane).map { ($0, log.contents[$0.id]?.payload) }
        }
        guard changes.contains(where: { !$0.0.progress.isPending }) else { return nil }
        var blocked = Blocked(changes: changes.map(\.0))
        // A blocked change blocks later changes, like a failed change.
        var stuck: [Change] = []
        for (item, payload) in changes {
            // A pending change of this kind stops the lane at its turn.
            guard let change = self.decoded(payload) else { continue }
            let isStuck = item.progress.isPending && stuck.contains { isBlocked(change, $0) }
            if isStuck { blocked.ids.insert(item.id) }
            if isStuck || !item.progress.isPending { stuck.append(change) }
        }
        return blocked
    }

    // MARK: - One attempt

    private enum AttemptResult {
        /// The change has ended or failed, or must not be sent.
        case ended
        /// The attempt failed, and the change is still pending; with the number of attempts since the
        /// addition or the last ``OutboxCore/retry(_:)``.
        case failed(any Error, attempts: Int)
        /// A failure without an attempt, or after the change has ended, such as by a discard.
        case stalled(any Error, wasUnsent: Bool)
    }

    /// Sends a change, and writes the outcome.
    private func attempt(_ id: ID, _ change: Change) async -> AttemptResult {
        // Three facts about the last request: counted as an attempt, begun, and refused for its token.
        let progress = Locked((isCounted: false, hasBegun: false, isRefused: false))
        var failure: (any Error)?
        do {
            try await self.deliver(change) {
                progress.withLock { $0 = (false, false, false) }
                let attempt = try await self.begin(id) { progress.withLock { $0.isCounted = true } }
                progress.withLock { $0.hasBegun = true }
                return attempt
            } _: {
                progress.withLock { $0.isRefused = true }
            }
        } catch {
            failure = error
        }
        let (isCounted, isAttempt, isRefused) = progress.withLock { $0 }
        // `notBegun` undoes a count: not the count of an earlier request of this call, with a refused token.
        let notBegun = isCounted ? OutboxStateMachine.Outcome.notBegun : .unsent
        let outcome =
            failure.map { isAttempt ? self.outcome(of: $0, isTokenRefused: isRefused) : notBegun } ?? .confirmed
        switch outcome {
        case .confirmed, .refused, .unknown: self.overlays.hold(change)
        case .notBegun, .unsent, .unclear: break
        }
        let action = await self.updateEvenWithoutFile { log in
            let action = log.machine.endAttempt(id, outcome)
            switch action {
            case .ignore: break
            case .writeEnd(let item): try? log.writeEnd(item)
            case .write(let item): try? log.write(item)
            }
            try? log.rewriteIfDue()
            return action
        }
        self.tell(outcome, failure, action)
        switch outcome {
        case .confirmed, .refused, .unknown:
            self.resumeOfflineLanes()
            return .ended
        case .notBegun, .unsent, .unclear:
            guard let failure, !(failure is NotSendable) else { return .ended }
            let wasUnsent = !isAttempt || failure.isUnsent
            if !wasUnsent { self.resumeOfflineLanes() }
            guard isAttempt, case .write(let item) = action else { return .stalled(failure, wasUnsent: wasUnsent) }
            return .failed(failure, attempts: item.progress.attempts - item.progress.formerAttempts)
        }
    }

    /// Ends the waits of the lanes that wait for a connection.
    private func resumeOfflineLanes() {
        let waiting = self.state.withLock { state -> [OutboxSender] in
            guard state.offlineFailures > 0 else { return [] }
            state.offlineFailures = 0
            return state.senders.values.filter { $0.wait == .connection }
        }
        for sender in waiting { sender.retryNow() }
    }

    /// Tells the observer the outcome of an attempt.
    ///
    /// If the change had ended before, the observer is not told of a confirmation or a failure.
    private func tell(
        _ outcome: OutboxStateMachine.Outcome,
        _ error: (any Error)?,
        _ action: OutboxStateMachine.EndAction
    ) {
        let reason = error.map { MuxEvent.Reason(of: $0) }
        switch outcome {
        case .confirmed: if action != .ignore { self.tell(.changeConfirmed) }
        case .refused, .unknown: if action != .ignore { self.tell(.changeFailed, reason: reason) }
        case .notBegun, .unsent, .unclear: if !(error is NotSendable) { self.tell(.changeDelayed, reason: reason) }
        }
    }

    /// Writes that an attempt begins.
    ///
    /// Called when the token of the attempt, if any, is available. A sign-out raises the session of the log
    /// before the next user can sign in, so no change of an ended session is sent with the token of the next
    /// session.
    ///
    /// - Parameters:
    ///   - id: The change.
    ///   - counted: Called when the attempt is counted, before the write.
    /// - Returns: The attempt.
    /// - Throws: `CancellationError`, ``NotSendable``, ``LostLease``, or the error of ``perform(_:)``.
    private func begin(_ id: ID, counted: @escaping @Sendable () -> Void) async throws -> Attempt {
        try Task.checkCancellation()
        guard let tenure = self.lease.tenure else { throw LostLease() }
        let begun = try await self.perform { log throws(MuxStoreError) -> Attempt? in
            try self.writeInterruptedAttempts(log, tenure)
            try log.checkVersion()
            guard let item = log.machine.beginAttempt(id, at: self.repository.time.now.nanoseconds) else { return nil }
            counted()
            try log.write(item)
            return Attempt(
                number: item.progress.attempts,
                idempotencyKey: item.progress.key,
                mayHaveArrived: item.progress.mayHaveArrived
            )
        }
        guard let begun else { throw NotSendable() }
        // The process may have been suspended during the write, and the lease may have ended.
        guard self.lease.tenure == tenure else { throw LostLease() }
        self.tell(.changeSending)
        return begun
    }

    /// The outcome of an attempt that threw `error`; `isTokenRefused` tells whether the server refused the
    /// token of the last request.
    private func outcome(of error: any Error, isTokenRefused: Bool) -> OutboxStateMachine.Outcome {
        guard !isTokenRefused else { return .unsent }
        let isSafe = self.policy.serverDetectsRepetitions
        switch error {
        // A runner of the app ended a call of `send`. The request may have been sent.
        case RunnerError.critical, RunnerError.reset, RunnerError.signedOut, RunnerError.timedOut:
            return isSafe ? .unclear : .unknown(error.sentence)
        // A runner of the app could not provide a token.
        case is RunnerError: return .unsent
        default: break
        }
        let advice = RetryAdvice.of(error)
        if error.isUnsent || error.saysBadDependency { return .unsent }
        if error.isCancellation { return isSafe ? .unclear : .unknown(error.sentence) }
        var repeated = self.policy.retry
        repeated.repeatsUnsafeWork = true
        // After a redirection that changed the method, the server has processed the change, and the status is
        // of another request.
        let status = advice.isOfLaterRequest ? nil : advice.status
        guard repeated.permits(advice) else {
            let isClientError = status.map { (400..<500).contains($0) } ?? false
            return .refused(error.sentence, mayHaveArrived: !isClientError)
        }
        // With these statuses, a server rejects requests for a time, and has not processed the change.
        if [425, 429, 503].contains(status) { return .unsent }
        return isSafe && advice.isRepeatable ? .unclear : .unknown(error.sentence)
    }
}
