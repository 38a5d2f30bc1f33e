/// What a save did.
public struct MuxSaveReport: Sendable {
    /// An entry that could not be saved.
    public struct Failure: Sendable {
        /// The entry.
        public let name: MuxStoreKey
        /// Why: what the encoder or the store threw.
        public let error: any Error
    }

    /// How many entries were written.
    public var saved = 0

    /// How many entries the disk had already.
    public var unchanged = 0

    /// Entries that could not be encoded or written.
    ///
    /// They stay in memory, and the next save tries them again.
    public var failed: [Failure] = []

    /// What went wrong making good what failed earlier: a removal, or a sign-out.
    ///
    /// It is tried again at the next save.
    public var repairFailures: [any Error] = []

    /// How many entries were not written because the time was up, or because they changed meanwhile.
    public var leftOver = 0

    /// Nothing failed and nothing is left over.
    public var isComplete: Bool { self.failed.isEmpty && self.repairFailures.isEmpty && self.leftOver == 0 }
}

/// What a removal, or a sign-out, could not do.
public struct MuxClearReport: Sendable {
    /// What went wrong on disk.
    ///
    /// Memory is cleared in any case, what is left on disk is not read again by this process, and the next save or sign-out
    /// tries again.
    public var failures: [any Error] = []

    /// Everything was removed.
    public var isComplete: Bool { self.failures.isEmpty }
}
