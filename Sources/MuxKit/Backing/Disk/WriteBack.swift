extension SlotMemory {
    /// Replaces the marks of single refreshed entries that are not in memory by one mark for all entries on
    /// disk.
    ///
    /// Then all entries on disk count as stale, including entries that were not refreshed.
    @usableFromInline
    func foldMarks() {
        let date = self.repository.wallTime()
        let marks = self.engine.withState { state -> (any Sendable)? in
            guard state.slots.hasTooManyMarks else { return nil }  // another call was first
            state.disk.refresh.refreshed(at: date, upTo: nil)
            return state.slots.removeMarks()
        }
        withExtendedLifetime(marks) {}  // released outside the lock
    }

    /// Starts a write-back: a save that makes entries evictable.
    @usableFromInline
    func writeBack() {
        guard let participant = self.participant else { return }
        ReentrantAsyncMutex.outside {
            _ = self.repository.spawn(name: "mux.writeback") { [weak participant, repository] in
                guard let participant else { return }
                let report = await repository.save([participant])
                self.engine.withState { state in
                    state.disk.recordWriteBack(report.saved, failed: report.failed.count, of: state.slots.entryCount)
                    // No caller gets this report: the losses count for the next report.
                    state.disk.lostCount += report.evictedUnsaved
                }
                if report.saved == 0, !report.failed.isEmpty { self.makeUnsavedExpendable() }
                self.releaseEvicted()
            }
        }
    }

    /// Permits the eviction of unsaved entries, because the disk cannot be written.
    private func makeUnsavedExpendable() {
        var place: Int?
        repeat {
            place = self.engine.withState { state in
                let (keys, next) = state.slots.unsavedKeys(before: place, atMost: Self.portion)
                for key in keys {
                    state.withSlot(of: key) { slot in if let entry = slot.entry { slot.recordFailedSave(of: entry) } }
                }
                return next
            }
        } while place != nil
    }
}
