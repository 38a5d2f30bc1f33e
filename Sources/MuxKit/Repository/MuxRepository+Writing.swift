extension MuxRepository {
    /// Writes entries that no save counts, as of the present session; in the lane.
    nonisolated func write(_ entries: [MuxStoredEntry]) async throws {
        let epoch = try await self.settledEpoch()
        let current = entries.map { entry in
            var entry = entry
            entry.sessionEpoch = epoch
            return entry
        }
        try await self.store.save(current, durability: self.durability)
    }
}
