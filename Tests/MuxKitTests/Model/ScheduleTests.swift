import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The real types in many orders, each drawn from a seed.
///
/// `MUX_SCHEDULES` multiplies the number of orders. `MUX_SEED` selects a single order.
@Suite(.standard(minutes: 60))
struct ScheduleTests {
    @Test func `Q-04 multiplexers keep their guarantees in every tested order`() async throws {
        let count = try await SeededExecutor.explore(1_125) { try await MapScenario($0).play() }
        print("Q-04: \(count) schedules of multiplexers")
    }

    @Test func `SC-07 multiplexers with tags keep their guarantees in every tested order`() async throws {
        let count = try await SeededExecutor.explore(1_125) { try await MapScenario($0, hasTags: true).play() }
        print("SC-07: \(count) schedules of multiplexers with tags")
    }

    @Test func `Q-04 a runner keeps its guarantees in every tested order`() async throws {
        let count = try await SeededExecutor.explore(750) { try await RunnerScenario($0).play() }
        print("Q-04: \(count) schedules of a runner")
    }

    @Test func `Q-04 a signed-in app keeps its guarantees in every tested order`() async throws {
        let count = try await SeededExecutor.explore(625) { try await OAuthScenario($0).play() }
        print("Q-04: \(count) schedules of a signed-in app")
    }

    private final class Log: MuxObserver {
        let events = Locked<[MuxEvent]>([])

        func observe(_ event: MuxEvent) { self.events.withLock { $0.append(event) } }
    }

    @Test func `Q-04 the same seed gives the same log of events`() async throws {
        for seed in 0..<UInt64(repetitions(300)) {
            var logs: [[MuxEvent]] = []
            var orders: [UInt64] = []
            for _ in 0..<2 {
                let schedule = SeededExecutor(seed: seed, grace: .none)
                let log = Log()
                try await schedule.run { try await MapScenario(schedule, observer: log).play() }
                logs.append(log.events.withLock { $0 })
                orders.append(schedule.fingerprint)
            }
            try #require(
                logs[0] == logs[1] && orders[0] == orders[1],
                "MUX_SEED=\(seed)"
            )
        }
    }
}
