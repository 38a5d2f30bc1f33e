import Synchronization

extension SlotMemory {
    /// Whether any entry of the multiplexer has ever had tags.
    var usesTags: Bool { self.hasJoinedTagLog.load(ordering: .relaxed) }

    /// Applies a change of tags to followed keys and to changes of the app, and notifies all watchers.
    func tagsChanged(mayClear: Bool) {
        let released = self.withSlots { state in
            // A view distinguishes a removal from an eviction by the number of clears.
            if mayClear { state.discardCount &+= 1 }
            for key in state.layers.keys.filter({ state.layers[$0]?.base?.condition?.removesEntry ?? false }) {
                state.loseBase(of: key, keepsChanges: false)
                state.recordOutcome(of: key, error: nil)
            }
            // Stores the effect in each slot, so that a later change of other tags does not count this change
            // again.
            for key in Array(state.followed.keys) { state.withSlot(of: key) { _ in } }
            return state.takeDropped()
        }
        withExtendedLifetime(released) {}  // released outside the lock
        self.watchers.sendToAll(.entry)
    }

    /// Releases the entries removed by changes of tags, in several critical sections.
    ///
    /// - Parameter isToAll: See ``SessionParticipant/applyTagChanges(toAll:)``.
    func applyTagChanges(toAll isToAll: Bool) async {
        var place: Int?
        repeat {
            let next = self.withSlots { state -> Int? in
                let (keys, next) = state.slots.keys(before: place, atMost: Self.portion)
                for key in keys {
                    guard let condition = state.slots.condition(of: key) else { continue }
                    // `withSlot` applies the condition, which removes the entry after a clear.
                    if isToAll || condition.removesEntry { state.withSlot(of: key) { $0.markCondition() } }
                }
                return next
            }
            place = next
            await Task.yield()
        } while place != nil
        guard isToAll else { return }
        self.withSlots { state in
            for key in Array(state.layers.keys) {
                state.layers[key]?.base?.markCondition()
                state.layers[key]?.shown?.markCondition()
            }
        }
    }

    /// The condition of an entry with the tags of its fetch and of its key; `nil` without tags.
    @usableFromInline
    func condition(_ texts: [String], of key: Key, since number: UInt64) -> EntryCondition? {
        let tags = Set((texts + (self.tagsOfKey?(key) ?? [])).map(MuxShared.Scope.tag))
        guard !tags.isEmpty else { return nil }
        if !self.hasJoinedTagLog.load(ordering: .acquiring), let participant {
            self.repository.tagLog.join(participant)
            self.hasJoinedTagLog.store(true, ordering: .releasing)
        }
        return EntryCondition(tags, since: number, in: self.repository.tagLog)
    }

    /// Whether all tags of an entry are tags of its key: the shared store does not know other tags.
    @usableFromInline
    func isShareable(_ entry: Slot<Value>.Entry, of key: Key) -> Bool {
        guard let condition = entry.condition else { return true }
        let known = Set((self.tagsOfKey?(key) ?? []).map(MuxShared.Scope.tag))
        return condition.tags.isSubset(of: known)
    }
}
