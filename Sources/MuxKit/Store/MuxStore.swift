public import Foundation

/// The name of an entry in a store.
public struct MuxStoreKey: Sendable, Hashable {
    /// The `cacheKey` of the multiplexer that owns the entry, or a name of the library: any text.
    public var domain: String

    /// The entry's key in a ``MultiplexerMap``: any text; `nil` for the single entry of a ``Multiplexer``,
    /// and for data about a whole domain.
    public var key: String?

    /// Makes the name of `key` in `domain`.
    public init(domain: String, key: String? = nil) {
        self.domain = domain
        self.key = key
    }

    /// Compares UTF-8 bytes: strings with different Unicode normalization name different entries.
    public static func == (a: MuxStoreKey, b: MuxStoreKey) -> Bool {
        guard a.domain.utf8.elementsEqual(b.domain.utf8) else { return false }
        switch (a.key, b.key) {
        case (nil, nil): return true
        case (let a?, let b?): return a.utf8.elementsEqual(b.utf8)
        case (nil, _?), (_?, nil): return false
        }
    }
}

/// An encoded value with metadata: the form in which a store keeps an entry.
public struct MuxStoredEntry: Sendable, Equatable {
    /// The entry's name.
    public var name: MuxStoreKey

    /// The version of the value's format, from the code that encoded the value.
    ///
    /// Negative for entries with the library's own data, such as the last refresh.
    public var schemaVersion: Int

    /// The session of the value; a store does not return entries of earlier sessions.
    public var sessionEpoch: UInt64

    /// The wall-clock time of the fetch.
    public var fetchedAt: Date

    /// The duration for which the value is fresh after ``fetchedAt``.
    public var timeToLive: Duration

    /// The server's identifier of this version of the value, such as an entity tag; `nil` if the server sent
    /// no identifier.
    public var validator: String?

    /// The duration after the time to live during which a request may return the stale value while a fetch
    /// renews the value; `nil` if the fetch gave no duration.
    public var staleWhileRevalidate: Duration?

    /// The duration after the time to live during which a stale value may replace a failed fetch; `nil` if
    /// the fetch gave no duration.
    public var staleIfError: Duration?

    /// The number of the domain's last refresh, or 0 if the fetch preceded the refresh; `nil` without a
    /// refresh.
    ///
    /// A refresh of a domain makes all entries of the domain stale. A store must return the number unchanged.
    /// If the number is lost, wall-clock times, which may be wrong, decide whether the fetch preceded the
    /// refresh.
    public var refreshNumber: UInt64?

    /// The tags of the value; a store must return the tags and ``tagNumber`` unchanged.
    public var tags: [String]

    /// The number of the last change of any tag before the fetch; `nil` for an entry without tags.
    public var tagNumber: UInt64?

    /// The wall-clock time after which only requests for a value of any age, such as
    /// ``RequestOptions/cacheOnly``, use the entry; `nil` if unlimited.
    ///
    /// A store may drop the entry after this time, and may round the time up to whole seconds.
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
        tags: [String] = [],
        tagNumber: UInt64? = nil,
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
        self.tags = tags
        self.tagNumber = tagNumber
        self.usableUntil = usableUntil
        self.payload = payload
    }
}

/// The durability of a completed write of a store.
public enum MuxDurability: Sendable, Hashable {
    /// The write survives a power cut, as far as the store can flush data to the device.
    case full

    /// The write survives the end of the process, but not necessarily a power cut.
    case relaxed
}

/// Stores the entries of a repository.
///
/// A repository calls the mutating members of a store serially, unless a member itself calls the repository.
/// A repository calls the loading members at any time, also concurrently with mutating members.
/// ``JournalStore`` keeps entries on disk, ``MemoryStore`` in memory.
///
/// **Calling back.** An `async` member may call the repository of the store, or multiplexers of the
/// repository, in the task of the member's call. A sign-out runs at once, but is refused in a call that
/// belongs to another sign-out. A save is refused. A removal takes effect in memory only; the next save
/// removes the entries from the store. The report of a refused call or of such a removal contains
/// ``MuxError/calledFromStore``.
///
/// **On disk.** After a failed or interrupted ``save(_:durability:)`` a reader gets the old entry, the new
/// entry, or `nil`. After an error of any member, no reader gets the value of another entry.
public protocol MuxStore: Sendable {
    /// The number of the current session; 0 in a new store.
    ///
    /// - Throws: The read error. The library then treats the store as unreadable, not as empty.
    func sessionEpoch() async throws -> UInt64

    /// The number of the current session; `nil` if the number cannot be read synchronously.
    ///
    /// The library calls this member before a process stores the first value, so the process detects
    /// sign-outs by other processes even without a previous read. Blocks the caller, under a lock: must take
    /// no longer than the read of a small file, and must not call the repository.
    func peekSessionEpoch() -> UInt64?

    /// Suspends until the session number is greater than `epoch`, and returns the number; `nil` if the store
    /// cannot report sign-outs by other processes.
    ///
    /// The call must throw after a cancellation of the task. After an error, the library calls again only
    /// after the next read from the store.
    var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? { get }

    /// Raises the session number to `epoch`, always durably, which invalidates entries of earlier sessions.
    ///
    /// An `epoch` less than or equal to the current number has no effect.
    ///
    /// - Throws: The write error; after a restart, the session is the old session or the new session.
    func raiseSessionEpoch(to epoch: UInt64) async throws

    /// Returns the entry with the name; `nil` for a missing or damaged entry, or an entry of an earlier
    /// session.
    ///
    /// - Throws: The read error; a missing or damaged entry is not an error.
    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry?

    /// Returns the entries in the order of `names`; `nil` for a missing or damaged entry, or an entry of an
    /// earlier session.
    ///
    /// A request for many keys calls this member with up to 128 names, and all keys of the call wait for the
    /// result. A call may have a single name. The default implementation loads the entries concurrently.
    ///
    /// - Throws: The read error of any entry; the library then uses no entry of the call, and a request for
    ///   many keys loads each entry separately.
    func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?]

    /// Checks that the store can keep `entry`, so that an unsuitable entry fails alone; called concurrently.
    ///
    /// - Throws: The reason why the store cannot keep `entry`.
    func check(_ entry: MuxStoredEntry) throws

    /// Saves `entries`, and replaces entries with the same names; returns after the write has the given
    /// durability.
    ///
    /// Entries of an ended session may be dropped; the caller reads ``sessionEpoch()`` after the save.
    ///
    /// - Throws: ``MuxStoreError/PartialSave`` with the unsaved entries, if the other entries count as saved.
    ///   After any other error no entry counts as saved, though some entries may have been saved. A
    ///   repository then saves parts of `entries` to isolate the failing entries, except after a
    ///   ``MuxStoreError`` that concerns the whole store, such as ``MuxStoreError/fileSystem(_:code:)``,
    ///   ``MuxStoreError/newerFormat`` or ``MuxStoreError/notPrivate``.
    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws

    /// Removes the entries with the names; returns after the removal has the given durability.
    ///
    /// A store on disk also erases the values, as far as the medium permits: ``JournalStore`` leaves no byte
    /// of the values in the folder.
    ///
    /// - Throws: The write error; the entries may still exist. A repository then removes parts of `names` to
    ///   isolate the failing names, and tries again at the next save. After an error that no repetition can
    ///   fix, such as ``MuxStoreError/entryTooLarge(bytes:)``, the repository does not try again for the
    ///   name: no such entry can exist.
    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws

    /// Removes every entry of `domain`; returns after the removal has the given durability.
    ///
    /// - Throws: The write error; the entries may still exist.
    func removeAll(domain: String, durability: MuxDurability) async throws

    /// Removes every entry of every domain; the session epoch stays.
    ///
    /// - Throws: The write error; entries of earlier sessions stay invisible.
    func removeEverything() async throws

    /// The store's counters; `JournalStore.Statistics()` from a store that does not count.
    ///
    /// This requirement has no default implementation: overload resolution would prefer the default to the
    /// synchronous `statistics()` of a store type.
    func statistics() async -> JournalStore.Statistics
}

extension MuxStore {
    /// `nil`: the number cannot be read synchronously.
    public func peekSessionEpoch() -> UInt64? { nil }

    /// `nil`: the store cannot report sign-outs by other processes.
    public var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? { nil }

    /// Loads the entries concurrently.
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

/// A store that may have a folder.
package protocol FolderStore: MuxStore, ReportsProblems {
    /// The folder; `nil` without a folder.
    var folder: StoreFolder? { get }

    /// Sets the wall clock, which determines when entries become unusable. Default: the system's clock.
    func setWallTime(_ wallTime: @escaping @Sendable () -> Date)
}

/// A store with an identity, which distinguishes sessions with equal numbers.
package protocol IdentifiedStore: MuxStore {
    /// A random number, which changes if the store loses the number of the session; `nil` if the store cannot
    /// keep the random number.
    ///
    /// Each store in memory has another number.
    var identity: UInt64? { get async throws }
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

    /// The folder "MuxKit" in the app's folder in the user's folder for `purpose`.
    ///
    /// ``folderName(for:)`` of the bundle identifier, or of the process name, is the name of the app's
    /// folder.
    ///
    /// The temporary folder is no substitute: all users share the temporary folder.
    ///
    /// - Throws: ``MuxStoreError/noFolder``.
    package static func standard(
        _ purpose: Purpose = .caches,
        environment: [String: String] = ProcessInfo.processInfo.environment,
        bundleIdentifier: String? = Bundle.main.bundleIdentifier,
        processName: String = ProcessInfo.processInfo.processName
    ) throws(MuxStoreError) -> URL {
        guard let folder = FolderAttributes.folder(for: purpose, environment) else { throw .noFolder }
        return
            folder
            .appending(component: self.folderName(for: bundleIdentifier ?? processName))
            .appending(component: "MuxKit")
    }

    /// The user's folder according to the XDG Base Directory Specification 0.8, which requires ignoring
    /// relative paths.
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
    /// Different strings have different names: a name that differs from `text`, or would exceed 64 bytes,
    /// ends with a digest of `text`.
    package static func folderName(for text: String) -> String {
        let name = self.safeName(text.utf8.prefix(100))
        // A string of more than 64 bytes could be equal to the name of another string, which ends with a
        // digest.
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
