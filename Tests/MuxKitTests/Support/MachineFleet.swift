import Foundation
import MuxKit
import MuxTesting

/// Several machines in the tasks of one schedule; each machine has a separate repository, and all machines
/// share a store and an origin.
///
/// A virtual sleep ends when no other job can run, so all changes are delivered by then.
struct MachineFleet: Sendable {
    /// The origin of all values; a value is the text of a key and its version, such as `a 3`.
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

        /// Reads the version first, so a slow fetch returns an old version.
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

    /// A store whose calls take effect and still throw `CancellationError` after a cancellation, as over a
    /// network.
    struct Impatient: MuxSharedStore {
        let base: MemorySharedStore.Connection
        let clock: VirtualClock

        private func answered<Answer: Sendable>(_ answer: Answer) async throws -> Answer {
            // The time of the reply.
            try await self.clock.sleep(for: .milliseconds(100))
            return answer
        }

        func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
            try await self.answered(try await self.base.load(names))
        }

        func claim(
            _ name: MuxShared.Name,
            maximumAge: Duration?,
            digest: String?,
            for duration: Duration
        ) async throws -> MuxShared.Claim {
            let claim = try await self.base.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
            return try await self.answered(claim)
        }

        func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
            // The time of the request.
            try await self.clock.sleep(for: .milliseconds(100))
            return try await self.base.put(entry, with: ticket)
        }

        func giveUp(_ ticket: MuxShared.Ticket) async throws { try await self.base.giveUp(ticket) }
        func invalidate(_ scopes: [MuxShared.Scope]) async throws { try await self.base.invalidate(scopes) }
        func changes() -> AsyncStream<MuxShared.Change> { self.base.changes() }
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
        sharing: MuxShared.Policy = .init(),
        areImpatient: Bool = false
    ) {
        let store = MemorySharedStore(clock: schedule.clock)
        let origin = Origin(schedule.clock)
        self.schedule = schedule
        self.store = store
        self.origin = origin
        self.policy = policy
        self.sharing = sharing
        self.machines = (0..<count).map { number in
            Self.machine(schedule, store, origin, policy, sharing, hoursOff: number * 5, isImpatient: areImpatient)
        }
    }

    private static func machine(
        _ schedule: SeededExecutor,
        _ store: MemorySharedStore,
        _ origin: Origin,
        _ policy: MuxPolicy,
        _ sharing: MuxShared.Policy,
        hoursOff: Int,
        isImpatient: Bool
    ) -> Machine {
        let connection = store.connection()
        let events = EventTally()
        let repository = MuxRepository.machine(
            schedule,
            sharing: isImpatient ? Impatient(base: connection, clock: schedule.clock) : connection,
            sharing,
            observer: events,
            hoursOff: hoursOff,
            random: { Double(schedule.draw(0..<1_000)) / 1_000 }
        )
        let values = MultiplexerMap<String, String>(cacheKey: "Values", policy: policy, repository: repository) { key in
            try await origin.fetch(key)
        }
        return Machine(connection: connection, repository: repository, values: values, events: events)
    }

    /// Waits until no other job can run.
    func settle() async throws { try await self.schedule.clock.sleep(for: .nanoseconds(1)) }
}

extension MuxRepository {
    /// The repository of one machine that a schedule runs.
    static func machine(
        _ schedule: SeededExecutor,
        sharing store: any MuxSharedStore,
        _ policy: MuxShared.Policy = .init(),
        observer: (any MuxObserver)? = nil,
        hoursOff: Int = 0,
        random: @escaping @Sendable () -> Double = { 0.5 }
    ) -> MuxRepository {
        MuxRepository(
            store: .none,
            durability: .relaxed,
            observer: observer,
            time: TimeSource(schedule.clock),
            wallTime: { World.start.addingTimeInterval(Double(hoursOff) * 3_600) },
            random: random,
            spawn: TaskLauncher(executor: schedule),
            sharedStore: (store, policy),
            misuseLog: nil
        )
    }
}
