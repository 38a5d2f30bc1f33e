import Foundation
import MuxKit
import MuxValkey
import NIOCore

/// The keys of a fleet, by purpose.
enum Keys {
    /// The keys of random reads and clears; each key belongs to one of three groups, which are tags.
    static let common = 0..<12
    /// The keys of scenarios with a watched fetch, without tags.
    static let watched = 50..<54
    /// The keys of the map with a short time to live.
    static let brief = 100..<104

    static let domain = "Places"
    static let groups = 0..<3

    static let all = Array(Self.common) + Array(Self.watched) + Array(Self.brief)

    static func tags(_ key: Int) -> [String] { self.common.contains(key) ? ["group \(key % 3)"] : [] }

    static func of(_ scope: MuxShared.Scope) -> [Int] {
        switch scope {
        case .entry(let name): name.key.flatMap { Int($0) }.map { [$0] } ?? []
        case .tag(let tag): self.common.filter { self.tags($0).contains(tag) }
        case .domain(self.domain): Array(self.common) + Array(self.watched)
        case .domain: []
        case .everything: self.all
        @unknown default: self.all
        }
    }
}

/// The times of machines, short, so that many disasters take little time.
enum Times {
    static let budget = Duration.milliseconds(250)
    static let fetchTimeout = Duration.seconds(2)
    static let timeToLive = Duration.seconds(3_600)
    static let briefTimeToLive = Duration.seconds(1)
    static let heartbeat = Duration.milliseconds(250)

    static var shared: MuxShared.Policy {
        .init(budget: self.budget, patience: .seconds(1), pause: .milliseconds(100), maximumPause: .milliseconds(400))
    }
}

/// A value of the origin.
struct Place: Codable, Sendable, Equatable {
    /// The version of the key when the call arrived.
    let version: Int
    /// The number of the call that returned the value.
    let call: Int
}

/// A process of a fleet: a repository over a ``WatchedStore``, controlled by the coordinator.
final class Machine: Sendable {
    private let connection: LineConnection
    private let store: WatchedStore
    private let repository: MuxRepository
    private let places: MultiplexerMap<Int, Place>
    private let brief: MultiplexerMap<Int, Place>
    private let calls: OriginCalls

    private init(_ configuration: MuxValkey.Configuration, _ connection: LineConnection) {
        let calls = OriginCalls(connection)
        let store = WatchedStore(MuxValkey(configuration), budget: Times.budget) { calls.happened($0) }
        let repository = MuxRepository(sharedStore: store, policy: Times.shared)
        self.places = MultiplexerMap(
            cacheKey: .init(Keys.domain) { Keys.tags($0) },
            policy: .init(timeToLive: Times.timeToLive, staleIfError: .zero, fetchTimeout: Times.fetchTimeout),
            repository: repository
        ) { try await calls.fetch($0) }
        self.brief = MultiplexerMap(
            cacheKey: .init("Brief"),
            policy: .init(timeToLive: Times.briefTimeToLive, staleIfError: .zero, fetchTimeout: Times.fetchTimeout),
            repository: repository
        ) { try await calls.fetch($0) }
        (self.calls, self.connection, self.store, self.repository) = (calls, connection, store, repository)
    }

    /// Runs a machine until the coordinator ends the connection.
    ///
    /// - Parameters:
    ///   - number: The number of the machine.
    ///   - port: The port of the coordinator.
    ///   - engines: The ports of the engines, or of their proxies.
    ///   - prefix: The prefix of the fleet's store.
    /// - Throws: The reason of a failed connection to the coordinator.
    static func run(_ number: Int, port: Int, engines: [Int], prefix: String) async throws {
        let addresses = engines.map { MuxValkey.Address(host: "127.0.0.1", port: $0) }
        var configuration = MuxValkey.Configuration(addresses: addresses, prefix: prefix)
        configuration.heartbeat = Times.heartbeat
        configuration.connectTimeout = .milliseconds(500)
        configuration.maximumPause = .milliseconds(200)
        let (lines, continuation) = AsyncStream.makeStream(of: String.self)
        let connection = try await LineConnection.open(port: port) { _, line in continuation.yield(line) }
        connection.ended.whenComplete { _ in continuation.finish() }
        let machine = Machine(configuration, connection)
        connection.send("machine \(number)")
        for await line in lines { machine.obey(line.split(separator: " ").map { String($0) }) }
    }

    private func obey(_ words: [String]) {
        guard words.count > 1, let number = Int(words[1]) else { return }
        if words[0] == "value", words.count == 4, let version = Int(words[2]), let call = Int(words[3]) {
            return self.calls.answered(number, .success(Place(version: version, call: call)))
        }
        Task {
            let answer = await self.answer(words[0], Array(words.dropFirst(2)))
            self.connection.send("= \(number) \(answer)")
        }
    }

    private func answer(_ command: String, _ arguments: [String]) async -> String {
        let first = arguments.first.flatMap { Int($0) } ?? 0
        switch command {
        case "get": return await self.get(first)
        case "clear": return await self.clear(arguments)
        case "settle": return await self.settle(within: .milliseconds(first))
        case "sync": return await self.sync(within: .milliseconds(first))
        case "facts":
            let counts = self.calls.counts
            return "\(counts.calls) \(counts.alone) \(self.store.disturbances.all)"
        default: return "what?"
        }
    }

    private func get(_ key: Int) async -> String {
        let number = self.calls.requestBegins(key)
        do {
            let map = Keys.brief.contains(key) ? self.brief : self.places
            let entry = try await map.requestEntry(key: key)
            self.calls.requestEnded(number, key, entry.staleReason == .fenced ? .fencedValue : .value)
            let milliseconds = entry.age / .milliseconds(1)
            let reason = entry.staleReason.map { "-\($0)" } ?? ""
            return "ok \(entry.value.version) \(entry.value.call) \(entry.source)\(reason) \(Int(milliseconds))"
                + " \(self.store.disturbances.all)"
        } catch {
            self.calls.requestEnded(number, key, .failure)
            return "failed \(error)".filter { !$0.isNewline }
        }
    }

    private func clear(_ arguments: [String]) async -> String {
        guard let scope = self.scope(arguments) else { return "what?" }
        self.calls.forgets(Keys.of(scope), alsoAlone: true)
        defer { self.calls.forgets(Keys.of(scope)) }
        self.store.willClear(scope)
        let report =
            switch scope {
            case .entry(let name): await self.map(name).clear(key: name.key.flatMap { Int($0) } ?? 0)
            case .tag(let tag): await self.repository.clear(tags: [tag])
            case .domain: await self.places.clear()
            default: await self.repository.clearAll()
            }
        return report.failures.isEmpty ? "ok" : "owed"
    }

    private func map(_ name: MuxStoreKey) -> MultiplexerMap<Int, Place> {
        name.domain == Keys.domain ? self.places : self.brief
    }

    private func scope(_ arguments: [String]) -> MuxShared.Scope? {
        switch (arguments.first, arguments.last.flatMap { Int($0) }) {
        case ("entry", let key?):
            .entry(MuxStoreKey(domain: Keys.brief.contains(key) ? "Brief" : Keys.domain, key: "\(key)"))
        case ("tag", let group?): .tag("group \(group)")
        case ("domain", _): .domain(Keys.domain)
        case ("all", _): .everything
        default: nil
        }
    }

    /// Waits until the engine has confirmed every clear of this machine; the repository resends pending
    /// clears.
    private func settle(within limit: Duration) async -> String {
        let end = ContinuousClock.now + limit
        while !self.store.unconfirmed.isEmpty {
            guard ContinuousClock.now < end else { return "owed \(self.store.unconfirmed)" }
            try? await Task.sleep(for: .milliseconds(5))
        }
        return "ok"
    }

    /// Waits until the repository uses the store, and passes a barrier.
    ///
    /// - Returns: `ok`, the number of gaps in the messages, and the number of disturbances before the
    ///   barrier.
    private func sync(within limit: Duration) async -> String {
        let end = ContinuousClock.now + limit
        repeat {
            let disturbances = self.store.disturbances.ended
            // A successful clear ends the repository's pause after a failure.
            let report = await self.repository.clear(tags: ["nothing"])
            if report.failures.isEmpty, await self.store.barrier(within: end - .now) {
                return "ok \(self.store.gaps) \(disturbances)"
            }
            try? await Task.sleep(for: .milliseconds(20))
        } while ContinuousClock.now < end
        return "no"
    }
}
