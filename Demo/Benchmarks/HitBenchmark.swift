import MuxKit
import Synchronization

/// What a fresh value in memory costs: a multiplexer's hit, beside a lock and beside a plain actor.
enum HitBenchmark {
    /// The limit: a lock around a dictionary, without ages, flights or anything else.
    private final class LockedDictionary: Sendable {
        private let values = Mutex<[String: Int]>([:])

        func set(_ key: String, _ value: Int) { self.values.withLock { $0[key] = value } }
        func get(_ key: String) -> Int? { self.values.withLock { $0[key] } }
    }

    /// What one finds in a blog.
    private actor PlainActor {
        private var values: [String: Int] = [:]

        func set(_ key: String, _ value: Int) { self.values[key] = value }
        func get(_ key: String) -> Int? { self.values[key] }
    }

    private static let keys = (0..<1_000).map { "key \($0)" }

    static func run() async throws {
        let locked = LockedDictionary()
        let plain = PlainActor()
        let repository = MuxRepository(store: MemoryStore())
        let map = MultiplexerMap<String, Int>(repository: repository) { $0.count }
        let one = Multiplexer<Int>(repository: repository) { 1 }
        let runner = DependentRunner<Int>(1) { _ in .updateFailed }
        for key in self.keys {
            locked.set(key, key.count)
            await plain.set(key, key.count)
            _ = try await map.request(key: key)
        }
        _ = try await one.request()

        try await self.play("A hit, caller on the pool", locked, plain, map, one, runner)
        try await self.playOnMainActor("A hit, caller on the main actor", locked, plain, map, one, runner)
    }

    @MainActor private static func playOnMainActor(
        _ title: String,
        _ locked: LockedDictionary,
        _ plain: PlainActor,
        _ map: MultiplexerMap<String, Int>,
        _ one: Multiplexer<Int>,
        _ runner: DependentRunner<Int>
    ) async throws {
        try await self.play(title, locked, plain, map, one, runner)
    }

    private static func play(
        _ title: String,
        _ locked: LockedDictionary,
        _ plain: PlainActor,
        _ map: MultiplexerMap<String, Int>,
        _ one: Multiplexer<Int>,
        _ runner: DependentRunner<Int>
    ) async throws {
        var contest = Contest(title, repetitions: 20_000)
        contest.add("lock around a dictionary of 1,000 strings") { count in
            for index in 0..<count { _ = locked.get(self.keys[index % 1_000]) }
        }
        contest.add("MultiplexerMap of 1,000 strings") { count in
            for index in 0..<count { _ = try await map.request(key: self.keys[index % 1_000]) }
        }
        contest.add("plain actor with a dictionary of 1,000") { count in
            for index in 0..<count { _ = await plain.get(self.keys[index % 1_000]) }
        }
        contest.add("Multiplexer, one value") { count in
            for _ in 0..<count { _ = try await one.request() }
        }
        contest.add("DependentRunner, good dependency") { count in
            for _ in 0..<count { _ = try await runner.run { .output($0) } }
        }
        try await contest.play()
    }
}
