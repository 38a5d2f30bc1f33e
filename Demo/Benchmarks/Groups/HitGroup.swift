import MuxKit
import MuxTesting

/// Hits on one value: from the pool, from the main actor, and by ten tasks.
enum HitGroup {
    private static let key = 0

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let locked = LockedValue(Profile.sample)
        let plain = PlainCache<Int, Profile>()
        await plain.set(.sample, for: self.key)
        let tasks = TaskCache<Int, Profile> { _ in .sample }
        let one = Multiplexer<Profile>(repository: MuxRepository(store: MemoryStore())) { .sample }
        _ = try await one.request()

        var rows = try await self.play(group, "caller on the pool", locked, plain, one, effort)
        rows += try await self.playOnMainActor(group, "caller on the main actor", locked, plain, one, effort)
        rows.append(try await self.playTogether(group, locked, tasks, one, effort))
        let counts = try await CountedActor().counts { _ in
            for _ in 0..<1_000 { consume(try await one.request()) }
        }
        rows += .counted(group, "hits", counts)
        rows.append(try await self.withOptions(group, locked, plain, one, effort))
        let countsWithOptions = try await CountedActor().counts { _ in
            for _ in 0..<1_000 { consume(try await one.request(self.options)) }
        }
        rows += .counted(group, "hits with options", countsWithOptions)
        return rows + (try await self.compared(group, effort))
    }

    /// Compares hits on a value that several machines share, and on a value with an early renewal
    /// (`MuxPolicy.service`), with hits on an ordinary value.
    private static func compared(_ group: String, _ effort: Effort) async throws -> [Row] {
        let repository = MuxRepository(store: MemoryStore())
        let own = Multiplexer<Profile>(cacheKey: "Profile", repository: repository) { .sample }
        let store = MemorySharedStore()
        let fleet = MuxRepository(sharedStore: store.connection())
        let shared = Multiplexer<Profile>(cacheKey: "Profile", repository: fleet) { .sample }
        let service = Multiplexer<Profile>(
            policy: .service(timeToLive: .seconds(3_600)),
            repository: MuxRepository(store: MemoryStore())
        ) { .sample }
        _ = (try await own.request(), try await shared.request(), try await service.request())
        let trips = store.callCount
        var contest = Contest(rounds: effort.rounds(41))
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await own.request()) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await shared.request()) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await service.request()) }
        }
        let outcome = try await contest.play()
        let rows = [("a value that machines share", 1), ("a value with a later early renewal", 2)].map { name, figure in
            Row(group, name, outcome, figure: figure, limit: ("an ordinary value", 0), goals: [.timesLimit(1.05)])
        }
        let counts = try await CountedActor().counts { _ in
            for _ in 0..<1_000 { consume(try await shared.request()) }
        }
        precondition(store.callCount == trips, "a hit calls the store")
        return rows + .counted(group, "hits on a shared value", counts)
    }

    private static let options = RequestOptions.maxAge(.seconds(3_600))

    /// A request with a maximum age.
    private static func withOptions(
        _ group: String,
        _ locked: LockedValue<Profile>,
        _ plain: PlainCache<Int, Profile>,
        _ one: Multiplexer<Profile>,
        _ effort: Effort
    ) async throws -> Row {
        var contest = Contest(rounds: effort.rounds(25))
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(locked.fresh()) }
        }
        contest.add(repeating: 100) { count in
            for _ in 0..<count { consume(try await one.request(self.options)) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(await plain.value(self.key)) }
        }
        return Row(
            group,
            "with an age of the caller's own",
            try await contest.play(),
            figure: 1,
            limit: ("lock, copy, coarse clock", 0),
            instead: ("plain actor", 2),
            goals: [.atMost(60)]
        )
    }

    /// The same contest on the main actor.
    ///
    /// The closures state their isolation, because optimized code loses inherited isolation (Swift 6.3.1).
    private static func playOnMainActor(
        _ group: String,
        _ name: String,
        _ locked: LockedValue<Profile>,
        _ plain: PlainCache<Int, Profile>,
        _ one: Multiplexer<Profile>,
        _ effort: Effort
    ) async throws -> [Row] {
        var contest = Contest(rounds: effort.rounds(25))
        contest.add(repeating: 1_000) { @MainActor count in
            for _ in 0..<count { consume(locked.fresh()) }
        }
        contest.add(repeating: 1_000) { @MainActor count in
            for _ in 0..<count { consume(try await one.request()) }
        }
        contest.add(repeating: 100) { @MainActor count in
            for _ in 0..<count { consume(await plain.value(self.key)) }
        }
        return [try await self.row(group, name, contest)]
    }

    private static func play(
        _ group: String,
        _ name: String,
        _ locked: LockedValue<Profile>,
        _ plain: PlainCache<Int, Profile>,
        _ one: Multiplexer<Profile>,
        _ effort: Effort
    ) async throws -> [Row] {
        var contest = Contest(rounds: effort.rounds(25))
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(locked.fresh()) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await one.request()) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(await plain.value(self.key)) }
        }
        return [try await self.row(group, name, contest)]
    }

    private static func row(_ group: String, _ name: String, _ contest: Contest) async throws -> Row {
        Row(
            group,
            name,
            try await contest.play(),
            figure: 1,
            limit: ("lock, copy, coarse clock", 0),
            instead: ("plain actor", 2),
            goals: [.timesLimit(1.2)]
        )
    }

    private static func playTogether(
        _ group: String,
        _ locked: LockedValue<Profile>,
        _ tasks: TaskCache<Int, Profile>,
        _ one: Multiplexer<Profile>,
        _ effort: Effort
    ) async throws -> Row {
        var contest = Contest(rounds: effort.rounds(15))
        contest.add(repeating: 1_000) { count in
            try await inTasks(10, sharing: count) { _, share in
                for _ in 0..<share { consume(locked.fresh()) }
            }
        }
        contest.add(repeating: 1_000) { count in
            try await inTasks(10, sharing: count) { _, share in
                for _ in 0..<share { consume(try await one.request()) }
            }
        }
        contest.add(repeating: 1_000) { count in
            try await inTasks(10, sharing: count) { _, share in
                for _ in 0..<share { consume(try await tasks.value(self.key)) }
            }
        }
        return Row(
            group,
            "10 tasks",
            try await contest.play(),
            figure: 1,
            limit: ("lock, copy, coarse clock", 0),
            instead: ("actor of tasks", 2),
            goals: [.timesLimit(1.5)]
        )
    }
}

/// Runs `body` in several tasks at once, each with its number and its share of `count`.
func inTasks(
    _ tasks: Int,
    sharing count: Int,
    _ body: @escaping @Sendable (Int, Int) async throws -> Void
) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
        for task in 0..<tasks {
            group.addTask { try await body(task, count / tasks) }
        }
        try await group.waitForAll()
    }
}
