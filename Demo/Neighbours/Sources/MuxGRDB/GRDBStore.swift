public import Foundation
public import GRDB
public import MuxKit
import Synchronization

/// Stores the entries of a repository in an SQLite database, through GRDB.
///
/// In a file of its own:
///
/// ```swift
/// let repository = MuxRepository(store: try GRDBStore(url: folder.appending(component: "mux.sqlite")))
/// ```
///
/// In the database of the app, such as an encrypted database:
///
/// ```swift
/// let repository = MuxRepository(store: GRDBStore(database))
/// ```
///
/// The store creates the tables `mux_session`, `mux_entries` and `mux_tags` at the first call. The tables are
/// an implementation detail, except that the app may delete rows of `mux_entries` in its own transactions:
/// an entry in memory stays until its end. A migration of the app must not change the tables.
///
/// **Errors** are errors of type `MuxStoreError`, or `CancellationError`. A locked database is
/// `MuxStoreError.fileSystem(.lock, code: EAGAIN)`, after the time of `Configuration.busyMode`; a full disk is
/// `MuxStoreError.fileSystem(.write, code: ENOSPC)`; tables with other columns are `MuxStoreError.otherName`,
/// and tables of a later version are `MuxStoreError.newerFormat`: the store changes neither.
///
/// **Concurrent calls** are safe, also from several processes on one file. A `DatabasePool` loads entries
/// during a save.
public final class GRDBStore: MuxStore {
    private let database: any DatabaseWriter
    private let byteLimit: Int
    private let wallTime: @Sendable () -> Date
    /// Whether the tables exist, as far as this object knows.
    private let isPrepared = Atomic(false)

    /// Makes a store in a database of the app; does no I/O.
    ///
    /// - Parameters:
    ///   - database: The database. A `DatabasePool` or a `DatabaseQueue`, with any journal mode.
    ///   - byteLimit: The maximum size of all values in bytes after a save: entries with the oldest fetch times
    ///     are evicted.
    public convenience init(_ database: any DatabaseWriter, byteLimit: Int = 100_000_000) {
        self.init(database, byteLimit: byteLimit, wallTime: { Date() })
    }

    /// Makes a store with a wall clock, which determines when an entry becomes unusable.
    package init(_ database: any DatabaseWriter, byteLimit: Int, wallTime: @escaping @Sendable () -> Date) {
        self.database = database
        self.byteLimit = max(0, byteLimit)
        self.wallTime = wallTime
    }

    /// Makes a store in a separate file, in WAL mode; creates the file and its folder, for the user alone.
    ///
    /// - Parameters:
    ///   - url: The file. No other program may use the file; two more files with the suffixes `-wal` and
    ///     `-shm` appear beside it.
    ///   - byteLimit: As for ``init(_:byteLimit:)``.
    /// - Throws: `MuxStoreError`: the file cannot be created, or is no database.
    public convenience init(url: URL, byteLimit: Int = 100_000_000) throws {
        guard url.isFileURL else { throw MuxStoreError.unusableURL }
        var configuration = Configuration()
        configuration.busyMode = .timeout(5)
        let pool: DatabasePool
        do {
            try FileManager.default.createDirectory(
                at: url.deletingLastPathComponent(),
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            // Before SQLite creates the file with the permissions of the process; SQLite's other files inherit the
            // permissions.
            let path = url.path(percentEncoded: false)
            let file = open(path, O_CREAT | O_CLOEXEC | O_RDWR, 0o600)
            guard file >= 0 else { throw MuxStoreError.fileSystem(.open, code: errno) }
            close(file)
            pool = try Self.pool(at: path, configuration)
        } catch let error as DatabaseError {
            throw MuxStoreError.translation(of: error, during: .open)
        } catch let error as MuxStoreError {
            throw error
        } catch {
            throw MuxStoreError.fileSystem(.makeFolder, code: EIO)
        }
        self.init(pool, byteLimit: byteLimit)
    }

    /// Opens a pool, and waits at most 5 seconds for other processes.
    ///
    /// GRDB writes at the opening if the write-ahead log is empty. If another process writes at the same time,
    /// SQLite refuses this write without a call of the busy handler.
    private static func pool(at path: String, _ configuration: Configuration) throws -> DatabasePool {
        let limit = ContinuousClock.now + .seconds(5)
        while true {
            do {
                return try DatabasePool(path: path, configuration: configuration)
            } catch let error as DatabaseError where error.resultCode == .SQLITE_BUSY && ContinuousClock.now < limit {
                // As the busy handler of SQLite, which blocks the thread, too.
                Thread.sleep(forTimeInterval: 0.005)
            }
        }
    }

    // MARK: - The session

    /// The number of the current session; 0 before the first sign-out.
    public func sessionEpoch() async throws -> UInt64 { try await self.read { db in try Schema.epoch(db) } }

    /// The number of the current session; `nil` with a `DatabaseQueue`, whose transactions of the app could
    /// delay the caller.
    public func peekSessionEpoch() -> UInt64? {
        guard self.isPrepared.load(ordering: .acquiring), let pool = self.database as? DatabasePool else { return nil }
        return try? pool.unsafeReentrantRead { db in try Schema.epoch(db) }
    }

    /// Raises the session number durably, and removes the entries of earlier sessions.
    public func raiseSessionEpoch(to epoch: UInt64) async throws {
        try await self.write(.full, isErasing: true) { db in
            guard try Schema.epoch(db) < epoch else { return }
            try db.execute(sql: "UPDATE mux_session SET epoch = ?", arguments: [Int64(ordered: epoch)])
            try db.execute(sql: "DELETE FROM mux_entries WHERE session < ?", arguments: [Int64(ordered: epoch)])
        }
    }

    // MARK: - Entries

    /// Returns the entry with the name; `nil` for a missing or damaged entry.
    public func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        try await self.read { db in
            let epoch = try Schema.epoch(db)
            return try EntryRow.load(name, from: epoch, db)
        }
    }

    /// Returns the entries in the order of `names`, from one state of the database.
    public func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?] {
        guard !names.isEmpty else { return [] }
        return try await self.read { db in
            let epoch = try Schema.epoch(db)
            return try names.map { try EntryRow.load($0, from: epoch, db) }
        }
    }

    /// Checks the dates, the durations and the size of `entry`.
    public func check(_ entry: MuxStoredEntry) throws {
        guard entry.fetchedAt.timeIntervalSinceReferenceDate.isFinite,
            entry.usableUntil?.timeIntervalSinceReferenceDate.isFinite ?? true, entry.timeToLive >= .zero
        else { throw MuxStoreError.timeOutOfRange }
        let bytes = EntryRow.size(of: entry)
        if bytes > min(self.byteLimit, 1_000_000_000) { throw MuxStoreError.entryTooLarge(bytes: bytes) }
    }

    /// Saves `entries` in one transaction, and evicts unusable entries, and the entries with the oldest fetch
    /// times above the limit.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        guard !entries.isEmpty else { return }
        var refused: [MuxStoreError.PartialSave.Failure] = []
        let kept = entries.filter { entry in
            do {
                try self.check(entry)
                return true
            } catch {
                refused.append(.init(name: entry.name, error: error))
                return false
            }
        }
        let (limit, now) = (self.byteLimit, self.wallTime())
        let evicted = try await self.write(durability) { db in
            let epoch = try Schema.epoch(db)
            var saved: [Int64: MuxStoreKey] = [:]
            for entry in kept where entry.sessionEpoch >= epoch { saved[try EntryRow.save(entry, db)] = entry.name }
            return try EntryRow.evict(downTo: limit, at: now, db).compactMap { saved[$0] }
        }
        refused += evicted.map { .init(name: $0, error: MuxStoreError.noRoom) }
        if !refused.isEmpty { throw MuxStoreError.PartialSave(refused) }
    }

    /// Removes the entries with the names, and erases the values from the files.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        guard !names.isEmpty else { return }
        try await self.write(durability, isErasing: true) { db in
            for name in names { try EntryRow.remove(name, db) }
        }
    }

    /// Removes every entry of `domain`, and erases the values from the files.
    public func removeAll(domain: String, durability: MuxDurability) async throws {
        try await self.write(durability, isErasing: true) { db in
            try db.execute(sql: "DELETE FROM mux_entries WHERE domain = ?", arguments: [Data(domain.utf8)])
        }
    }

    /// Removes every entry, and erases the values from the files; the session epoch stays.
    public func removeEverything() async throws {
        try await self.write(.full, isErasing: true) { db in try db.execute(sql: "DELETE FROM mux_entries") }
    }

    /// Always `JournalStore.Statistics()`: this store does not count.
    public func statistics() async -> JournalStore.Statistics { JournalStore.Statistics() }

    /// The names of the entries with a tag, in no particular order.
    ///
    /// - Throws: `MuxStoreError`.
    /// - Complexity: O(log *n* + *k*) for *n* tags and *k* names.
    public func names(tagged tag: String) async throws -> [MuxStoreKey] {
        try await self.read { db in try EntryRow.names(tagged: tag, from: Schema.epoch(db), db) }
    }

    // MARK: - Access

    private func read<R: Sendable>(_ body: @escaping @Sendable (Database) throws -> R) async throws -> R {
        try await self.prepare()
        return try await self.translated(.read) { try await self.database.read(body) }
    }

    /// Runs `body` in a transaction with the durability.
    private func write<R: Sendable>(
        _ durability: MuxDurability,
        isErasing: Bool = false,
        _ body: @escaping @Sendable (Database) throws -> R
    ) async throws -> R {
        try await self.prepare()
        return try await self.translated(.write) {
            try await self.database.writeWithoutTransaction { db in
                try WriteSettings.with(durability, isErasing: isErasing, db) {
                    var result: R?
                    try db.inTransaction(.immediate) {
                        result = try body(db)
                        return .commit
                    }
                    guard let result else { throw MuxStoreError.fileSystem(.write, code: EIO) }
                    return result
                }
            }
        }
    }

    /// Creates the tables, or checks the existing tables; the next call tries again after an error.
    private func prepare() async throws {
        guard !self.isPrepared.load(ordering: .acquiring) else { return }
        try await self.translated(.open) {
            try await self.database.writeWithoutTransaction { db in
                try db.inTransaction(.immediate) {
                    try Schema.prepare(db)
                    return .commit
                }
            }
        }
        self.isPrepared.store(true, ordering: .releasing)
    }

    /// Runs `body`; after an error of the schema, the next call prepares the tables again.
    private func translated<R: Sendable>(
        _ operation: MuxStoreError.FileOperation,
        _ body: () async throws -> R
    ) async throws -> R {
        do {
            return try await body()
        } catch {
            let error = MuxStoreError.translation(of: error, during: operation)
            if error as? MuxStoreError == .otherName { self.isPrepared.store(false, ordering: .releasing) }
            throw error
        }
    }
}

extension MuxStoreError {
    /// An error of GRDB as an error of a store; every other error unchanged.
    static func translation(of error: any Error, during operation: MuxStoreError.FileOperation) -> any Error {
        guard let error = error as? DatabaseError else { return error }
        return switch error.resultCode {
        case .SQLITE_BUSY, .SQLITE_LOCKED: MuxStoreError.fileSystem(.lock, code: EAGAIN)
        case .SQLITE_ABORT, .SQLITE_INTERRUPT: MuxStoreError.fileSystem(operation, code: EINTR)
        case .SQLITE_FULL: MuxStoreError.fileSystem(.write, code: ENOSPC)
        case .SQLITE_READONLY: MuxStoreError.fileSystem(.write, code: EROFS)
        case .SQLITE_PERM, .SQLITE_AUTH: MuxStoreError.fileSystem(operation, code: EACCES)
        case .SQLITE_CANTOPEN: MuxStoreError.fileSystem(.open, code: EACCES)
        case .SQLITE_NOMEM: MuxStoreError.fileSystem(operation, code: ENOMEM)
        // Tables or columns are missing, or are not those of this store.
        case .SQLITE_ERROR, .SQLITE_SCHEMA, .SQLITE_CONSTRAINT: MuxStoreError.otherName
        default: MuxStoreError.fileSystem(operation, code: EIO)
        }
    }
}
