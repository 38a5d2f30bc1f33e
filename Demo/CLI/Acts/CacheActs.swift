import Foundation
import MuxKit
import MuxTesting

/// Acts of the cache alone: batches, bounds, observation, and a process that is killed while it saves.
enum CacheActs {
    static var all: [Play] {
        [
            Play("Batches", self.batches),
            Play("Bounds", self.bounds),
            Play("Observation", self.observation),
            Play("Killed while saving", self.killed),
        ]
    }

    private static func batches(_ act: inout Act, _ stage: Stage) async throws {
        let requests = stage.backend.server.requestCount
        let ids = stage.placeIDs
        async let many = stage.app.batchedPlaces.request(keys: ids)
        let singles = try await withThrowingTaskGroup { group in
            for id in ids { group.addTask { try await stage.app.batchedPlaces.request(key: id).id == id } }
            return try await group.reduce(true) { $0 && $1 }
        }
        let found = try await many
        act.elsewhere = stage.app.batchedPlaces.statistics
        act.expect("50 keys, in one request and in 50 single requests: all found", found.count == 50 && singles)
        act.expect("one call to the server", stage.backend.server.requestCount == requests + 1)
        let none = await stage.app.batchedPlaces.results(keys: [-1])[-1]
        let isNotFound = if case .failure(MuxError.notFound)? = none { true } else { false }
        act.expect("a key without a value in the response fails alone", isNotFound)
    }

    private static func bounds(_ act: inout Act, _ stage: Stage) async throws {
        let places = try Place.all()
        let byID = Dictionary(places.map { ($0.id, $0) }) { $1 }
        let repository = MuxRepository(store: MemoryStore())
        let map = MultiplexerMap<Int, Place?>(policy: .init(maximumCount: 100), repository: repository) { byID[$0] }
        let used = places.prefix(20).map(\.id)
        for place in places {
            _ = try await map.request(key: place.id)
            for id in used { _ = try await map.request(key: id) }
        }
        let kept = places.count { map.cachedValue(key: $0.id) != nil }
        act.elsewhere = map.statistics
        act.expect("1,000 places through a map of 100: \(kept) are kept", kept <= 100)
        act.expect("the keys in use are kept", used.allSatisfy { map.cachedValue(key: $0) != nil })
        act.expect("\(map.statistics.evictions) evictions are counted", map.statistics.evictions == 1_000 - kept)
    }

    private static func observation(_ act: inout Act, _ stage: Stage) async throws {
        stage.app.profile.store(.init(user: "first"))
        let consumers = (0..<3).map { _ in
            Task {
                var seen: [String] = []
                for await entry in stage.app.profile.values {
                    seen.append(entry?.value.user ?? "nobody")
                    if seen.last == "last" { break }
                }
                return seen
            }
        }
        stage.app.profile.store(.init(user: "last"))
        var isComplete = true
        for consumer in consumers { isComplete = await consumer.value.last == "last" && isComplete }
        act.expect("three consumers receive the latest value", isComplete)
    }

    private static func killed(_ act: inout Act, _ stage: Stage) async throws {
        let worker = Worker(folder: stage.folder.appending(component: "killed"), changes: Tally())
        try await worker.start()
        var rounds: [Worker.Round] = []
        for count in 1...10 {
            if let round = try await worker.killAndRestart(afterSaves: count * 50) { rounds.append(round) }
        }
        await worker.stop()
        let found = rounds.map(\.found.entries)
        act.expect("10 kills: every entry found is intact", rounds.count == 10 && rounds.allSatisfy(\.found.isWhole))
        act.expect("entries found after each kill: \(found)", found.allSatisfy { $0 <= Worker.count })
        act.expect("every entry reported as saved is found", rounds.allSatisfy(\.holds))
    }
}
