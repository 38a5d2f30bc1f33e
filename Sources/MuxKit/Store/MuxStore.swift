public import Foundation

/// Names one entry of a store.
public struct MuxStoreKey: Sendable, Hashable {
    /// The `cacheKey` of the multiplexer that owns the entry: any text.
    public var domain: String

    /// The text of the entry's own key in a ``MultiplexerMap``, any text; `nil` for the one entry of a ``Multiplexer``.
    public var key: String?

    /// Names the entry of `key` in `domain`.
    public init(domain: String, key: String? = nil) {
        self.domain = domain
        self.key = key
    }

    /// Two names are equal if their UTF-8 bytes are: texts that differ only in Unicode form name different entries.
    public static func == (a: MuxStoreKey, b: MuxStoreKey) -> Bool {
        guard a.domain.utf8.elementsEqual(b.domain.utf8) else { return false }
        switch (a.key, b.key) {
        case (nil, nil): return true
        case (let a?, let b?): return a.utf8.elementsEqual(b.utf8)
        case (nil, _?), (_?, nil): return false
        }
    }
}

/// One value as a store keeps it: encoded, with the facts that make it usable later.
public struct MuxStoredEntry: Sendable, Equatable {
    /// The entry's name.
    public var name: MuxStoreKey

    /// The version of the value's own format, as given by the code that encoded it.
    public var schemaVersion: Int

    /// The session that the value belongs to; an entry of a session before the store's present one does not exist.
    public var sessionEpoch: UInt64

    /// The wall-clock time at which the value was fetched.
    public var fetchedAt: Date

    /// How long the value counts as fresh after ``fetchedAt``.
    public var timeToLive: Duration

    /// What the server calls this version of the value, such as an entity tag; `nil` if it did not say.
    public var validator: String?

    /// How long after its time to live the value still answers at once while it is renewed; `nil` if the fetch did not say.
    public var staleWhileRevalidate: Duration?

    /// How long after its time to live the value may answer for a failed fetch; `nil` if the fetch did not say.
    public var staleIfError: Duration?

    /// The value as JSON in UTF-8, without a line break.
    public var payload: Data

    /// Describes an encoded value.
    public init(
        name: MuxStoreKey,
        schemaVersion: Int,
        sessionEpoch: UInt64,
        fetchedAt: Date,
        timeToLive: Duration,
        validator: String? = nil,
        staleWhileRevalidate: Duration? = nil,
        staleIfError: Duration? = nil,
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
        self.payload = payload
    }
}

/// How hard a store tries before it reports something as saved.
public enum MuxDurability: Sendable, Hashable {
    /// What was reported saved survives a power cut: file and folder are synchronised first.
    case full

    /// What was reported saved survives the end of the process, but perhaps not a power cut.
    case relaxed
}

/// What a store counted since it was made.
public struct MuxStoreStatistics: Sendable, Equatable {
    /// Records that were found damaged or foreign and dropped; each was a miss.
    public var damagedRecords = 0

    /// Bytes of an unfinished record at the end of the journal that were cut off.
    public var tornBytes = 0

    /// Times the journal was rewritten without its dead records.
    public var compactions = 0

    /// Times such a rewrite failed; nothing is lost by that, and it is tried again.
    public var failedCompactions = 0

    /// Entries that were given up because the store is bounded, the least recently used first.
    public var evicted = 0

    /// Times a kept index was there and did not fit what it is an index of; it was made again from the entries.
    public var rebuiltIndexes = 0

    /// Times the index could not be kept; nothing is lost by that but time at the next opening.
    public var failedIndexes = 0

    /// Entries that a ``SealedStore`` could not open; each was a miss.
    public var unopened = 0

    /// Times that the store noticed that all it kept was gone, such as with a folder that was deleted underneath.
    ///
    /// A repository then saves again what it has in memory.
    public var losses = 0

    /// Statistics of a store that has counted nothing yet.
    public init() {}
}

/// Where a repository keeps entries between launches.
///
/// The library calls the mutating members of one store one after another, in order, and ``load(_:)`` at any time, also
/// while they run. ``JournalStore`` keeps entries on disk, ``MemoryStore`` in memory; a store of your own needs no more
/// than these members.
///
/// **Calling back.** A member may call the repository that it is used by, or its multiplexers, in the task that it was called
/// in. A sign-out takes place at once, unless one is under way. A save is refused, and a removal takes place in memory, with
/// ``MuxError/calledFromStore`` in the report; the next save does what is left.
///
/// **On disk.** A member that throws has changed nothing that a reader would take for a value it did not ask for:
/// after a failed or interrupted ``save(_:durability:)`` a reader sees the old entry, the new one, or none.
public protocol MuxStore: Sendable {
    /// The number of the present session; 0 before the first sign-out.
    ///
    /// - Throws: What went wrong reading it. The library then treats the store as unreadable, not as empty.
    func sessionEpoch() async throws -> UInt64

    /// The number of the present session, if it can be read at once; `nil` if not.
    ///
    /// Asked for once, before a process takes in its first value: a sign-out of another process is then noticed even if
    /// nothing was read before it. Blocks the caller, so it must take no longer than reading a small file.
    func peekSessionEpoch() -> UInt64?

    /// Suspends until the session is another one than that with the given number, and returns its number; `nil` if the
    /// store cannot tell of sign-outs by other processes.
    var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? { get }

    /// Moves on to session `epoch`, durably, whatever the durability of saves; entries of earlier ones cease to exist.
    ///
    /// An `epoch` that is not greater than the present one changes nothing.
    ///
    /// - Throws: What went wrong; the session is then the same as before, or the new one, after a restart.
    func raiseSessionEpoch(to epoch: UInt64) async throws

    /// Returns the entry of that name, or `nil` if there is none, it is damaged, or of an earlier session.
    ///
    /// - Throws: What went wrong reading; a missing or damaged entry is not an error.
    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry?

    /// Checks that the store can keep `entry` at all, so that one that it cannot keep fails alone.
    ///
    /// - Throws: Why it cannot.
    func check(_ entry: MuxStoredEntry) throws

    /// Keeps `entries`, each in place of the one of the same name; returns when they are as safe as `durability` says.
    ///
    /// Entries of a session that has ended need not be kept; the caller looks at ``sessionEpoch()`` afterwards.
    ///
    /// - Throws: ``MuxStoreError/PartialSave`` where all entries but some were kept, so that the others count as saved. Any other
    ///   error says that none of them counts as saved, though some may have been; a repository then tries parts of them, to
    ///   find the ones that fail, unless it is a ``MuxStoreError`` about the file system.
    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws

    /// Forgets the entries of those names; returns when that is as safe as `durability` says.
    ///
    /// - Throws: What went wrong; the entries may then still be there. A repository tries again with the next save, each
    ///   name by itself if need be. One for which this throws ``MuxStoreError/entryTooLarge(bytes:)`` is given up: no such entry
    ///   can be there.
    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws

    /// Forgets every entry of `domain`; returns when that is as safe as `durability` says.
    ///
    /// - Throws: What went wrong; the entries may then still be there.
    func removeAll(domain: String, durability: MuxDurability) async throws

    /// Forgets every entry of every domain; the session epoch stays.
    ///
    /// - Throws: What went wrong; entries of earlier sessions do not come back to life by that.
    func removeEverything() async throws

    /// What the store counted so far; `MuxStoreStatistics()` from a store that does not count.
    ///
    /// There is no default: a store's own synchronous `statistics()` would lose against it where the store is used by
    /// its own type.
    func statistics() async -> MuxStoreStatistics
}

extension MuxStore {
    /// The number cannot be read at once.
    public func peekSessionEpoch() -> UInt64? { nil }

    /// No other process shares the store, or it cannot tell what they do.
    public var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? { nil }

    /// Any entry can be kept: for stores without limits.
    public func check(_ entry: MuxStoredEntry) throws {}
}

/// The folder of a store that is given none.
package enum MuxStoreLocation {
    /// What a folder is for.
    package enum Purpose: Sendable {
        /// What can be fetched again.
        case caches
        /// What cannot.
        case data
    }

    /// The user's folder for that purpose, then a name of the program, then "MuxKit".
    package static func standard(
        _ purpose: Purpose = .caches,
        environment: [String: String] = ProcessInfo.processInfo.environment,
        bundleIdentifier: String? = Bundle.main.bundleIdentifier,
        processName: String = ProcessInfo.processInfo.processName
    ) -> URL {
        let folder =
            switch purpose {
            case .caches: FolderAttributes.caches(environment)
            case .data: FolderAttributes.data(environment)
            }
        return (folder ?? FileManager.default.temporaryDirectory)
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

    /// A name that is safe as one component of a path: of letters, digits and "-._", not hidden, not long, not empty.
    package static func folderName(for text: String) -> String {
        let safe = text.utf8.prefix(100).map { byte in
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
