extension MuxRepository {
    /// What a save did.
    public struct SaveReport: Sendable {
        /// An entry that could not be saved.
        public typealias Failure = MuxStoreError.PartialSave.Failure

        /// How many entries were written, and are what a process finds that starts now.
        public var saved = 0

        /// How many entries the disk had already.
        public var unchanged = 0

        /// Entries that could not be encoded or written, were too large, had to make room in the same save
        /// (``MuxStoreError/noRoom``), or belonged to a session that another process ended meanwhile
        /// (``MuxError/sessionEnded``).
        ///
        /// They stay in memory as long as there is room, unless their session ended, and the next save tries them again.
        public var failed: [Failure] = []

        /// Entries of which the disk has a newer value, which another process saved.
        ///
        /// The value in memory is removed; the next request reads the newer one.
        public var superseded: [MuxStoreKey] = []

        /// What went wrong making good what failed earlier: a removal, or a sign-out.
        ///
        /// It is tried again at the next save, unless it can never succeed.
        public var repairFailures: [any Error] = []

        /// The entries that were not written, or were still being written, when the time was up, and those that changed meanwhile.
        ///
        /// What is being written goes on; the next save does the rest.
        public var leftOverNames: [MuxStoreKey] = []

        /// How many ``leftOverNames`` there are.
        public var leftOver: Int { self.leftOverNames.count }

        /// How many values had to leave memory before they could be saved, since the report before this.
        ///
        /// A map keeps its bound (``MuxPolicy/maximumCount``, ``MuxPolicy/maximumCost``) also where the disk cannot be written. An
        /// observer gets an event for each, see ``MuxEvent/Kind/evictedUnsaved``.
        public var letGo = 0

        /// Nothing failed, nothing is left over, and nothing was evicted unsaved.
        public var isComplete: Bool {
            self.failed.isEmpty && self.repairFailures.isEmpty && self.leftOverNames.isEmpty && self.letGo == 0
        }
    }
}

extension MuxRepository {
    /// What a removal, or a sign-out, could not do.
    public struct ClearReport: Sendable {
        /// What went wrong on disk.
        ///
        /// Memory is cleared in any case, what is left on disk is not read again by this process, and the next save or sign-out
        /// tries again.
        public var failures: [any Error] = []

        /// Everything was removed.
        public var isComplete: Bool { self.failures.isEmpty }
    }
}

extension MuxRepository {
    /// When a repository saves.
    public enum SavePolicy: Sendable, Hashable {
        /// When it is told to: ``MuxRepository/saveAll(within:)``.
        ///
        /// Under any policy a map whose ``MuxPolicy/maximumCount`` is taken up by values that are not on disk yet saves them.
        case explicit

        /// When it is told to, and on Apple platforms when the app enters the background, or a Mac app is left or quit.
        ///
        /// The system is asked for the time that it takes; an app that is quit is held up for it, for four seconds at most.
        /// Elsewhere there is no background, and this is ``explicit``.
        case enteringBackground

        /// By itself, so long after a value was fetched or stored; what comes meanwhile is saved with it.
        ///
        /// On Apple platforms also when the app enters the background, without waiting. What could not be saved is tried again
        /// with the next change, or when told to.
        case afterFetch(debounce: Duration)
    }
}
