/// What the flight engine's lock guards for a runner: the machine, and beside it what is read most.
@usableFromInline
package struct RunnerState<Dependency: Sendable>: Sendable {
    package var machine: DependencyStateMachine<Dependency> {
        get { self.quiet }
        _modify {
            defer { self.publish() }
            yield &self.quiet
        }
    }
    @usableFromInline var quiet: DependencyStateMachine<Dependency>
    /// The dependency as a call that begins now can use it; `nil` if the machine has to be asked.
    @usableFromInline package private(set) var ready: ReadyDependency<Dependency>?
    private let epochs: RunnerEpochs

    package init(_ machine: DependencyStateMachine<Dependency>, _ epochs: RunnerEpochs) {
        self.quiet = machine
        self.epochs = epochs
        self.publish()
    }

    /// Raised when a session ends.
    package var session: UInt64 { self.quiet.session }

    /// The value, unless it was made with a parent's value that has been replaced.
    package func current(parentEpoch: UInt64) -> DependencyStateMachine<Dependency>.Held? {
        self.quiet.current(parentEpoch: parentEpoch)
    }

    /// The present value, if that is better than none for a call that waited for an early renewal.
    @usableFromInline
    func early(
        for call: DependencyStateMachine<Dependency>.Call,
        at now: Moment
    ) -> DependencyStateMachine<Dependency>.Held? {
        self.quiet.early(for: call, at: now)
    }

    /// Answers a call, which changes nothing of what is published.
    @inlinable
    package mutating func answer(
        to call: inout DependencyStateMachine<Dependency>.Call,
        parentEpoch: UInt64,
        policy: RunnerPolicy,
        at now: Moment
    ) -> DependencyStateMachine<Dependency>.Answer {
        self.quiet.answer(to: &call, parentEpoch: parentEpoch, policy: policy, at: now)
    }

    private mutating func publish() {
        // The parent's epoch is another lock's: whoever takes the value compares it.
        let held = self.quiet.current(parentEpoch: 0)
        self.ready = held.map(ReadyDependency.init)
        self.epochs.changed(epoch: self.quiet.epoch, heldParentEpoch: held?.parentEpoch)
    }
}

/// A dependency, as a hit reads it.
@usableFromInline
package struct ReadyDependency<Dependency: Sendable>: Sendable {
    @usableFromInline package let value: Dependency
    /// The epoch of the parent's value that this one was made with.
    @usableFromInline let parentEpoch: UInt64
    /// Until when it is certain that it need not be renewed, even by a clock that is a little late.
    @usableFromInline let until: Moment
    let epoch: UInt64
    let session: UInt64

    init(_ held: DependencyStateMachine<Dependency>.Held) {
        self.value = held.value
        self.parentEpoch = held.parentEpoch
        self.until = held.expiry?.renewal.advanced(by: .zero - HitClock.lateness) ?? .distantFuture
        self.epoch = held.epoch
        self.session = held.session
    }
}
