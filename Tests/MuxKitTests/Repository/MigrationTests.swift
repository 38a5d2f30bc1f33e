import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MigrationTests {
    private struct First: Codable, Sendable { var name: String }
    private struct Second: Codable, Sendable { var names: [String] }
    private struct Third: Codable, Sendable, Equatable { var names: [String], count: Int }

    private static let migrations = [
        MuxMigration(from: 1) { (old: First) in Second(names: [old.name]) },
        MuxMigration(from: 2) { (old: Second) in Third(names: old.names, count: old.names.count) },
    ]

    private let world = World()

    private func save<Value: Codable & Sendable>(_ value: Value, version: Int) async {
        let policy = MuxPolicy(schemaVersion: version)
        let repository = self.world.relaunched().repository
        let multiplexer = Multiplexer<Value>(cacheKey: "V", policy: policy, repository: repository) { value }
        multiplexer.store(value)
        #expect(await multiplexer.save().saved == 1)
    }

    private func third(
        _ migrations: [MuxMigration] = migrations,
        after downtime: Duration = .zero
    ) -> Multiplexer<Third> {
        let policy = MuxPolicy(schemaVersion: 3, migrations: migrations)
        return Multiplexer(cacheKey: "V", policy: policy, repository: self.world.relaunched(after: downtime).repository)
        {
            Third(names: ["fetched"], count: -1)
        }
    }

    @Test func `DK-05 an entry goes through all migrations, keeps its age, and is saved in the new format`()
        async throws
    {
        await self.save(First(name: "Ada"), version: 1)
        let value = self.third(after: .seconds(100))
        #expect(try await value.requestEntry().value == Third(names: ["Ada"], count: 1))
        #expect(try await value.requestEntry().age == .seconds(100))
        #expect(await value.save().saved == 1)
        #expect(try await self.world.store.load(.init(domain: "V"))?.schemaVersion == 3)
    }

    @Test func `DK-05 migrations start at the version of the entry`() async throws {
        await self.save(Second(names: ["Ada", "Bob"]), version: 2)
        #expect(try await self.third().request() == Third(names: ["Ada", "Bob"], count: 2))
    }

    @Test func `DK-05 a missing migration or a value that does not decode is a miss`() async throws {
        await self.save(First(name: "Ada"), version: 1)
        #expect(try await self.third([Self.migrations[1]]).request().count == -1)
        await self.save(["not": "a First"], version: 1)
        #expect(try await self.third().request().count == -1)
        await self.save(["not": "a Third"], version: 3)
        #expect(try await self.third().request().count == -1)
    }

    @Test func `DK-05 an entry of a newer schema version is ignored and not overwritten`() async throws {
        await self.save(["of": "the future"], version: 4)
        let value = self.third()
        #expect(try await value.request().count == -1)
        #expect(await value.save().saved == 0)
        value.store(Third(names: [], count: 0))
        #expect(await value.save().saved == 0)
        #expect(try await self.world.store.load(.init(domain: "V"))?.schemaVersion == 4)
        // An explicit clear removes the newer entry.
        await value.clear()
        _ = try await value.request()
        #expect(await value.save().saved == 1)
    }

    @Test func `RP-06 two living multiplexers with one cacheKey share entries, and the later save wins`()
        async throws
    {
        let first = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 1 }
        #expect(self.world.events.count(of: .cacheKeyShared) == 0)
        let second = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 2 }
        #expect(self.world.events.count(of: .cacheKeyShared) == 1)
        _ = try await first.request()
        await first.save()
        #expect(try await second.request() == 1, "from disk")
        second.store(5)
        await second.save()
        #expect(try await self.world.store.load(.init(domain: "Number"))?.payload == Data("5".utf8))
    }

    @Test func `RP-07 the repository adds up the statistics of its multiplexers`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { 1 }.register()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { $0 }
        _ = try await number.request()
        _ = try await number.request()
        _ = try await map.request(key: 1)
        let statistics = self.world.repository.statistics
        #expect(statistics.hits == 1)
        #expect(statistics.misses == 2)
        #expect(statistics.requests == 3)
        await self.world.repository.saveAll()
        self.world.repository.clearMemory()
        #expect(map.cachedValue(key: 1) == nil)
        #expect(number.cachedValue == nil)
        number.unregister()
    }
}
