import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Two repositories with a common folder simulate two processes.
///
/// Both use the same wall clock.
@Suite(.standard)
struct NewerValueTests {
    private let scratch = Scratch()
    private let wall = Locked(World.start)
    private let one: MuxRepository
    private let other: MuxRepository

    init() {
        let wall = self.wall
        func repository(_ scratch: Scratch) -> MuxRepository {
            MuxRepository(
                store: scratch.store(),
                durability: .relaxed,
                clock: WallClock(wall),
                wallTime: { wall.withLock { $0 } }
            )
        }
        self.one = repository(self.scratch)
        self.other = repository(self.scratch)
    }

    /// A clock that follows the wall time of the test.
    private struct WallClock: Clock {
        typealias Instant = ContinuousClock.Instant

        private let wall: Locked<Date>
        private let origin = ContinuousClock.now

        init(_ wall: Locked<Date>) { self.wall = wall }

        var now: Instant {
            self.origin.advanced(by: .seconds(self.wall.withLock { $0.timeIntervalSince(World.start) }))
        }
        var minimumResolution: Duration { .nanoseconds(1) }

        /// Sleeps until the task is cancelled.
        ///
        /// No test of this suite needs the end of a sleep.
        func sleep(until deadline: Instant, tolerance: Duration?) async throws {
            for await _ in AsyncStream<Void>.makeStream().stream {}
            throw CancellationError()
        }
    }

    private func pass(_ seconds: Double) { self.wall.withLock { $0 += seconds } }

    /// The value that a new process reads from disk.
    private func onDisk(_ key: String = "Text") async -> String? {
        let fresh = MuxRepository(store: self.scratch.store(), wallTime: { self.wall.withLock { $0 } })
        return await Multiplexer<String>(cacheKey: .init(key), repository: fresh) { "fetched" }.loadCachedValue()
    }

    private func text(_ repository: MuxRepository, _ value: String = "fetched") -> Multiplexer<String> {
        Multiplexer(cacheKey: "Text", repository: repository) { value }
    }

    @Test(arguments: [true, false])
    func `CO-12 the newer of two processes' values is kept, and the other process reads the newer`(
        isFetched: Bool
    ) async throws {
        let (mine, theirs) = (self.text(self.one, "old"), self.text(self.other))
        if isFetched { _ = try await mine.request() } else { mine.store("old") }
        self.pass(1)
        theirs.store("new")
        #expect(await self.other.saveAll().saved == 1)
        self.pass(1)

        let report = await self.one.saveAll()

        #expect(await self.onDisk() == "new")
        #expect(report.saved == 0)
        #expect(report.superseded == [MuxStoreKey(domain: "Text")])
        let entry = try await mine.requestEntry()
        #expect(entry.value == "new" && entry.source == .disk)
        #expect(await self.one.saveAll().unchanged == 1)
        #expect(await self.onDisk() == "new")
    }

    @Test func `CO-12 a newer value replaces the saved value of a sibling`() async throws {
        let (mine, theirs) = (self.text(self.one), self.text(self.other))
        theirs.store("old")
        self.pass(1)
        mine.store("new")
        #expect(await self.other.saveAll().saved == 1)

        #expect(await self.one.saveAll().saved == 1)

        #expect(await self.onDisk() == "new")
    }

    @Test func `CO-12 an entry that a sibling rewrote in a compaction is compared as well`() async throws {
        let mine = self.text(self.one, "old")
        _ = try await mine.request()
        self.pass(1)
        let theirs = self.text(self.other)
        let large = Multiplexer<String>(cacheKey: "Large", repository: self.other) { "" }
        large.store(String(repeating: "x", count: 70_000))
        await self.other.saveAll()
        theirs.store("new")
        large.store("small")
        await self.other.saveAll()

        #expect(await self.one.saveAll().saved == 0)

        #expect(await self.onDisk() == "new")
        #expect(try await mine.request() == "new")
    }

    @Test func `CO-12 a clock that was set back prevents no save`() async throws {
        let first = self.text(self.one)
        first.store("from the future")
        await self.one.saveAll()
        self.pass(-1_000)

        // In the process that wrote the entry, the value in memory is newer, regardless of the clock.
        first.store("now")
        #expect(await self.one.saveAll().saved == 1)
        #expect(await self.onDisk() == "now")

        // Another process read the entry and found the entry stale.
        self.pass(1_000)
        first.store("from the future again")
        await self.one.saveAll()
        self.pass(-1_000)
        let second = self.text(self.other, "fetched later")
        #expect(try await second.request() == "fetched later")
        #expect(await self.other.saveAll().saved == 1)
        #expect(await self.onDisk() == "fetched later")
    }

    @Test func `CO-12 a superseded value is compared again after a failed save`() async throws {
        let isBroken = Locked(false)
        let fileSystem = RecordingFileSystem { _, call in
            call.operation == .write && call.name == "00000001.jsonl" && isBroken.withLock { $0 }
                ? .refuse(ENOSPC) : nil
        }
        let repository = MuxRepository(
            store: self.scratch.store(fileSystem),
            durability: .relaxed,
            clock: WallClock(self.wall),
            wallTime: { self.wall.withLock { $0 } }
        )
        let (mine, mineToo) = (
            self.text(repository, "old"), Multiplexer(cacheKey: "Too", repository: repository) { "too" }
        )
        _ = try await mine.request()
        self.pass(1)
        _ = try await mineToo.request()
        let theirs = self.text(self.other)
        theirs.store("new")
        #expect(await self.other.saveAll().saved == 1)

        isBroken.withLock { $0 = true }
        #expect(await repository.saveAll().saved == 0)
        isBroken.withLock { $0 = false }
        #expect(await repository.saveAll().saved == 1)

        #expect(await self.onDisk() == "new")
        #expect(await self.onDisk("Too") == "too")
    }

    @Test func `CO-12 of two entries with the same name the newer is kept across the portions of a save`() async throws
    {
        let (newer, older) = (
            MultiplexerMap<Int, String>(cacheKey: "Map", repository: self.one) { _ in "" },
            MultiplexerMap<Int, String>(cacheKey: "Map", repository: self.one) { _ in "" }
        )
        older.store("older", key: 1)
        self.pass(1)
        for key in 2..<600 { newer.store("filler", key: key) }
        self.pass(1)
        newer.store("newer", key: 1)

        #expect(await self.one.saveAll(within: .seconds(60)).isComplete)

        let fresh = MuxRepository(store: self.scratch.store(), wallTime: { self.wall.withLock { $0 } })
        let found = MultiplexerMap<Int, String>(cacheKey: "Map", repository: fresh) { _ in "fetched" }
        #expect(await found.loadCachedValue(key: 1) == "newer")
    }

    @Test func `CO-12 an entry from the future does not replace an explicitly stored value`() async throws {
        let theirs = self.text(self.other)
        theirs.store("from the future")
        #expect(await self.other.saveAll().saved == 1)
        self.pass(-1_000)
        let mine = self.text(self.one)
        mine.store("mine")

        await self.one.saveAll()

        #expect(mine.cachedValue == "mine")
    }

    @Test func `CO-12 processes that save at different times leave the newest version of each entry`() async throws {
        let repositories = (0..<4).map { _ in
            MuxRepository(
                store: self.scratch.store(indexFloor: 4),
                durability: .relaxed,
                clock: WallClock(self.wall),
                wallTime: { self.wall.withLock { $0 } }
            )
        }
        let maps = repositories.map { MultiplexerMap<Int, Int>(cacheKey: "Map", repository: $0) { $0 } }
        var random = SplitMix64(state: 12)
        var newest: [Int: Int] = [:]
        for round in 0..<300 {
            self.pass(1)
            let key = Int.random(in: 0..<6, using: &random)
            maps[Int.random(in: 0..<4, using: &random)].store(round, key: key)
            newest[key] = round
            if round % 3 == 0 { await repositories[Int.random(in: 0..<4, using: &random)].saveAll() }
        }
        for repository in repositories { await repository.saveAll() }
        withExtendedLifetime(maps) {}  // a deallocated map saves nothing

        let fresh = MuxRepository(store: self.scratch.store(), wallTime: { self.wall.withLock { $0 } })
        let found = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: fresh) { _ in -1 }
        for (key, round) in newest { #expect(await found.loadCachedValue(key: key) == round) }
    }
}
