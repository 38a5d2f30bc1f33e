public import Foundation

/// The name of an entry in a store.
public struct MuxStoreKey: Sendable, Hashable {
    /// The `cacheKey` of the multiplexer that owns the entry: any text.
    public var domain: String

    /// The entry's key in a ``MultiplexerMap``: any text; `nil` for the single entry of a ``Multiplexer``.
    public var key: String?

    /// Makes the name of `key` in `domain`.
    public init(domain: String, key: String? = nil) {
        self.domain = domain
        self.key = key
    }

    /// Compares UTF-8 bytes: texts that differ only in Unicode normalization name different entries.
    public static func == (a: MuxStoreKey, b: MuxStoreKey) -> Bool {
        guard a.domain.utf8.elementsEqual(b.domain.utf8) else { return false }
        switch (a.key, b.key) {
        case (nil, nil): return true
        case (let a?, let b?): return a.utf8.elementsEqual(b.utf8)
        case (nil, _?), (_?, nil): return false
        }
    }
}

/// An encoded value with its metadata, as a store keeps it.
public struct MuxStoredEntry: Sendable, Equatable {
    /// The entry's name.
    public var name: MuxStoreKey

    /// The version of the value's format, given by the code that encoded it.
    public var schemaVersion: Int

    /// The session of the value; a store does not return entries of sessions before its current one.
    public var sessionEpoch: UInt64

    /// The wall-clock time of the fetch.
    public var fetchedAt: Date

    /// How long the value is fresh after ``fetchedAt``.
    public var timeToLive: Duration

    /// The server's identifier of this version of the value, such as an entity tag; `nil` if it sent none.
    public var validator: String?

    /// How long after its time to live the value is still returned while it is renewed; `nil` if the fetch did not say.
    public var staleWhileRevalidate: Duration?

    /// How long after its time to live the value may replace a failed fetch; `nil` if the fetch did not say.
    public var staleIfError: Duration?

    /// The number of the last refresh of the domain before the fetch; `nil` if there was none.
    ///
    /// A store returns it unchanged. With a store that does not, a refresh of a whole map depends on the wall clock.
    public var refreshNumber: UInt64?

    /// The wall-clock time from which only ``RequestOptions/cacheOnly`` and ``RequestOptions/staleWhileRevalidate`` use the entry;
    /// `nil` if unlimited.
    ///
    /// A store may drop the entry afterwards, and may round the time up to whole seconds.
    public var usableUntil: Date?

    /// The value as JSON in UTF-8, without a line break.
    public var payload: Data

    /// Makes an entry.
    public init(
        name: MuxStoreKey,
        schemaVersion: Int,
        sessionEpoch: UInt64,
        fetchedAt: Date,
        timeToLive: Duration,
        validator: String? = nil,
        staleWhileRevalidate: Duration? = nil,
        staleIfError: Duration? = nil,
        refreshNumber: UInt64? = nil,
        usableUntil: Date? = nil,
        payload: Data
    ) {
        self.name = name
        self.schemaVersion = schemaVersion
        self.sessionEpoch = sessionEpoch
        self.fetchedAt = fetchedAt
        self.timeToLive = timeToLive
        self.validator = validator
        self.staleWhileRevalidate = staleWhileRevalidate
        self.staleIfError = staleIfError
        self.refreshNumber = refreshNumber
        self.usableUntil = usableUntil
        self.payload = payload
    }
}

/// What a completed write of a store survives.
public enum MuxDurability: Sendable, Hashable {
    /// A power cut: file and folder are synchronized first.
    case full

    /// The end of the process, but not necessarily a power cut.
    case relaxed
}

/// Counters of a store since its creation.
public struct MuxStoreStatistics: Sendable, Equatable {
    /// Records that were damaged or of another store; each is a miss.
    public var damagedRecords = 0

    /// Bytes of incomplete records that were cut off the end of the journal.
    public var tornBytes = 0

    /// Times the journal was rewritten without its dead records.
    public var compactions = 0

    /// Failed rewrites; nothing is lost, and the rewrite is tried again.
    public var failedCompactions = 0

    /// Entries evicted by the size limit, least recently used first.
    public var evicted = 0

    /// Index snapshots on disk that did not match their journal; the index was rebuilt from the journal.
    public var rebuiltIndexes = 0

    /// Index snapshots that could not be written; only the next opening takes longer.
    public var failedIndexes = 0

    /// Entries that a ``SealedStore`` could not decrypt; each is a miss.
    public var unopened = 0

    /// Times the store found all its entries gone, for example with a deleted folder.
    ///
    /// A repository then saves again what it has in memory.
    public var losses = 0

    /// Sets all counters to 0.
    public init() {}
}

/// Stores the entries of a repository between launches.
///
/// The library calls the mutating members of a store one after another, and the loading ones at any time, also concurrently
/// with them. ``JournalStore`` keeps entries on disk, ``MemoryStore`` in memory; other stores need only these members.
///
/// **Calling back.** A member may call the repository that uses it, or its multiplexers, in the task in which it was
/// called. A sign-out runs at once, unless one is under way. A save is refused, and a removal takes effect in memory
/// only, with ``MuxError/calledFromStore`` in the report; the next save does the rest.
///
/// **On disk.** After a failed or interrupted ``save(_:durability:)`` a reader sees the old entry, the new one, or
/// none. A member that throws never makes a reader see the value of another entry.
public protocol MuxStore: Sendable {
    /// The number of the current session; 0 before the first sign-out.
    ///
    /// - Throws: The read error. The library then treats the store as unreadable, not as empty.
    func sessionEpoch() async throws -> UInt64

    /// The number of the current session if it can be read synchronously; otherwise `nil`.
    ///
    /// Called before a process stores its first value, so that a sign-out by another process is noticed even if nothing
    /// was read before. Blocks the caller: must take no longer than reading a small file.
    func peekSessionEpoch() -> UInt64?

    /// Suspends until the session number is greater than `epoch`, and returns it; `nil` if the store cannot report
    /// sign-outs by other processes.
    var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? { get }

    /// Raises the session number to `epoch`, durably in any case; entries of earlier sessions cease to exist.
    ///
    /// An `epoch` that is not greater than the current one changes nothing.
    ///
    /// - Throws: The write error; after a restart, the session is the old or the new one.
    func raiseSessionEpoch(to epoch: UInt64) async throws

    /// Returns the entry with that name; `nil` if it is missing, damaged, or of an earlier session.
    ///
    /// - Throws: The read error; a missing or damaged entry is not an error.
    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry?

    /// Returns the entries with those names, in their order; `nil` for one that is missing, damaged, or of an earlier session.
    ///
    /// Called for one name, too, and by a request for many keys for up to 128, which all wait for it. Has a default, which loads
    /// them beside one another.
    ///
    /// - Throws: The read error of any of them; then none is used, and each is loaded alone.
    func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?]

    /// Checks that the store can keep `entry`, so that an entry that it cannot keep fails alone.
    ///
    /// - Throws: The reason why it cannot.
    func check(_ entry: MuxStoredEntry) throws

    /// Saves `entries`, replacing those with the same names; returns when they are as safe as `durability` says.
    ///
    /// Entries of a session that has ended may be dropped; the caller reads ``sessionEpoch()`` afterwards.
    ///
    /// - Throws: ``MuxStoreError/PartialSave`` if some entries were not saved and the others count as saved. After any
    ///   other error none counts as saved, though some may have been. Unless it is
    ///   ``MuxStoreError/fileSystem(_:code:)`` or ``MuxStoreError/newerFormat``, a repository then tries parts of them,
    ///   to isolate the entries that fail.
    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws

    /// Removes the entries with those names; returns when that is as safe as `durability` says.
    ///
    /// A store on disk also erases the values, as far as the medium permits: of ``JournalStore`` no byte stays in the folder.
    ///
    /// - Throws: The write error; the entries may still exist. A repository tries again with its next save, if
    ///   necessary name by name. It gives up a name for which this throws ``MuxStoreError/entryTooLarge(bytes:)``: no
    ///   such entry can exist.
    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws

    /// Removes every entry of `domain`; returns when that is as safe as `durability` says.
    ///
    /// - Throws: The write error; the entries may still exist.
    func removeAll(domain: String, durability: MuxDurability) async throws

    /// Removes every entry of every domain; the session epoch stays.
    ///
    /// - Throws: The write error; entries of earlier sessions stay invisible.
    func removeEverything() async throws

    /// The store's counters; `MuxStoreStatistics()` from a store that does not count.
    ///
    /// Has no default: a store type's own synchronous `statistics()` would lose overload resolution against it.
    func statistics() async -> MuxStoreStatistics
}

extension MuxStore {
    /// `nil`: the number cannot be read synchronously.
    public func peekSessionEpoch() -> UInt64? { nil }

    /// `nil`: the store cannot report sign-outs by other processes.
    public var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? { nil }

    /// Loads the entries beside one another.
    public func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?] {
        try await withThrowingTaskGroup(of: (Int, MuxStoredEntry?).self) { group in
            for (number, name) in names.enumerated() { group.addTask { (number, try await self.load(name)) } }
            var entries: [MuxStoredEntry?] = Array(repeating: nil, count: names.count)
            for try await (number, entry) in group { entries[number] = entry }
            return entries
        }
    }

    /// Accepts every entry: for stores without limits.
    public func check(_ entry: MuxStoredEntry) throws {}
}

/// A store that keeps its entries in a folder.
package protocol FolderStore: MuxStore, ReportsProblems {
    /// The folder; `nil` if there is none.
    var folder: StoreFolder? { get }

    /// Sets the wall clock; entries become unusable by its time. Default: the system's clock.
    func setWallTime(_ wallTime: @escaping @Sendable () -> Date)
}

/// The default folder of a store.
package enum MuxStoreLocation {
    /// The kind of files in a folder.
    package enum Purpose: Sendable {
        /// Files that can be fetched again.
        case caches
        /// Files that cannot be fetched again.
        case data
    }

    /// The user's folder for `purpose`, then the bundle identifier or process name, then "MuxKit".
    ///
    /// The temporary folder does not take its place, for all users share that one.
    ///
    /// - Throws: ``MuxStoreError/noFolder``.
    package static func standard(
        _ purpose: Purpose = .caches,
        environment: [String: String] = ProcessInfo.processInfo.environment,
        bundleIdentifier: String? = Bundle.main.bundleIdentifier,
        processName: String = ProcessInfo.processInfo.processName
    ) throws(MuxStoreError) -> URL {
        let folder =
            switch purpose {
            case .caches: FolderAttributes.caches(environment)
            case .data: FolderAttributes.data(environment)
            }
        guard let folder else { throw .noFolder }
        return
            folder
            .appending(component: self.folderName(for: bundleIdentifier ?? processName))
            .appending(component: "MuxKit")
    }

    /// The user's folder by the XDG Base Directory Specification 0.8, which says to ignore relative paths.
    package static func xdg(_ purpose: Purpose, _ environment: [String: String]) -> URL? {
        let (variable, path) =
            switch purpose {
            case .caches: ("XDG_CACHE_HOME", ".cache")
            case .data: ("XDG_DATA_HOME", ".local/share")
            }
        if let folder = environment[variable], folder.hasPrefix("/") {
            return URL(filePath: folder, directoryHint: .isDirectory)
        }
        guard let home = environment["HOME"], home.hasPrefix("/") else { return nil }
        return URL(filePath: home, directoryHint: .isDirectory).appending(path: path)
    }

    /// Makes a safe path component: only letters, digits and "-._", at most 101 bytes, not hidden, not empty.
    ///
    /// Different texts have different names: where the name is not the text itself, it ends with a digest of the text.
    package static func folderName(for text: String) -> String {
        let name = self.safeName(text.utf8.prefix(100))
        // A text that ends like a digest might be the name of another text.
        guard !name.utf8.elementsEqual(text.utf8) || name.utf8.count > 64 else { return name }
        return self.safeName(text.utf8.prefix(35)) + "-" + SHA256.text(SHA256.hash(text))
    }

    private static func safeName(_ text: some Sequence<UInt8>) -> String {
        let safe = text.map { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
                byte
            default: UInt8(ascii: "_")
            }
        }
        let name = String(decoding: safe, as: UTF8.self)
        guard !name.isEmpty else { return "_" }
        return name.hasPrefix(".") ? "_" + name : name
    }
}
