import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(15)), .takesTurns, .endsAtRest)
struct CacheKeyTests {
    private enum Keys: String, MuxKey { case profile, users }
    private enum Level: Int, MuxKey { case low, high }

    private let world = World()

    @Test func `CS-03 a text in a variable and the case of an enum name the value on disk`() async throws {
        let name = "profile"
        let first = Multiplexer<Int>(cacheKey: .init(name), repository: self.world.repository) { 1 }
        _ = try await first.request()
        #expect(await first.save().saved == 1)

        for key in [.init(name), .init(Keys.profile), "profile", "pro\("file")"] as [Multiplexer<Int>.CacheKey] {
            let again = Multiplexer<Int>(cacheKey: key, repository: self.world.relaunched().repository) { 2 }
            #expect(await again.loadCachedValue() == 1)
        }
    }

    @Test func `CS-03 an enum of texts or numbers is a key of a map without further code`() async throws {
        let users = MultiplexerMap<Keys, Int>(cacheKey: .init(Keys.users), repository: self.world.repository) { _ in 1 }
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

    @Test func `CS-03 a type with a raw value and a description keeps the description as its text`() {
        struct Code: RawRepresentable, LosslessStringConvertible, MuxKey {
            let rawValue: Int
            init(rawValue: Int) { self.rawValue = rawValue }
            init?(_ description: String) { self.init(rawValue: description.count) }
            var description: String { String(repeating: "I", count: self.rawValue) }
        }
        #expect(Code(rawValue: 3).keyText == "III")
    }
}
