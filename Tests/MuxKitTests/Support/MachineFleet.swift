import Foundation
import MuxKit
import MuxTesting

/// Several machines in the tasks of one schedule: each has a repository of its own, and all share a store and an origin.
///
/// A virtual sleep ends when nothing else can run, so that all changes have been told.
struct MachineFleet: Sendable {
    /// What the machines fetch from: values are texts such as `a 3`, of a key and its version.
    final class Origin: Sendable {
        private struct State {
            var versions: [String: Int] = [:]
            var fetches: [String: Int] = [:]
            var error: (any Error)?
            var fetchTime = Duration.milliseconds(100)
        }

        private let state = Locked(State())
        private let clock: VirtualClock

        init(_ clock: VirtualClock) { self.clock = clock }

        var fetchCount: Int { self.state.withLock { $0.fetches.values.reduce(0, +) } }
        func fetchCount(of key: String) -> Int { self.state.withLock { $0.fetches[key] ?? 0 } }
        func version(of key: String) -> Int { self.state.withLock { $0.versions[key] ?? 0 } }
        func change(_ key: String) { self.state.withLock { $0.versions[key, default: 0] += 1 } }
        func fail(with error: (any Error)?) { self.state.withLock { $0.error = error } }
        func take(_ time: Duration) { self.state.withLock { $0.fetchTime = time } }

        /// Reads the version first, so that a slow fetch brings an old one.
        func fetch(_ key: String) async throws -> String {
            let (text, time, error) = self.state.withLock { state -> (String, Duration, (any Error)?) in
                state.fetches[key, default: 0] += 1
                return ("\(key) \(state.versions[key] ?? 0)", state.fetchTime, state.error)
            }
            if time > .zero { try await self.clock.sleep(for: time) }
            if let error { throw error }
            return text
        }
    }

    struct Machine: Sendable {
        let connection: MemorySharedStore.Connection
        let repository: MuxRepository
        let values: MultiplexerMap<String, String>
        let events: EventTally
    }

    let schedule: SeededExecutor
    let store: MemorySharedStore
    let origin: Origin
    let machines: [Machine]
    let policy: MuxPolicy
    let sharing: MuxShared.Policy

    init(
        _ schedule: SeededExecutor,
        machines count: Int = 2,
        policy: MuxPolicy = MuxPolicy(timeToLive: .seconds(60)),
        sharing: MuxShared.Policy = .init()
    ) {
        let store = MemorySharedStore(clock: schedule.clock)
        let origin = Origin(schedule.clock)
        self.schedule = schedule
        self.store = store
        self.origin = origin
        self.policy = policy
        self.sharing = sharing
        self.machines = (0..<count).map { number in
            Self.machine(schedule, store, origin, policy, sharing, hoursOff: number * 5)
        }
    }

    /// One more machine.
    func machine(policy: MuxPolicy? = nil) -> Machine {
        Self.machine(self.schedule, self.store, self.origin, policy ?? self.policy, self.sharing, hoursOff: -7)
    }

    private static func machine(
        _ schedule: SeededExecutor,
        _ store: MemorySharedStore,
        _ origin: Origin,
        _ policy: MuxPolicy,
        _ sharing: MuxShared.Policy,
        hoursOff: Int
    ) -> Machine {
        let connection = store.connection()
        let events = EventTally()
        let repository = MuxRepository(
            store: .none,
            durability: .relaxed,
            observer: events,
            time: TimeSource(schedule.clock),
            wallTime: { Date(timeIntervalSinceReferenceDate: 800_000_000 + Double(hoursOff) * 3_600) },
            random: { Double(schedule.draw(0..<1_000)) / 1_000 },
            spawn: TaskLauncher(executor: schedule),
            sharedStore: (connection, sharing)
        )
        let values = MultiplexerMap<String, String>(cacheKey: "Values", policy: policy, repository: repository) { key in
            try await origin.fetch(key)
        }
        return Machine(connection: connection, repository: repository, values: values, events: events)
    }

    /// Waits until nothing else can run.
    func settle() async throws { try await self.schedule.clock.sleep(for: .nanoseconds(1)) }
}

/// Fails an order of events in which something does not hold.
func expect(_ condition: Bool, _ detail: @autoclosure () -> String = "", line: Int = #line) throws {
    guard condition else { throw DoesNotHold(line: line, detail: detail()) }
}

/// What does not hold in an order of events.
struct DoesNotHold: Error {
    var line: Int
    var detail: String
}
