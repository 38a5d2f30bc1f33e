import Foundation
import GRDB
import MuxKit

/// The statements on entries.
enum EntryRow {
    /// The bytes that count for the limit.
    static func size(of entry: MuxStoredEntry) -> Int {
        entry.payload.count + entry.name.domain.utf8.count + (entry.name.key?.utf8.count ?? 0)
            + (entry.validator?.utf8.count ?? 0) + entry.tags.reduce(0) { $0 + $1.utf8.count }
    }

    private static func arguments(_ name: MuxStoreKey) -> [DatabaseValue] {
        [
            Data(name.domain.utf8).databaseValue, (name.key == nil ? 0 : 1).databaseValue,
            Data((name.key ?? "").utf8).databaseValue,
        ]
    }

    // MARK: - Loading

    private static let selection = """
        SELECT id, session, schemaVersion, fetchedAt, timeToLive, validator, staleWhileRevalidate, staleIfError,
            refreshNumber, tagCount, tagNumber, usableUntil, payload
        FROM mux_entries WHERE domain = ? AND hasKey = ? AND key = ?
        """

    /// The entry; `nil` for a missing or damaged entry, or an entry of a session before `epoch`.
    static func load(_ name: MuxStoreKey, from epoch: UInt64, _ db: Database) throws -> MuxStoredEntry? {
        let statement = try db.cachedStatement(sql: self.selection)
        guard let row = try Row.fetchOne(statement, arguments: StatementArguments(self.arguments(name))),
            let id: Int64 = self.value(row, 0), let session: Int64 = self.value(row, 1),
            UInt64(ordered: session) >= epoch, let version: Int = self.value(row, 2),
            let fetchedAt: Double = self.value(row, 3), let timeToLive = self.duration(row, 4),
            let tagCount: Int = self.value(row, 9), let payload: Data = self.value(row, 12)
        else { return nil }
        let validator: Data? = self.value(row, 5)
        let refresh: Int64? = self.value(row, 8)
        let tagNumber: Int64? = self.value(row, 10)
        let usableUntil: Double? = self.value(row, 11)
        var tags: [String] = []
        if tagCount > 0 {
            let statement = try db.cachedStatement(sql: "SELECT tag FROM mux_tags WHERE entry = ? ORDER BY position")
            tags = try Row.fetchAll(statement, arguments: [id]).compactMap { row in
                let tag: Data? = self.value(row, 0)
                return tag.flatMap { String(bytes: $0, encoding: .utf8) }
            }
            // Without a tag, an invalidation of the tag would miss the entry.
            guard tags.count == tagCount else { return nil }
        }
        return MuxStoredEntry(
            name: name,
            schemaVersion: version,
            sessionEpoch: UInt64(ordered: session),
            fetchedAt: Date(timeIntervalSinceReferenceDate: fetchedAt),
            timeToLive: timeToLive,
            validator: validator.flatMap { String(bytes: $0, encoding: .utf8) },
            staleWhileRevalidate: self.duration(row, 6),
            staleIfError: self.duration(row, 7),
            refreshNumber: refresh.map { UInt64(ordered: $0) },
            tags: tags,
            tagNumber: tagNumber.map { UInt64(ordered: $0) },
            usableUntil: usableUntil.map { Date(timeIntervalSinceReferenceDate: $0) },
            payload: payload
        )
    }

    /// A column; `nil` for NULL, and for a value of another type.
    private static func value<T: DatabaseValueConvertible>(_ row: Row, _ column: Int) -> T? {
        T.fromDatabaseValue(row[column] as DatabaseValue)
    }

    /// A duration as a decimal number of attoseconds.
    private static func duration(_ row: Row, _ column: Int) -> Duration? {
        let text: String? = self.value(row, column)
        return text.flatMap { Int128($0) }.map { Duration(attoseconds: $0) }
    }

    /// The names of the entries with a tag.
    static func names(tagged tag: String, from epoch: UInt64, _ db: Database) throws -> [MuxStoreKey] {
        let statement = try db.cachedStatement(
            sql: """
                SELECT DISTINCT mux_entries.id, domain, hasKey, key
                FROM mux_tags JOIN mux_entries ON mux_entries.id = mux_tags.entry
                WHERE tag = ? AND session >= ?
                """
        )
        return try Row.fetchAll(statement, arguments: [Data(tag.utf8), Int64(ordered: epoch)]).compactMap { row in
            guard let domain: Data = self.value(row, 1), let hasKey: Int = self.value(row, 2),
                let key: Data = self.value(row, 3)
            else { return nil }
            return MuxStoreKey(
                domain: String(decoding: domain, as: UTF8.self),
                key: hasKey == 0 ? nil : String(decoding: key, as: UTF8.self)
            )
        }
    }

    // MARK: - Saving

    /// Saves an entry, and returns the identity of its row.
    static func save(_ entry: MuxStoredEntry, _ db: Database) throws -> Int64 {
        let statement = try db.cachedStatement(
            sql: """
                INSERT INTO mux_entries (
                    domain, hasKey, key, session, schemaVersion, fetchedAt, timeToLive, validator,
                    staleWhileRevalidate, staleIfError, refreshNumber, tagCount, tagNumber, usableUntil, bytes, payload
                ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (domain, hasKey, key) DO UPDATE SET
                    session = excluded.session, schemaVersion = excluded.schemaVersion,
                    fetchedAt = excluded.fetchedAt, timeToLive = excluded.timeToLive,
                    validator = excluded.validator, staleWhileRevalidate = excluded.staleWhileRevalidate,
                    staleIfError = excluded.staleIfError, refreshNumber = excluded.refreshNumber,
                    tagCount = excluded.tagCount, tagNumber = excluded.tagNumber,
                    usableUntil = excluded.usableUntil, bytes = excluded.bytes, payload = excluded.payload
                RETURNING id
                """
        )
        var arguments = self.arguments(entry.name)
        arguments += [
            Int64(ordered: entry.sessionEpoch).databaseValue,
            entry.schemaVersion.databaseValue,
            entry.fetchedAt.timeIntervalSinceReferenceDate.databaseValue,
            "\(entry.timeToLive.attoseconds)".databaseValue,
            entry.validator.map { Data($0.utf8) }?.databaseValue ?? .null,
            entry.staleWhileRevalidate.map { "\($0.attoseconds)" }?.databaseValue ?? .null,
            entry.staleIfError.map { "\($0.attoseconds)" }?.databaseValue ?? .null,
            entry.refreshNumber.map { Int64(ordered: $0) }?.databaseValue ?? .null,
            entry.tags.count.databaseValue,
            entry.tagNumber.map { Int64(ordered: $0) }?.databaseValue ?? .null,
            entry.usableUntil?.timeIntervalSinceReferenceDate.databaseValue ?? .null,
            self.size(of: entry).databaseValue,
            entry.payload.databaseValue,
        ]
        guard let id = try Int64.fetchOne(statement, arguments: StatementArguments(arguments)) else {
            throw MuxStoreError.otherName
        }
        guard !entry.tags.isEmpty else { return id }
        let tagged = try db.cachedStatement(sql: "INSERT INTO mux_tags (entry, position, tag) VALUES (?, ?, ?)")
        for (position, tag) in entry.tags.enumerated() {
            try tagged.execute(arguments: [id, position, Data(tag.utf8)])
        }
        return id
    }

    // MARK: - Removing

    static func remove(_ name: MuxStoreKey, _ db: Database) throws {
        let statement = try db.cachedStatement(
            sql: "DELETE FROM mux_entries WHERE domain = ? AND hasKey = ? AND key = ?"
        )
        try statement.execute(arguments: StatementArguments(self.arguments(name)))
    }

    /// Removes entries that are unusable, and entries with the oldest fetch times above the limit.
    ///
    /// - Returns: The rows that the limit evicted.
    static func evict(downTo limit: Int, at now: Date, _ db: Database) throws -> [Int64] {
        try db.cachedStatement(sql: "DELETE FROM mux_entries WHERE usableUntil < ?")
            .execute(arguments: [now.timeIntervalSinceReferenceDate])
        let statement = try db.cachedStatement(sql: "SELECT bytes FROM mux_session")
        var excess = (try Int.fetchOne(statement) ?? 0) - limit
        guard excess > 0 else { return [] }
        var evicted: [Int64] = []
        let oldest = try Row.fetchCursor(db, sql: "SELECT id, bytes FROM mux_entries ORDER BY fetchedAt, id")
        while excess > 0, let row = try oldest.next() {
            guard let id: Int64 = self.value(row, 0), let bytes: Int = self.value(row, 1) else { continue }
            evicted.append(id)
            excess -= bytes
        }
        let removal = try db.cachedStatement(sql: "DELETE FROM mux_entries WHERE id = ?")
        for id in evicted { try removal.execute(arguments: [id]) }
        return evicted
    }
}
