public import Synchronization

/// What the flight engine's lock guards for a runner: the machine, and what a hit and the layers below read of it.
@usableFromInline
package struct RunnerState<Dependency: Sendable>: Sendable {
    @usableFromInline package typealias Machine = DependencyStateMachine<Dependency>

    /// The machine; a change through this property is published.
    package var machine: Machine {
        _read { yield self.storedMachine }
        _modify {
            defer { self.publish() }
            yield &self.storedMachine
        }
    }
    private var storedMachine: Machine
    /// The dependency for a call that begins now; `nil` if the call has to ask the machine.
    @usableFromInline package private(set) var ready: ReadyDependency<Dependency>?
    private let epochs: RunnerEpochs

    package init(_ machine: Machine, _ epochs: RunnerEpochs) {
        self.storedMachine = machine
        self.epochs = epochs
        self.publish()
    }

    /// Asks the machine for a call.
    ///
    /// A refusal need not be published: the value then counts as unproven, at most, for too long.
    @usableFromInline
    package mutating func requested(
        by call: inout Machine.Call,
        parentEpoch: UInt64,
        policy: RunnerPolicy,
        at now: Moment
    ) -> Machine.RequestAction {
        self.storedMachine.requested(by: &call, parentEpoch: parentEpoch, policy: policy, at: now)
    }

    /// Until when `call` waits at most for an early renewal; `nil` for as long as the update takes.
    @usableFromInline
    package func waitLimit(of call: Machine.Call, at now: Moment) -> Moment? {
        self.storedMachine.fallback(for: call, at: now)?.renewal?.waitLimit(at: now)
    }

    /// The outcome of `call` when its wait has lasted long enough; `nil` if it has to wait on.
    @usableFromInline
    func outcome(of call: Machine.Call, orElse timeout: any Error, at now: Moment)
        -> Result<Machine.VersionedDependency, any Error>?
    {
        if let fallback = self.storedMachine.fallback(for: call, at: now) { return .success(fallback) }
        return call.deadline.map { now >= $0 } ?? false ? .failure(timeout) : nil
    }

    /// A task accepted the value of `epoch`.
    package mutating func accepted(_ epoch: UInt64) {
        if self.storedMachine.isUnproven { self.machine.accepted(epoch) }
    }

    private mutating func publish() {
        // The parent's epoch is under another lock: readers of the value compare it.
        let held = self.storedMachine.current(parentEpoch: 0)
        let isUnproven = self.storedMachine.isUnproven
        self.ready = held.map { ReadyDependency($0, isUnproven: isUnproven) }
        self.epochs.changed(epoch: self.storedMachine.epoch, heldParentEpoch: held?.parentEpoch)
    }
}

/// A copy of the dependency for the hit path.
@usableFromInline
package struct ReadyDependency<Dependency: Sendable>: Sendable {
    @usableFromInline package let value: Dependency
    /// The epoch of the parent's value that this one was made with.
    @usableFromInline let parentEpoch: UInt64
    /// Until when it need not be renewed, even by a coarse clock that is late.
    @usableFromInline let until: Moment
    @usableFromInline let epoch: UInt64
    let session: UInt64
    /// Whether it replaced a refused one and no task has accepted it yet, so that an acceptance is to be noted.
    @usableFromInline let isUnproven: Bool

    init(_ held: DependencyStateMachine<Dependency>.VersionedDependency, isUnproven: Bool) {
        self.value = held.value
        self.parentEpoch = held.parentEpoch
        self.until = held.renewal?.start.advanced(by: .zero - CoarseClock.lateness) ?? .distantFuture
        self.epoch = held.epoch
        self.session = held.session
        self.isUnproven = isUnproven
    }
}

/// The epochs of a layer, which the layers below read without its lock.
@usableFromInline
package final class RunnerEpochs: Sendable {
    /// The epoch of the layer's value.
    @usableFromInline let own = Atomic<UInt64>(0)
    /// The same, and the epoch of the parent's value that the value was made with; `nil` if there is no value.
    private let withParent = Locked<(own: UInt64, heldParent: UInt64?)>((0, nil))
    /// The layer above; `nil` if this is the uppermost.
    @usableFromInline let parent: RunnerEpochs?

    package init(parent: RunnerEpochs?) { self.parent = parent }

    /// Publishes a change of the layer's value, or of what it was made with; called under the layer's lock.
    func changed(epoch: UInt64, heldParentEpoch: UInt64?) {
        self.own.store(epoch, ordering: .sequentiallyConsistent)
        if self.parent != nil { self.withParent.withLock { $0 = (epoch, heldParentEpoch) } }
    }

    /// The least epoch that a child's value may have been made with.
    @inlinable
    package var forChildren: UInt64 {
        guard let parent = self.parent else { return self.own.load(ordering: .sequentiallyConsistent) }
        return self.forChildren(parentEpoch: parent.forChildren)
    }

    /// The same for a layer that has a parent: the next epoch if the parent's value was replaced, which voids the layer's own.
    @usableFromInline
    func forChildren(parentEpoch: UInt64) -> UInt64 {
        self.withParent.withLock { $0.heldParent.map { $0 < parentEpoch } ?? false ? $0.own &+ 1 : $0.own }
    }
}
