import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The cost of operations on a map depends on the number of changes, not on the number of entries.
@Suite(.standard)
struct ManyEntriesTests {
    /// A key that counts look-ups.
    private struct Counted: MuxKey {
        let number: Int
        let lookups: Locked<Int>
        var keyText: String { "\(self.number)" }

        static func == (a: Self, b: Self) -> Bool { a.number == b.number }

        func hash(into hasher: inout Hasher) {
            _ = self.lookups.next()
            hasher.combine(self.number)
        }
    }

    private typealias Map = MultiplexerMap<Counted, Int>

    private let world = World()
    private let lookups = Locked(0)

    private func key(_ number: Int) -> Counted { Counted(number: number, lookups: self.lookups) }

    /// The number of look-ups during `body`.
    private func count(_ body: () async throws -> Void) async rethrows -> Int {
        let before = self.lookups.withLock { $0 }
        try await body()
        return self.lookups.withLock { $0 } - before
    }

    private func map(_ count: Int) async -> Map {
        let map = Map(cacheKey: "Map", repository: self.world.repository) { -$0.number }
        for number in 0..<count { map.store(number, key: self.key(number)) }
        #expect(await map.save().saved == count)
        return map
    }

    @Test func `CO-15 PF-04 a save visits only changed entries, and a refresh of everything no entry`() async throws {
        let map = await self.map(1_000)
        map.store(7, key: self.key(7))
        let saving = await self.count { #expect(await map.save().saved == 1) }
        #expect(saving < 50)

        let refreshing = await self.count { map.refresh() }
        #expect(refreshing < 10)
        let again = await self.count { #expect(await map.save().isComplete) }
        #expect(again < 50, "the disk hears of it in one entry")
        for number in 0..<1_000 { #expect(try await map.request(key: self.key(number)) == -number) }

        await map.save()
        let clearing = await self.count { map.clearMemory() }
        #expect(clearing < 10)
        #expect(map.cachedValue(key: self.key(1)) == nil)
    }

    @Test func `CO-15 PF-04 changed entries are saved after any number and kind of changes`() async throws {
        let map = await self.map(300)
        for number in 0..<300 {
            let key = self.key(number)
            switch number % 5 {
            case 0: map.store(number + 1_000, key: key)
            case 1: map.refresh(key: key)
            case 2: await map.clear(key: key)
            case 3:
                map.store(1, key: key)
                map.store(number + 2_000, key: key)
            default: break
            }
        }
        let report = await map.save()
        #expect(report.saved == 180)
        #expect(report.unchanged == 60)
        #expect(await map.save().saved == 0)

        let next = self.world.relaunched(after: .seconds(1))
        let again = Map(cacheKey: "Map", repository: next.repository) { -$0.number }
        for number in 0..<300 {
            let expected =
                switch number % 5 {
                case 0: number + 1_000
                case 3: number + 2_000
                case 4: number
                default: -number
                }
            #expect(try await again.request(key: self.key(number)) == expected)
        }
    }

    @Test func `CO-15 PF-04 a refresh of everything affects only earlier values`() async throws {
        let fetches = Locked(0)
        let map = MultiplexerMap<Int, Int>(repository: self.world.repository) {
            (key: Int, before: FetchedBefore<Int>?) -> Fetched<Int> in
            _ = fetches.next()
            guard let before else { return Fetched(key, validator: "1") }
            return before.notModified()
        }
        for key in 0..<3 { _ = try await map.request(key: key) }
        for _ in 0..<3 {
            map.refresh()
            #expect((0..<3).allSatisfy { map.cachedEntry(key: $0)?.isStale == true })
            // The fetch confirms the same value and its validator.
            for _ in 0..<2 { #expect(try await map.request(key: 0) == 0) }
            #expect(map.cachedEntry(key: 0)?.isStale == false)
            map.store(5, key: 1)
            #expect(try await map.request(key: 1) == 5)
        }
        #expect(fetches.withLock { $0 } == 6)
        #expect(try await map.request(key: 2) == 2)
        #expect(fetches.withLock { $0 } == 7)
    }

    @Test func `CO-15 a refresh of everything ends the back-off after a failure`() async throws {
        let fetches = Locked(0)
        let policy = MuxPolicy(errorBackoff: .seconds(100))
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: self.world.repository) { key in
            if fetches.next() == 2 { throw offline }
            return key
        }
        _ = try await map.request(key: 1)
        #expect(try await map.refresh(key: 1).requestEntry(key: 1).staleReason == .fetchFailed)
        #expect(try await map.requestEntry(key: 1).staleReason == .backingOff)
        #expect(try await map.refresh().requestEntry(key: 1).isStale == false)
        #expect(fetches.withLock { $0 } == 3)
    }

    @Test func `CO-15 clearing memory keeps any number of unsaved entries`() async throws {
        for unsaved in [0, 1, 100, 500] {
            let map = MultiplexerMap<Int, Int>(cacheKey: "\(unsaved)", repository: self.world.repository) { -$0 }
            for key in 0..<1_000 { map.store(key, key: key) }
            await map.save()
            for key in 0..<unsaved { map.store(key + 5_000, key: key) }

            map.clearMemory()

            #expect((0..<1_000).count { map.cachedValue(key: $0) != nil } == unsaved)
            for key in 0..<1_000 { #expect(try await map.request(key: key) == (key < unsaved ? key + 5_000 : key)) }
        }
    }
}
