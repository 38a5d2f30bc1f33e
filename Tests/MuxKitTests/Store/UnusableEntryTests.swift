import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Entries that no ordinary request can use are removed from disk.
@Suite(.standard)
struct UnusableEntryTests {
    private static let day = Duration.seconds(24 * 60 * 60)

    /// Limits of an entry, and the time for which they keep the entry usable.
    struct Use: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var fetched = Fetched("secret")
        var policy = MuxPolicy(
            timeToLive: .seconds(60),
            staleWhileRevalidate: .seconds(30),
            staleIfError: .seconds(120)
        )
        /// The usable time after the fetch; `nil` if unlimited.
        var expected: Duration?

        static let all: [Use] = {
            var longRenewed = Use(testDescription: "a long time behind a renewal", expected: .seconds(660))
            longRenewed.policy.staleWhileRevalidate = .seconds(600)
            var own = Use(testDescription: "the fetch's own limits", expected: .seconds(15))
            own.fetched = Fetched(
                "secret",
                timeToLive: .seconds(10),
                staleWhileRevalidate: .zero,
                staleIfError: .seconds(5)
            )
            var validated = Use(testDescription: "with a validator", expected: .seconds(180) + day * 30)
            validated.fetched = Fetched("secret", validator: "v1")
            var endless = Use(testDescription: "for ever", expected: nil)
            endless.policy.timeToLive = .longest
            let usual = Use(testDescription: "by the policy", expected: .seconds(180))
            return [usual, longRenewed, own, validated, endless]
        }()
    }

    @Test(arguments: Use.all)
    func `DS-09 an entry past its time to live and both stale windows leaves the disk`(use: Use) async throws {
        for isSealed in [false, true] {
            let scratch = Scratch()
            func multiplexer(_ world: World) -> Multiplexer<String> {
                Multiplexer(cacheKey: "Text", policy: use.policy, repository: world.repository) { _ in use.fetched }
            }
            func store() -> any MuxStore {
                guard isSealed else { return scratch.store() }
                return SealedStore(scratch.store(), seal: ToySeal(key: 7).seal, open: ToySeal(key: 7).open)
            }
            let world = World(store: store())
            let text = multiplexer(world)
            _ = try await text.request()
            #expect(await world.repository.saveAll().saved == 1)
            let size = try Data(contentsOf: scratch.segment).count

            func later(_ time: Duration) async throws -> String {
                let world = World(store: store())
                world.clock.advance(by: time)
                return try await multiplexer(world).request(.cacheOnly)
            }
            #expect(try await later((use.expected ?? Self.day * 40_000) - .seconds(1)) == "secret")
            #expect(try Data(contentsOf: scratch.segment).count == size, "sealed: \(isSealed)")
            guard let expected = use.expected else { continue }
            await #expect(throws: MuxError.notCached) { try await later(expected + .seconds(1)) }
            #expect(try Data(contentsOf: scratch.segment).isEmpty, "sealed: \(isSealed)")
        }
    }

    /// An entry that is usable until `seconds` after ``World/start``.
    private func entry(_ key: String, until seconds: Double?, size: Int = 700) -> MuxStoredEntry {
        var entry = sample(key)
        entry.usableUntil = seconds.map { World.start.addingTimeInterval($0) }
        entry.payload = Data("\"\(key)-\(String(repeating: "x", count: size))\"".utf8)
        return entry
    }

    private func store(_ scratch: Scratch, at seconds: Double, indexFloor: Int = 512) -> JournalStore {
        let store = scratch.store(indexFloor: indexFloor)
        store.setWallTime { World.start.addingTimeInterval(seconds) }
        return store
    }

    @Test(arguments: [4, 512])
    func `DS-09 opening drops unusable entries, also from an index snapshot`(indexFloor: Int) async throws {
        let scratch = Scratch()
        let first = self.store(scratch, at: 0, indexFloor: indexFloor)
        let entries = (0..<100).map { self.entry("\($0)", until: $0 % 2 == 0 ? 10 : $0 % 3 == 0 ? 20 : nil) }
        try await first.save(entries, durability: .full)
        #expect(FileManager.default.fileExists(atPath: scratch.index.path) == (indexFloor == 4))

        let second = self.store(scratch, at: 10, indexFloor: indexFloor)
        for (number, entry) in entries.enumerated() {
            #expect(try await second.load(entry.name) == (number % 2 == 0 ? nil : entry), "\(number)")
        }
        #expect(scratch.find("\"8-xxx").isEmpty && !scratch.find("\"9-xxx").isEmpty)
        #expect(try await second.brokenInvariants().isEmpty)
        // A process that opened the store before the rewrite finds the usable entries.
        #expect(try await first.load(entries[1].name) == entries[1])

        let third = self.store(scratch, at: 20, indexFloor: indexFloor)
        #expect(try await third.load(entries[9].name) == nil)
        #expect(try await third.load(entries[1].name) == entries[1])
        #expect(await third.statistics().damagedRecords == 0)
        #expect(try await third.brokenInvariants().isEmpty)
    }

    @Test func `DS-09 a rewrite drops entries that became unusable while the store was open`() async throws {
        let scratch = Scratch()
        let time = Locked(0.0)
        let store = scratch.store()
        store.setWallTime { World.start.addingTimeInterval(time.withLock { $0 }) }
        try await store.save([self.entry("old", until: 10), self.entry("kept", until: nil)], durability: .full)
        time.withLock { $0 = 10 }
        #expect(try await store.load(name("old")) != nil)

        while await store.statistics().compactions == 0 {
            try await store.save([self.entry("new", until: 30, size: 20_000)], durability: .relaxed)
        }

        #expect(try await store.load(name("old")) == nil)
        #expect(scratch.find("\"old-").isEmpty && !scratch.find("\"kept-").isEmpty && !scratch.find("\"new-").isEmpty)
        #expect(try await store.brokenInvariants().isEmpty)
    }

    @Test func `DS-09 an entry that is unusable when it is saved counts as saved`() async throws {
        let scratch = Scratch()
        let store = self.store(scratch, at: 10)
        // Each save replaces the entry, so a later save rewrites the journal.
        while await store.statistics().compactions == 0 {
            try await store.save([self.entry("a", until: 10, size: 20_000)], durability: .relaxed)
        }
        #expect(await store.statistics().evicted == 0)
    }

    @Test func `DS-09 a large journal with few unusable entries is not rewritten when it is opened`() async throws {
        let scratch = Scratch()
        let first = self.store(scratch, at: 0)
        try await first.save((0..<200).map { self.entry("\($0)", until: $0 < 10 ? 10 : nil) }, durability: .full)

        let second = self.store(scratch, at: 10)
        #expect(try await second.load(name("5")) == nil)
        #expect(await second.statistics().compactions == 0)
        // A removal erases the dropped value like a replaced value.
        try await second.remove([name("5")], durability: .full)
        #expect(scratch.find("\"5-xxx").isEmpty && !scratch.find("\"6-xxx").isEmpty)
        #expect(try await second.brokenInvariants().isEmpty)
    }

    @Test func `DS-09 a read-only folder keeps its entries`() async throws {
        let scratch = Scratch()
        try await self.store(scratch, at: 0).save([self.entry("a", until: 10)], durability: .full)
        let files = scratch.listing
        let content = try Data(contentsOf: scratch.segment)

        let reader = scratch.store(ReadOnlyFolderTests.readOnly())
        reader.setWallTime { World.start.addingTimeInterval(10) }
        #expect(try await reader.load(name("a")) != nil)
        #expect(scratch.listing == files)
        #expect(try Data(contentsOf: scratch.segment) == content)
    }

    // Arguments are numbers, not dates: Foundation traps when it describes a date that is not a number.
    @Test(arguments: [-1e300, 1e300, .nan, .infinity, -.infinity, 0, 4_294_967_294.5])
    func `DS-09 every wall time and every limit is accepted`(seconds: Double) async throws {
        let date = Date(timeIntervalSince1970: seconds)
        let scratch = Scratch()
        var entry = self.entry("a", until: nil)
        entry.usableUntil = date
        for time in [date, World.start] {
            let store = scratch.store()
            store.setWallTime { time }
            try await store.save([entry, self.entry("b", until: nil)], durability: .full)
            #expect(try await store.load(name("b")) != nil)
            #expect(try await store.brokenInvariants().isEmpty)
        }
    }
}
