extension MuxRepository {
    /// Writes to disk what changed since the last save, of everything alive that has a `cacheKey`.
    ///
    /// - Parameter budget: How long it may take, about; the newest entries are written first. `nil` for no limit.
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
        self.spawn(name: "mux.save") { [weak self] in
            try? await time.sleep(for: debounce)
            self?.registry.withLock { $0.isSaveDue = false }
            await self?.saveAll()
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
        let deadline = budget.map { self.time.now.advanced(by: $0) }
        return await self.inLane {
            var report = MuxSaveReport()
            let epoch: UInt64
            do {
                epoch = try await self.settledEpoch(raisedBySibling: &report)
            } catch {
                let unsaved = participants.map { $0.unsaved() }
                report.unchanged = unsaved.reduce(0) { $0 + $1.unchanged }
                let names = unsaved.flatMap { $0.dirty.map(\.name) + $0.unseen }
                report.failed = names.map { .init(name: $0, error: error) }
                for entry in unsaved.flatMap(\.dirty) { entry.markFailed() }
                report.repairFailures.append(error)
                report.letGo = participants.reduce(0) { $0 + $1.takeLosses() }
                return report
            }
            // What a removal that is made good now takes with it has to be saved again: repairs come first.
            for participant in participants { report.repairFailures += await participant.makeGood() }
            // They may have found that another process has signed out meanwhile.
            let session = self.registry.withLock { $0.sessionEpoch } ?? epoch
            var dirty: [UnsavedEntry] = []
            for unsaved in participants.map({ $0.unsaved() }) {
                report.unchanged += unsaved.unchanged
                report.leftOver += unsaved.unseen.count
                dirty += name == nil ? unsaved.dirty : unsaved.dirty.filter { $0.name == name }
            }
            dirty.sort { $0.fetchedAt > $1.fetchedAt }
            // With a budget, in portions, so that there is a moment to stop at.
            let portion = budget == nil ? max(dirty.count, 1) : 256
            var rest = dirty[...]
            while !rest.isEmpty {
                if let deadline, self.time.now >= deadline { break }
                // Of two entries of one name the newer one is to stay: it goes last.
                await self.write(rest.prefix(portion).reversed(), session, into: &report)
                rest = rest.dropFirst(portion)
            }
            report.leftOver += rest.count
            report.letGo = participants.reduce(0) { $0 + $1.takeLosses() }
            return report
        }
    }

    /// Encodes and writes `entries`; in the lane.
    private nonisolated func write(_ entries: [UnsavedEntry], _ epoch: UInt64, into report: inout MuxSaveReport) async {
        let store = self.store
        let encoded = await OffPool.map(entries) { entry in
            Result {
                let stored = try entry.encode(epoch)
                try store.check(stored)
                return stored
            }
        }
        var ready: [(UnsavedEntry, MuxStoredEntry)] = []
        for (entry, result) in zip(entries, encoded) {
            switch result {
            case .failure(let error):
                report.failed.append(.init(name: entry.name, error: error))
                entry.markFailed()
            case .success(let stored): ready.append((entry, stored))
            }
        }
        // A fence that comes after this look finds the lane taken, and does its part on disk after the save.
        let current = ready.filter { $0.0.isCurrent() }
        report.leftOver += ready.count - current.count
        guard !current.isEmpty else { return }
        do {
            try await self.store.save(current.map(\.1), durability: self.durability)
            for (entry, _) in current { entry.markSaved() }
            report.saved += current.count
        } catch {
            report.failed += current.map { .init(name: $0.0.name, error: error) }
            for (entry, _) in current { entry.markFailed() }
        }
    }
}
