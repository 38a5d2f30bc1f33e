import Foundation
import GRDB
import MuxKit

/// The tables of the store.
///
/// Texts are BLOBs in UTF-8: names that differ in any byte are different names, and may contain zero bytes.
enum Schema {
    /// The version of the tables.
    private static let format = 1

    private static let columns: Set<String> = [
        "id", "domain", "hasKey", "key", "session", "schemaVersion", "fetchedAt", "timeToLive", "validator",
        "staleWhileRevalidate", "staleIfError", "refreshNumber", "tagCount", "tagNumber", "usableUntil", "bytes",
        "payload",
    ]

    /// Creates the tables, or checks the existing tables.
    ///
    /// - Throws: `MuxStoreError.newerFormat` or `MuxStoreError.otherName`, without a change of the database;
    ///   `DatabaseError`.
    static func prepare(_ db: Database) throws {
        if try db.tableExists("mux_session") || db.tableExists("mux_entries") || db.tableExists("mux_tags") {
            return try self.check(db)
        }
        try db.execute(
            sql: """
                CREATE TABLE mux_session (
                    id INTEGER PRIMARY KEY CHECK (id = 0),
                    format INTEGER NOT NULL,
                    epoch INTEGER NOT NULL,
                    bytes INTEGER NOT NULL
                );
                INSERT INTO mux_session VALUES (0, \(self.format), \(Int64(ordered: 0)), 0);
                CREATE TABLE mux_entries (
                    id INTEGER PRIMARY KEY,
                    domain BLOB NOT NULL,
                    hasKey INTEGER NOT NULL,
                    key BLOB NOT NULL,
                    session INTEGER NOT NULL,
                    schemaVersion INTEGER NOT NULL,
                    fetchedAt REAL NOT NULL,
                    timeToLive TEXT NOT NULL,
                    validator BLOB,
                    staleWhileRevalidate TEXT,
                    staleIfError TEXT,
                    refreshNumber INTEGER,
                    tagCount INTEGER NOT NULL,
                    tagNumber INTEGER,
                    usableUntil REAL,
                    bytes INTEGER NOT NULL,
                    payload BLOB NOT NULL,
                    UNIQUE (domain, hasKey, key)
                );
                CREATE INDEX mux_entries_age ON mux_entries (fetchedAt);
                CREATE INDEX mux_entries_end ON mux_entries (usableUntil) WHERE usableUntil IS NOT NULL;
                CREATE TABLE mux_tags (
                    entry INTEGER NOT NULL,
                    position INTEGER NOT NULL,
                    tag BLOB NOT NULL,
                    PRIMARY KEY (entry, position)
                ) WITHOUT ROWID;
                CREATE INDEX mux_tags_tag ON mux_tags (tag);
                CREATE TRIGGER mux_entries_added AFTER INSERT ON mux_entries BEGIN
                    UPDATE mux_session SET bytes = bytes + NEW.bytes;
                END;
                CREATE TRIGGER mux_entries_replaced AFTER UPDATE ON mux_entries BEGIN
                    UPDATE mux_session SET bytes = bytes - OLD.bytes + NEW.bytes;
                    DELETE FROM mux_tags WHERE OLD.tagCount > 0 AND entry = OLD.id;
                END;
                CREATE TRIGGER mux_entries_removed AFTER DELETE ON mux_entries BEGIN
                    UPDATE mux_session SET bytes = bytes - OLD.bytes;
                    DELETE FROM mux_tags WHERE OLD.tagCount > 0 AND entry = OLD.id;
                END;
                """
        )
    }

    private static func check(_ db: Database) throws {
        guard try db.tableExists("mux_session"),
            try db.columns(in: "mux_session").contains(where: { $0.name == "format" })
        else { throw MuxStoreError.otherName }
        let format = try Int.fetchOne(db, sql: "SELECT format FROM mux_session") ?? 0
        if format > self.format { throw MuxStoreError.newerFormat }
        let columns = try db.tableExists("mux_entries") ? Set(db.columns(in: "mux_entries").map(\.name)) : []
        guard format == self.format, columns == self.columns, try db.tableExists("mux_tags") else {
            throw MuxStoreError.otherName
        }
    }

    /// The number of the current session.
    static func epoch(_ db: Database) throws -> UInt64 {
        let value = try Int64.fetchOne(db.cachedStatement(sql: "SELECT epoch FROM mux_session"))
        guard let value else { throw MuxStoreError.otherName }
        return UInt64(ordered: value)
    }
}

extension Int64 {
    /// An integer of SQLite with the order of `value`.
    init(ordered value: UInt64) { self.init(bitPattern: value ^ (1 << 63)) }
}

extension UInt64 {
    init(ordered value: Int64) { self = UInt64(bitPattern: value) ^ (1 << 63) }
}

/// The settings of the connection during a write.
enum WriteSettings {
    /// Runs `body` with the durability, and restores the settings of the app.
    ///
    /// - Parameters:
    ///   - durability: `full` synchronizes the files; `relaxed` keeps the app's setting.
    ///   - isErasing: Whether the removed values are overwritten, also in the write-ahead log.
    ///   - db: The connection, outside of a transaction.
    ///   - body: The transaction.
    /// - Returns: The result of `body`.
    /// - Throws: The error of `body`, or of a setting.
    static func with<R>(
        _ durability: MuxDurability,
        isErasing: Bool,
        _ db: Database,
        _ body: () throws -> R
    ) throws -> R {
        var former: [(name: String, value: Int)] = []
        defer { for (name, value) in former { try? db.execute(sql: "PRAGMA \(name) = \(value)") } }
        func raise(_ name: String, to value: Int) throws {
            let current = try Int.fetchOne(db, sql: "PRAGMA \(name)") ?? value
            guard current < value else { return }
            try db.execute(sql: "PRAGMA \(name) = \(value)")
            former.append((name, current))
        }
        if durability == .full {
            try raise("synchronous", to: 2)
            // Apple's file systems: otherwise the disk may keep the data in its own cache.
            try raise("fullfsync", to: 1)
        }
        if isErasing { try raise("secure_delete", to: 1) }
        let result = try body()
        // A reader may prevent the checkpoint: then a later checkpoint overwrites the log.
        if isErasing { _ = try? Row.fetchOne(db, sql: "PRAGMA wal_checkpoint(TRUNCATE)") }
        return result
    }
}
