import Synchronization

extension MuxRepository {
    /// Makes all values with one of the tags stale: the next request of each value fetches.
    ///
    /// ```swift
    /// repository.refresh(tags: ["user:7"])
    /// ```
    ///
    /// ``Fetched/tags`` and ``MultiplexerMap/CacheKey/init(_:tags:)`` define the tags of a value.
    ///
    /// **Running fetches.** A fetch that began before the call, and returns a value with one of the tags, is
    /// outdated: its value is not kept. The callers from before the call get the value, and later callers
    /// wait for another fetch.
    ///
    /// **On disk.** The change is saved with the next save of any value, and also applies to values that are
    /// only on disk. Other processes that share the folder adopt the change at their next save, and at their
    /// next read of a value with tags from disk.
    ///
    /// **Several machines.** With a ``MuxSharedStore``, all other machines remove the values.
    ///
    /// **Many tags.** If each call has few tags, memory keeps the changes of about 32,768 tags or more. The
    /// disk keeps the changes of at least the last 2,048 tags. The tags on disk have at most 1 MiB in total;
    /// longer tags reduce the number of tags. A dropped change counts as a change of all tags, so older
    /// values with other tags may be fetched again, too.
    ///
    /// - Parameter tags: The tags: any texts, compared byte for byte.
    /// - Complexity: O(1) in the number of values; O(*n*) in the number of multiplexers with tags, and of the
    ///   keys of these multiplexers that have changes, or that a view or a sequence follows.
    public nonisolated func refresh(tags: [String]) {
        guard !tags.isEmpty else { return }
        self.sharedStore?.addInvalidations(of: tags.map { .tag($0) })
        self.recordTagChange(tags, isClear: false)
        self.sharedStore?.sendInvalidationsLater()
    }

    /// Removes all values with one of the tags, on this machine and on all machines that share the store.
    ///
    /// As ``refresh(tags:)``, but no later request gets the values, not even in place of a failed fetch. The
    /// change is saved at once.
    ///
    /// Memory releases the values soon after the call. On disk, the bytes of a value stay until a later save
    /// of the key, clear of the key or map, sign-out or eviction. The library does not read these bytes.
    ///
    /// - Parameter tags: The tags: any texts, compared byte for byte.
    /// - Returns: The failure. This process always removes the values. The next save writes the change again;
    ///   with a ``MuxSharedStore``, the repository repeats the call to the store until the call succeeds.
    /// - Complexity: As ``refresh(tags:)``, and one write.
    @discardableResult
    public nonisolated func clear(tags: [String]) async -> MuxRepository.ClearReport {
        guard !tags.isEmpty else { return MuxRepository.ClearReport() }
        if let sharedStore {
            let failures = await sharedStore.invalidate(tags.map { .tag($0) }) {
                self.recordTagChange(tags, isClear: true)
                for participant in self.concernedParticipants {
                    for tag in tags { participant.sharedStoreChanged(.invalidated(.tag(tag))) }
                }
            }
            return MuxRepository.ClearReport(failures: failures)
        }
        return await self.performClear {
            self.recordTagChange(tags, isClear: true)
        } onDisk: {
            do {
                try await self.exchangeTags()
                return MuxRepository.ClearReport()
            } catch {
                return MuxRepository.ClearReport(failures: [error])
            }
        }
    }

    /// Records a change of tags, and tells the multiplexers with tags.
    nonisolated func recordTagChange(_ tags: [String], isClear: Bool) {
        self.tagLog.record(tags, isClear: isClear)
        self.tagsChanged(mayClear: isClear)
    }

    private nonisolated func tagsChanged(mayClear: Bool) {
        for member in self.tagLog.members { member.tagsChanged(mayClear: mayClear) }
        guard mayClear || self.tagLog.isFull else { return }
        guard self.dueSweeps.wrappingAdd(1, ordering: .acquiringAndReleasing).oldValue == 0 else { return }
        // A task started inside an operation of `lane` would inherit the permission to run inside that
        // operation.
        ReentrantAsyncMutex.outside {
            _ = self.spawn(name: "mux.sweep", priority: .low) { [weak self] in
                while await self?.applyTagChanges() ?? false {}
            }
        }
    }

    /// Releases the values that changes of tags removed; marks all values if the log is full.
    ///
    /// - Returns: Whether more changes have come in the meantime.
    private nonisolated func applyTagChanges() async -> Bool {
        let due = self.dueSweeps.load(ordering: .acquiring)
        let (number, isFull) = (self.tagLog.lastNumber, self.tagLog.isFull)
        for member in self.tagLog.members { await member.applyTagChanges(toAll: isFull) }
        // From now on, the forgotten changes concern each earlier value that was not marked, with any tags.
        if isFull { self.tagLog.forget(through: number) }
        return self.dueSweeps.wrappingSubtract(due, ordering: .acquiringAndReleasing).newValue > 0
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
                self.tagLog.noteWriteStart(entry.payload)
                try await self.write([entry])
                self.tagLog.noteWrite(unwritten, entry.payload)
                // During the write, changes may have been recorded, or read from another process.
                if self.tagLog.unwritten() == nil || attempt >= Self.maximumAttemptCount { return }
            } catch let error as MuxStoreError.PartialSave {
                // Another process has written since the read.
                guard case .newerValue? = error.failures.first?.error as? MuxStoreError,
                    attempt < Self.maximumAttemptCount
                else { throw error }
            }
        }
    }

    /// The maximum number of attempts; a further attempt follows a write by another process, or a change of
    /// tags during the write.
    private static var maximumAttemptCount: Int { 1_000 }
}
