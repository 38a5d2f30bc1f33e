import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct CacheKeyTests {
    private enum Keys: String, MuxKey { case profile, users }
    private enum Level: Int, MuxKey { case low, high }

    private let world = World()

    @Test func `CS-03 a variable of type String is a cache key`() async throws {
        let name = "profile"
        let first = Multiplexer<Int>(cacheKey: name, repository: self.world.repository) { 1 }
        _ = try await first.request()
        #expect(await first.save().saved == 1)

        for key in [.init(name), .init(Keys.profile), "profile", "pro\("file")"] as [Multiplexer<Int>.CacheKey] {
            let again = Multiplexer<Int>(cacheKey: key, repository: self.world.relaunched().repository) { 2 }
            #expect(await again.loadCachedValue() == 1)
        }
        let again = Multiplexer<Int>(cacheKey: Keys.profile, repository: self.world.relaunched().repository) { 2 }
        #expect(await again.loadCachedValue() == 1)
    }

    @Test func `CS-03 each initialiser accepts a variable and the case of an enum as a cache key`() async throws {
        let (name, repository, runner) = ("a", self.world.repository, DependentRunner<Int> { 1 })
        let values = [
            Multiplexer<Int>(cacheKey: name, repository: repository) { 1 },
            Multiplexer<Int>(cacheKey: Keys.profile, repository: repository) { _ in Fetched(1) },
            Multiplexer<Int>(cacheKey: name + "b", dependency: runner, repository: repository) { $0 },
        ]
        for value in values { #expect(try await value.request() == 1) }
        let maps = [
            MultiplexerMap<Int, Int>(cacheKey: name + "c", repository: repository) { $0 },
            MultiplexerMap<Int, Int>(cacheKey: Keys.users, repository: repository) { key, _ in Fetched(key) },
            MultiplexerMap<Int, Int>(cacheKey: name + "d", dependency: runner, repository: repository) { $0 * $1 },
            MultiplexerMap<Int, Int>(
                cacheKey: name + "e",
                batching: .init(maximumSize: 1),
                repository: repository,
                onFetchMany: { keys in Dictionary(uniqueKeysWithValues: keys.map { ($0, $0) }) }
            ),
            MultiplexerMap<Int, Int>(
                cacheKey: name + "f",
                dependency: runner,
                batching: .init(maximumSize: 1),
                repository: repository,
                onFetchMany: { keys, one in Dictionary(uniqueKeysWithValues: keys.map { ($0, $0 * one) }) }
            ),
        ]
        for map in maps { #expect(try await map.request(key: 7) == 7) }

        #expect(await repository.saveAll().saved == 8)
        for domain in ["a", "profile", "ab"] { #expect(try await self.world.store.load(.init(domain: domain)) != nil) }
        for domain in ["ac", "users", "ad", "ae", "af"] {
            #expect(try await self.world.store.load(.init(domain: domain, key: "7")) != nil)
        }
    }

    @Test func `CS-03 an enum of strings or integers is a key of a map without further code`() async throws {
        let users = MultiplexerMap<Keys, Int>(cacheKey: Keys.users, repository: self.world.repository) { _ in 1 }
        let levels = MultiplexerMap<Level, Int>(cacheKey: "levels", repository: self.world.repository) { $0.rawValue }
        _ = try await users.request(key: .profile)
        _ = try await levels.request(key: .high)
        #expect(await self.world.repository.saveAll().saved == 2)

        #expect(try await self.world.store.load(.init(domain: "users", key: "profile")) != nil)
        #expect(try await self.world.store.load(.init(domain: "levels", key: "1")) != nil)
        let next = self.world.relaunched()
        let again = MultiplexerMap<Keys, Int>(cacheKey: "users", repository: next.repository) { _ in 2 }
        #expect(await again.loadCachedValue(key: .profile) == 1)
    }

    @Test func `CS-03 raw values that differ in Unicode form are two keys`() async throws {
        struct Name: RawRepresentable, MuxKey { let rawValue: String }
        let map = MultiplexerMap<Name, Int>(repository: self.world.repository) { $0.rawValue.utf8.count }

        #expect(try await map.request(key: Name(rawValue: "\u{e9}")) == 2)
        #expect(try await map.request(key: Name(rawValue: "e\u{301}")) == 3)
    }

    @Test func `CS-03 a type with a raw value and a description uses the description as its key text`() {
        struct Code: RawRepresentable, LosslessStringConvertible, MuxKey {
            let rawValue: Int
            init(rawValue: Int) { self.rawValue = rawValue }
            init?(_ description: String) { self.init(rawValue: description.count) }
            var description: String { String(repeating: "I", count: self.rawValue) }
        }
        #expect(Code(rawValue: 3).keyText == "III")
    }
}
