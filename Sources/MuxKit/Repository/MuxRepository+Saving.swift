extension MuxRepository {
    /// Writes to disk the unsaved values of all living multiplexers with a `cacheKey`.
    ///
    /// - Parameter budget: The time limit, including the wait for other operations; `nil` for no limit. The
    ///   newest entries are written first. At the limit the report lists the unsaved entries; a running write
    ///   continues, and the next save writes the other entries.
    /// - Returns: The number of saved entries, and the failures. The failures can be ignored: the next save
    ///   tries again.
    /// - Complexity: O(*n* log *n*) in the number of changed entries; encoding runs in parallel.
    @discardableResult
    public nonisolated func saveAll(within budget: Duration? = nil) async -> MuxRepository.SaveReport {
        let report = await self.save(self.concernedParticipants, within: budget)
        self.registry.withLock { $0.lastSaveFailures = report.failed.count + report.repairFailures.count }
        return report
    }

    /// Releases participants that were retained after a failed save and have no unsaved value any more.
    nonisolated func releaseSavedParticipants() {
        let kept = self.registry.withLock { $0.isSaveDue ? [:] : $0.unsaved }
        let written = kept.filter { $0.value.gauges.unsaved == 0 }.keys
        guard !written.isEmpty else { return }
        let released = self.registry.withLock { registry in
            registry.isSaveDue ? [] : written.compactMap { registry.unsaved.removeValue(forKey: $0) }
        }
        withExtendedLifetime(released) {}  // released outside the lock
    }

    /// After an unsaved change, schedules a save if the policy requires a save, and retains `participant`
    /// until the save.
    nonisolated func scheduleSave(of participant: any SessionParticipant) {
        guard case .afterFetch(let debounce) = self.savePolicy else { return }
        let isFirst = self.registry.withLock { registry -> Bool in
            defer { registry.isSaveDue = true }
            registry.unsaved[ObjectIdentifier(participant)] = participant
            return !registry.isSaveDue
        }
        guard isFirst else { return }
        let time = self.time
        ReentrantAsyncMutex.outside {
            _ = self.spawn(name: "mux.save") { [weak self] in
                try? await time.sleep(for: debounce)
                await self?.runScheduledSave()
            }
        }
    }

    /// Runs the scheduled save, and releases the participants, except some participants with values that are
    /// still unsaved; see ``maximumRetainedCount``.
    private nonisolated func runScheduledSave() async {
        let due = self.registry.withLock { registry in
            defer { registry.unsaved = [:] }
            registry.isSaveDue = false
            return registry.unsaved
        }
        await self.saveAll()
        let failed = due.filter { $0.value.gauges.unsaved > 0 }
        guard !failed.isEmpty else { return }
        self.registry.withLock { registry in
            for (id, participant) in failed where registry.unsaved.count < Self.maximumRetainedCount {
                registry.unsaved[id] = participant
            }
        }
    }

    /// The maximum number of participants that are retained after a failed save.
    private static var maximumRetainedCount: Int { 1_024 }

    /// Saves at once because the app enters the background or ends.
    nonisolated func enteredBackground(isLast: Bool) {
        let spawn = self.spawn
        BackgroundNotices.finishing(isLast: isLast) { [weak self] ended in
            spawn(name: "mux.save") { [weak self] in
                await self?.saveAll()
                ended()
            }
        }
    }

    /// Saves entries of `participants` in the lane.
    ///
    /// Refuses a call by the store from inside the lane, and a call whose wait for the lane would deadlock.
    ///
    /// - Parameters:
    ///   - participants: The participants with the entries.
    ///   - name: The name of the only entry to save; `nil` for all entries.
    ///   - budget: The time limit, including the wait for the lane; `nil` for no limit.
    /// - Returns: The report, at the end of the save or at the time limit.
    nonisolated func save(
        _ participants: [any SessionParticipant],
        only name: MuxStoreKey? = nil,
        within budget: Duration? = nil
    ) async -> MuxRepository.SaveReport {
        defer { self.releaseSavedParticipants() }
        let run = SaveRun(participants, only: name)
        guard self.lane.isOutside else { return run.makeRefusalReport(because: MuxError.calledFromStore) }
        guard let budget else {
            guard await self.inLane({ await self.perform(run) }) != nil else {
                return run.makeRefusalReport(because: MuxError.calledFromStore)
            }
            return run.makeReport()
        }
        let deadline = self.time.now.advanced(by: budget)
        // `nil` at the time limit: the save continues, and `run` has a report of the progress.
        let hasTurn = try? await waiting(for: budget, by: self.time, self.spawn, isShielded: true) {
            await self.inLane { await self.perform(run, until: deadline) } != nil
        }
        return hasTurn == false ? run.makeRefusalReport(because: MuxError.calledFromStore) : run.makeReport()
    }

    /// Performs the save, until the deadline if any; in the lane.
    private nonisolated func perform(_ run: SaveRun, until deadline: Moment? = nil) async {
        var settled = MuxRepository.SaveReport()
        let epoch: UInt64
        do {
            epoch = try await self.settleEpoch(reportingRemovalTo: &settled)
        } catch {
            run.noteRepair(failures: [error])
            let unsaved = run.collect()
            var report = MuxRepository.SaveReport()
            report.fail(unsaved.dirty, error)
            report.failed += unsaved.unseen.map { .init(name: $0, error: error) }
            return run.noteProcessed(report.failed.count, report)
        }
        run.noteRepair(failures: settled.repairFailures)
        await self.markLosses()
        if self.tagLog.isInUse {
            do { try await self.exchangeTags() } catch { run.noteRepair(failures: [error]) }
        }
        // Pending removals come first: a removal can remove entries that must be saved again.
        await run.repairDisk()
        // A sign-out of another process may have been detected during the repairs.
        let session = self.registry.withLock { $0.sessionEpoch } ?? epoch
        let unsaved = run.collect()
        var rest = unsaved.dirty[...]
        // With a deadline the save writes portions, and can stop between portions. A portion of 256 entries
        // is small enough for a timely stop, and large enough to share the cost of a durable write.
        let portion = deadline == nil ? max(rest.count, 1) : 256
        var (names, unwritten): (Set<MuxStoreKey>, Set<MuxStoreKey>) = ([], [])
        while !rest.isEmpty {
            if let deadline, self.time.now >= deadline { return }
            let next = rest.prefix(portion)
            // Two multiplexers with the same `cacheKey` can have entries with the same name: the newer entry
            // stays.
            var (newest, older): ([UnsavedEntry], [UnsavedEntry]) = ([], [])
            for entry in next {
                if names.insert(entry.name).inserted { newest.append(entry) } else { older.append(entry) }
            }
            // The store evicts the first of the written entries, so the newest entry comes last.
            var report = await self.write(newest.reversed(), session)
            unwritten.formUnion(report.failed.map(\.name) + report.leftOverNames)
            for entry in older {
                // If the newer entry could not be written, this entry stays in memory.
                guard !unwritten.contains(entry.name) else {
                    report.leftOverNames.append(entry.name)
                    continue
                }
                entry.markSuperseded()
                report.superseded.append(entry.name)
            }
            run.noteProcessed(next.count, report)
            rest = rest.dropFirst(next.count)
        }
        run.failUnread(unsaved.unseen)
    }

    /// Marks all entries in memory as unsaved if the store has lost its entries; in the lane.
    private nonisolated func markLosses() async {
        let losses = await self.store.statistics().losses
        let isNews = self.registry.withLock { registry -> Bool in
            defer { registry.losses = losses }
            return losses > registry.losses
        }
        guard isNews else { return }
        for participant in self.concernedParticipants { participant.markUnsaved() }
    }

    /// Encodes and writes `entries`; in the lane.
    private nonisolated func write(_ entries: [UnsavedEntry], _ epoch: UInt64) async -> MuxRepository.SaveReport {
        let store = self.store
        var report = MuxRepository.SaveReport()
        let encoded = await BlockingWork.map(entries) { entry in
            Result {
                let stored = try entry.encode(epoch)
                try store.check(stored)
                return stored
            }
        }
        var current: [(entry: UnsavedEntry, stored: MuxStoredEntry)] = []
        for (entry, result) in zip(entries, encoded) {
            switch result {
            case .failure(let error): report.fail([entry], error)
            // A clear after this check waits for the lane, and so changes the disk after the save. A sign-out
            // may run during the write, and raises the epoch, which is checked below.
            case .success(let stored) where entry.isCurrent(): current.append((entry, stored))
            case .success: report.leftOverNames.append(entry.name)
            }
        }
        guard !current.isEmpty else { return report }
        let unkept = await self.writeIsolatingFailures(current.map { $0.stored })
        do {
            // Another process, or the store itself, may have signed out in the meantime, and removed the
            // entries.
            guard try await store.sessionEpoch() <= epoch else { throw MuxError.sessionEnded }
        } catch {
            report.fail(current.map { $0.entry }, error)
            _ = try? await self.settleEpoch(reportingRemovalTo: &report)
            return report
        }
        for (entry, _) in current {
            switch unkept.isEmpty ? nil : unkept[entry.name] {
            case nil:
                entry.markSaved()
                report.saved += 1
            case MuxStoreError.newerValue?:
                entry.markSuperseded()
                report.superseded.append(entry.name)
            case let error?: report.fail([entry], error)
            }
        }
        return report
    }

    /// Writes `entries`, which have different names, by ``isolatingFailures(of:concernsAll:_:)``.
    ///
    /// An entry that cannot be written does not prevent the writes of other entries, unless the store itself
    /// fails.
    ///
    /// - Returns: The errors of the entries that were not written, by name.
    private nonisolated func writeIsolatingFailures(_ entries: [MuxStoredEntry]) async -> [MuxStoreKey: any Error] {
        var unkept: [MuxStoreKey: any Error] = [:]
        let failures = await isolatingFailures(of: entries, concernsAll: Self.concernsAll) { part in
            do {
                try await self.write(part)
            } catch let partial as MuxStoreError.PartialSave {
                for failure in partial.failures { unkept[failure.name] = failure.error }
            }
        }
        for (entry, error) in failures { unkept[entry.name] = error }
        return unkept
    }

    /// Whether the store is the cause of the error, so that calls for other entries fail, too.
    private static func concernsAll(_ error: any Error) -> Bool { (error as? MuxStoreError)?.concernsAll ?? false }

    // MARK: - Removing

    struct RemovalFailure: Sendable {
        let name: MuxStoreKey
        let error: any Error
        /// Whether the store cannot contain such an entry, so that the removal is not repeated.
        var isFinal: Bool { (self.error as? MuxStoreError)?.isPermanent ?? false }
    }

    /// Clears in memory and then on disk, after all earlier operations in the lane.
    ///
    /// A call by the store, inside an operation in the lane, clears memory only, and the removal is pending:
    /// the operation may be writing the entries. The same applies if the wait for the lane would deadlock.
    ///
    /// - Parameters:
    ///   - forget: Clears memory, and marks the removal as pending.
    ///   - remove: Removes on disk.
    /// - Returns: The failures of the removal.
    nonisolated func performClear(
        _ forget: @escaping @Sendable () -> Void,
        onDisk remove: @escaping @Sendable @concurrent () async -> MuxRepository.ClearReport
    ) async -> MuxRepository.ClearReport {
        if self.lane.isOutside {
            let report = await self.inLane {
                forget()
                return await remove()
            }
            if let report { return report }
        }
        forget()
        return MuxRepository.ClearReport(failures: [MuxError.calledFromStore])
    }

    /// Removes entries from disk; in the lane.
    ///
    /// - Returns: The entries that could not be removed, with the errors.
    /// - Throws: The error if the session epoch cannot be read or raised; then no entry was removed.
    nonisolated func remove(_ names: [MuxStoreKey]) async throws -> [RemovalFailure] {
        _ = try await self.settleEpoch()
        let failures = await isolatingFailures(of: names, concernsAll: Self.concernsAll) { names in
            try await self.store.remove(names, durability: self.durability)
        }
        return failures.map { RemovalFailure(name: $0.item, error: $0.error) }
    }

    /// Removes all entries of a domain from disk; in the lane.
    ///
    /// - Returns: `nil` after the removal; an error if the store cannot contain an entry of the domain.
    /// - Throws: The store's error; the removal has to be repeated.
    nonisolated func removeAll(domain: String) async throws -> MuxStoreError? {
        _ = try await self.settleEpoch()
        do {
            try await self.store.removeAll(domain: domain, durability: self.durability)
            return nil
        } catch let error as MuxStoreError where error.isPermanent {
            return error
        }
    }

    /// Writes encoded entries, without a report and without isolating failed entries; in the lane.
    ///
    /// Each entry keeps its session epoch, so an entry that was read before a sign-out does not enter the
    /// next session.
    nonisolated func write(_ entries: [MuxStoredEntry]) async throws {
        try await self.store.save(entries, durability: self.durability)
    }
}
