import Dispatch
public import Foundation

/// Stores entries on disk, as human-readable lines of JSON.
///
/// A save appends to a single file. A load first reads the records that other processes appended, then reads
/// the record of the entry and verifies the record's checksums. The first access opens the folder; after a
/// failure, the next access tries again.
///
/// **Bounds.** If the folder exceeds the size limit, the store evicts the least recently used entries down to
/// about three quarters of the limit; ``JournalStore/Statistics/evicted`` counts evictions. Loads and saves
/// of this process count as uses; instead of all other uses, the order of the entries on disk counts. The
/// folder may exceed the limit for a time, for example during a save or after a failed rewrite. Records of a
/// newer version of the library stay unchanged, even if the folder exceeds the limit.
///
/// **Unusable entries.** Opening a writable folder and rewriting the journal drop entries past
/// ``MuxStoredEntry/usableUntil``. Opening may also rewrite the journal to remove such entries.
///
/// **Full disk.** A save without free disk space first removes dispensable files, then rewrites the journal
/// without dead records, then evicts the least recently used entries. Without room for a second copy of the
/// live records, the store holds up to 64 MB of the records in memory while the file is empty, and evicts the
/// other entries. If the process is killed at that moment, all entries are lost. Removals and sign-outs do
/// not depend on free space: a removal overwrites the values in place, and a sign-out frees space in the
/// folder, if necessary.
///
/// **Removal.** ``remove(_:durability:)`` and ``removeAll(domain:durability:)`` erase values, including
/// replaced values, from the files: the store overwrites the bytes with a zero and spaces, or rewrites the
/// journal. The first removal after an opening scans a journal with dead records. A value that was replaced,
/// but not removed, stays on disk until the next compaction, as may names, tags and validators of removed
/// entries. Compaction rewrites the journal without dead records, for example when the dead records take more
/// space than the live records, and more than 64 KB.
///
/// **Deleted files.** If the files of an open store are deleted, the next access creates the missing files;
/// ``JournalStore/Statistics/losses`` counts losses of entries. Between calls, a store usually has a single
/// open file descriptor, and another for a folder watch.
///
/// **Concurrent calls** run serially, on the store's queue, with two kinds of exceptions. Large values are
/// read concurrently. ``check(_:)``, ``peekSessionEpoch()`` and some reads of small values in the system's
/// page cache run on the caller's thread.
///
/// Several processes, such as an app and its extensions, may share a folder; each process evicts entries
/// beyond the limit of the process's own store. If another process holds the folder's lock for more than a
/// second, a call that needs the lock fails. Later such calls then fail at once until the lock is free.
///
/// **Cancellation.** A call that has begun runs to its end, except a call of ``sessionWatch``.
///
/// **On disk.** If a process is killed at any point, the store returns the old entry, the new entry, or
/// `nil`; never a mixture. The files have mode 0600, and no file is named after a key. A large store also has
/// an index snapshot. If the snapshot is missing or does not match the journal, the store rebuilds the index
/// from the journal. A folder without write permission, such as a folder in an app's bundle, is read without
/// a lock; saves throw the error of the file system.
///
/// **After a failure** no entry of the failed call counts as saved, except the entries that a
/// ``MuxStoreError/PartialSave`` does not list.
public actor JournalStore: MuxStore {
    private let executor = DiskExecutor(label: "MuxKit.JournalStore")
    /// Used by a single call at a time; ``loadPromptly(_:)`` returns `nil` while another call uses the
    /// journal.
    private nonisolated let journal: Locked<Journal>
    private nonisolated let clock: Locked<@Sendable () -> Date>
    private nonisolated let layout: JournalLayout
    private nonisolated let fileSystem: any FileSystem
    private nonisolated let watchesFolder: Bool
    /// The folder, which may have no usable path.
    package nonisolated let folder: StoreFolder?
    package nonisolated let problems: StorageProblems?

    /// The executor of the store's blocking calls.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe self.executor.asUnownedSerialExecutor()
    }

    /// The record size in bytes above which a read runs concurrently with other calls, at the cost of a
    /// thread switch.
    package static let concurrentSize: Int64 = 1 << 14

    /// Makes a store in `directory`, which must have no other use; opens no file.
    ///
    /// An app and its extensions can share entries in a folder of the app group.
    ///
    /// - Parameters:
    ///   - directory: The folder; created on first use.
    ///   - byteLimit: The size limit of the folder in bytes; `nil` for no limit. During a save the folder may
    ///     exceed the limit by the appended records and a rewritten copy of the live records.
    ///   - watchesFolder: Whether the store watches the folder. Sign-outs by other processes with the same
    ///     folder then usually take effect within milliseconds. Without a watch, or if the system refuses the
    ///     watch, sign-outs take effect at the next disk access. The watch takes a file descriptor, and on
    ///     Linux an inotify instance of the user. The store recreates a watched folder after a removal.
    public init(directory: URL, byteLimit: Int? = 100_000_000, watchesFolder: Bool = false) {
        self.init(StoreFolder(directory), byteLimit: byteLimit, watchesFolder: watchesFolder)
    }

    /// Makes a store in a folder that may have no usable path, with the given file system and digest of
    /// names.
    package init(
        _ folder: StoreFolder,
        byteLimit: Int? = 100_000_000,
        indexFloor: Int = 512,
        watchesFolder: Bool = false,
        lockPatience: Duration = .seconds(1),
        fileSystem base: any FileSystem = POSIXFileSystem(),
        digest: @escaping @Sendable (MuxStoreKey) -> EntryDigest = { EntryDigest($0) }
    ) {
        let (root, problems) = (folder.path, StorageProblems())
        let fileSystem = CheckedFileSystem(base, for: folder, problems: problems)
        self.folder = folder
        self.problems = problems
        self.layout = JournalLayout(root: root)
        self.fileSystem = fileSystem
        self.watchesFolder = watchesFolder
        let clock = Locked<@Sendable () -> Date> { Date() }
        self.clock = clock
        self.journal = Locked(
            Journal(
                root: root,
                byteLimit: byteLimit.map { Int64(max(0, $0)) },
                indexFloor: max(1, indexFloor),
                lockPatience: lockPatience,
                fileSystem: fileSystem,
                wallTime: { clock.withLock { $0 }() },
                digest: digest
            )
        )
    }

    /// The number of the current session; 0 in a new store.
    ///
    /// - Throws: ``MuxStoreError``.
    public func sessionEpoch() throws -> UInt64 {
        try self.journal.withLock { journal throws(MuxStoreError) in try journal.sessionEpoch() }
    }

    /// The number in the session file; 0 without a store, `nil` if the number cannot be read.
    ///
    /// Blocks the caller during the read of a small file; creates no file.
    public nonisolated func peekSessionEpoch() -> UInt64? {
        (try? Journal.epochOnDisk(self.layout, self.fileSystem)) ?? nil
    }

    /// Waits until the session number is greater than `epoch`; `nil` if the store does not watch the folder.
    public nonisolated var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? {
        guard self.watchesFolder else { return nil }
        return { try await self.nextSession(after: $0) }
    }

    private func nextSession(after epoch: UInt64) async throws -> UInt64 {
        repeat {
            // The watch starts before the first read, so no change is missed.
            let watch = FolderWatch(self.layout.root)
            defer { withExtendedLifetime(watch) {} }
            for await _ in watch.changes {
                // Without the lock, if possible: a stopped process that holds the lock must not end the
                // watch.
                let present = try self.peekSessionEpoch() ?? self.sessionEpoch()
                if present > epoch { return present }
            }
            try Task.checkCancellation()
            // The folder was removed or renamed.
            try self.fileSystem.makeFolders(self.layout.root)
        } while true
    }

    /// Durably raises the session number to `epoch`, which invalidates entries of earlier sessions.
    ///
    /// - Throws: ``MuxStoreError``.
    public func raiseSessionEpoch(to epoch: UInt64) throws {
        try self.journal.withLock { journal throws(MuxStoreError) in try journal.raiseSessionEpoch(to: epoch) }
    }

    /// Returns the entry with the name; `nil` for a missing or damaged entry, or an entry of an earlier
    /// session.
    ///
    /// - Throws: ``MuxStoreError`` if the folder cannot be read now.
    /// - Complexity: O(1), without changes by other processes: reads a single record. The first call reads
    ///   the index.
    public func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        try await self.load([name]).first ?? nil
    }

    /// Returns the entries in the order of `names`; `nil` for a missing or damaged entry, or an entry of an
    /// earlier session.
    ///
    /// - Throws: ``MuxStoreError`` if the folder, or one of the entries, cannot be read now.
    /// - Complexity: O(*n*), without changes by other processes.
    public func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?] {
        let findings = try self.journal.withLock { journal throws(MuxStoreError) in
            try journal.find(names, upTo: Self.concurrentSize)
        }
        var entries = findings.map { finding -> MuxStoredEntry? in
            if case .entry(let entry) = finding { entry } else { nil }
        }
        try await withThrowingTaskGroup(of: (Int, JournalPlace, MuxStoredEntry?).self) { group in
            for (number, finding) in findings.enumerated() {
                guard case .large(let place) = finding else { continue }
                group.addTask {
                    let found = await BlockingWork.run { Result { () throws(MuxStoreError) in try place.read() } }
                    return (number, place, try found.get())
                }
            }
            for try await (number, place, entry) in group {
                entries[number] = self.journal.withLock { journal in
                    if let found = journal.validate(entry, from: place, as: names[number]) { return found }
                    // A rewrite may have moved the record during the read.
                    guard entry == nil, !journal.isCurrent(place),
                        let findings = try? journal.find([names[number]], upTo: .max),
                        case .entry(let found)? = findings.first
                    else { return nil }
                    return found
                }
            }
        }
        return entries
    }

    /// Checks the limits of the format.
    ///
    /// The limits: header and payload sizes, no line break, finite date, no negative duration.
    ///
    /// - Throws: ``MuxStoreError``.
    public nonisolated func check(_ entry: MuxStoredEntry) throws { try RecordCodec.check(entry) }

    /// Saves `entries` together; returns after the write has the given durability.
    ///
    /// If `entries` together exceed the size limit, only the most recently fetched entries are saved. The
    /// others count as evicted, and older versions of evicted entries are removed. A value that was fetched
    /// later, and that this process has neither read nor saved, is kept. Entries of an earlier session are
    /// dropped without an error.
    ///
    /// - Throws: ``MuxStoreError/PartialSave`` with the refused entries, even if all entries are refused; the
    ///   other entries count as saved. The error of a refused entry is ``MuxStoreError/noRoom``,
    ///   ``MuxStoreError/newerValue``, or the reason why the entry cannot be stored. Otherwise
    ///   ``MuxStoreError``: no entry counts as saved, and the written bytes are removed, if possible.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) throws {
        let refused = try self.journal.withLock { journal throws(MuxStoreError) in
            try journal.save(entries, durability)
        }
        guard refused.isEmpty else {
            throw MuxStoreError.PartialSave(refused.map { .init(name: $0.name, error: $0.error) })
        }
    }

    /// Removes the entries with the names; returns after the removal has the given durability.
    ///
    /// - Throws: ``MuxStoreError``.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) throws {
        try self.journal.withLock { journal throws(MuxStoreError) in
            try journal.remove(.erase, names, durability)
        }
    }

    /// Removes every entry of `domain`; returns after the removal has the given durability.
    ///
    /// - Throws: ``MuxStoreError``.
    public func removeAll(domain: String, durability: MuxDurability) throws {
        try self.journal.withLock { journal throws(MuxStoreError) in
            try journal.remove(.purge, [MuxStoreKey(domain: domain)], durability)
        }
    }

    /// Removes every entry of every domain, durably; the session epoch stays.
    ///
    /// - Throws: ``MuxStoreError``.
    /// - Complexity: O(1): renames a folder, and deletes a few files.
    public func removeEverything() throws {
        try self.journal.withLock { journal throws(MuxStoreError) in try journal.removeEverything() }
    }

    /// The store's counters.
    public func statistics() -> JournalStore.Statistics { self.journal.withLock { $0.statistics } }

    /// Descriptions of violated invariants, for tests; empty without violations.
    package func brokenInvariants() throws -> [String] { try self.journal.withLock { try $0.brokenInvariants() } }
}

/// A store that can often load an entry without waiting.
package protocol PromptStore: MuxStore {
    /// Loads the entry with the name on the caller's thread; `nil` if the load might take long, or fails.
    func loadPromptly(_ name: MuxStoreKey) -> PromptLoad?
}

/// The result of a load without waiting.
package struct PromptLoad: Sendable {
    /// The entry; `nil` for a missing or damaged entry, or an entry of an earlier session.
    package let entry: MuxStoredEntry?
    /// The number of the session at the time of the load.
    package let sessionEpoch: UInt64
}

extension JournalStore: PromptStore {
    package nonisolated func loadPromptly(_ name: MuxStoreKey) -> PromptLoad? {
        self.journal.withLockIfAvailable { try? $0.findPromptly(name, upTo: Self.concurrentSize) } ?? nil
    }
}

/// Runs the jobs of an actor on a Dispatch queue instead of the cooperative pool, so that the jobs may block.
///
/// Linux has no `DispatchSerialQueue` (Swift 6.3.1).
package final class DiskExecutor: SerialExecutor {
    private let queue: DispatchQueue

    package init(label: String) { self.queue = DispatchQueue(label: label) }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.queue.async { unsafe job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    package func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        unsafe UnownedSerialExecutor(ordinary: self)
    }
}

extension JournalStore: FolderStore, IdentifiedStore {
    package var identity: UInt64? {
        get throws { try self.journal.withLock { journal throws(MuxStoreError) in try journal.identity() } }
    }

    package nonisolated func setWallTime(_ wallTime: @escaping @Sendable () -> Date) {
        self.clock.withLock { $0 = wallTime }
    }
}

extension JournalStore {
    /// Counters of a store since its creation.
    public struct Statistics: Sendable, Equatable {
        /// Damaged parts of the journal, damaged session files, records of another store, and colliding
        /// digests of names.
        ///
        /// A load of such a record is a miss; a damaged session file ends the session. The same damage may
        /// count again at a later read.
        public var damagedRecords = 0

        /// Bytes of incomplete records, which were truncated from the end of the journal.
        public var tornBytes = 0

        /// Rewrites of the journal without dead records.
        public var compactions = 0

        /// Failed rewrites of the journal, and rewrites without a flush of the new file's name.
        ///
        /// Such a failure loses no entry, and the store tries again.
        public var failedCompactions = 0

        /// Entries evicted by the size limit or on a full disk.
        public var evicted = 0

        /// Index snapshots that were damaged or did not match the journal; the index was rebuilt.
        public var rebuiltIndexes = 0

        /// Failed writes of index snapshots; only the next opening takes longer.
        public var failedIndexes = 0

        /// Entries that a ``SealedStore`` could not decrypt; each such entry is a miss.
        public var unopened = 0

        /// Losses of all entries of the store, for example with a deleted folder.
        ///
        /// After a loss, a repository writes the entries that are in memory to the store again.
        public var losses = 0

        /// Sets all counters to 0.
        public init() {}
    }
}
