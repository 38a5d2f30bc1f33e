extension MuxRepository {
    /// Those who are alive.
    nonisolated var participants: [any SessionParticipant] { self.registry.withLock { $0.participants.living() } }

    /// Forgets values in memory, of everything alive that has a `cacheKey` or is registered.
    ///
    /// Nothing is lost: what has to go to disk and is not there yet stays in memory, what is on disk is read again when it is
    /// asked for, and the rest is fetched. Fetches that are running go on. On Apple platforms this happens by itself when
    /// the system warns that memory is short.
    ///
    /// - Complexity: O(*n*) in the number of values in memory.
    public nonisolated func clearMemory() {
        for participant in self.participants { participant.clearMemory() }
    }
}
