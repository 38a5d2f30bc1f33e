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
    /// They stay in memory as long as there is room, and the next save tries them again.
    public var failed: [Failure] = []

    /// What went wrong making good what failed earlier: a removal, or a sign-out.
    ///
    /// It is tried again at the next save.
    public var repairFailures: [any Error] = []

    /// How many entries were not written because the time was up, or because they changed meanwhile.
    public var leftOver = 0

    /// How many values had to leave memory before they could be saved, since the report before this.
    ///
    /// A map keeps its bound (``MuxPolicy/maximumCount``, ``MuxPolicy/maximumCost``) also where the disk cannot be written. An
    /// observer hears of each, see ``MuxEvent/Kind/evictedUnsaved``.
    public var letGo = 0

    /// Nothing failed, nothing is left over, and nothing was let go of unsaved.
    public var isComplete: Bool {
        self.failed.isEmpty && self.repairFailures.isEmpty && self.leftOver == 0 && self.letGo == 0
    }
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
