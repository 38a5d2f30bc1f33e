import Dispatch
public import Foundation

/// Entries on disk, as lines of JSON that a person can read.
///
/// Saving appends to one file; loading reads one entry from it, checks that not a byte of it changed, and takes in what
/// other processes appended. The folder is opened on first use; if that fails, the next call tries again.
///
/// **Bounds.** When the folder takes more bytes than its limit, the least recently used entries go, until it takes three
/// quarters of it. Loads and saves of this process count as uses; of earlier processes the order is known in which they
/// left the entries on disk. How many went is counted in ``MuxStoreStatistics/evicted``. The limit cannot be kept
/// while the disk refuses the rewriting, which is counted and tried again by the next save, nor while the folder holds
/// records of a newer version of the library, which are left alone.
///
/// **Concurrent calls** wait for one another, on a thread of the store's own; large values are read side by side. Several
/// processes, such as an app and its extensions, may use one folder; the smallest of their limits holds. A process that was
/// stopped while it had the folder's lock, or is busy with it, stops no other: a call waits a second for it, later ones fail at
/// once until it goes on, and a failed load is a miss.
///
/// **Cancellation.** A call that has begun is finished, whatever becomes of the caller's task.
///
/// **On disk.** Killed at any point, the store gives the old entry, the new one, or none; never a mixture. Files are
/// readable by their owner alone, and no file is named after a key. Beside the entries, a large store keeps an index that
/// it can do without: it is made again when it is missing or does not fit, and every entry is verified when it is loaded.
///
/// **After a failure** nothing of the failed call counts as saved, other than what ``MuxStoreError/PartialSave`` leaves out, and the
/// next call starts afresh.
public actor JournalStore: MuxStore {
    private let executor = DiskExecutor(label: "MuxKit.JournalStore")
    private let journal: Journal
    private nonisolated let layout: JournalLayout
    private nonisolated let fileSystem: any FileSystem
    private nonisolated let watchesFolder: Bool

    /// The executor of the store's blocking calls.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe self.executor.asUnownedSerialExecutor()
    }

    /// Longer records are read beside other calls, which costs a thread switch more.
    package static let concurrentSize: Int64 = 1 << 14

    /// Describes a store in `directory`, which nothing else should use; touches nothing yet.
    ///
    /// An app and its extensions share entries in a folder of their app group.
    ///
    /// - Parameters:
    ///   - directory: The folder; made when it is first needed.
    ///   - byteLimit: The most bytes that the folder takes when a save has returned; 100 MB by default, `nil` for no
    ///     limit. While the store makes room it takes up to three quarters of that in addition.
    ///   - watchesFolder: Whether the system is asked to tell of sign-outs by other processes that share the folder, so
    ///     that they take effect here within milliseconds and not only with the next look at the disk; `false`. It takes
    ///     one file descriptor, on Linux one of the user's inotify instances. Where the system refuses, nothing changes.
    public init(directory: URL, byteLimit: Int? = 100_000_000, watchesFolder: Bool = false) {
        self.init(
            directory: directory,
            byteLimit: byteLimit,
            watchesFolder: watchesFolder,
            fileSystem: POSIXFileSystem()
        )
    }

    /// Describes a store on a file system, and with a hash of names, of the caller's choice.
    package init(
        directory: URL,
        byteLimit: Int? = 100_000_000,
        indexFloor: Int = 512,
        watchesFolder: Bool = false,
        lockPatience: Duration = .seconds(1),
        fileSystem: any FileSystem,
        digest: @escaping @Sendable (MuxStoreKey) -> EntryDigest = { EntryDigest($0) }
    ) {
        let path = directory.standardizedFileURL.path(percentEncoded: false)
        let root = path.count > 1 && path.hasSuffix("/") ? String(path.dropLast()) : path
        self.layout = JournalLayout(root: root)
        self.fileSystem = fileSystem
        self.watchesFolder = watchesFolder
        self.journal = Journal(
            root: root,
            byteLimit: byteLimit.map { Int64(max(0, $0)) },
            indexFloor: max(1, indexFloor),
            lockPatience: lockPatience,
            fileSystem: fileSystem,
            digest: digest
        )
    }

    /// The number of the present session; 0 before the first sign-out.
    ///
    /// - Throws: ``MuxStoreError``.
    public func sessionEpoch() throws -> UInt64 { try self.journal.sessionEpoch() }

    /// The number of the present session, from its file; `nil` if the file cannot be read or is damaged.
    ///
    /// Blocks the caller for the time of reading one small file, and makes nothing.
    public nonisolated func peekSessionEpoch() -> UInt64? {
        Journal.peekSessionEpoch(self.layout, self.fileSystem)
    }

    /// Waits for a sign-out of another process, if the store watches its folder.
    public nonisolated var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? {
        guard self.watchesFolder else { return nil }
        return { try await self.nextSession(after: $0) }
    }

    private func nextSession(after epoch: UInt64) async throws -> UInt64 {
        // The watch begins before the first look, so that no change is missed.
        let watch = FolderWatch(self.layout.root)
        defer { withExtendedLifetime(watch) {} }
        for await _ in watch.changes {
            let present = try self.journal.sessionEpoch()
            if present > epoch { return present }
        }
        throw CancellationError()
    }

    /// Moves on to session `epoch`, durably; entries of earlier ones cease to exist.
    ///
    /// - Throws: ``MuxStoreError``.
    public func raiseSessionEpoch(to epoch: UInt64) throws { try self.journal.raiseSessionEpoch(to: epoch) }

    /// Returns the entry of that name, or `nil` if there is none, it is damaged, or of an earlier session.
    ///
    /// - Throws: ``MuxStoreError`` if the folder cannot be read now.
    /// - Complexity: O(1); reads one record. The first call reads the kept index and what was appended after it.
    public func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        guard let place = try self.journal.place(of: name) else { return nil }
        guard place.location.count > Self.concurrentSize else {
            return self.journal.accept(try place.read(), from: place, as: name)
        }
        let found = await BlockingWork.run { Result { () throws(MuxStoreError) in try place.read() } }
        return self.journal.accept(try found.get(), from: place, as: name)
    }

    /// Checks the limits of the format: a header of a megabyte, a payload of one line, a time that can be told.
    ///
    /// - Throws: ``MuxStoreError``.
    public nonisolated func check(_ entry: MuxStoredEntry) throws { try RecordCodec.check(entry) }

    /// Keeps `entries`, all in one write; returns when they are as safe as `durability` says.
    ///
    /// Of entries that do not fit into the limit together, those fetched last are kept; the others count as evicted, and
    /// an older form of them is gone as well. An entry that another process saved since this one last looked at it stays if it
    /// was fetched later. Entries of an earlier session are left out.
    ///
    /// - Throws: ``MuxStoreError/PartialSave`` if some entries were not kept, and all others were: ``MuxStoreError/noRoom``,
    ///   ``MuxStoreError/newerValue``, or what is wrong with them. ``MuxStoreError`` if none was; what was written of them is
    ///   then taken back.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) throws {
        let refused = try self.journal.save(entries, durability)
        guard refused.isEmpty else {
            throw MuxStoreError.PartialSave(refused.map { .init(name: $0.name, error: $0.error) })
        }
    }

    /// Forgets the entries of those names; returns when that is as safe as `durability` says.
    ///
    /// - Throws: ``MuxStoreError``.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) throws {
        try self.journal.remove(.erase, names, durability)
    }

    /// Forgets every entry of `domain`; returns when that is as safe as `durability` says.
    ///
    /// - Throws: ``MuxStoreError``.
    public func removeAll(domain: String, durability: MuxDurability) throws {
        try self.journal.remove(.purge, [MuxStoreKey(domain: domain)], durability)
    }

    /// Forgets every entry of every domain, durably; the session epoch stays.
    ///
    /// - Throws: ``MuxStoreError``.
    /// - Complexity: One rename; the bytes are deleted after it.
    public func removeEverything() throws { try self.journal.removeEverything() }

    /// What the store counted so far.
    public func statistics() -> MuxStoreStatistics { self.journal.statistics }

    /// What is wrong with the store, for tests; empty if nothing is.
    package func brokenInvariants() throws -> [String] { try self.journal.brokenInvariants() }
}

/// Runs the jobs of one actor on a thread that may block, never on the pool that all tasks share.
///
/// `DispatchSerialQueue` would do the same, but Linux has none (Swift 6.3.1).
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
