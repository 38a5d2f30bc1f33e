import Dispatch
public import Foundation

/// Stores entries on disk, as human-readable lines of JSON.
///
/// Saving appends to one file. Loading reads one record, verifies its checksums, and takes in what other processes
/// appended. The folder is opened on first use; if that fails, the next call tries again.
///
/// **Bounds.** When the folder exceeds its limit, the least recently used entries are evicted until it takes three
/// quarters of it; ``MuxStoreStatistics/evicted`` counts them. Loads and saves of this process count as uses; for
/// earlier processes, the order on disk counts. The limit is exceeded while a rewrite fails, which is counted and tried
/// again by the next save, and while the folder holds records of a newer version of the library, which are left alone.
///
/// **Unusable entries.** Opening the folder and rewriting the journal drop entries past their ``MuxStoredEntry/usableUntil``.
/// Opening rewrites a journal if unusable entries take an eighth of the file, or if the file has at most 64 KB.
///
/// **Full disk.** A save that finds no space removes files that the store can do without, then rewrites the journal without
/// its dead records, then evicts the least recently used entries. If the disk has no room for a second copy of the live
/// records, the copy is held in memory while the file is empty: a process that is killed at that moment loses the entries.
/// Removals and sign-outs need no space.
///
/// **Removal.** ``remove(_:durability:)`` and ``removeAll(domain:durability:)`` overwrite the values, also those that were
/// replaced earlier, with spaces: no byte of them stays in the folder. The first removal after an opening scans a journal
/// that has dead records. A replaced value stays on disk until the next compaction: when the dead records take more space
/// than the live ones, and more than 64 KB.
///
/// **Deleted files.** A store whose files are deleted while it is open notices that with the next call, and writes what is
/// missing. Idle, it holds one descriptor.
///
/// **Concurrent calls** run one after another, on the store's own queue; large values are read concurrently, and a small one
/// that the system has in memory is read where the caller runs, if no other call runs. Several
/// processes, such as an app and its extensions, may share a folder; the smallest of their limits applies. If another
/// process is stopped or busy while it holds the folder's lock, a call waits one second for the lock, and later calls
/// fail at once until it is released; a failed load is a miss.
///
/// **Cancellation.** A call that has begun runs to its end.
///
/// **On disk.** If a process is killed at any point, the store gives the old entry, the new one, or none; never a
/// mixture. Files are readable by their owner only, and no file is named after a key. A large store also keeps an index
/// snapshot, which is rebuilt if it is missing or does not match; every entry is verified when it is loaded. A folder that
/// cannot be written to, such as one that comes with an app, is read without a lock and without an attempt to write;
/// saves throw the error of the file system.
///
/// **After a failure** nothing of the failed call counts as saved, except the entries that a
/// ``MuxStoreError/PartialSave`` does not list, and the next call starts afresh.
public actor JournalStore: MuxStore {
    private let executor = DiskExecutor(label: "MuxKit.JournalStore")
    /// Used by one call at a time, and by ``loadPromptly(_:)`` if no other uses it.
    private nonisolated let journal: Locked<Journal>
    private nonisolated let clock: Locked<@Sendable () -> Date>
    private nonisolated let layout: JournalLayout
    private nonisolated let fileSystem: any FileSystem
    private nonisolated let watchesFolder: Bool
    private nonisolated let place: StoreFolder
    /// The problems of the folder.
    package nonisolated let problems: StorageProblems?

    /// The executor of the store's blocking calls.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe self.executor.asUnownedSerialExecutor()
    }

    /// Larger records, in bytes, are read concurrently with other calls, at the cost of a thread switch.
    package static let concurrentSize: Int64 = 1 << 14

    /// Makes a store in `directory`, which nothing else should use; does no I/O.
    ///
    /// An app and its extensions share entries in a folder of their app group.
    ///
    /// - Parameters:
    ///   - directory: The folder; created on first use.
    ///   - byteLimit: The maximum size of the folder in bytes after a save; `nil` for no limit. A save may exceed it
    ///     temporarily, by the appended records and a rewritten copy of the live ones.
    ///   - watchesFolder: Whether the store watches the folder, so that sign-outs by other processes that share it take
    ///     effect within milliseconds and not only at the next disk access. Takes one file descriptor, on Linux one of
    ///     the user's inotify instances. If the system refuses, nothing changes. The store recreates a watched folder after its removal.
    public init(directory: URL, byteLimit: Int? = 100_000_000, watchesFolder: Bool = false) {
        self.init(
            directory: directory,
            byteLimit: byteLimit,
            watchesFolder: watchesFolder,
            fileSystem: POSIXFileSystem()
        )
    }

    /// Makes a store with the given file system and digest of names.
    package init(
        directory: URL,
        byteLimit: Int? = 100_000_000,
        indexFloor: Int = 512,
        watchesFolder: Bool = false,
        lockPatience: Duration = .seconds(1),
        fileSystem: any FileSystem,
        digest: @escaping @Sendable (MuxStoreKey) -> EntryDigest = { EntryDigest($0) }
    ) {
        self.init(
            StoreFolder(directory),
            byteLimit: byteLimit,
            indexFloor: indexFloor,
            watchesFolder: watchesFolder,
            lockPatience: lockPatience,
            fileSystem: fileSystem,
            digest: digest
        )
    }

    /// Makes a store in a folder that may have no usable path.
    package init(
        _ folder: StoreFolder,
        byteLimit: Int?,
        indexFloor: Int = 512,
        watchesFolder: Bool = false,
        lockPatience: Duration = .seconds(1),
        fileSystem base: any FileSystem = POSIXFileSystem(),
        digest: @escaping @Sendable (MuxStoreKey) -> EntryDigest = { EntryDigest($0) }
    ) {
        let (root, problems) = (folder.path, StorageProblems())
        let fileSystem = CheckedFileSystem(base, for: folder, problems: problems)
        self.place = folder
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

    /// The number of the current session; 0 before the first sign-out.
    ///
    /// - Throws: ``MuxStoreError``.
    public func sessionEpoch() throws -> UInt64 {
        try self.journal.withLock { journal throws(MuxStoreError) in try journal.sessionEpoch() }
    }

    /// The number in the session file; `nil` if it cannot be determined.
    ///
    /// Blocks the caller while it reads one small file; creates nothing.
    public nonisolated func peekSessionEpoch() -> UInt64? {
        Journal.peekSessionEpoch(self.layout, self.fileSystem)
    }

    /// Waits for a sign-out by another process, if the store watches its folder.
    public nonisolated var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? {
        guard self.watchesFolder else { return nil }
        return { try await self.nextSession(after: $0) }
    }

    private func nextSession(after epoch: UInt64) async throws -> UInt64 {
        repeat {
            // The watch starts before the first read, so that no change is missed.
            let watch = FolderWatch(self.layout.root)
            defer { withExtendedLifetime(watch) {} }
            for await _ in watch.changes {
                let present = try self.sessionEpoch()
                if present > epoch { return present }
            }
            try Task.checkCancellation()
            // The folder was removed.
            try self.fileSystem.makeFolders(self.layout.root)
        } while true
    }

    /// Durably raises the session number to `epoch`; entries of earlier sessions cease to exist.
    ///
    /// - Throws: ``MuxStoreError``.
    public func raiseSessionEpoch(to epoch: UInt64) throws {
        try self.journal.withLock { journal throws(MuxStoreError) in try journal.raiseSessionEpoch(to: epoch) }
    }

    /// Returns the entry with that name; `nil` if it is missing, damaged, or of an earlier session.
    ///
    /// - Throws: ``MuxStoreError`` if the folder cannot be read now.
    /// - Complexity: O(1); reads one record. The first call reads the index snapshot and the records behind it.
    public func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        try await self.load([name]).first ?? nil
    }

    /// Returns the entries with those names, in their order; `nil` for one that is missing, damaged, or of an earlier session.
    ///
    /// - Throws: ``MuxStoreError`` if the folder, or one of the entries, cannot be read now.
    /// - Complexity: O(*n*), and one look for what other processes changed.
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
                    if let found = journal.accept(entry, from: place, as: names[number]) { return found }
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

    /// Checks the limits of the format: header and payload sizes, no line break, finite date, no negative duration.
    ///
    /// - Throws: ``MuxStoreError``.
    public nonisolated func check(_ entry: MuxStoredEntry) throws { try RecordCodec.check(entry) }

    /// Saves `entries` in one write; returns when they are as safe as `durability` says.
    ///
    /// If they exceed the limit together, those fetched last are saved; the others count as evicted, and their older
    /// versions are removed. A value that another process saved, and this one has not read, is kept if it was fetched
    /// later. Entries of an earlier session are dropped.
    ///
    /// - Throws: ``MuxStoreError/PartialSave`` if some entries were not saved, and all others were: with
    ///   ``MuxStoreError/noRoom``, ``MuxStoreError/newerValue``, or the entry's own error. ``MuxStoreError`` if none
    ///   was; the bytes written are then removed.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) throws {
        let refused = try self.journal.withLock { journal throws(MuxStoreError) in
            try journal.save(entries, durability)
        }
        guard refused.isEmpty else {
            throw MuxStoreError.PartialSave(refused.map { .init(name: $0.name, error: $0.error) })
        }
    }

    /// Removes the entries with those names; returns when that is as safe as `durability` says.
    ///
    /// - Throws: ``MuxStoreError``.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) throws {
        try self.journal.withLock { journal throws(MuxStoreError) in
            try journal.remove(.erase, names, durability)
        }
    }

    /// Removes every entry of `domain`; returns when that is as safe as `durability` says.
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
    /// - Complexity: One rename; the files are deleted after it.
    public func removeEverything() throws {
        try self.journal.withLock { journal throws(MuxStoreError) in try journal.removeEverything() }
    }

    /// The store's counters.
    public func statistics() -> MuxStoreStatistics { self.journal.withLock { $0.statistics } }

    /// Descriptions of violated invariants, for tests; empty if there are none.
    package func brokenInvariants() throws -> [String] { try self.journal.withLock { try $0.brokenInvariants() } }
}

/// A store that can often load an entry without waiting.
package protocol PromptStore: MuxStore {
    /// Loads the entry with that name on the caller's thread; `nil` if that might take long, or fails.
    func loadPromptly(_ name: MuxStoreKey) -> PromptLoad?
}

/// What a store has found without waiting.
package struct PromptLoad: Sendable {
    /// The entry; `nil` if it is missing, damaged, or of an earlier session.
    package let entry: MuxStoredEntry?
    /// The number of the session, at that time.
    package let sessionEpoch: UInt64
}

extension JournalStore: PromptStore {
    package nonisolated func loadPromptly(_ name: MuxStoreKey) -> PromptLoad? {
        self.journal.withLockIfAvailable { try? $0.findPromptly(name, upTo: Self.concurrentSize) } ?? nil
    }
}

/// Runs the jobs of one actor on a Dispatch queue, which they may block, instead of the cooperative pool.
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

extension JournalStore: FolderStore {
    package nonisolated var folder: StoreFolder? { self.place }

    package nonisolated func setWallTime(_ wallTime: @escaping @Sendable () -> Date) {
        self.clock.withLock { $0 = wallTime }
    }
}
