/// A save and its progress, so that a caller with a time limit can get a report before the end of the save.
final class SaveRun: Sendable {
    private struct State: Sendable {
        var report = MuxRepository.SaveReport()
        /// The names of all entries to save, in order; `nil` before ``collect()``.
        var names: [MuxStoreKey]?
        /// The number of processed entries, from the start of ``names``: saved, failed, superseded or left
        /// over.
        var processedCount = 0
        /// See ``DiskRepair/unread``.
        var unread: [MuxStoreKey: any Error] = [:]
    }

    private let participants: [any SessionParticipant]
    private let name: MuxStoreKey?
    private let state = Locked(State())

    /// Prepares a save of the unsaved entries of `participants`; with a name, only of the entry with this
    /// name.
    init(_ participants: [any SessionParticipant], only name: MuxStoreKey?) {
        self.participants = participants
        self.name = name
    }

    /// The report for the caller, at the end of the save or at the time limit.
    ///
    /// Includes the number of values that were evicted unsaved since the last report; the next report starts
    /// at zero.
    func makeReport() -> MuxRepository.SaveReport {
        let (names, report) = self.state.withLock { state in
            (state.names.map { $0.dropFirst(state.processedCount) }, state.report)
        }
        var result = report
        result.evictedUnsaved = self.participants.reduce(0) { $0 + $1.takeLosses() }
        if let names {
            result.leftOverNames += names
        } else {
            // The save has not collected its entries yet.
            let unsaved = self.unsaved()
            result.leftOverNames += unsaved.dirty.map(\.name) + unsaved.unseen
            result.unchanged += unsaved.unchanged
        }
        return result
    }

    /// The report of a refused save.
    func makeRefusalReport(because error: any Error) -> MuxRepository.SaveReport {
        var report = MuxRepository.SaveReport()
        let unsaved = self.unsaved()
        report.unchanged = unsaved.unchanged
        report.failed = (unsaved.dirty.map(\.name) + unsaved.unseen).map { .init(name: $0, error: error) }
        report.repairFailures.append(error)
        return report
    }

    /// Completes pending removals and refreshes of all participants on disk; see
    /// ``SessionParticipant/repairDisk()``.
    func repairDisk() async {
        for participant in self.participants {
            let made = await participant.repairDisk()
            self.state.withLock { state in
                state.report.repairFailures += made.failures
                state.report.superseded += made.superseded
                state.report.refreshed += made.refreshed
                state.unread.merge(made.unread) { $1 }
            }
        }
    }

    /// The entries to save now, the newest first.
    func collect() -> UnsavedEntries {
        let unsaved = self.unsaved()
        self.state.withLock { state in
            state.report.unchanged += unsaved.unchanged
            state.names = unsaved.dirty.map(\.name) + unsaved.unseen
        }
        return unsaved
    }

    private func unsaved() -> UnsavedEntries {
        var all = UnsavedEntries()
        for unsaved in self.participants.map({ $0.unsaved() }) {
            all.unchanged += unsaved.unchanged
            all.dirty += self.name == nil ? unsaved.dirty : unsaved.dirty.filter { $0.name == self.name }
            all.unseen += self.name == nil ? unsaved.unseen : unsaved.unseen.filter { $0 == self.name }
        }
        all.dirty.sort { $0.fetchedAt > $1.fetchedAt }
        return all
    }

    func noteRepair(failures: [any Error]) { self.state.withLock { $0.report.repairFailures += failures } }

    /// Reports the last entries of the save, whose previous entries on disk could not be read, as failed.
    ///
    /// Without a failed repair, the entries are left over.
    func failUnread(_ names: [MuxStoreKey]) {
        self.state.withLock { state in
            guard let error = state.report.repairFailures.last else { return }
            state.report.failed += names.map { .init(name: $0, error: state.unread[$0] ?? error) }
            state.processedCount += names.count
        }
    }

    /// Adds `report`, the result for the next `count` entries.
    func noteProcessed(_ count: Int, _ report: MuxRepository.SaveReport) {
        self.state.withLock { state in
            state.processedCount += count
            state.report.saved += report.saved
            state.report.failed += report.failed
            state.report.superseded += report.superseded
            state.report.leftOverNames += report.leftOverNames
            state.report.repairFailures += report.repairFailures
        }
    }
}

extension MuxRepository.SaveReport {
    mutating func fail(_ entries: [UnsavedEntry], _ error: any Error) {
        self.failed += entries.map { Failure(name: $0.name, error: error) }
        for entry in entries { entry.markFailed() }
    }
}
