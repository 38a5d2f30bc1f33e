public import Synchronization

/// The state of a runner under the flight engine's lock: the machine, and the parts of the machine that the
/// fast path and the child runners read.
@usableFromInline
package struct RunnerState<Dependency: Sendable>: Sendable {
    @usableFromInline package typealias Machine = DependencyStateMachine<Dependency>

    /// The machine; this property publishes each change.
    package var machine: Machine {
        _read { yield self.storedMachine }
        _modify {
            defer { self.publish() }
            yield &self.storedMachine
        }
    }
    private var storedMachine: Machine
    /// The dependency for the fast path; `nil` without a dependency.
    @usableFromInline package private(set) var ready: ReadyDependency<Dependency>?
    private let epochs: RunnerEpochs

    package init(_ machine: Machine, _ epochs: RunnerEpochs) {
        self.storedMachine = machine
        self.epochs = epochs
        self.publish()
    }

    /// Asks the machine for the next action of a call.
    ///
    /// The machine's record of a refusal is not published: ``ready`` can mark a value as unproven for too
    /// long, and ``recordAcceptance(_:)`` is then called without effect.
    @usableFromInline
    package mutating func decideAction(
        of call: inout Machine.Call,
        parentEpoch: UInt64,
        policy: RunnerPolicy,
        at now: Moment
    ) -> Machine.RequestAction {
        self.storedMachine.decideAction(of: &call, parentEpoch: parentEpoch, policy: policy, at: now)
    }

    /// The end of the wait of `call` for an early renewal, without regard to the call's time-out.
    ///
    /// `nil` for a wait until the end of the update.
    @usableFromInline
    package func waitLimit(of call: Machine.Call, at now: Moment) -> Moment? {
        self.storedMachine.fallback(for: call, at: now)?.renewal?.waitLimit(at: now)
    }

    /// The outcome of `call` at the end of its limited wait; `nil` if the call must continue to wait.
    @usableFromInline
    func outcome(of call: Machine.Call, orElse timeout: any Error, at now: Moment)
        -> Result<Machine.VersionedDependency, any Error>?
    {
        if let fallback = self.storedMachine.fallback(for: call, at: now) { return .success(fallback) }
        return call.deadline.map { now >= $0 } ?? false ? .failure(timeout) : nil
    }

    /// Records that a task accepted the value of `epoch`.
    package mutating func recordAcceptance(_ epoch: UInt64) {
        if self.storedMachine.isUnproven { self.machine.recordAcceptance(epoch) }
    }

    private mutating func publish() {
        // With 0, any parent epoch is accepted: a different lock protects the parent's epoch, and readers of
        // the value compare the epochs.
        let held = self.storedMachine.current(parentEpoch: 0)
        let isUnproven = self.storedMachine.isUnproven
        self.ready = held.map { ReadyDependency($0, isUnproven: isUnproven) }
        self.epochs.publish(epoch: self.storedMachine.epoch, heldParentEpoch: held?.parentEpoch)
    }
}

/// A copy of the dependency for the hit path.
@usableFromInline
package struct ReadyDependency<Dependency: Sendable>: Sendable {
    @usableFromInline package let value: Dependency
    /// See ``DependencyStateMachine/VersionedDependency/parentEpoch``.
    @usableFromInline let parentEpoch: UInt64
    /// The time of the early renewal, minus the maximum lateness of the coarse clock; `.distantFuture` for a
    /// value without an early renewal.
    @usableFromInline let until: Moment
    @usableFromInline let epoch: UInt64
    let session: UInt64
    /// Whether an acceptance of the value must be recorded: see
    /// ``DependencyStateMachine/isUnproven``.
    @usableFromInline let isUnproven: Bool

    init(_ held: DependencyStateMachine<Dependency>.VersionedDependency, isUnproven: Bool) {
        self.value = held.value
        self.parentEpoch = held.parentEpoch
        self.until = held.renewal?.start.advanced(by: .nanoseconds(-CoarseClock.latenessNanoseconds)) ?? .distantFuture
        self.epoch = held.epoch
        self.session = held.session
        self.isUnproven = isUnproven
    }
}

/// The epochs of a layer (a ``RunnerCore``), which child layers read without the layer's lock.
@usableFromInline
package final class RunnerEpochs: Sendable {
    /// The epoch of the layer's value.
    @usableFromInline let own = Atomic<UInt64>(0)
    /// The epoch of the layer's value, and the parent's epoch to which this value belongs (`nil` without a
    /// value).
    ///
    /// Not used without a parent.
    private let withParent = Locked<(own: UInt64, heldParent: UInt64?)>((0, nil))
    /// The layer above; `nil` for the uppermost layer.
    @usableFromInline let parent: RunnerEpochs?

    package init(parent: RunnerEpochs?) { self.parent = parent }

    /// Publishes a change of the layer's value; called under the layer's lock, or before the layer is used.
    func publish(epoch: UInt64, heldParentEpoch: UInt64?) {
        self.own.store(epoch, ordering: .sequentiallyConsistent)
        if self.parent != nil { self.withParent.withLock { $0 = (epoch, heldParentEpoch) } }
    }

    /// The least valid parent epoch of a child's value.
    @inlinable
    package var leastValidEpochForChildren: UInt64 {
        guard let parent = self.parent else { return self.own.load(ordering: .sequentiallyConsistent) }
        return self.leastValidEpochForChildren(parentEpoch: parent.leastValidEpochForChildren)
    }

    /// The least valid parent epoch of a child's value, for a layer with a parent.
    ///
    /// If the layer's value is invalid because of a replacement of the parent's value, the result is the next
    /// epoch of the layer, so that no value of a child is valid. `parentEpoch` is the least valid parent
    /// epoch of the layer's value.
    @usableFromInline
    func leastValidEpochForChildren(parentEpoch: UInt64) -> UInt64 {
        self.withParent.withLock { $0.heldParent.map { $0 < parentEpoch } ?? false ? $0.own &+ 1 : $0.own }
    }
}
