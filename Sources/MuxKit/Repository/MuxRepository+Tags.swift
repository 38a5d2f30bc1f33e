extension MuxRepository {
    /// Records a change of tags, and tells the multiplexers with tags.
    nonisolated func changed(_ tags: [String], isClear: Bool) {
        self.tagLog.record(tags, isClear: isClear)
        self.tagsChanged(mayClear: isClear)
    }

    private nonisolated func tagsChanged(mayClear: Bool) {
        for member in self.tagLog.members { member.tagsChanged() }
        guard mayClear || self.tagLog.isFull,
            self.dueSweeps.withLock({ count in
                count += 1
                return count == 1
            })
        else { return }
        _ = self.spawn(name: "mux.sweep", priority: .low) { [weak self] in
            while let self, let due = self.dueSweeps.withLock({ $0 > 0 ? $0 : nil }) {
                self.applyTagChanges()
                self.dueSweeps.withLock { $0 = $0 == due ? 0 : $0 }
            }
        }
    }

    /// Releases the values that changes of tags have removed; marks all values if there are many changes.
    private nonisolated func applyTagChanges() {
        let (number, isFull) = (self.tagLog.lastNumber, self.tagLog.isFull)
        for member in self.tagLog.members { member.applyTagChanges(toAll: isFull) }
        // Values of earlier fetches count as changed by any tag.
        if isFull { self.tagLog.forget(through: number) }
    }

    /// Reads the changes of tags of other processes from disk.
    ///
    /// - Throws: The store's error.
    @usableFromInline
    nonisolated func readTags() async throws {
        if self.tagLog.read(try await self.load(TagLog.name)) { self.tagsChanged(mayClear: true) }
    }

    /// Exchanges the changes of tags with the disk; in the lane.
    ///
    /// - Throws: The store's error; the changes stay unwritten.
    nonisolated func exchangeTags() async throws {
        guard !(self.store is NoStore) else { return }
        for attempt in 1... {
            try await self.readTags()
            guard let unwritten = self.tagLog.unwritten() else { return }
            do {
                let entry = try self.tagLog.entry(unwritten, await self.settledEpoch())
                try await self.write([entry])
                return self.tagLog.wrote(unwritten, entry.payload)
            } catch let error as MuxStoreError.PartialSave {
                // Another process has written since the read.
                guard case .newerValue? = error.failures.first?.error as? MuxStoreError, attempt < 16 else {
                    throw error
                }
            }
        }
    }
}
