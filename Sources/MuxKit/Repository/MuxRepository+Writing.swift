extension MuxRepository {
    /// Writes entries that no save counts; in the lane.
    ///
    /// Each keeps the session that it says: one that was read before the session ended is not to get into the next one.
    nonisolated func write(_ entries: [MuxStoredEntry]) async throws {
        try await self.store.save(entries, durability: self.durability)
    }
}
