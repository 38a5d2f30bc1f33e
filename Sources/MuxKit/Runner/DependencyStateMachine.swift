/// Decides what a call gets: the dependency, an update, or an error.
///
/// Pure; flights are kept beside it.
package struct DependencyStateMachine<Dependency: Sendable>: Sendable {
    /// A dependency with the epochs that tell it from others.
    package struct Held: Sendable {
        /// The value.
        package let value: Dependency
        /// Raised with every change of the value; names it.
        package let epoch: UInt64
        /// The epoch of the parent's value that this one was made with; 0 where there is no parent.
        package let parentEpoch: UInt64
        /// The session in which it was made.
        package let session: UInt64
        /// Raised with every change of the value or of what is known about it.
        package let revision: UInt64
    }

    /// How a session ends.
    package enum End: Sendable, Equatable {
        /// The runner was reset.
        case reset
        /// The owner signed out.
        case signOut

        package var error: RunnerError {
            switch self {
            case .reset: .reset
            case .signOut: .signedOut
            }
        }
    }

    /// What one call has met so far.
    package struct Call: Sendable {
        package let session: UInt64
        package let startedAt: Moment
        /// The epoch of the value that the task refused last.
        package var badEpoch: UInt64?
        /// What the task threw when it refused.
        package var lastError: (any Error)?
        /// How many updates the call has asked for after a refusal.
        package private(set) var updates = 0

        fileprivate mutating func asksForUpdate() { self.updates += 1 }
    }

    /// What a call gets.
    package enum Answer: Sendable {
        /// Run the task with this.
        case use(Held)
        /// End with this.
        case fail(RunnerError)
        /// Wait for an update.
        case update
    }

    private var held: Held?

    /// Raised with every change of the value, also to none.
    package private(set) var epoch: UInt64 = 0

    /// Raised when a session ends.
    package private(set) var session: UInt64 = 0

    /// Raised with every change of the value or of what is known about it.
    private var revision: UInt64 = 0

    /// How the last session ended.
    private var lastEnd = End.reset

    /// Why every call fails until something changes.
    private var refusal: RunnerError?

    package init(_ value: Dependency?) {
        guard let value else { return }
        _ = self.changed(to: value, parentEpoch: 0)
    }

    /// A call begins.
    package func call(at now: Moment) -> Call { Call(session: self.session, startedAt: now) }

    /// The value, unless it was made with a parent's value that has been replaced.
    package func current(parentEpoch: UInt64) -> Held? {
        guard let held, held.parentEpoch >= parentEpoch else { return nil }
        return held
    }

    /// The value that a call may use as things stand; `nil` if it has to ask with ``answer(to:parentEpoch:policy:at:)``.
    package func usable(in call: Call, parentEpoch: UInt64) -> Held? {
        guard call.session == self.session, let held = self.current(parentEpoch: parentEpoch),
            held.epoch != call.badEpoch
        else { return nil }
        return held
    }

    /// A call wants the dependency, and waits for an update if there is to be one.
    package func answer(
        to call: inout Call,
        parentEpoch: UInt64,
        policy: RunnerPolicy,
        at now: Moment
    ) -> Answer {
        guard call.session == self.session else { return .fail(self.lastEnd.error) }
        if let held = self.usable(in: call, parentEpoch: parentEpoch) { return .use(held) }
        if let refusal { return .fail(refusal) }
        guard self.current(parentEpoch: parentEpoch) != nil else { return .update }
        guard call.updates < policy.maximumUpdatesPerCall else {
            let elapsed = now.duration(since: call.startedAt)
            return .fail(.tooManyUpdates(count: call.updates, elapsed: elapsed, underlying: call.lastError))
        }
        call.asksForUpdate()
        return .update
    }

    // MARK: - What happened

    /// An update brought a value, or one was set: the epoch grows, and earlier refusals do not count any more.
    package mutating func changed(to value: Dependency, parentEpoch: UInt64) -> Held {
        self.epoch &+= 1
        self.refusal = nil
        return self.hold(value, parentEpoch: parentEpoch)
    }

    private mutating func hold(_ value: Dependency, parentEpoch: UInt64) -> Held {
        self.revision &+= 1
        let held = Held(
            value: value,
            epoch: self.epoch,
            parentEpoch: parentEpoch,
            session: self.session,
            revision: self.revision
        )
        self.held = held
        return held
    }

    /// The value of `held` was exchanged for one that continues it.
    ///
    /// What was made with the value before is void if `raisesEpoch` says so.
    ///
    /// - Returns: The value with its epochs; `nil`, and nothing has changed, if `held` is not the present one any more.
    package mutating func continued(_ held: Held, with value: Dependency, raisesEpoch: Bool) -> Held? {
        guard let present = self.held, present.epoch == held.epoch, self.session == held.session else { return nil }
        if raisesEpoch { self.epoch &+= 1 }
        return self.hold(value, parentEpoch: held.parentEpoch)
    }

    /// Something became known about the value of `held`; nothing changes if more has become known meanwhile.
    package mutating func noted(_ held: Held, as value: Dependency) {
        guard self.held?.revision == held.revision, self.session == held.session else { return }
        _ = self.hold(value, parentEpoch: held.parentEpoch)
    }

    /// The parent's value was exchanged for one that continues it; a value that was set meanwhile stays good.
    package mutating func parentContinued(epoch parentEpoch: UInt64) {
        guard let held, held.parentEpoch < parentEpoch else { return }
        _ = self.hold(held.value, parentEpoch: parentEpoch)
    }

    /// An update was refused: later calls fail with `error`, and the value that it was to replace is no good.
    package mutating func refused(_ error: RunnerError) {
        self.held = nil
        self.refusal = error
    }

    /// A session ends: the value goes, and calls that are under way end.
    package mutating func ended(_ end: End) {
        self.epoch &+= 1
        self.session &+= 1
        self.held = nil
        self.refusal = nil
        self.lastEnd = end
    }
}
