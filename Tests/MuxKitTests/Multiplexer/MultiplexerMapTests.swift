import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MultiplexerMapTests {
    @Test func `MX-22 ten thousand keys at once make one fetch each`() async throws {
        let world = World()
        let calls = Locked<[Int: Int]>([:])
        let squares = MultiplexerMap<Int, Int>(repository: world.repository) { key in
            calls.withLock { $0[key, default: 0] += 1 }
            return key * key
        }

        let sum = try await withThrowingTaskGroup { group in
            for key in 0..<10_000 {
                group.addTask { try await squares.request(key: key) }
                group.addTask { try await squares.request(key: key) }
            }
            return try await group.reduce(0, +)
        }

        #expect(sum == (0..<10_000).reduce(0) { $0 + 2 * $1 * $1 })
        #expect(calls.withLock { $0.count } == 10_000)
        #expect(calls.withLock { $0.values.allSatisfy { $0 == 1 } })
        await squares.expectAtRest()
    }

    @Test func `MX-22 a hanging fetch of a key delays no other key`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let map = MultiplexerMap<String, Int>(repository: world.repository) { key in
            key == "slow" ? try await gate.pass() : 1
        }
        let slow = Task { try await map.request(key: "slow") }
        await gate.waitForCall(1)

        #expect(try await map.request(key: "quick") == 1)
        await map.clear(key: "quick")
        #expect(await map.save().failed.isEmpty)

        gate.open(returning: 2)
        #expect(try await slow.value == 2)
        await map.expectAtRest()
    }

    @Test func `MX-22 each key expires, is refreshed, cleared and saved independently`() async throws {
        let world = World()
        let calls = Locked<[String: Int]>([:])
        let policy = MuxPolicy(timeToLive: .seconds(10))
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", policy: policy, repository: world.repository) { key in
            calls.withLock { calls in
                calls[key, default: 0] += 1
                return calls[key] ?? 0
            }
        }
        _ = try await map.request(key: "a")
        world.clock.advance(by: .seconds(6))
        _ = try await map.request(key: "b")
        world.clock.advance(by: .seconds(4))

        #expect(try await map.request(key: "a") == 2, "a has expired")
        #expect(try await map.request(key: "b") == 1, "b has not")
        #expect(try await map.refresh(key: "b").request(key: "b") == 2)
        #expect(try await map.request(key: "a") == 2)
        await map.clear(key: "a")
        #expect(map.cachedValue(key: "a") == nil)
        #expect(map.cachedValue(key: "b") == 2)
        let report = await map.save()
        #expect(report.saved == 1)
        #expect(try await world.store.load(.init(domain: "Map", key: "b")) != nil)
        #expect(try await world.store.load(.init(domain: "Map", key: "a")) == nil)
    }

    @Test func `MX-22 refresh and clear work for all keys, in memory and on disk`() async throws {
        let world = World()
        let first = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        for key in 0..<10 { _ = try await first.request(key: key) }
        await first.save()

        let next = world.relaunched(after: .seconds(1))
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 * 100 })
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: next.repository) { _ in try await fetch() }
        #expect(try await map.request(key: 0) == 0)
        map.refresh()
        #expect(try await map.request(key: 0) == 100, "it was in memory")
        #expect(try await map.request(key: 1) == 200, "it was on disk only")
        #expect(try await map.request(key: 1) == 200)

        await map.clear()
        #expect(map.cachedValue(key: 0) == nil)
        #expect(await map.loadCachedValue(key: 5) == nil)
        #expect(try await map.request(key: 5) == 300)
        await map.expectAtRest()
    }

    private static let hostileKeys: [String] = [
        "", "/", "..", "../../etc/passwd", "a/b", "a\0b", "\n", "\"", "\\", "key", "KEY", "Key",
        "\u{e9}", "e\u{301}", "👩‍👩‍👧‍👦", String(repeating: "x", count: 10_000), String(repeating: "../", count: 3_334),
        "{\"mux\":1}", "CON", ".", "~", "%2e%2e", "\u{202e}abc", "\u{feff}",
    ]

    @Test func `MX-22 every string is a valid and distinct key`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let bytes: @Sendable (String) async throws -> [UInt8] = { Array($0.utf8) }
        let repository = MuxRepository(directory: folder.url, durability: .relaxed)
        let map = MultiplexerMap(cacheKey: "../Keys/..", repository: repository, onFetch: bytes)
        for key in Self.hostileKeys { #expect(try await map.request(key: key) == Array(key.utf8)) }
        for key in Self.hostileKeys { #expect(map.cachedValue(key: key) == Array(key.utf8)) }
        #expect(await map.save().saved == Self.hostileKeys.count)

        let fetch = ScriptedFetch<[UInt8]>()
        let again = MultiplexerMap<String, [UInt8]>(
            cacheKey: "../Keys/..",
            repository: MuxRepository(directory: folder.url)
        ) { _ in try await fetch() }
        for key in Self.hostileKeys { #expect(try await again.request(key: key) == Array(key.utf8)) }
        #expect(fetch.callCount == 0)
        await again.clear(key: "KEY")
        #expect(await again.loadCachedValue(key: "key") == Array("key".utf8))
        #expect(await again.loadCachedValue(key: "KEY") == nil)
    }

    @Test func `MX-22 a key that is not equal to itself fails with a typed error`() async throws {
        let world = World()
        let map = MultiplexerMap<Double, Int>(cacheKey: "Map", repository: world.repository) { _ in 1 }

        await #expect(throws: MuxError.unusableKey) { try await map.request(key: .nan) }
        map.store(5, key: .nan)
        map.refresh(key: .nan)
        await map.clear(key: .nan)

        #expect(map.cachedValue(key: .nan) == nil)
        #expect(await map.loadCachedValue(key: .nan) == nil)
        #expect(await map.save().failed.isEmpty)
        #expect(try await map.request(key: .infinity) == 1)
        await map.expectAtRest()
    }

    @Test func `MX-22 the sequence of a key that is not equal to itself leaves no watcher`() {
        let map = MultiplexerMap<Double, Int>(repository: World().repository) { _ in 1 }

        let iterator = map.values(key: .nan).makeAsyncIterator()
        withExtendedLifetime(iterator) { #expect(map.watcherCount == 0) }
    }

    @Test func `MX-22 UUIDs, URLs and custom types are keys`() async throws {
        struct UserID: MuxKey, LosslessStringConvertible {
            let number: Int
            init?(_ description: String) {
                guard let number = Int(description) else { return nil }
                self.number = number
            }
            var description: String { String(self.number) }
        }
        let world = World()
        let identifiers = MultiplexerMap<UUID, Int>(cacheKey: "A", repository: world.repository) { _ in 1 }
        let locators = MultiplexerMap<URL, Int>(cacheKey: "B", repository: world.repository) { _ in 2 }
        let users = MultiplexerMap<UserID, Int>(cacheKey: "C", repository: world.repository) { $0.number }
        let identifier = UUID()

        #expect(try await identifiers.request(key: identifier) == 1)
        #expect(try await locators.request(key: URL(filePath: "/a b")) == 2)
        #expect(try await users.request(key: #require(UserID("3"))) == 3)
        #expect(await world.repository.saveAll().saved == 3)
        #expect(try await world.store.load(.init(domain: "A", key: identifier.uuidString)) != nil)
        #expect(try await world.store.load(.init(domain: "C", key: "3")) != nil)
    }

    @Test func `MX-22 positive and negative zero are the same key, on disk as well`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let map = MultiplexerMap<Double, Int>(cacheKey: "Map", repository: world.repository) { _ in try await fetch() }
        _ = try await map.request(key: 0.0)
        await map.save()

        await map.clear(key: -0.0)

        #expect(map.cachedValue(key: 0.0) == nil)
        #expect(try await map.request(key: 0.0) == 2)
    }

    @Test func `MX-22 substrings that differ in Unicode form are two keys`() async throws {
        let world = World()
        let map = MultiplexerMap<Substring, Int>(repository: world.repository) { $0.utf8.count }

        #expect(try await map.request(key: "\u{e9}") == 2)
        #expect(try await map.request(key: "e\u{301}") == 3)
    }

    @Test func `MX-22 URLs that differ in their base URL are two keys on disk`() throws {
        let relative = try #require(URL(string: "b", relativeTo: URL(string: "http://a.example/")))
        let absolute = try #require(URL(string: "http://a.example/b"))

        #expect(relative != absolute)
        #expect(relative.keyText != absolute.keyText)
    }

    private struct WrappedText: MuxKey {
        let rawValue: String
        var keyText: String { self.rawValue }
    }

    private struct Described: MuxKey, LosslessStringConvertible {
        let description: String
        init(_ description: String) { self.description = description }
    }

    /// Strings that are equal in Swift and differ in their bytes.
    ///
    /// Composed and decomposed forms, the Kelvin sign and its letter, and long strings.
    private static let equalTexts = [
        ["\u{e9}", "e\u{301}"], ["K", "\u{212a}"], ["\u{1e69}", "s\u{323}\u{307}", "\u{1e63}\u{307}"],
        [String(repeating: "x", count: 40) + "\u{e9}", String(repeating: "x", count: 40) + "e\u{301}"],
    ]

    private func expectDistinct<Key: MuxKey>(_ keys: [Key], in world: World) async throws {
        let fetch: @Sendable (Key) async throws -> String = { $0.keyText.unicodeScalars.map { "\($0.value)" }.joined() }
        let texts = try await keys.asyncMap { try await fetch($0) }
        let map = MultiplexerMap<Key, String>(cacheKey: "Map", repository: world.repository, onFetch: fetch)
        for (key, text) in zip(keys, texts) { #expect(try await map.request(key: key) == text) }
        for (key, text) in zip(keys, texts) { #expect(map.cachedValue(key: key) == text) }
        #expect(map.statistics.fetches == keys.count)
        await map.save()

        // After a relaunch, and after a clear of the first key.
        let next = world.relaunched()
        let again = MultiplexerMap<Key, String>(cacheKey: "Map", repository: next.repository, onFetch: fetch)
        for (key, text) in zip(keys, texts) { #expect(await again.loadCachedValue(key: key) == text) }
        await again.clear(key: keys[0])
        #expect(again.cachedValue(key: keys[0]) == nil)
        for (key, text) in zip(keys, texts).dropFirst() { #expect(again.cachedValue(key: key) == text) }
        #expect(again.statistics.fetches == 0)

        // All keys in a single batch.
        let batches = MultiplexerMap<Key, String>(
            batching: .init(maximumSize: keys.count),
            repository: world.repository
        ) { keys in
            var values: [Key: String] = [:]
            for key in keys { values[key] = try await fetch(key) }
            #expect(values.count == keys.count)
            return values
        }
        let callers = keys.map { key in Task { try await batches.request(key: key) } }
        for (caller, text) in zip(callers, texts) { #expect(try await caller.value == text) }
    }

    @Test func `DS-05 keys that wrap a string are compared by the bytes of their text`() async throws {
        for texts in Self.equalTexts {
            #expect(Set(texts.map { WrappedText(rawValue: $0) }).count == 1, "equal to Swift")
            try await self.expectDistinct(texts, in: World())
            try await self.expectDistinct(texts.map { WrappedText(rawValue: $0) }, in: World())
            try await self.expectDistinct(texts.map { Described($0) }, in: World())
            try await self.expectDistinct(texts.map { UserKey(WrappedText(rawValue: $0), 1) }, in: World())
            try await self.expectDistinct(texts.map { UserKey(1, WrappedText(rawValue: $0)) }, in: World())
        }
    }

    @Test func `DS-05 keys of equal text are one key, independent of their string storage`() async throws {
        let map = MultiplexerMap<WrappedText, Int>(repository: World().repository) { _ in 1 }
        for length in [3, 15, 16, 100] {
            let text = String(repeating: "\u{e9}", count: length)
            // Equal strings in separate buffers.
            let texts = [
                text, String(Array(text)), text.unicodeScalars.reduce(into: "") { $0.unicodeScalars.append($1) },
            ]
            for text in texts { _ = try await map.request(key: WrappedText(rawValue: text)) }
        }
        #expect(map.statistics.fetches == 4)
    }
}

extension Array {
    fileprivate func asyncMap<Result>(_ transform: (Element) async throws -> Result) async rethrows -> [Result] {
        var results: [Result] = []
        for element in self { results.append(try await transform(element)) }
        return results
    }
}
