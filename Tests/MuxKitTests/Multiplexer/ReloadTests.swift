import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// `reload()`: a fetch that belongs to the multiplexer.
@Suite(.standard(minutes: 60))
struct ReloadTests {
    private let world = World()

    @Test func `SC-04 a reload delivers its value wherever its caller is cancelled`() async throws {
        let count = try await SeededExecutor.explore(1_000) { try await ReloadScenario($0).play() }
        print("SC-04: \(count) schedules of reloads")
    }

    @Test func `SC-04 a reload fetches a fresh value again and returns the new value`() async throws {
        let fetch = ScriptedFetch<Int>([.value(1), .value(2), .value(3)])
        let number = Multiplexer(repository: self.world.repository) { try await fetch() }
        _ = try await number.request()
        #expect(try await number.reload() == 2)
        #expect(try await number.request() == 2)

        let others = ScriptedFetch<Int>([.value(1), .value(2)])
        let map = MultiplexerMap<String, Int>(repository: self.world.repository) { _ in try await others() }
        _ = try await map.request(key: "a")
        #expect(try await map.reload(key: "a") == 2)
        #expect(map.cachedValue(key: "a") == 2)
    }

    @Test func `SC-04 a reload that fails keeps the value, and throws what a request would throw`() async throws {
        let fetch = ScriptedFetch<Int>([
            .value(1), .failure(FetchFailed()), .failure(URLError(.notConnectedToInternet)),
        ])
        let number = Multiplexer(repository: self.world.repository) { try await fetch() }
        _ = try await number.request()
        await #expect(throws: FetchFailed.self) { try await number.reload() }
        #expect(number.cachedValue == 1)
        #expect(try await number.reload() == 1, "a failure of the network returns the previous value")
    }

    @Test func `SC-04 a reload does not join a fetch that began before it`() async throws {
        let gate = Gate<Int>()
        let number = Multiplexer(repository: self.world.repository) { try await gate.pass() }
        let early = Task { try await number.request() }
        await gate.waitForCall(1)
        let reload = Task { try await number.reload() }
        await gate.waitForCall(2)
        gate.open(2, returning: 2)
        #expect(try await reload.value == 2)
        gate.open(1, returning: 1)
        #expect(try await early.value == 1)
        #expect(number.cachedValue == 2)
    }

    @Test func `SC-04 a key that is not equal to itself is refused`() async throws {
        let map = MultiplexerMap<Double, Int>(repository: self.world.repository) { _ in 1 }
        await #expect(throws: MuxError.unusableKey) { try await map.reload(key: .nan) }
    }

    @Test func `SC-04 a fetch that reloads its own value fails instead of waiting for itself`() async throws {
        let (numbers, owner) = (Locked(0), Locked<Multiplexer<Int>?>(nil))
        let number = Multiplexer<Int>(repository: self.world.repository) {
            let count = numbers.withLock { count in
                count += 1
                return count
            }
            guard count < 20, let number = owner.withLock({ $0 }) else { return count }
            return try await number.reload()
        }
        owner.withLock { $0 = number }
        defer { owner.withLock { $0 = nil } }
        await #expect(throws: MuxError.wouldDeadlock) { try await number.request() }
        #expect(numbers.withLock { $0 } < 20)
    }

    @Test func `SC-04 a renewal in the background that reloads its own value ends`() async throws {
        let (numbers, owner) = (Locked(0), Locked<Multiplexer<Int>?>(nil))
        let policy = MuxPolicy(timeToLive: .seconds(60), staleWhileRevalidate: .seconds(600), fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) {
            let count = numbers.withLock { count in
                count += 1
                return count
            }
            guard count > 1, count < 20, let number = owner.withLock({ $0 }) else { return count }
            return try await number.reload()
        }
        owner.withLock { $0 = number }
        defer { owner.withLock { $0 = nil } }
        _ = try await number.request()
        self.world.clock.advance(by: .seconds(60))
        #expect(try await number.request() == 1)
        await number.expectAtRest()
        #expect(numbers.withLock { $0 } < 20)
    }
}

/// One reload whose caller is cancelled at any time, beside other callers.
private struct ReloadScenario: Sendable {
    private let schedule: SeededExecutor
    private let number: Multiplexer<Int>
    private let fetches = Locked(0)

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        let world = World(clock: schedule.clock)
        let policy = MuxPolicy(
            whenAbandoned: [.finish, .cancel(linger: .zero), .cancel(linger: .seconds(2))][schedule.draw(0..<3)]
        )
        let fetches = self.fetches
        let isPersistent = schedule.draw(0..<2) == 0
        let length = Duration.seconds(schedule.draw(0..<3))
        @Sendable func fetch() async throws -> Int {
            let count = fetches.withLock { count in
                count += 1
                return count
            }
            try await schedule.clock.sleep(for: length)
            return count
        }
        self.number =
            isPersistent
            ? Multiplexer(cacheKey: "Number", policy: policy, repository: world.repository) { try await fetch() }
            : Multiplexer(policy: policy, repository: world.repository) { try await fetch() }
    }

    func play() async throws {
        _ = try await self.number.request()
        let result = Locked<Result<Int, any Error>?>(nil)
        try await withThrowingTaskGroup { group in
            if self.schedule.draw(0..<3) == 0 { group.addTask { _ = try? await self.number.request() } }
            group.addTask {
                do {
                    let value = try await self.number.reload()
                    result.withLock { $0 = .success(value) }
                } catch {
                    result.withLock { $0 = .failure(error) }
                }
            }
            for _ in 0..<self.schedule.draw(0..<12) { await self.schedule.pause() }
            if self.schedule.draw(0..<2) == 0 {
                try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<3_000)))
            }
            group.cancelAll()
            try await group.waitForAll()
        }
        // The fetch ends within this time, with or without callers.
        try await self.schedule.clock.sleep(for: .seconds(100))
        try expect(self.number.cachedValue == 2, "memory has \(String(describing: self.number.cachedValue))")
        try expect(self.fetches.withLock { $0 } == 2, "\(self.fetches.withLock { $0 }) fetches")
        switch result.withLock({ $0 }) {
        case .success(let value): try expect(value == 2, "the reload returned \(value)")
        case .failure(let error): try expect(error is CancellationError, "the reload threw \(error)")
        case nil: throw Violation("the reload has no result")
        }
        try expect(self.number.occupancy == (0, 0, 0), "not at rest: \(self.number.occupancy)")
    }
}
