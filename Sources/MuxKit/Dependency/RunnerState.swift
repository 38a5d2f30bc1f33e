public import Synchronization

/// What the flight engine's lock guards for a runner: the machine, and beside it what is read most.
@usableFromInline
package struct RunnerState<Dependency: Sendable>: Sendable {
    package var machine: DependencyStateMachine<Dependency> {
        get { self.machineWithoutEpochs }
        _modify {
            defer { self.publish() }
            yield &self.machineWithoutEpochs
        }
    }
    @usableFromInline var machineWithoutEpochs: DependencyStateMachine<Dependency>
    /// The dependency as a call that begins now can use it; `nil` if the machine has to be asked.
    @usableFromInline package private(set) var ready: ReadyDependency<Dependency>?
    private let epochs: RunnerEpochs

    package init(_ machine: DependencyStateMachine<Dependency>, _ epochs: RunnerEpochs) {
        self.machineWithoutEpochs = machine
        self.epochs = epochs
        self.publish()
    }

    /// Raised when a session ends.
    package var session: UInt64 { self.machineWithoutEpochs.session }

    /// The value, unless it was made with a parent's value that has been replaced.
    package func current(parentEpoch: UInt64) -> DependencyStateMachine<Dependency>.VersionedDependency? {
        self.machineWithoutEpochs.current(parentEpoch: parentEpoch)
    }

    /// The present value, if that is better than none for a call that waited for an early renewal.
    @usableFromInline
    func early(
        for call: DependencyStateMachine<Dependency>.Call,
        at now: Moment
    ) -> DependencyStateMachine<Dependency>.VersionedDependency? {
        self.machineWithoutEpochs.early(for: call, at: now)
    }

    /// Until when a call waits at most for an early renewal: half of what the present value has left.
    ///
    /// The other half is for its task. A renewal that takes longer is as good as one that failed.
    @usableFromInline
    func waitLimit(of call: DependencyStateMachine<Dependency>.Call, at now: Moment) -> Moment? {
        guard let expiry = self.early(for: call, at: now)?.expiry, expiry.end < .distantFuture else { return nil }
        return now.advanced(by: expiry.end.duration(since: now) / 2)
    }

    /// Answers a call, which changes nothing of what is published.
    @inlinable
    package mutating func answer(
        to call: inout DependencyStateMachine<Dependency>.Call,
        parentEpoch: UInt64,
        policy: RunnerPolicy,
        at now: Moment
    ) -> DependencyStateMachine<Dependency>.Answer {
        self.machineWithoutEpochs.answer(to: &call, parentEpoch: parentEpoch, policy: policy, at: now)
    }

    /// Notes that a task accepted the value of `epoch`, if that is worth it.
    package mutating func accepted(_ epoch: UInt64) {
        guard self.machineWithoutEpochs.notesAcceptance(of: epoch) else { return }
        self.machine.accepted(epoch)
    }

    private mutating func publish() {
        // The parent's epoch is another lock's: whoever takes the value compares it.
        let held = self.machineWithoutEpochs.current(parentEpoch: 0)
        let isUnproven = self.machineWithoutEpochs.isUnproven
        self.ready = held.map { ReadyDependency($0, isUnproven: isUnproven) }
        self.epochs.changed(epoch: self.machineWithoutEpochs.epoch, heldParentEpoch: held?.parentEpoch)
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
    @usableFromInline let epoch: UInt64
    let session: UInt64
    /// Whether its acceptance is to be noted: it replaced a refused one, and no task has accepted it yet.
    @usableFromInline let isUnproven: Bool

    init(_ held: DependencyStateMachine<Dependency>.VersionedDependency, isUnproven: Bool) {
        self.value = held.value
        self.parentEpoch = held.parentEpoch
        self.until = held.expiry?.renewal.advanced(by: .zero - CoarseClock.lateness) ?? .distantFuture
        self.epoch = held.epoch
        self.session = held.session
        self.isUnproven = isUnproven
    }
}

/// The epochs of a layer, for the layers below it to read without a look at its state.
@usableFromInline
package final class RunnerEpochs: Sendable {
    /// The epoch of the layer's value.
    @usableFromInline let own = Atomic<UInt64>(0)
    /// The same, with the epoch of the parent's value that the value was made with; `nil` if there is no value.
    private let withParent = Locked<(own: UInt64, heldParent: UInt64?)>((0, nil))
    /// The layer above; `nil` if this is the uppermost.
    @usableFromInline let parent: RunnerEpochs?

    package init(parent: RunnerEpochs?) { self.parent = parent }

    /// The layer's value has changed, or what it was made with; called under the layer's lock.
    func changed(epoch: UInt64, heldParentEpoch: UInt64?) {
        self.own.store(epoch, ordering: .sequentiallyConsistent)
        if self.parent != nil { self.withParent.withLock { $0 = (epoch, heldParentEpoch) } }
    }

    /// The epoch that a child's value must not be older than.
    @inlinable
    package var forChildren: UInt64 {
        guard let parent = self.parent else { return self.own.load(ordering: .sequentiallyConsistent) }
        return self.forChildren(parentEpoch: parent.forChildren)
    }

    /// The same, in a layer that has a parent: an epoch that is yet to come, if the layer's own value is void.
    @usableFromInline
    func forChildren(parentEpoch: UInt64) -> UInt64 {
        self.withParent.withLock { $0.heldParent.map { $0 < parentEpoch } ?? false ? $0.own &+ 1 : $0.own }
    }
}
