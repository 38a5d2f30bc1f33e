import Foundation
import MuxKit

/// The senders: one task for each lane with a change to send.
///
/// A sender holds the lease of the folder, except during the wait between two attempts.
extension OutboxCore {
    /// The attempt must not begin: the change has ended, or its session.
    private struct NotSendable: RetryableError, UnsentError {
        var retryAdvice: RetryAdvice { .permanent }
        var isUnsentRequest: Bool? { true }
    }

    /// Another process may be sending.
    private struct LostLease: RetryableError, UnsentError {
        var retryAdvice: RetryAdvice { .permanent }
        var isUnsentRequest: Bool? { true }
    }

    /// The closure of the app threw `CancellationError` without a cancellation.
    private struct CancelledAttempt: Error {}

    /// The uses of the lease by one sender.
    private final class Sender: Sendable {
        let lane: String
        let use = Locked<LeaseHolder.Use?>(nil)

        init(_ lane: String) { self.lane = lane }
    }

    /// Starts the senders of lanes.
    func start(_ lanes: [String]) {
        for lane in lanes {
            self.state.withLock { state in
                guard !state.isStopped else { return }
                state.senders[lane] = self.repository.spawn(name: "mux.outbox") { [self] in
                    await self.sendAll(of: lane)
                }
            }
        }
    }

    /// Sends the changes of a lane, one after another.
    private func sendAll(of lane: String) async {
        let sender = Sender(lane)
        do {
            while try await self.loop.run(nil, { _ in await self.step(sender) }) {}
        } catch let error as RetryError {
            let message = (error.lastError ?? error).sentence
            _ = try? await self.perform { log throws(MuxStoreError) in
                if let item = log.withMachine({ $0.gaveUp(in: lane, message) }) { try log.write(item, .full) }
            }
            self.tell(.changeFailed, reason: MuxEvent.Reason(of: error))
        } catch {
            // The session has ended, or the app has released the outbox.
        }
        await self.release(sender)
        await self.laneEnded(lane)
    }

    private func laneEnded(_ lane: String) async {
        await self.finish { log in
            log.withMachine { $0.laneEnded(lane) }
            self.state.withLock { state in
                state.waiting.remove(lane)
                state.senders[lane] = nil
            }
        }
    }

    private func release(_ sender: Sender) async {
        if let use = sender.use.withLock({ $0.take() }) { await self.lease.release(use) }
    }

    /// Sends the next change of the lane.
    ///
    /// - Returns: Whether the lane may have another change.
    private func step(_ sender: Sender) async -> RetryResult<Bool> {
        self.state.withLock { _ = $0.waiting.remove(sender.lane) }
        do {
            if sender.use.withLock({ $0 == nil }) {
                let use = try await self.lease.acquire(self.repository.spawn)
                sender.use.withLock { $0 = use }
            }
            guard let (id, payload) = try await self.nextChange(in: sender.lane) else { return .output(false) }
            guard let change = self.decoded(payload) else {
                try await self.perform { log throws(MuxStoreError) in log.withMachine { $0.becameUnreadable(id) } }
                return .output(true)
            }
            guard let error = await self.attempt(id, change) else { return .output(true) }
            return await self.wait(sender, after: error)
        } catch {
            return await self.wait(sender, after: error)
        }
    }

    /// Frees the lease and the place of the lane during the wait for the next attempt.
    private func wait(_ sender: Sender, after error: any Error) async -> RetryResult<Bool> {
        let isOffline = SilenceableError.isSilenceable(error)
        await self.release(sender)
        self.state.withLock { state in
            state.isOffline = isOffline
            state.waiting.insert(sender.lane)
        }
        // Other lanes may start now, and the overlays may rest.
        await self.finish { _ in }
        return .failure(error.isCancellation && !Task.isCancelled ? CancelledAttempt() : error, .retry)
    }

    /// The next change of the lane; `nil` if the lane rests.
    private func nextChange(in lane: String) async throws -> (ID, Data?)? {
        while true {
            let blocked = try await self.blockedChanges(in: lane)
            guard let tenure = self.lease.tenure else { throw LostLease() }
            let now = self.repository.time.now.nanoseconds
            let next = try await self.perform { log throws(MuxStoreError) -> (OutboxStateMachine.NextAction, Data?)? in
                try self.becomeSender(log, tenure, of: lane)
                guard blocked?.isCurrent(in: log.machine, lane) ?? true else { return nil }
                if let blocked { log.withMachine { $0.block(blocked.ids, in: lane) } }
                let action = log.withMachine { $0.nextChange(in: lane, at: now) }
                switch action {
                case .send(let id): return (action, log.contents[id]?.payload)
                case .expire(let item): try log.write(item, .full)
                case .rest: break
                }
                return (action, nil)
            }
            switch next {
            case (.send(let id), let payload)?: return (id, payload)
            case (.expire, _)?: self.tell(.changeFailed, reason: .other("expired"))
            case (.rest, _)?: return nil
            case nil: continue
            }
        }
    }

    /// Settles the interrupted attempts of processes that had the lease before.
    private func becomeSender(
        _ log: OutboxLog,
        _ tenure: UInt64,
        of lane: String? = nil
    ) throws(MuxStoreError) {
        let isNew = self.state.withLock { $0.tenure } != tenure
        guard isNew || lane.map({ log.machine.isInterrupted($0) }) ?? false else { return }
        let items = log.withMachine { $0.becameSender(isIdempotent: self.policy.isIdempotent) }
        for item in items { try log.write(item, .full) }
        self.state.withLock { $0.tenure = tenure }
    }

    /// The changes of a lane that a failed change blocks.
    private struct Blocked: Sendable {
        var ids: Set<ID> = []
        /// The changes and their states at the time of the decision.
        let lane: [Item]

        func isCurrent(in machine: OutboxStateMachine, _ lane: String) -> Bool {
            machine.changes(in: lane).map(\.id) == self.lane.map(\.id)
                && machine.changes(in: lane).map(\.progress.status) == self.lane.map(\.progress.status)
        }
    }

    /// Asks the app which changes of the lane are blocked; `nil` without a rule, or without a failed change.
    private func blockedChanges(in lane: String) async throws -> Blocked? {
        guard let isBlocked = self.state.withLock({ $0.isBlocked }) else { return nil }
        let changes = try await self.perform { log throws(MuxStoreError) in
            log.machine.changes(in: lane).map { ($0, log.contents[$0.id]?.payload) }
        }
        guard changes.contains(where: { !$0.0.progress.isPending }) else { return nil }
        var blocked = Blocked(lane: changes.map(\.0))
        // A blocked change blocks later changes, like a failed change.
        var stuck: [Change] = []
        for (item, payload) in changes {
            guard let change = self.decoded(payload) else { break }
            let isStuck = item.progress.isPending && stuck.contains { isBlocked(change, $0) }
            if isStuck { blocked.ids.insert(item.id) }
            if isStuck || !item.progress.isPending { stuck.append(change) }
        }
        return blocked
    }

    // MARK: - One attempt

    /// Sends a change, and writes the outcome.
    ///
    /// - Returns: The error of a transient failure; `nil` if the change has ended or failed.
    private func attempt(_ id: ID, _ change: Change) async -> (any Error)? {
        var failure: (any Error)?
        do {
            try await self.deliver(change) { try await self.begin(id) }
        } catch {
            failure = error
        }
        let outcome = failure.map { self.outcome(of: $0) } ?? .confirmed
        switch outcome {
        case .confirmed, .refused, .unknown: self.overlays.hold(change)
        case .unsent, .unclear: break
        }
        let action = await self.finish { log in
            let action = log.withMachine { $0.attemptEnded(id, outcome) }
            switch action {
            case .ignore: break
            case .writeEnd(let item): try? log.writeEnd(item)
            case .write(let item): try? log.write(item, .full)
            }
            try? log.rewriteIfDue()
            return action
        }
        self.tell(outcome, failure, action)
        switch outcome {
        case .confirmed, .refused, .unknown:
            let wasOffline = self.state.withLock { state in
                defer { state.isOffline = false }
                return state.isOffline
            }
            if wasOffline { self.signal.retryNow() }
            return nil
        case .unsent, .unclear:
            return failure is NotSendable ? nil : failure
        }
    }

    /// Tells the observer.
    private func tell(
        _ outcome: OutboxStateMachine.Outcome,
        _ error: (any Error)?,
        _ action: OutboxStateMachine.EndAction
    ) {
        let reason = error.map { MuxEvent.Reason(of: $0) }
        switch outcome {
        case .confirmed:
            if action != .ignore { self.tell(.changeConfirmed) }
        case .refused, .unknown: self.tell(.changeFailed, reason: reason)
        case .unsent, .unclear: self.tell(.changeDelayed, reason: reason)
        }
    }

    /// Writes that an attempt begins.
    ///
    /// With the token of the attempt, if any: a sign-out raises the session of the log before the next user can
    /// sign in, so a change of an ended session never begins with the token of the next session.
    private func begin(_ id: ID) async throws -> Attempt {
        try Task.checkCancellation()
        guard let tenure = self.lease.tenure else { throw LostLease() }
        let begun = try await self.perform { log throws(MuxStoreError) -> Attempt? in
            try self.becomeSender(log, tenure)
            try log.checkVersion()
            switch log.withMachine({ $0.attemptBegan(id) }) {
            case .ignore: return nil
            case .write(let progress, let mayHaveArrived):
                do throws(MuxStoreError) {
                    if let item = log.machine[id] { try log.write(item, .full) }
                } catch {
                    _ = log.withMachine { $0.attemptEnded(id, .unsent) }
                    throw error
                }
                return Attempt(
                    number: progress.attempts,
                    idempotencyKey: progress.key,
                    mayHaveArrived: mayHaveArrived
                )
            }
        }
        guard let begun else { throw NotSendable() }
        // The process may have been suspended during the write.
        guard self.lease.tenure == tenure else { throw LostLease() }
        self.tell(.changeSending)
        return begun
    }

    /// The outcome of an attempt that threw `error`.
    private func outcome(of error: any Error) -> OutboxStateMachine.Outcome {
        let advice = RetryAdvice.of(error)
        // A refused token, or a server that rejects requests for a time: the change was not applied.
        if error.isUnsent || error.isRefusal || [425, 429, 503].contains(advice.status) { return .unsent }
        if error.isCancellation { return self.policy.isIdempotent ? .unclear : .unknown(error.sentence) }
        var repeated = self.policy.retry
        repeated.repeatsUnsafeWork = true
        guard repeated.permits(advice) else { return .refused(error.sentence) }
        return self.policy.isIdempotent && advice.isRepeatable ? .unclear : .unknown(error.sentence)
    }
}
