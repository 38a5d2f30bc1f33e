public import Synchronization

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
