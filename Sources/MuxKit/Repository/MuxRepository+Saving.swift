extension MuxRepository {
    /// Writes to disk what changed since the last save, of everything alive that has a `cacheKey`.
    ///
    /// - Parameter budget: How long it may take, its turn included; the newest entries are written first. When the time is
    ///   up the report says what is not saved; what the store is writing goes on, and the next save does the rest. `nil` for
    ///   no limit.
    /// - Returns: What was saved, and what was not and why. Ignoring it is fine: what failed is tried again next time.
    /// - Complexity: O(*n*) in the number of changed entries; encoding runs in parallel.
    @discardableResult
    public nonisolated func saveAll(within budget: Duration? = nil) async -> MuxSaveReport {
        await self.save(self.participants, within: budget)
    }

    /// Something changed that the disk does not have: saves it in a while, if that is the policy.
    @usableFromInline
    nonisolated func changed() {
        guard case .afterFetch(let debounce) = self.savePolicy else { return }
        let isFirst = self.registry.withLock { registry -> Bool in
            defer { registry.isSaveDue = true }
            return !registry.isSaveDue
        }
        guard isFirst else { return }
        let time = self.time
        ReentrantAsyncMutex.outside {
            _ = self.spawn(name: "mux.save") { [weak self] in
                try? await time.sleep(for: debounce)
                self?.registry.withLock { $0.isSaveDue = false }
                await self?.saveAll()
            }
        }
    }

    /// The app enters the background, or ends: saves now, for it may never come back.
    nonisolated func enteredBackground(isLast: Bool) {
        let spawn = self.spawn
        BackgroundNotices.finishing(isLast: isLast) { [weak self] ended in
            spawn(name: "mux.save") { [weak self] in
                await self?.saveAll()
                ended()
            }
        }
    }

    nonisolated func save(
        _ participants: [any SessionParticipant],
        only name: MuxStoreKey? = nil,
        within budget: Duration? = nil
    ) async -> MuxSaveReport {
        let run = SaveRun(participants, only: name)
        guard self.lane.access == .queued else { return run.refused(because: MuxError.calledFromStore) }
        guard let budget else {
            guard await self.inLane({ await self.perform(run) }) != nil else {
                return run.refused(because: MuxError.calledFromStore)
            }
            return run.finished()
        }
        let deadline = self.time.now.advanced(by: budget)
        let hasTurn = FirstAnswer<Bool>()
        self.spawn(name: "mux.save") {
            hasTurn.give(await self.inLane { await self.perform(run, until: deadline) } != nil)
        }
        let time = self.time
        let timer = self.spawn(name: "mux.save.limit") {
            guard (try? await time.sleep(for: deadline.duration(since: time.now))) != nil else { return }
            hasTurn.give(true)
        }
        let isRefused = await !hasTurn.wait()
        timer.cancel()
        return isRefused ? run.refused(because: MuxError.calledFromStore) : run.finished()
    }

    /// Saves what `run` is about, step by step; in the lane.
    private nonisolated func perform(_ run: SaveRun, until deadline: Moment? = nil) async {
        var settled = MuxSaveReport()
        let epoch: UInt64
        do {
            epoch = try await self.settledEpoch(raisedBySibling: &settled)
        } catch {
            run.noteRepair(failures: [error])
            let unsaved = run.collect()
            var report = MuxSaveReport()
            report.fail(unsaved.dirty, error)
            report.failed += unsaved.unseen.map { .init(name: $0, error: error) }
            return run.dealtWith(report.failed.count, report)
        }
        run.noteRepair(failures: settled.repairFailures)
        await self.markLosses()
        // What a removal that is made good now takes with it has to be saved again: repairs come first.
        await run.makeGood()
        // They may have found that another process has signed out meanwhile.
        let session = self.registry.withLock { $0.sessionEpoch } ?? epoch
        var rest = run.collect().dirty[...]
        // With a limit, in portions, so that there is a moment to stop at.
        let portion = deadline == nil ? max(rest.count, 1) : 256
        var names: Set<MuxStoreKey> = []
        while !rest.isEmpty {
            if let deadline, self.time.now >= deadline { return }
            let next = rest.prefix(portion)
            // Of two entries of one name the newer one is to stay: it goes last, or has gone with an earlier portion.
            let older = next.filter { names.contains($0.name) }
            var report = await self.write(next.filter { !names.contains($0.name) }.reversed(), session)
            for entry in older { entry.markSaved() }
            report.saved += older.count
            run.dealtWith(next.count, report)
            rest = rest.dropFirst(next.count)
            if !rest.isEmpty { names.formUnion(next.map(\.name)) }
        }
    }

    /// Has everything saved again that is in memory, if the store has lost what it had; in the lane.
    private nonisolated func markLosses() async {
        let losses = await self.store.statistics().losses
        let isNews = self.registry.withLock { registry -> Bool in
            defer { registry.losses = losses }
            return losses > registry.losses
        }
        guard isNews else { return }
        for participant in self.participants { participant.lostOnDisk() }
    }

    /// Encodes and writes `entries`; in the lane.
    ///
    /// - Returns: What became of each of them.
    private nonisolated func write(_ entries: [UnsavedEntry], _ epoch: UInt64) async -> MuxSaveReport {
        let store = self.store
        var report = MuxSaveReport()
        let encoded = await BlockingWork.map(entries) { entry in
            Result {
                let stored = try entry.encode(epoch)
                try store.check(stored)
                return stored
            }
        }
        var ready: [Encoded] = []
        for (entry, result) in zip(entries, encoded) {
            switch result {
            case .failure(let error): report.fail([entry], error)
            case .success(let stored): ready.append(Encoded(entry: entry, stored: stored))
            }
        }
        // A fence that comes after this look finds the lane taken, and does its part on disk after the save.
        var current: [Encoded] = []
        for encoded in ready {
            if encoded.entry.isCurrent() {
                current.append(encoded)
            } else {
                report.leftOverNames.append(encoded.entry.name)
            }
        }
        guard !current.isEmpty else { return report }
        let unkept = await self.keep(current)
        do {
            // A sibling may have signed out meanwhile: then nothing of it is there.
            guard try await store.sessionEpoch() <= epoch else { throw MuxError.sessionEnded }
        } catch {
            report.fail(current.map(\.entry), error)
            _ = try? await self.settledEpoch(raisedBySibling: &report)
            return report
        }
        for encoded in current {
            switch unkept.isEmpty ? nil : unkept[encoded.entry.name] {
            case nil:
                encoded.entry.markSaved()
                report.saved += 1
            case MuxStoreError.newerValue?:
                encoded.entry.markSuperseded()
                report.superseded.append(encoded.entry.name)
            case let error?: report.fail([encoded.entry], error)
            }
        }
        return report
    }

    /// An entry, and how it looks on disk.
    private struct Encoded: Sendable {
        let entry: UnsavedEntry
        let stored: MuxStoredEntry
    }

    /// Has the store keep `entries`, as many of them as it can.
    ///
    /// - Returns: What it did not keep, and why.
    private nonisolated func keep(_ entries: [Encoded]) async -> [MuxStoreKey: any Error] {
        var unkept: [MuxStoreKey: any Error] = [:]
        do {
            try await self.keep(entries.map(\.stored), &unkept)
        } catch {
            guard entries.count > 1, !Self.concernsAll(error) else {
                for entry in entries { unkept[entry.entry.name] = error }
                return unkept
            }
            // One by one the entries of one name would not be in order: only the last counts.
            var latest: [MuxStoreKey: MuxStoredEntry] = [:]
            for entry in entries { latest[entry.entry.name] = entry.stored }
            let failures = await isolatingFailures(of: Array(latest.values), concernsAll: Self.concernsAll) { part in
                try await self.keep(part, &unkept)
            }
            for (entry, error) in failures { unkept[entry.name] = error }
        }
        return unkept
    }

    private nonisolated func keep(
        _ entries: [MuxStoredEntry],
        _ unkept: inout [MuxStoreKey: any Error]
    ) async throws {
        do {
            try await self.store.save(entries, durability: self.durability)
        } catch let partial as MuxPartialSaveError {
            for failure in partial.failures { unkept[failure.name] = failure.error }
        }
    }

    /// Whether an error says that the store does nothing at present, whatever it is asked for.
    private static func concernsAll(_ error: any Error) -> Bool { (error as? MuxStoreError)?.concernsAll ?? false }

    // MARK: - Removing

    /// What could not be removed.
    struct RemovalFailure: Sendable {
        let name: MuxStoreKey
        let error: any Error
        /// Whether it is no use to try again: the store can have no such entry.
        var isFinal: Bool { (self.error as? MuxStoreError)?.isPermanent ?? false }
    }

    /// Clears in memory, and then on disk, when all that came before have ended.
    ///
    /// Inside an operation of the store, which may write what is being cleared, only memory is: the removal is owed.
    ///
    /// - Parameters:
    ///   - forget: Forgets in memory, and notes what is to be removed from disk.
    ///   - remove: Removes that.
    /// - Returns: What could not be removed.
    nonisolated func clearing(
        _ forget: @escaping @Sendable () -> Void,
        onDisk remove: @escaping @Sendable @concurrent () async -> MuxClearReport
    ) async -> MuxClearReport {
        if self.lane.access == .queued {
            let report = await self.inLane {
                forget()
                return await remove()
            }
            if let report { return report }
        }
        forget()
        return MuxClearReport(failures: [MuxError.calledFromStore])
    }

    /// Removes entries from disk; in the lane.
    ///
    /// - Returns: What could not be removed, while the rest was.
    /// - Throws: What the store threw, and nothing was removed.
    nonisolated func remove(_ names: [MuxStoreKey]) async throws -> [RemovalFailure] {
        _ = try await self.settledEpoch()
        let failures = await isolatingFailures(of: names, concernsAll: Self.concernsAll) { names in
            try await self.store.remove(names, durability: self.durability)
        }
        return failures.map { RemovalFailure(name: $0.item, error: $0.error) }
    }

    /// Removes all entries of a domain from disk; in the lane.
    ///
    /// - Returns: Why there is nothing to remove, if the store can have no entry of that domain.
    /// - Throws: What the store threw; it is to be tried again.
    nonisolated func removeAll(domain: String) async throws -> MuxStoreError? {
        _ = try await self.settledEpoch()
        do {
            try await self.store.removeAll(domain: domain, durability: self.durability)
            return nil
        } catch let error as MuxStoreError where error.isPermanent {
            return error
        }
    }
}

extension MuxRepository {
    /// Writes entries that no save counts; in the lane.
    ///
    /// Each keeps the session that it says: one that was read before the session ended is not to get into the next one.
    nonisolated func write(_ entries: [MuxStoredEntry]) async throws {
        try await self.store.save(entries, durability: self.durability)
    }
}
