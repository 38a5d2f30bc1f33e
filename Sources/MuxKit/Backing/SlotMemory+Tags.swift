import Synchronization

extension SlotMemory {
    /// Notifies the consumers of entries whose tags may have changed.
    func tagsChanged(isOnDisk: Bool) {
        let released = self.withSlots { state in
            var released: [Slot<Value>.Entry?] = []
            for key in Set(state.followed.keys).union(state.layers.keys) {
                let known = state.slots.condition(of: key)
                guard let condition = known ?? state.layers[key]?.base?.condition else {
                    // Not in memory: its tags are unknown.
                    if state.slots.slot(of: key)?.entry == nil { state.becameStale(key) }
                    continue
                }
                guard !condition.holds else { continue }
                if condition.removesEntry {
                    state.dropLayers(of: key)
                    state.ended(key, with: nil)
                    released.append(state.withSlot(of: key) { $0.cleared(alsoOnDisk: isOnDisk) })
                } else if known != nil {
                    state.becameStale(key)
                    // The slot is marked, so that the next change is not counted again.
                    state.withSlot(of: key) { _ in }
                }
            }
            return released
        }
        withExtendedLifetime(released) {}  // released outside the lock
        self.watchers.sendToAll(.entry)
    }

    /// Releases the entries that changes of tags have removed, and schedules their removal on disk.
    ///
    /// - Parameters:
    ///   - isToAll: See ``SessionParticipant/applyTagChanges(toAll:)``.
    ///   - isOnDisk: Whether entries are saved on disk.
    func applyTagChanges(toAll isToAll: Bool, isOnDisk: Bool) {
        self.visitKeys { keys in
            let released = self.withSlots { state in
                keys.map { key -> Slot<Value>.Entry? in
                    guard let condition = state.slots.condition(of: key) else { return nil }
                    if condition.removesEntry { return state.withSlot(of: key) { $0.cleared(alsoOnDisk: isOnDisk) } }
                    if isToAll { state.withSlot(of: key) { $0.markCondition() } }
                    return nil
                }
            }
            withExtendedLifetime(released) {}  // released outside the lock
            return true
        }
    }

    /// The condition of a fetched entry with tags.
    @usableFromInline
    func condition(_ texts: [String], of key: Key, since number: UInt64) -> EntryCondition? {
        let tags = (texts + (self.tagsOfKey?(key) ?? [])).map(MuxShared.Scope.tag)
        guard !tags.isEmpty else { return nil }
        if !self.hasTags.exchange(true, ordering: .relaxed), let participant {
            self.repository.tagLog.join(participant)
        }
        return EntryCondition(tags, since: number, in: self.repository.tagLog)
    }

    /// Whether all these tags are tags of the key.
    @usableFromInline
    func areTags(_ texts: [String], of key: Key) -> Bool {
        guard !texts.isEmpty else { return true }
        let known = Set((self.tagsOfKey?(key) ?? []).map(MuxShared.Scope.tag))
        return texts.allSatisfy { known.contains(.tag($0)) }
    }
}
