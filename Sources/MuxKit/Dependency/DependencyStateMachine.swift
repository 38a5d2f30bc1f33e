/// Decides what a call gets: the dependency, an update, or an error.
///
/// Pure; flights are kept beside it.
@usableFromInline
package struct DependencyStateMachine<Dependency: Sendable>: Sendable {
    /// What one call has met so far.
    @usableFromInline
    package struct Call: Sendable {
        @usableFromInline package let session: UInt64
        @usableFromInline package let startedAt: Moment
        /// When the call gives up.
        @usableFromInline package var deadline: Moment?
        /// The epoch of the value that the task refused last, or that the call wants replaced.
        @usableFromInline package var badEpoch: UInt64?
        /// What the task threw when it refused.
        @usableFromInline package var lastError: (any Error)?
        /// Whether the call wants an update in any case.
        @usableFromInline package var isForced = false
        /// Whether the call asked for an update only because the value ends soon.
        @usableFromInline package internal(set) var isEarly = false
        /// How many updates the call has asked for after a refusal.
        @usableFromInline package internal(set) var updates = 0
        /// How many of them since a task accepted a value.
        @usableFromInline package internal(set) var refusals = 0
        /// The epoch of the value whose refusal was counted last.
        @usableFromInline var countedEpoch: UInt64 = 0

        package init(session: UInt64, startedAt: Moment) {
            self.session = session
            self.startedAt = startedAt
        }
    }

    @usableFromInline var held: VersionedDependency?

    /// Raised with every change of the value, also to none.
    @usableFromInline package private(set) var epoch: UInt64 = 0

    /// Raised when a session ends.
    @usableFromInline package private(set) var session: UInt64 = 0

    /// Raised with every change of the value or of what is known about it.
    private var revision: UInt64 = 0

    /// How the last session ended.
    @usableFromInline var lastEnd = End.reset

    /// Why every call fails until something changes.
    @usableFromInline var refusal: RunnerError?

    /// Why every call fails until the runner is reset or a value is set.
    @usableFromInline var critical: RaisedCritical?

    /// What the last update threw, and until when it is not tried again.
    @usableFromInline var failure: (error: any Error, until: Moment)?

    /// The value that a task refused last.
    @usableFromInline var refusedEpoch: UInt64?

    /// When refused values were replaced since a task accepted one: as many as a window may have.
    @usableFromInline var replacements: [Moment] = []

    /// Whether a value was refused, and no other has been accepted since: only then is an acceptance worth noting.
    @usableFromInline package private(set) var isUnproven = false

    /// The epoch of the value whose acceptance was noted last.
    @usableFromInline package private(set) var acceptedEpoch: UInt64 = 0

    /// Counts what is told to those who watch the runner.
    private var lastEvent: UInt64 = 0

    package init(_ value: Dependency?, expiry: Expiry? = nil) {
        guard let value else { return }
        _ = self.changed(to: value, parentEpoch: 0, expiry: expiry)
    }

    /// The number of the next thing that is told to those who watch.
    package mutating func nextEvent() -> UInt64 {
        self.lastEvent &+= 1
        return self.lastEvent
    }

    /// A call begins.
    package func call(at now: Moment) -> Call { Call(session: self.session, startedAt: now) }

    /// Why `call` fails whatever else may be wrong, the gravest first.
    package func standing(_ call: Call) -> (any Error)? {
        if let critical { return critical }
        if call.session != self.session { return self.lastEnd.error }
        return self.refusal
    }

    /// The value, unless it was made with a parent's value that has been replaced.
    @inlinable
    package func current(parentEpoch: UInt64) -> VersionedDependency? {
        guard let held, held.parentEpoch >= parentEpoch else { return nil }
        return held
    }

    /// The value that a call may use as things stand; `nil` if it has to ask with ``answer(to:parentEpoch:policy:at:)``.
    @inlinable
    package func usable(in call: Call, parentEpoch: UInt64, at now: Moment) -> VersionedDependency? {
        guard call.session == self.session, let held = self.current(parentEpoch: parentEpoch),
            held.epoch != call.badEpoch
        else { return nil }
        if let expiry = held.expiry, now >= expiry.renewal { return nil }
        return held
    }

    /// The present value, if it is good and `call` waited only because the one of then was to be renewed early.
    ///
    /// It may have been made with a parent's value that has been replaced.
    package func early(for call: Call, at now: Moment) -> VersionedDependency? {
        guard call.isEarly, self.standing(call) == nil, let held, held.epoch != call.badEpoch,
            held.expiry.map({ now < $0.end }) ?? true
        else { return nil }
        return held
    }

    /// Whether a task has refused this value.
    package func wasRefused(_ held: VersionedDependency) -> Bool { self.refusedEpoch == held.epoch }

    /// A call wants the dependency, and waits for an update if there is to be one.
    @inlinable
    package mutating func answer(
        to call: inout Call,
        parentEpoch: UInt64,
        policy: RunnerPolicy,
        at now: Moment
    ) -> Answer {
        call.isEarly = false
        if let critical { return .fail(critical) }
        guard call.session == self.session else { return .fail(self.lastEnd.error) }
        if let held = self.usable(in: call, parentEpoch: parentEpoch, at: now) { return .use(held) }
        if let refusal { return .fail(refusal) }
        let current = self.current(parentEpoch: parentEpoch)
        call.isEarly = current.map { $0.epoch != call.badEpoch } ?? false
        if let failure, now < failure.until, !call.isForced { return .fail(failure.error) }
        guard let current, !call.isEarly, !call.isForced else { return .update }
        if self.acceptedEpoch > call.countedEpoch { call.refusals = 0 }
        if let error = self.excess(of: call, policy: policy, at: now) { return .fail(error) }
        self.notesRefusal(of: current.epoch, by: &call)
        return .update
    }

    /// A value was refused and is to be replaced.
    @usableFromInline
    mutating func notesRefusal(of epoch: UInt64, by call: inout Call) {
        self.refusedEpoch = epoch
        self.isUnproven = true
        call.countedEpoch = epoch
        call.refusals += 1
        call.updates += 1
    }

    /// Whether ``accepted(_:)`` has something to note.
    func notesAcceptance(of epoch: UInt64) -> Bool {
        self.isUnproven && epoch == self.held?.epoch && epoch != self.refusedEpoch
    }

    /// A task accepted the value of `epoch`: refusals of earlier ones were not for nothing, and do not count any more.
    package mutating func accepted(_ epoch: UInt64) {
        guard self.notesAcceptance(of: epoch) else { return }
        self.isUnproven = false
        self.acceptedEpoch = epoch
        self.replacements = []
    }

    /// Why there is to be no update for a call that has refused the value, if there were too many.
    @usableFromInline
    mutating func excess(of call: Call, policy: RunnerPolicy, at now: Moment) -> RunnerError? {
        // However many succeed in between: a task that refuses what all others accept must not keep on asking.
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

    // MARK: - What happened

    /// A value was set: the epoch grows, and earlier failures do not count any more.
    package mutating func changed(
        to value: Dependency,
        parentEpoch: UInt64,
        expiry: Expiry?,
        isFound: Bool = false
    ) -> VersionedDependency {
        self.epoch &+= 1
        self.forgetFailures()
        return self.hold(value, parentEpoch: parentEpoch, expiry: expiry, isFound: isFound)
    }

    /// An update brought a value.
    package mutating func updated(
        to value: Dependency,
        parentEpoch: UInt64,
        expiry: Expiry?,
        isFound: Bool = false,
        at now: Moment,
        policy: RunnerPolicy
    ) -> VersionedDependency {
        if let held, held.epoch == self.refusedEpoch, let limit = policy.maximumUpdatesPerWindow {
            self.replacements = self.replacements.suffix(max(limit, 1) - 1) + [now]
        }
        return self.changed(to: value, parentEpoch: parentEpoch, expiry: expiry, isFound: isFound)
    }

    /// Whether what an update brings that took too long may be kept: nothing has changed since it began.
    package func isAsItWas(_ epoch: UInt64, in session: UInt64) -> Bool {
        self.epoch == epoch && self.session == session && self.refusal == nil && self.critical == nil
    }

    private mutating func hold(
        _ value: Dependency,
        parentEpoch: UInt64,
        expiry: Expiry?,
        isFound: Bool = false
    ) -> VersionedDependency {
        self.revision &+= 1
        let held = VersionedDependency(
            value: value,
            epoch: self.epoch,
            parentEpoch: parentEpoch,
            session: self.session,
            revision: self.revision,
            expiry: expiry,
            isFound: isFound
        )
        self.held = held
        return held
    }

    /// The value of `held` was exchanged for one that continues it.
    ///
    /// What was made with the value before is void if `raisesEpoch` says so.
    ///
    /// - Returns: The value with its epochs; `nil`, and nothing has changed, if `held` is not the present one any more.
    package mutating func continued(_ held: VersionedDependency, with value: Dependency, raisesEpoch: Bool)
        -> VersionedDependency?
    {
        guard let present = self.held, present.epoch == held.epoch, self.session == held.session else { return nil }
        if raisesEpoch { self.epoch &+= 1 }
        return self.hold(value, parentEpoch: held.parentEpoch, expiry: nil)
    }

    /// Something became known about the value of `held`.
    ///
    /// - Returns: The value with its epochs; `nil`, and nothing has changed, if more has become known meanwhile.
    package mutating func noted(_ held: VersionedDependency, as value: Dependency) -> VersionedDependency? {
        guard self.held?.revision == held.revision, self.session == held.session else { return nil }
        return self.hold(value, parentEpoch: held.parentEpoch, expiry: held.expiry, isFound: held.isFound)
    }

    /// The parent's value was exchanged for one that continues it; a value that was set meanwhile stays good.
    package mutating func parentContinued(from former: UInt64, to parentEpoch: UInt64) {
        guard let held, held.parentEpoch >= former, held.parentEpoch < parentEpoch else { return }
        _ = self.hold(held.value, parentEpoch: parentEpoch, expiry: held.expiry, isFound: held.isFound)
    }

    /// An update was refused: later calls fail with `error`, and the value that it was to replace is no good.
    package mutating func refused(_ error: RunnerError) {
        self.held = nil
        self.refusal = error
    }

    /// An update failed in a way that may pass; it is not tried again before `until`.
    package mutating func failed(_ error: any Error, until: Moment) {
        self.failure = (error, until)
    }

    /// Something happened after which no call can succeed.
    package mutating func raised(_ critical: RaisedCritical) {
        self.epoch &+= 1
        self.held = nil
        self.critical = critical
    }

    /// Something happened in the task of a call after which no call can succeed.
    ///
    /// - Returns: Whether it counts: an old session's trouble, or a second one, is nobody else's, and nothing has changed.
    package mutating func raised(_ critical: RaisedCritical, by call: Call) -> Bool {
        guard self.critical == nil, call.session == self.session else { return false }
        self.raised(critical)
        return true
    }

    /// The parent's value was replaced by one that does not continue it: earlier failures do not count any more.
    package mutating func forgetFailures() {
        self.refusal = nil
        self.critical = nil
        self.failure = nil
    }

    /// A session ends: the value goes, and calls that are under way end.
    package mutating func ended(_ end: End) {
        self.epoch &+= 1
        self.session &+= 1
        self.held = nil
        self.forgetFailures()
        self.replacements = []
        self.isUnproven = false
        self.lastEnd = end
    }
}

extension DependencyStateMachine {
    /// When a value turns bad by itself.
    @usableFromInline
    package struct Expiry: Sendable {
        /// From when on it is renewed before it is used.
        @usableFromInline package let renewal: Moment
        /// From when on it is no good.
        package let end: Moment

        package init(renewal: Moment, end: Moment) {
            self.renewal = renewal
            self.end = end
        }
    }

    /// A dependency with the epochs that tell it from others.
    ///
    /// An object that never changes: it is made once, and handed to all who use it.
    @usableFromInline
    package final class VersionedDependency: Sendable {
        /// The value.
        @usableFromInline package let value: Dependency
        /// Raised with every change of the value; names it.
        @usableFromInline package let epoch: UInt64
        /// The epoch of the parent's value that this one was made with; 0 where there is no parent.
        @usableFromInline package let parentEpoch: UInt64
        /// The session in which it was made.
        package let session: UInt64
        /// Raised with every change of the value or of what is known about it.
        package let revision: UInt64
        /// When it turns bad by itself; `nil` if nobody knows.
        @usableFromInline package let expiry: Expiry?
        /// Whether an update found it ready, and did not make it.
        package let isFound: Bool

        init(
            value: Dependency,
            epoch: UInt64,
            parentEpoch: UInt64,
            session: UInt64,
            revision: UInt64,
            expiry: Expiry?,
            isFound: Bool
        ) {
            self.value = value
            self.epoch = epoch
            self.parentEpoch = parentEpoch
            self.session = session
            self.revision = revision
            self.expiry = expiry
            self.isFound = isFound
        }
    }

    /// How a session ends.
    @usableFromInline
    package enum End: Sendable, Equatable {
        /// The runner was reset.
        case reset
        /// The owner signed out.
        case signOut

        @usableFromInline package var error: RunnerError {
            switch self {
            case .reset: .reset
            case .signOut: .signedOut
            }
        }
    }

    /// What a call gets.
    @usableFromInline
    package enum Answer: Sendable {
        /// Run the task with this.
        case use(VersionedDependency)
        /// End with this.
        case fail(any Error)
        /// Wait for an update.
        case update
    }
}
