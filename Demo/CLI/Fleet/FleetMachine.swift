import Foundation
import MuxKit
import MuxTesting
import Synchronization

/// The shared store of the page's machines: an engine, or a store in this process.
struct FleetEngine: Sendable {
    /// The connection of a machine to the store.
    struct Connection: Sendable {
        let store: any MuxSharedStore
        /// Breaks the connection without notice to the engine, like the end of a machine.
        let cut: @Sendable () -> Void
    }

    let name: String
    let connect: @Sendable () -> Connection
    let start: @Sendable () async throws -> Void
    let stop: @Sendable () async throws -> Void
    /// The time that a machine waits for the store, and for another machine's fetch: longer than the duration
    /// of both on a busy computer.
    var patience = Duration.seconds(1)
}

/// A value that all machines request.
struct Offer: Codable, Sendable {
    /// Rises when the origin's value changes.
    var version: Int
    /// The machine that fetched the offer.
    var machine: String
}

/// The slow server behind the machines, with a count of the calls.
final class FleetOrigin: Sendable {
    private struct State {
        var versions: [String: Int] = [:]
        var calls = 0
        var callsAlone = 0
        /// The machine whose calls wait, and the gate at which they wait.
        var held: (machine: String, gate: Gate<Void>)?
    }

    private let state = Mutex(State())

    /// The calls of the machines with the shared store, and the calls for the same requests without sharing.
    var calls: (shared: Int, alone: Int) { self.state.withLock { ($0.calls, $0.callsAlone) } }

    func version(of key: String) -> Int { self.state.withLock { $0.versions[key] ?? 1 } }

    func change(_ key: String) { self.state.withLock { $0.versions[key, default: 1] += 1 } }

    /// Holds the calls of a machine with the shared store; replaces a former hold.
    ///
    /// - Returns: The gate at which the calls wait.
    func hold(_ machine: String) -> Gate<Void> {
        let gate = Gate<Void>()
        self.state.withLock { $0.held = (machine, gate) }
        return gate
    }

    /// Returns the offer after a delay; the version is from before the delay, so that a slow call returns an
    /// old version.
    func fetch(_ key: String, by machine: String, isShared: Bool) async throws -> Offer {
        let (version, gate) = self.state.withLock { state -> (Int, Gate<Void>?) in
            if isShared { state.calls += 1 } else { state.callsAlone += 1 }
            let gate = isShared && state.held?.machine == machine ? state.held?.gate : nil
            return (state.versions[key] ?? 1, gate)
        }
        try await gate?.pass(ignoringCancellation: true)
        try await Task.sleep(for: .milliseconds(Int.random(in: 150...400)))
        return Offer(version: version, machine: machine)
    }
}

/// A machine of a service: a repository on the shared store, and for comparison a private repository with the
/// same requests.
final class FleetMachine: Sendable {
    static let keys = [
        "Lisbon", "Osaka", "Nairobi", "Cusco", "Tallinn", "Hanoi", "Bergen", "Accra", "Perth", "Quito", "Malmö",
        "Izmir",
    ]

    private static let policy = MuxPolicy(
        timeToLive: .seconds(30),
        timeToLiveJitter: 0.5,
        staleIfError: .zero,
        fetchTimeout: .seconds(20)
    )

    let name: String
    let offers: MultiplexerMap<String, Offer>
    private let alone: MultiplexerMap<String, Offer>
    private let connection: FleetEngine.Connection
    private let repository: MuxRepository
    private let failures = Mutex(0)

    init(_ name: String, _ engine: FleetEngine, _ origin: FleetOrigin) {
        let connection = engine.connect()
        let sharing = MuxShared.Policy(
            budget: engine.patience,
            patience: engine.patience,
            maximumPause: .seconds(2)
        )
        self.name = name
        self.connection = connection
        self.repository = MuxRepository(sharedStore: connection.store, policy: sharing)
        self.offers = MultiplexerMap(cacheKey: "Offers", policy: Self.policy, repository: self.repository) { key in
            try await origin.fetch(key, by: name, isShared: true)
        }
        self.alone = MultiplexerMap(policy: Self.policy, repository: MuxRepository(store: MemoryStore())) { key in
            try await origin.fetch(key, by: name, isShared: false)
        }
    }

    /// The number of failed requests.
    var failureCount: Int { self.failures.withLock { $0 } }

    /// Requests an offer from the shared and from the private repository.
    func ask(_ key: String) async {
        async let other = try? self.alone.request(key: key)
        do {
            _ = try await self.offers.request(key: key)
        } catch {
            self.failures.withLock { $0 += 1 }
        }
        _ = await other
    }

    /// Clears one offer, or all offers.
    ///
    /// - Returns: Whether the store has confirmed the clear.
    @discardableResult
    func clear(_ key: String? = nil) async -> Bool {
        guard let key else {
            await self.alone.clear()
            return await self.offers.clear().isComplete
        }
        await self.alone.clear(key: key)
        return await self.offers.clear(key: key).isComplete
    }

    /// Clears the private offers, and waits until no shared offer is in memory.
    ///
    /// - Returns: Whether memory was empty before `end`.
    func becomesEmpty(before end: ContinuousClock.Instant) async -> Bool {
        await self.alone.clear()
        while Self.keys.contains(where: { self.offers.cachedValue(key: $0) != nil }) {
            guard ContinuousClock.now < end else { return false }
            try? await Task.sleep(for: .milliseconds(2))
        }
        return true
    }

    /// Waits until the store replies to this machine and has received the machine's clears.
    ///
    /// - Returns: Whether the wait ended within ten seconds.
    func joins() async -> Bool {
        let end = ContinuousClock.now + .seconds(10)
        while ContinuousClock.now < end {
            if await self.repository.clear(tags: ["of no offer"]).isComplete { return true }
            try? await Task.sleep(for: .milliseconds(50))
        }
        return false
    }

    /// Ends the machine without notice to the engine.
    func end() { self.connection.cut() }
}
