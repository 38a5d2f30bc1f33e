/// Decides the action of a runner's call: use the dependency, wait for an update, or fail.
///
/// A pure state machine. The flight engine manages the waiters and the running update.
@usableFromInline
package struct DependencyStateMachine<Dependency: Sendable>: Sendable {
    private enum State: Sendable {
        /// No value, and the last recorded failure of an update, if any.
        case absent(Failure?)
        /// A value, and the last recorded failure of an update, if any.
        case held(VersionedDependency, Failure?)
        /// An update was refused: every call fails until ``clearFailures()``.
        case refused(RunnerError)
        /// A critical error was raised: every call fails until ``clearFailures()``.
        case critical(RaisedCritical)
    }

    /// The error of a failed update.
    ///
    /// Until the end of the cool-down and of the pause, calls that need an update get this error, except
    /// forced calls. A call that needs only an early renewal then uses the present value, if possible.
    private struct Failure: Sendable {
        let error: any Error
        /// The end of the cool-down, or the end of the `Retry-After` if later.
        ///
        /// The `Retry-After` is limited to ``FailurePause/longestRetryAfter``. ``pauses`` may end even later.
        let until: Moment
    }

    private var state = State.absent(nil)

    // Not part of `state`: epochs, counters and the records of refusals are kept when the value changes.

    /// Identifies the value.
    ///
    /// Each value from ``setValue(_:parentEpoch:renewal:isFound:)`` has a new epoch. A successor
    /// (``setSuccessor(of:to:raisesEpoch:)``) can have the same epoch; ``updateData(of:to:)`` keeps the
    /// epoch. A critical error, an end of the session and ``recordParentReplacement(parentEpoch:)`` with the
    /// result `true` also raise the epoch; a refused update does not.
    @usableFromInline package private(set) var epoch: UInt64 = 0

    /// Raised by each end of a session.
    @usableFromInline package private(set) var session: UInt64 = 0

    /// Raised with every new value, and with every change of the value's data or parent epoch.
    private var revision: UInt64 = 0

    /// The number of the last event of the runner.
    private var lastEvent: UInt64 = 0

    /// The reason for the last end of a session.
    private var lastEnd = End.reset

    /// The epoch of the last value with a refusal that requested an update.
    ///
    /// `nil` without such a value; ``recordAcceptance(_:)`` and ``endSession(_:)`` reset the property.
    private var refusedEpoch: UInt64?

    /// The epoch of the last value with a recorded acceptance; 0 without such a value.
    private var acceptedEpoch: UInt64 = 0

    /// The epoch at the last request for an update.
    private var askedEpoch: UInt64 = 0

    /// The times at which updates replaced refused values, for ``RunnerPolicy/maximumUpdatesPerWindow``.
    ///
    /// A recorded acceptance and an end of the session remove all times. The array contains only the newest
    /// times: at most the maximum number, or one time for a maximum below 1.
    private var replacements: [Moment] = []

    /// The pauses after failed updates.
    private var pauses = UpdatePauses()

    package init(_ value: Dependency?, parentEpoch: UInt64 = 0, renewal: EarlyRenewal? = nil) {
        guard let value else { return }
        _ = self.setValue(value, parentEpoch: parentEpoch, renewal: renewal)
    }

    // MARK: - Reading

    /// Makes the state of a call that starts at `now`.
    package func makeCall(at now: Moment) -> Call { Call(session: self.session, startedAt: now) }

    /// The error with which `call` fails regardless of the value; `nil` without such an error.
    ///
    /// A critical error has precedence over the end of the call's session. The end of the session has
    /// precedence over a refused update.
    package func standingError(for call: Call) -> (any Error)? {
        if case .critical(let critical) = self.state { return critical }
        guard call.session == self.session else { return self.lastEnd.error }
        if case .refused(let error) = self.state { return error }
        return nil
    }

    private var held: VersionedDependency? {
        guard case .held(let held, _) = self.state else { return nil }
        return held
    }

    private var failure: Failure? {
        switch self.state {
        case .absent(let failure), .held(_, let failure): failure
        case .refused, .critical: nil
        }
    }

    /// The value, unless the ``VersionedDependency/parentEpoch`` of the value is less than `parentEpoch`, the
    /// least valid epoch.
    ///
    /// `nil` without such a value.
    package func current(parentEpoch: UInt64) -> VersionedDependency? {
        guard let held, held.parentEpoch >= parentEpoch else { return nil }
        return held
    }

    /// The value for a call after a failed or slow early renewal.
    ///
    /// `nil` for any other call, after the end of the value, and if the call must not use the value. This
    /// function does not compare the value with the parent's epoch.
    @usableFromInline
    package func fallback(for call: Call, at now: Moment) -> VersionedDependency? {
        guard call.isEarly, self.standingError(for: call) == nil, let held, held.epoch != call.badEpoch,
            held.renewal.map({ now < $0.end }) ?? true
        else { return nil }
        return held
    }

    /// Whether the value is newer than a refused value, and no task has accepted the value yet.
    ///
    /// Otherwise ``recordAcceptance(_:)`` has no effect.
    package var isUnproven: Bool {
        guard let refusedEpoch, let held else { return false }
        return held.epoch != refusedEpoch
    }

    /// Whether the last refusal that requested an update was a refusal of the epoch of `held`.
    package func wasRefused(_ held: VersionedDependency) -> Bool { self.refusedEpoch == held.epoch }

    /// Whether the value of an update that began at `epoch` may be kept after the end of the update's flight.
    ///
    /// `true` if the epoch has not changed, and no refused update is in force.
    package func acceptsLateValue(since epoch: UInt64) -> Bool {
        if case .refused = self.state { return false }
        return self.epoch == epoch
    }

    // MARK: - Calls

    /// The next action of a call.
    @usableFromInline
    package enum RequestAction: Sendable {
        /// Run the task with this value.
        case use(VersionedDependency)
        /// Fail with this error, unless ``fallback(for:at:)`` returns a value.
        case fail(any Error)
        /// Wait for an update.
        case update
    }

    /// Decides the next action of a call.
    @usableFromInline
    package mutating func decideAction(
        of call: inout Call,
        parentEpoch: UInt64,
        policy: RunnerPolicy,
        at now: Moment
    ) -> RequestAction {
        call.isEarly = false
        if let error = self.standingError(for: call) { return .fail(error) }
        let current = self.current(parentEpoch: parentEpoch)
        if let current, current.epoch != call.badEpoch {
            guard let renewal = current.renewal, renewal.isDue(at: now) else { return .use(current) }
            call.isEarly = true
        }
        if let failure, !call.isForced {
            let end = self.pauses.end(hasGoodValue: self.fallback(for: call, at: now) != nil)
            if now < max(failure.until, end) { return .fail(failure.error) }
        }
        if let current, !call.isEarly, !call.isForced {
            if self.acceptedEpoch > call.countedEpoch { call.refusals = 0 }
            if let error = self.updateLimitError(of: call, policy: policy, at: now) { return .fail(error) }
            self.refusedEpoch = current.epoch
            call.countRefusal(of: current.epoch)
        }
        self.askedEpoch = self.epoch
        return .update
    }

    /// Whether an update is still necessary: no current value has arrived since the last request for an
    /// update.
    ///
    /// A value that arrived after the last request, such as the late value of a timed-out update, must stay:
    /// no call has requested a replacement of this value.
    package func needsUpdate(parentEpoch: UInt64) -> Bool {
        guard let current = self.current(parentEpoch: parentEpoch) else { return true }
        return current.epoch <= self.askedEpoch
    }

    /// The error of a call with too many updates; `nil` if another update is permitted.
    private mutating func updateLimitError(of call: Call, policy: RunnerPolicy, at now: Moment) -> RunnerError? {
        // Acceptances by other tasks reset `refusals`, but not `updates`: the limit of `updates` stops a task
        // that refuses each value, although all other tasks accept the values.
        guard call.refusals < policy.maximumUpdatesPerCall, call.updates / 10 < policy.maximumUpdatesPerCall else {
            let elapsed = now.duration(since: call.startedAt)
            return .tooManyUpdates(count: call.updates, elapsed: elapsed, underlying: call.lastError)
        }
        guard let limit = policy.maximumUpdatesPerWindow else { return nil }
        self.replacements.removeAll { now.duration(since: $0) >= policy.window }
        guard self.replacements.count >= limit else { return nil }
        return .tooManyUpdatesInWindow(
            count: self.replacements.count,
            window: policy.window,
            underlying: call.lastError
        )
    }

    /// Records that a task accepted the value of `epoch`, and clears the records of earlier refusals.
    ///
    /// Has no effect unless ``isUnproven`` is `true` and the value still has this epoch.
    package mutating func recordAcceptance(_ epoch: UInt64) {
        guard self.isUnproven, epoch == self.held?.epoch else { return }
        self.refusedEpoch = nil
        self.acceptedEpoch = epoch
        self.replacements = []
    }

    // MARK: - Values

    /// Sets the value: raises the epoch and clears earlier failures.
    package mutating func setValue(
        _ value: Dependency,
        parentEpoch: UInt64,
        renewal: EarlyRenewal? = nil,
        isFound: Bool = false
    ) -> VersionedDependency {
        self.epoch &+= 1
        self.clearFailures()
        return self.storeValue(value, parentEpoch: parentEpoch, renewal: renewal, isFound: isFound)
    }

    /// Sets the value that an update made or found.
    ///
    /// Records the replacement of a refused value for ``RunnerPolicy/maximumUpdatesPerWindow``.
    package mutating func setUpdatedValue(
        _ value: Dependency,
        parentEpoch: UInt64,
        renewal: EarlyRenewal?,
        isFound: Bool,
        at now: Moment,
        policy: RunnerPolicy
    ) -> VersionedDependency {
        if let held, self.wasRefused(held), let limit = policy.maximumUpdatesPerWindow {
            self.replacements = self.replacements.suffix(max(limit, 1) - 1) + [now]
        }
        return self.setValue(value, parentEpoch: parentEpoch, renewal: renewal, isFound: isFound)
    }

    private mutating func storeValue(
        _ value: Dependency,
        parentEpoch: UInt64,
        renewal: EarlyRenewal?,
        isFound: Bool
    ) -> VersionedDependency {
        self.revision &+= 1
        let held = VersionedDependency(
            value: value,
            epoch: self.epoch,
            parentEpoch: parentEpoch,
            session: self.session,
            revision: self.revision,
            renewal: renewal,
            isFound: isFound
        )
        self.state = .held(held, self.failure)
        return held
    }

    /// Replaces the value of `held` by a successor, such as a rotated refresh token.
    ///
    /// - Parameters:
    ///   - held: The previous value.
    ///   - value: The successor.
    ///   - raisesEpoch: Whether the values of child runners that were made with the previous value become
    ///     invalid. Such a value stays valid if the child runner calls ``recordParentSuccessor(from:to:)``.
    /// - Returns: The new value; `nil`, without a change, unless the epoch and the session of `held` are
    ///   current.
    package mutating func setSuccessor(of held: VersionedDependency, to value: Dependency, raisesEpoch: Bool)
        -> VersionedDependency?
    {
        guard self.held?.epoch == held.epoch, self.session == held.session else { return nil }
        if raisesEpoch { self.epoch &+= 1 }
        return self.storeValue(value, parentEpoch: held.parentEpoch, renewal: nil, isFound: false)
    }

    /// Replaces the data of `held`, such as the state of the storage; the epoch stays.
    ///
    /// - Returns: The value; `nil`, without a change, if `held` is outdated.
    package mutating func updateData(of held: VersionedDependency, to value: Dependency) -> VersionedDependency? {
        guard self.held?.revision == held.revision, self.session == held.session else { return nil }
        return self.storeValue(value, parentEpoch: held.parentEpoch, renewal: held.renewal, isFound: held.isFound)
    }

    /// Records that a successor, such as a rotated refresh token, replaced the parent's value.
    ///
    /// A value with the parent epoch `former`, or with a later parent epoch, stays valid.
    package mutating func recordParentSuccessor(from former: UInt64, to parentEpoch: UInt64) {
        guard let held, held.parentEpoch >= former, held.parentEpoch < parentEpoch else { return }
        _ = self.storeValue(held.value, parentEpoch: parentEpoch, renewal: held.renewal, isFound: held.isFound)
    }

    /// Records a replacement of the parent's value: clears failures, and drops a value that has become
    /// invalid.
    ///
    /// Unless a valid value exists, the epoch rises, so that a late value of a running update is recognised
    /// as outdated.
    ///
    /// - Parameter parentEpoch: The least valid ``VersionedDependency/parentEpoch``.
    /// - Returns: Whether running updates must be dropped. `false` if a valid value exists: a running update
    ///   with waiting callers was started to replace this value.
    package mutating func recordParentReplacement(parentEpoch: UInt64) -> Bool {
        self.clearFailures()
        guard self.current(parentEpoch: parentEpoch) == nil else { return false }
        self.epoch &+= 1
        self.state = .absent(nil)
        return true
    }

    // MARK: - Failures and ends

    /// Records a refused update: the value is dropped, and calls fail with `error` until ``clearFailures()``.
    ///
    /// Has no effect while a critical error is in force.
    package mutating func recordRefusedUpdate(_ error: RunnerError) {
        if case .critical = self.state { return }
        self.state = .refused(error)
    }

    /// Records a failed update: before `until` and during the pause, only a forced renewal starts an update.
    ///
    /// A refused update or a critical error stays in force.
    ///
    /// - Parameters:
    ///   - error: The error.
    ///   - until: The end of the cool-down.
    ///   - pausing: The failure that determines the pause and the `Retry-After`; `nil` if the error gives no
    ///     information about the server, such as the error of a sign-in.
    ///   - now: The current time.
    package mutating func recordFailure(
        _ error: any Error,
        until: Moment,
        pausing: UpdatePauses.Failure? = nil,
        at now: Moment = .distantPast
    ) {
        let retryAfter = FailurePause.limitedRetryAfter(pausing?.retryAfter)
        let failure = Failure(error: error, until: max(until, now.advanced(by: retryAfter)))
        if let pausing {
            let isGood = self.held.map { !self.wasRefused($0) && now < $0.renewal?.end ?? .distantFuture } ?? false
            self.pauses.recordFailure(pausing, hasGoodValue: isGood, at: now)
        }
        switch self.state {
        case .absent: self.state = .absent(failure)
        case .held(let held, _): self.state = .held(held, failure)
        case .refused, .critical: return
        }
    }

    /// Records a critical error: the value is dropped, and calls fail until ``clearFailures()``.
    package mutating func recordCriticalError(_ critical: RaisedCritical) {
        self.epoch &+= 1
        self.state = .critical(critical)
    }

    /// Records a critical error of a call's task.
    ///
    /// - Returns: `false`, without a change, if the call is of an earlier session or an earlier critical
    ///   error is in force; otherwise `true`.
    package mutating func recordCriticalError(_ critical: RaisedCritical, by call: Call) -> Bool {
        guard call.session == self.session else { return false }
        if case .critical = self.state { return false }
        self.recordCriticalError(critical)
        return true
    }

    /// Clears earlier failures with their pauses, refused updates and critical errors.
    package mutating func clearFailures() {
        self.pauses = UpdatePauses()
        switch self.state {
        case .absent, .refused, .critical: self.state = .absent(nil)
        case .held(let held, _): self.state = .held(held, nil)
        }
    }

    /// Ends the session: drops the value; a running call fails at the next request of the dependency.
    package mutating func endSession(_ end: End) {
        self.epoch &+= 1
        self.session &+= 1
        self.clearFailures()
        self.state = .absent(nil)
        self.replacements = []
        self.refusedEpoch = nil
        self.lastEnd = end
    }

    /// Returns the number of the next event for listeners.
    package mutating func nextEvent() -> UInt64 {
        self.lastEvent &+= 1
        return self.lastEvent
    }

    /// The violated invariants, for tests of the machine; empty without a violation.
    package func brokenInvariants() -> [String] {
        var broken: [String] = []
        if let held {
            if held.epoch != self.epoch { broken.append("the value has an old epoch") }
            if held.session != self.session { broken.append("the value is of an earlier session") }
            if held.revision != self.revision { broken.append("the value has an old revision") }
        }
        if let refusedEpoch {
            if refusedEpoch > self.epoch { broken.append("a future value was refused") }
            if refusedEpoch < self.acceptedEpoch { broken.append("an accepted value does not clear refusals") }
        } else if !self.replacements.isEmpty {
            broken.append("replacements are counted without a refusal")
        }
        if self.acceptedEpoch > self.epoch { broken.append("a future value was accepted") }
        return broken
    }
}

extension DependencyStateMachine {
    /// The state and history of a call.
    @usableFromInline
    package struct Call: Sendable {
        @usableFromInline package let session: UInt64
        @usableFromInline package let startedAt: Moment
        /// The end of the call's time-out; `nil` without a time-out.
        @usableFromInline package var deadline: Moment?
        /// The epoch that the call must not use: the epoch of the last value that the task refused, or of the
        /// value at the start of a forced renewal.
        ///
        /// `nil` without such a value.
        @usableFromInline package var badEpoch: UInt64?
        /// The error of the task's last refusal; `nil` without a refusal, or if the task threw no error.
        @usableFromInline package var lastError: (any Error)?
        /// Whether the call forces an update, even if the value is valid.
        @usableFromInline package var isForced = false
        /// Whether the call needs an update only because the renewal of the value is due.
        ///
        /// `true` even after the end of the value.
        @usableFromInline package fileprivate(set) var isEarly = false
        /// The number of the call's refusals that requested an update.
        package private(set) var updates = 0
        /// As ``updates``, but counted from 0 again after any task has accepted a value newer than the last
        /// refused value.
        package fileprivate(set) var refusals = 0
        /// The epoch of the last counted refusal.
        fileprivate private(set) var countedEpoch: UInt64 = 0

        package init(session: UInt64, startedAt: Moment) {
            self.session = session
            self.startedAt = startedAt
        }

        fileprivate mutating func countRefusal(of epoch: UInt64) {
            self.countedEpoch = epoch
            self.refusals += 1
            self.updates += 1
        }
    }

    /// A dependency with its epochs.
    ///
    /// Immutable, and a class: a call gets a reference instead of a copy.
    @usableFromInline
    package final class VersionedDependency: Sendable {
        @usableFromInline package let value: Dependency
        /// The epoch of the machine at the creation of this value; a successor may have the same epoch.
        @usableFromInline package let epoch: UInt64
        /// The parent's epoch to which this value belongs: the value is invalid if the parent's
        /// ``RunnerEpochs/leastValidEpochForChildren`` is greater.
        ///
        /// 0 without a parent.
        @usableFromInline package let parentEpoch: UInt64
        /// The session of the value.
        package let session: UInt64
        /// Identifies this object: differs between two objects with the same epoch.
        package let revision: UInt64
        /// The times of the early renewal and of the end; `nil` for a value without an early renewal.
        let renewal: EarlyRenewal?
        /// Whether an update found the value, for example in a store, instead of making a new value.
        package let isFound: Bool

        init(
            value: Dependency,
            epoch: UInt64,
            parentEpoch: UInt64,
            session: UInt64,
            revision: UInt64,
            renewal: EarlyRenewal?,
            isFound: Bool
        ) {
            self.value = value
            self.epoch = epoch
            self.parentEpoch = parentEpoch
            self.session = session
            self.revision = revision
            self.renewal = renewal
            self.isFound = isFound
        }
    }

    /// The reason for the end of a session.
    @usableFromInline
    package enum End: Sendable, Equatable {
        /// The runner was reset.
        case reset
        /// The repository signed out.
        case signOut

        var error: RunnerError {
            switch self {
            case .reset: .reset
            case .signOut: .signedOut
            }
        }
    }
}
