/// Decides what a call of a runner gets: the dependency, an update, or an error.
///
/// Pure. Who waits for an update, and whether one runs, is the business of the flight engine.
@usableFromInline
package struct DependencyStateMachine<Dependency: Sendable>: Sendable {
    private enum State: Sendable {
        /// There is no value. The failure is that of the last update, if it threw.
        case absent(Failure?)
        /// There is a value. The failure is that of the last attempt to replace it, if it threw.
        case held(VersionedDependency, Failure?)
        /// An update was refused. Every call fails until a value is set, the parent's value is replaced or the session ends.
        case refused(RunnerError)
        /// A critical error was raised. Every call fails, for as long as after a refusal.
        case critical(RaisedCritical)
    }

    /// What an update threw; calls fail with it until the end of the cool-down, and of the pause.
    private struct Failure: Sendable {
        let error: any Error
        let until: Moment
    }

    private var state = State.absent(nil)

    // Independent of the state: epochs and counters, and the refusals, which are counted across values.

    /// Raised with every change of the value, also to none.
    @usableFromInline package private(set) var epoch: UInt64 = 0

    /// Raised when a session ends.
    @usableFromInline package private(set) var session: UInt64 = 0

    /// Raised with every change of the value or of what is known about it.
    private var revision: UInt64 = 0

    /// Numbers the events of the runner.
    private var lastEvent: UInt64 = 0

    /// How the last session ended.
    private var lastEnd = End.reset

    /// The epoch of the value that a task refused last; `nil` once a task has accepted a later one.
    private var refusedEpoch: UInt64?

    /// The epoch of the last value that was accepted after a refusal.
    private var acceptedEpoch: UInt64 = 0

    /// The epoch at which a call last asked for an update.
    private var askedEpoch: UInt64 = 0

    /// When refused values were replaced since the last acceptance; no more than the limit of a window.
    private var replacements: [Moment] = []

    /// In which a server that fails is left alone.
    private var pauses = UpdatePauses()

    package init(_ value: Dependency?, renewal: EarlyRenewal? = nil) {
        guard let value else { return }
        _ = self.changed(to: value, parentEpoch: 0, renewal: renewal)
    }

    // MARK: - Reading

    /// Starts a call.
    package func call(at now: Moment) -> Call { Call(session: self.session, startedAt: now) }

    /// The error with which `call` fails even if there is a value, the gravest first.
    package func standingError(for call: Call) -> (any Error)? {
        if case .critical(let critical) = self.state { return critical }
        guard call.session == self.session else { return self.lastEnd.error }
        if case .refused(let error) = self.state { return error }
        return nil
    }

    private var held: VersionedDependency? {
        switch self.state {
        case .held(let held, _): held
        case .absent, .refused, .critical: nil
        }
    }

    private var failure: Failure? {
        switch self.state {
        case .absent(let failure), .held(_, let failure): failure
        case .refused, .critical: nil
        }
    }

    /// The value, unless it was made with a value of the parent that has been replaced.
    package func current(parentEpoch: UInt64) -> VersionedDependency? {
        guard let held, held.parentEpoch >= parentEpoch else { return nil }
        return held
    }

    /// The value, for a call whose early renewal failed or takes too long, as long as the value has not ended.
    ///
    /// It may have been made with a value of the parent that has been replaced.
    @usableFromInline
    package func fallback(for call: Call, at now: Moment) -> VersionedDependency? {
        guard call.isEarly, self.standingError(for: call) == nil, let held, held.epoch != call.badEpoch,
            held.renewal.map({ now < $0.end }) ?? true
        else { return nil }
        return held
    }

    /// Whether the value is held that replaced a refused one, and no task has accepted it: only then does ``accepted(_:)`` change
    /// anything.
    package var isUnproven: Bool {
        guard let refusedEpoch, let held else { return false }
        return held.epoch != refusedEpoch
    }

    /// Whether a task has refused this value.
    package func wasRefused(_ held: VersionedDependency) -> Bool { self.refusedEpoch == held.epoch }

    /// Whether an update that began at `epoch` of `session` may still change the value though it took too long.
    package func isUnchanged(since epoch: UInt64, of session: UInt64) -> Bool {
        guard self.epoch == epoch, self.session == session else { return false }
        switch self.state {
        case .absent, .held: return true
        case .refused, .critical: return false
        }
    }

    // MARK: - Calls

    /// What a call does next.
    @usableFromInline
    package enum RequestAction: Sendable {
        /// Run the task with this value.
        case use(VersionedDependency)
        /// Fail with this error.
        case fail(any Error)
        /// Wait for an update.
        case update
    }

    /// A call asked for the dependency.
    @usableFromInline
    package mutating func requested(
        by call: inout Call,
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
            if let error = self.excess(of: call, policy: policy, at: now) { return .fail(error) }
            self.refusedEpoch = current.epoch
            call.countRefusal(of: current.epoch)
        }
        self.askedEpoch = self.epoch
        return .update
    }

    /// Whether an update that is about to begin is still needed: no value has come since a call last asked for an update.
    ///
    /// A value that has come since, such as that of an update that timed out, was not refused by any caller, and is not to be replaced.
    package func needsUpdate(parentEpoch: UInt64) -> Bool {
        guard let current = self.current(parentEpoch: parentEpoch) else { return true }
        return current.epoch <= self.askedEpoch
    }

    /// The error of a call that asked for too many updates; `nil` if it may have another one.
    private mutating func excess(of call: Call, policy: RunnerPolicy, at now: Moment) -> RunnerError? {
        // The second limit holds whatever is accepted in between: it stops a task that refuses what all others accept.
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

    /// A task accepted the value of `epoch`: refusals of earlier values do not count any more.
    package mutating func accepted(_ epoch: UInt64) {
        guard self.isUnproven, epoch == self.held?.epoch else { return }
        self.refusedEpoch = nil
        self.acceptedEpoch = epoch
        self.replacements = []
    }

    // MARK: - Values

    /// A value was set: the epoch grows, and earlier failures do not count any more.
    package mutating func changed(
        to value: Dependency,
        parentEpoch: UInt64,
        renewal: EarlyRenewal? = nil,
        isFound: Bool = false
    ) -> VersionedDependency {
        self.epoch &+= 1
        self.failuresCleared()
        return self.hold(value, parentEpoch: parentEpoch, renewal: renewal, isFound: isFound)
    }

    /// An update brought a value.
    package mutating func updated(
        to value: Dependency,
        parentEpoch: UInt64,
        renewal: EarlyRenewal?,
        isFound: Bool,
        at now: Moment,
        policy: RunnerPolicy
    ) -> VersionedDependency {
        if let held, self.wasRefused(held), let limit = policy.maximumUpdatesPerWindow {
            self.replacements = self.replacements.suffix(max(limit, 1) - 1) + [now]
        }
        return self.changed(to: value, parentEpoch: parentEpoch, renewal: renewal, isFound: isFound)
    }

    private mutating func hold(
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

    /// The value of `held` was exchanged for one that continues it, such as a rotated refresh token.
    ///
    /// - Parameters:
    ///   - held: The value that was exchanged.
    ///   - value: The value that continues it.
    ///   - raisesEpoch: Whether what was made with the former value is void.
    /// - Returns: The new value; `nil`, with no change, if `held` had been replaced.
    package mutating func continued(_ held: VersionedDependency, with value: Dependency, raisesEpoch: Bool)
        -> VersionedDependency?
    {
        guard self.held?.epoch == held.epoch, self.session == held.session else { return nil }
        if raisesEpoch { self.epoch &+= 1 }
        return self.hold(value, parentEpoch: held.parentEpoch, renewal: nil, isFound: false)
    }

    /// The value of `held` is the same, and more is known about it.
    ///
    /// - Returns: The value; `nil`, with no change, if `held` is not of the present revision.
    package mutating func noted(_ held: VersionedDependency, as value: Dependency) -> VersionedDependency? {
        guard self.held?.revision == held.revision, self.session == held.session else { return nil }
        return self.hold(value, parentEpoch: held.parentEpoch, renewal: held.renewal, isFound: held.isFound)
    }

    /// The parent's value was exchanged for one that continues it: a value made with it, or set since, stays good.
    package mutating func parentContinued(from former: UInt64, to parentEpoch: UInt64) {
        guard let held, held.parentEpoch >= former, held.parentEpoch < parentEpoch else { return }
        _ = self.hold(held.value, parentEpoch: parentEpoch, renewal: held.renewal, isFound: held.isFound)
    }

    /// The parent's value was replaced: a value made with the former one is void, and so is what a running update brings.
    ///
    /// The epoch grows, so that a running update which brings a value late finds that something has changed. Earlier failures do
    /// not count any more.
    ///
    /// - Returns: Whether running updates are to be dropped. `false` if a value was set, or made with the parent's new value,
    ///   since that came: the running updates were started to replace it.
    package mutating func parentReplaced(parentEpoch: UInt64) -> Bool {
        guard self.current(parentEpoch: parentEpoch) == nil else {
            self.failuresCleared()
            return false
        }
        self.epoch &+= 1
        self.failuresCleared()
        self.state = .absent(nil)
        return true
    }

    // MARK: - Failures and ends

    /// An update was refused: the value that it was to replace is dropped, and later calls fail with `error`.
    package mutating func refused(_ error: RunnerError) {
        switch self.state {
        case .absent, .held, .refused: self.state = .refused(error)
        case .critical: return
        }
    }

    /// An update threw; it is not tried again before `until`, and not during the pause.
    ///
    /// - Parameters:
    ///   - error: The error.
    ///   - until: The end of the cool-down.
    ///   - pausing: The pause; `nil` if the error says nothing about the server, such as that of a sign-in.
    ///   - now: The time.
    package mutating func failed(
        _ error: any Error,
        until: Moment,
        pausing: UpdatePauses.Failure? = nil,
        at now: Moment = .distantPast
    ) {
        let retryAfter = FailurePause.obeyed(pausing?.retryAfter)
        let failure = Failure(error: error, until: max(until, now.advanced(by: retryAfter)))
        if let pausing {
            let isGood = self.held.map { !self.wasRefused($0) && now < $0.renewal?.end ?? .distantFuture } ?? false
            self.pauses.failed(pausing, hasGoodValue: isGood, at: now)
        }
        switch self.state {
        case .absent: self.state = .absent(failure)
        case .held(let held, _): self.state = .held(held, failure)
        case .refused, .critical: return
        }
    }

    /// A critical error was raised: the value is dropped, and no call succeeds.
    package mutating func raised(_ critical: RaisedCritical) {
        self.epoch &+= 1
        self.state = .critical(critical)
    }

    /// A critical error was raised by the task of a call.
    ///
    /// - Returns: `false`, with no change, if the call is of an earlier session or a critical error was raised already.
    package mutating func raised(_ critical: RaisedCritical, by call: Call) -> Bool {
        guard call.session == self.session else { return false }
        switch self.state {
        case .absent, .held, .refused:
            self.raised(critical)
            return true
        case .critical: return false
        }
    }

    /// Earlier failures do not count any more, such as when the parent's value was replaced.
    package mutating func failuresCleared() {
        self.pauses = UpdatePauses()
        switch self.state {
        case .absent, .refused, .critical: self.state = .absent(nil)
        case .held(let held, _): self.state = .held(held, nil)
        }
    }

    /// A session ended: the value is dropped, and calls that are under way fail.
    package mutating func ended(_ end: End) {
        self.epoch &+= 1
        self.session &+= 1
        self.failuresCleared()
        self.state = .absent(nil)
        self.replacements = []
        self.refusedEpoch = nil
        self.lastEnd = end
    }

    /// An event is to be reported to observers.
    ///
    /// - Returns: Its number.
    package mutating func nextEvent() -> UInt64 {
        self.lastEvent &+= 1
        return self.lastEvent
    }

    /// What contradicts itself, for tests of the machine; empty if nothing does.
    package func brokenInvariants() -> [String] {
        var broken: [String] = []
        if let held {
            if held.epoch != self.epoch { broken.append("the value has an old epoch") }
            if held.session != self.session { broken.append("the value is of an earlier session") }
            if held.revision != self.revision { broken.append("the value has an old revision") }
        }
        if let refusedEpoch {
            if refusedEpoch > self.epoch { broken.append("a value to come was refused") }
            if refusedEpoch < self.acceptedEpoch { broken.append("an accepted value does not clear refusals") }
        } else if !self.replacements.isEmpty {
            broken.append("replacements are counted without a refusal")
        }
        if self.acceptedEpoch > self.epoch { broken.append("a value to come was accepted") }
        return broken
    }
}

extension DependencyStateMachine {
    /// What one call has met so far.
    @usableFromInline
    package struct Call: Sendable {
        @usableFromInline package let session: UInt64
        @usableFromInline package let startedAt: Moment
        /// When the call gives up; `nil` for never.
        @usableFromInline package var deadline: Moment?
        /// The epoch of the value that the task refused last, or that the call wants replaced.
        @usableFromInline package var badEpoch: UInt64?
        /// What the task threw when it refused.
        @usableFromInline package var lastError: (any Error)?
        /// Whether the call wants an update even if the value is good.
        @usableFromInline package var isForced = false
        /// Whether the call asked for an update only because the value ends soon.
        @usableFromInline package fileprivate(set) var isEarly = false
        /// How many updates the call has asked for after a refusal.
        package private(set) var updates = 0
        /// How many of them since a task, of any call, accepted a value.
        package fileprivate(set) var refusals = 0
        /// The epoch of the value whose refusal was counted last.
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
    /// Immutable, and an object: a hit hands out a reference instead of a copy.
    @usableFromInline
    package final class VersionedDependency: Sendable {
        @usableFromInline package let value: Dependency
        /// Identifies the value.
        @usableFromInline package let epoch: UInt64
        /// The epoch of the parent's value that this one was made with; 0 without a parent.
        @usableFromInline package let parentEpoch: UInt64
        /// The session in which it was made.
        package let session: UInt64
        /// Identifies the value and what is known about it.
        package let revision: UInt64
        /// When it is renewed, and ends; `nil` if its end is not known.
        let renewal: EarlyRenewal?
        /// Whether an update found it ready instead of making it.
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

    /// How a session ends.
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
