import Foundation
import GRDB
import MuxConformance
import MuxGRDB
import MuxKit
import Testing

@Suite(.timeLimit(.minutes(5)))
struct GRDBStoreTests {
    private let folder = Folder()

    private func entry(_ key: String, _ text: String = "x", fetchedAt: Double = 0, tags: [String] = [])
        -> MuxStoredEntry
    {
        MuxStoredEntry(
            name: MuxStoreKey(domain: "tests", key: key),
            schemaVersion: 1,
            sessionEpoch: 0,
            fetchedAt: Date(timeIntervalSinceReferenceDate: fetchedAt),
            timeToLive: .seconds(60),
            tags: tags,
            tagNumber: tags.isEmpty ? nil : 1,
            payload: Data("\"\(text)\"".utf8)
        )
    }

    private func error(_ body: () async throws -> Void) async -> MuxStoreError? {
        do {
            try await body()
            return nil
        } catch {
            return error as? MuxStoreError
        }
    }

    @Test func `NB-01 the store in a separate file obeys the rules of a store`() async throws {
        try await MuxStoreConformance.run { try GRDBStore(url: Folder(isKept: true).file) }
    }

    @Test func `NB-01 the store in a database of the app obeys the rules of a store`() async throws {
        try await MuxStoreConformance.run { GRDBStore(try DatabaseQueue()) }
        try await MuxStoreConformance.run {
            var configuration = Configuration()
            configuration.foreignKeysEnabled = false
            let file = Folder(isKept: true).file
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(),
                withIntermediateDirectories: true
            )
            return GRDBStore(try DatabaseQueue(path: file.path(), configuration: configuration))
        }
    }

    @Test func `NB-01 a separate file is in WAL mode, and only the user can read its files`() async throws {
        // The folder of another program may be open to other users.
        try FileManager.default.createDirectory(
            at: self.folder.url,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o755]
        )
        let store = try GRDBStore(url: self.folder.file)
        try await store.save([self.entry("a")], durability: .full)
        let other = try DatabaseQueue(path: self.folder.file.path())
        #expect(try await other.read { try String.fetchOne($0, sql: "PRAGMA journal_mode") } == "wal")
        for suffix in ["", "-wal", "-shm"] {
            let attributes = try FileManager.default.attributesOfItem(atPath: self.folder.file.path() + suffix)
            #expect(attributes[.posixPermissions] as? Int == 0o600, "\(suffix)")
        }
        let nested = self.folder.url.appending(path: "a/b/mux.sqlite")
        _ = try GRDBStore(url: nested)
        let attributes = try FileManager.default.attributesOfItem(atPath: nested.deletingLastPathComponent().path())
        #expect(attributes[.posixPermissions] as? Int == 0o700)
    }

    @Test func `NB-01 a value survives a relaunch, and a sign-out leaves no byte of the value`() async throws {
        func repository() throws -> MuxRepository { MuxRepository(store: try GRDBStore(url: self.folder.file)) }
        let secret = "secret of the first user"
        do {
            let repository = try repository()
            let value = Multiplexer<String>(cacheKey: "Value", repository: repository) { secret }
            #expect(try await value.request() == secret)
            #expect(await repository.saveAll().isComplete)
        }
        #expect(self.folder.contains(secret))
        let later = try repository()
        let value = Multiplexer<String>(cacheKey: "Value", repository: later) { "second fetch" }
        #expect(try await value.request() == secret)

        #expect(await later.signOut().isComplete)

        #expect(!self.folder.contains(secret))
        #expect(try await value.request() == "second fetch")
        #expect(try await GRDBStore(url: self.folder.file).sessionEpoch() == 1)
    }

    @Test(arguments: [MuxDurability.full, .relaxed])
    func `NB-01 a removal leaves no byte of the value`(durability: MuxDurability) async throws {
        let store = try GRDBStore(url: self.folder.file)
        let secrets = ["first secret", "second secret", "third secret"]
        try await store.save(
            secrets.map { self.entry($0, String(repeating: $0, count: $0.hasPrefix("third") ? 1_000 : 1)) },
            durability: .full
        )
        #expect(secrets.allSatisfy { self.folder.contains($0) })
        try await store.remove(secrets.map { self.entry($0).name }, durability: durability)
        #expect(!secrets.contains { self.folder.contains($0) })
        try await store.save([self.entry("a", "fourth secret")], durability: durability)
        try await store.removeAll(domain: "tests", durability: durability)
        #expect(!self.folder.contains("fourth secret"))
    }

    @Test func `NB-01 a removal erases the value also with other settings of the app, which are restored`() async throws
    {
        let pool = try DatabasePool(path: self.folder.made.file.path())
        let settings = ["synchronous", "fullfsync", "secure_delete"]
        func values() async throws -> [Int?] {
            try await pool.writeWithoutTransaction { db in
                try settings.map { try Int.fetchOne(db, sql: "PRAGMA \($0)") }
            }
        }
        // The default of `secure_delete` depends on the system's SQLite.
        try await pool.writeWithoutTransaction { try $0.execute(sql: "PRAGMA secure_delete = 0") }
        let former = try await values()
        #expect(former == [1, 0, 0])
        let store = GRDBStore(pool)
        try await store.save([self.entry("a", "secret")], durability: .full)
        #expect(self.folder.contains("secret"))
        try await store.removeEverything()
        #expect(try await values() == former)
        #expect(!self.folder.contains("secret"))
    }

    @Test func `NB-01 tags are found by the index, and only tags of current values`() async throws {
        let store = try GRDBStore(url: self.folder.file)
        try await store.save(
            [self.entry("a", tags: ["x", "y"]), self.entry("b", tags: ["x", "x"]), self.entry("c")],
            durability: .relaxed
        )
        func keys(_ tag: String) async throws -> [String?] {
            try await store.names(tagged: tag).map(\.key).sorted { ($0 ?? "") < ($1 ?? "") }
        }
        #expect(try await keys("x") == ["a", "b"])
        #expect(try await keys("y") == ["a"])
        #expect(try await store.load(self.entry("b").name)?.tags == ["x", "x"])
        try await store.save([self.entry("a", tags: ["z"])], durability: .relaxed)
        try await store.remove([self.entry("b").name], durability: .relaxed)
        #expect(try await keys("x") == [])
        #expect(try await keys("z") == ["a"])
        let plan = try await DatabasePool(path: self.folder.file.path()).read { db in
            try Row.fetchAll(db, sql: "EXPLAIN QUERY PLAN SELECT entry FROM mux_tags WHERE tag = x'78'")
                .map { $0["detail"] as String }
        }
        #expect(
            plan.contains {
                $0.contains("USING INDEX mux_tags_tag") || $0.contains("USING COVERING INDEX mux_tags_tag")
            }
        )
    }

    @Test func `NB-01 the oldest entries are evicted above the limit, and reported if they are new`() async throws {
        let store = try GRDBStore(url: self.folder.file, byteLimit: 1_000)
        let text = String(repeating: "x", count: 300)
        for number in 1...5 {
            try await store.save([self.entry("\(number)", text, fetchedAt: Double(number))], durability: .relaxed)
        }
        let found = try await store.load((1...5).map { self.entry("\($0)").name }).map { $0 != nil }
        #expect(found == [false, false, true, true, true])
        let error = await #expect(throws: MuxStoreError.PartialSave.self) {
            try await store.save([self.entry("old", text, fetchedAt: 0)], durability: .relaxed)
        }
        #expect(error?.failures.map { $0.error as? MuxStoreError } == [.noRoom])
        #expect(try await store.load(self.entry("old").name) == nil)
        let large = await #expect(throws: MuxStoreError.PartialSave.self) {
            try await store.save(
                [self.entry("large", String(repeating: "x", count: 2_000)), self.entry("6", "y", fetchedAt: 9)],
                durability: .full
            )
        }
        #expect(large?.failures.map { $0.error as? MuxStoreError } == [.entryTooLarge(bytes: 2_012)])
        #expect(try await store.load(self.entry("6").name) != nil)
    }

    @Test func `NB-01 unusable entries are removed by a later save`() async throws {
        let store = try GRDBStore(url: self.folder.file)
        var entry = self.entry("a", "ended")
        entry.usableUntil = Date(timeIntervalSinceNow: -1)
        try await store.save([entry], durability: .relaxed)
        entry.name.key = "b"
        entry.usableUntil = Date(timeIntervalSinceNow: 1_000)
        try await store.save([entry], durability: .relaxed)
        #expect(try await store.load([self.entry("a").name, self.entry("b").name]).map { $0 != nil } == [false, true])
    }

    // MARK: - Unusable databases

    @Test func `NB-01 tables of another program are an error, and stay unchanged`() async throws {
        let queue = try DatabaseQueue(path: self.folder.made.file.path())
        try await queue.write {
            try $0.execute(sql: "CREATE TABLE mux_entries (name TEXT); INSERT INTO mux_entries VALUES ('kept')")
        }
        let store = GRDBStore(queue)
        #expect(await self.error { _ = try await store.load(self.entry("a").name) } == .otherName)
        #expect(await self.error { try await store.save([self.entry("a")], durability: .full) } == .otherName)
        #expect(await self.error { try await store.removeEverything() } == .otherName)
        #expect(await self.error { try await store.raiseSessionEpoch(to: 1) } == .otherName)
        #expect(try await queue.read { try String.fetchAll($0, sql: "SELECT name FROM mux_entries") } == ["kept"])
    }

    @Test func `NB-01 tables of a later version are an error, and stay unchanged`() async throws {
        let pool = try DatabasePool(path: self.folder.made.file.path())
        try await GRDBStore(pool).save([self.entry("a")], durability: .full)
        try await pool.write {
            try $0.execute(sql: "UPDATE mux_session SET format = 2; ALTER TABLE mux_entries ADD new TEXT")
        }
        let store = GRDBStore(pool)
        #expect(await self.error { _ = try await store.sessionEpoch() } == .newerFormat)
        #expect(await self.error { try await store.removeEverything() } == .newerFormat)
        #expect(try await pool.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM mux_entries") } == 1)
    }

    @Test func `NB-01 tables that the app removed are created again`() async throws {
        let pool = try DatabasePool(path: self.folder.made.file.path())
        let store = GRDBStore(pool)
        try await store.save([self.entry("a")], durability: .full)
        try await pool.erase()
        #expect(await self.error { _ = try await store.load(self.entry("a").name) } == .otherName)
        #expect(try await store.load(self.entry("a").name) == nil)
        try await store.save([self.entry("a")], durability: .full)
        #expect(try await store.load(self.entry("a").name) != nil)
    }

    @Test func `NB-01 a locked database is an error, and a later call succeeds`() async throws {
        let store = GRDBStore(try DatabasePool(path: self.folder.made.file.path()))
        try await store.save([self.entry("a")], durability: .full)
        var configuration = Configuration()
        configuration.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: self.folder.file.path(), configuration: configuration)
        try await other.writeWithoutTransaction { try $0.execute(sql: "BEGIN IMMEDIATE") }
        let error = await self.error { try await store.save([self.entry("b")], durability: .full) }
        #expect(error == .fileSystem(.lock, code: EAGAIN))
        #expect(try await store.load(self.entry("a").name) != nil, "a reader does not wait for a writer")
        try await other.writeWithoutTransaction { try $0.execute(sql: "ROLLBACK") }
        try await store.save([self.entry("b")], durability: .full)
        #expect(try await store.load(self.entry("b").name) != nil)
    }

    @Test func `NB-01 a full database is an error, and keeps the former values`() async throws {
        let queue = try DatabaseQueue(path: self.folder.made.file.path())
        let store = GRDBStore(queue)
        try await store.save([self.entry("a", "former")], durability: .full)
        try await queue.writeWithoutTransaction { db in
            let pages = try Int.fetchOne(db, sql: "PRAGMA page_count") ?? 0
            try db.execute(sql: "PRAGMA max_page_count = \(pages + 2)")
        }
        let large = String(repeating: "x", count: 100_000)
        let error = await self.error {
            try await store.save([self.entry("a", "new"), self.entry("b", large)], durability: .full)
        }
        #expect(error == .fileSystem(.write, code: ENOSPC))
        #expect(try await store.load(self.entry("a").name) == self.entry("a", "former"))
        #expect(try await store.load(self.entry("b").name) == nil)
    }

    @Test func `NB-01 a file that is no database is an error, and stays unchanged`() async throws {
        let text = String(repeating: "no database ", count: 1_000)
        try text.write(to: self.folder.made.file, atomically: false, encoding: .utf8)
        let error = await self.error { _ = try await GRDBStore(url: self.folder.file).sessionEpoch() }
        #expect(error == .fileSystem(.open, code: EIO))
        #expect(try String(contentsOf: self.folder.file, encoding: .utf8) == text)
        #expect(throws: MuxStoreError.unusableURL) { try GRDBStore(url: #require(URL(string: "https://a/b"))) }
    }

    @Test func `NB-01 damaged pages cause errors or misses, and no trap`() async throws {
        do {
            let queue = try DatabaseQueue(path: self.folder.made.file.path())
            let store = GRDBStore(queue)
            for number in 0..<50 {
                try await store.save(
                    [self.entry("\(number)", String(repeating: "\(number)", count: 500), tags: ["t"])],
                    durability: .full
                )
            }
        }
        let data = try Data(contentsOf: self.folder.file)
        var random = SystemRandomNumberGenerator()
        for _ in 0..<100 {
            var bytes = data
            for _ in 0..<20 {
                bytes[Int.random(in: 100..<bytes.count, using: &random)] ^= UInt8.random(in: 1...255, using: &random)
            }
            let folder = Folder()
            try bytes.write(to: folder.made.file)
            guard let queue = try? DatabaseQueue(path: folder.file.path()) else { continue }
            let store = GRDBStore(queue)
            for number in 0..<50 {
                let entry = try? await store.load(self.entry("\(number)").name)
                #expect(entry == nil || entry?.name.key == "\(number)")
            }
            _ = try? await store.save([self.entry("1")], durability: .relaxed)
        }
    }

    @Test(arguments: [
        "timeToLive = 'soon'", "timeToLive = x'00'", "fetchedAt = 'x'", "payload = 1.5", "tagCount = 7",
        "session = 'x'", "schemaVersion = 'x'", "timeToLive = '99999999999999999999999999999999999999999999'",
    ])
    func `NB-01 a row with another type of value is a miss`(change: String) async throws {
        let pool = try DatabasePool(path: self.folder.made.file.path())
        let store = GRDBStore(pool)
        try await store.save([self.entry("a"), self.entry("b")], durability: .full)
        try await pool.write { try $0.execute(sql: "UPDATE mux_entries SET \(change) WHERE key = x'61'") }
        #expect(try await store.load(self.entry("a").name) == nil)
        #expect(try await store.load(self.entry("b").name) == self.entry("b"))
        try await store.save([self.entry("a", "new")], durability: .full)
        #expect(try await store.load(self.entry("a").name) == self.entry("a", "new"))
    }

    @Test func `NB-01 a sign-out in one process ends the session of another process`() async throws {
        let (first, second) = (try GRDBStore(url: self.folder.file), try GRDBStore(url: self.folder.file))
        try await first.save([self.entry("a")], durability: .full)
        #expect(try await second.load(self.entry("a").name) != nil)
        try await second.raiseSessionEpoch(to: 1)
        #expect(first.peekSessionEpoch() == 1)
        #expect(try await first.load(self.entry("a").name) == nil)
        try await first.save([self.entry("late")], durability: .full)
        #expect(try await second.load(self.entry("late").name) == nil)
    }
}
