extension MuxRepository {
    /// Records a change of tags, and tells the multiplexers with tags.
    nonisolated func changed(_ tags: [String], isClear: Bool) {
        self.tagLog.record(tags, isClear: isClear)
        self.tagsChanged(mayClear: isClear)
    }

    private nonisolated func tagsChanged(mayClear: Bool) {
        for member in self.tagLog.members { member.tagsChanged(mayClear: mayClear) }
        guard mayClear || self.tagLog.isFull else { return }
        let isFirst = self.dueSweeps.withLock { count in
            count += 1
            return count == 1
        }
        guard isFirst else { return }
        // A task started inside an operation of `lane` would inherit the permission to run inside that
        // operation.
        ReentrantAsyncMutex.outside {
            _ = self.spawn(name: "mux.sweep", priority: .low) { [weak self] in
                while await self?.applyTagChanges() ?? false {}
            }
        }
    }

    /// Releases the values removed by changes of tags; marks all values if there are many changes.
    ///
    /// - Returns: Whether more changes have come in the meantime.
    private nonisolated func applyTagChanges() async -> Bool {
        let due = self.dueSweeps.withLock { $0 }
        let (number, isFull) = (self.tagLog.lastNumber, self.tagLog.isFull)
        for member in self.tagLog.members { await member.applyTagChanges(toAll: isFull) }
        // From now on, values of earlier fetches count as changed by any tag.
        if isFull { self.tagLog.forget(through: number) }
        return self.dueSweeps.withLock { count in
            count -= due
            return count > 0
        }
    }

    /// Reads the changes of tags of other processes from disk.
    ///
    /// - Parameter isExpected: Whether the disk has entries with tags.
    /// - Throws: The store's error.
    @usableFromInline
    nonisolated func readTags(isExpected: Bool = false) async throws {
        let start = self.tagLog.progress
        switch self.tagLog.read(try await self.load(TagLog.name), since: start, isExpected: isExpected) {
        case .none: break
        case .changes: self.tagsChanged(mayClear: true)
        case .overwritten:
            self.tagsChanged(mayClear: true)
            ReentrantAsyncMutex.outside {
                _ = self.spawn(name: "mux.tags") { [weak self] in
                    guard let self else { return }
                    await self.inLane { try? await self.exchangeTags() }
                }
            }
        }
    }

    /// Exchanges the changes of tags with the disk; in the lane.
    ///
    /// - Throws: The store's error; the changes stay unwritten.
    nonisolated func exchangeTags() async throws {
        guard !(self.store is NoStore) else { return }
        for attempt in 1... {
            try await self.readTags()
            let epoch = try await self.settleEpoch()
            guard let unwritten = self.tagLog.unwritten()?.forDisk else { return }
            do {
                let entry = try self.tagLog.entry(unwritten, epoch)
                self.tagLog.willWrite(entry.payload)
                try await self.write([entry])
                self.tagLog.wrote(unwritten, entry.payload)
                // During the write, changes may have been recorded, or read from another process.
                if self.tagLog.isWritten || attempt >= Self.mostExchanges { return }
            } catch let error as MuxStoreError.PartialSave {
                // Another process has written since the read.
                guard case .newerValue? = error.failures.first?.error as? MuxStoreError, attempt < Self.mostExchanges
                else { throw error }
            }
        }
    }

    /// The maximum number of attempts; each failed attempt means a success of another process.
    private static var mostExchanges: Int { 1_000 }
}
