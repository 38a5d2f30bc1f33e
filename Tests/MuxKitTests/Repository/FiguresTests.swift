import Foundation
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxKit

/// Statistics, gauges and events describe each operation consistently.
@Suite(.standard)
struct FiguresTests {
    /// An observer that leaves out hits.
    private struct WithoutHits: MuxObserver {
        let tally = EventTally()
        var observesHits: Bool { false }
        func observe(_ event: MuxEvent) { self.tally.observe(event) }
    }

    private struct StatusError: RetryableError {
        var retryAdvice: RetryAdvice { RetryAdvice(isTransient: true, status: 503) }
    }

    private struct SocketClosed: ConnectivityError {}

    private struct NotAllowed: BadDependencyError {
        var isBadDependency: Bool { true }
    }

    private enum ShopError: Error {
        case soldOut
        case refused(password: String)
    }

    private static func expectAgreement(
        _ statistics: MuxRepository.Statistics,
        _ events: EventTally,
        _ location: SourceLocation = #_sourceLocation
    ) {
        let counters: [(MuxEvent.Kind, Int)] = [
            (.hit, statistics.hits), (.joined, statistics.joins), (.missed, statistics.misses),
            (.fetchStarted, statistics.fetches), (.fetchFailed, statistics.failures),
            (.fetchRetried, statistics.retries), (.servedStale, statistics.staleServed),
            (.fenceDropped, statistics.fenceDrops), (.evicted, statistics.evictions),
        ]
        for (kind, count) in counters {
            #expect(events.count(of: kind) == count, "\(kind)", sourceLocation: location)
        }
    }

    @Test(arguments: 0..<20) func `CO-26 each counter is the number of its events`(seed: UInt64) async {
        var random = SplitMix64(state: seed)
        let world = World()
        let policy = MuxPolicy(
            timeToLive: .seconds(10),
            staleWhileRevalidate: .seconds(5),
            isSilenceable: { $0 is FetchFailed },
            errorBackoff: .seconds(2),
            retry: .immediate(maxAttempts: 2),
            maximumCount: 5
        )
        let draws = Locked(SplitMix64(state: seed ^ 77))
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", policy: policy, repository: world.repository) { key in
            if draws.withLock({ Int.random(in: 0..<3, using: &$0) }) == 0 { throw FetchFailed() }
            return key
        }
        var requests = 0
        for _ in 0..<60 {
            let key = Int.random(in: 0..<8, using: &random)
            switch Int.random(in: 0..<10, using: &random) {
            case 0: map.refresh(key: key)
            case 1: world.clock.advance(by: .seconds(Int64.random(in: 1..<15, using: &random)))
            case 2: await map.save()
            case 3: map.clearMemory()
            default:
                let options: [RequestOptions] = [
                    .init(), .reload, .cacheOnly, .maxAge(.seconds(3)), .staleWhileRevalidate,
                ]
                let option = options.randomElement(using: &random) ?? .init()
                let count = Int.random(in: 1..<4, using: &random)
                requests += count
                await withTaskGroup { group in
                    for _ in 0..<count { group.addTask { _ = try? await map.request(key: key, option) } }
                }
            }
        }
        await map.expectAtRest()
        // The events of a flight are reported after its callers resume.
        await world.events.wait(for: .fetchStarted, count: map.statistics.fetches)
        let ends = { world.events.count(of: .fetched) + world.events.count(of: .fetchFailed) }
        while ends() < map.statistics.fetches || world.events.count(of: .evicted) < map.statistics.evictions
            || world.events.count(of: .fenceDropped) < map.statistics.fenceDrops
        {
            await Task.yield()
        }
        #expect(map.statistics.requests == requests)
        Self.expectAgreement(map.statistics, world.events)
    }

    @Test func `CO-26 each caller that gets a stale value counts, not each flight`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let number = Multiplexer<Int>(repository: world.repository) { try await fetch() }
        _ = try await number.request()
        number.refresh()
        let callers = (0..<10).map { _ in Task { try await number.requestEntry() } }
        await gate.waitForCall(1)
        await world.events.wait(for: .joined, count: 9)
        gate.fail(1, with: offline)
        for caller in callers { #expect(try await caller.value.staleReason == .fetchFailed) }

        #expect(number.statistics.staleServed == 10)
        #expect(number.statistics.failures == 1)
        await world.events.wait(for: .servedStale, count: 10)
        // The back-off after the failure permits no fetch. The request is a stale hit.
        _ = try await number.request()
        await world.events.wait(for: .fetchFailed)
        #expect(number.statistics.staleServed == 11)
        Self.expectAgreement(number.statistics, world.events)
    }

    @Test func `CO-26 a stale value counts, from memory and from disk`() async throws {
        let world = World()
        let policy = MuxPolicy(timeToLive: .seconds(10), staleWhileRevalidate: .seconds(100))
        let first = Multiplexer<Int>(cacheKey: "N", policy: policy, repository: world.repository) { 1 }
        _ = try await first.request()
        await first.save()
        world.clock.advance(by: .seconds(20))
        _ = try await first.request(.cacheOnly)
        #expect(first.statistics.staleServed == 1)
        #expect(world.events.count(of: .servedStale) == 1)

        // The value comes from disk during its renewal.
        let next = world.relaunched()
        let gate = Gate<Int>()
        let second = Multiplexer<Int>(cacheKey: "N", policy: policy, repository: next.repository) {
            try await gate.pass()
        }
        let entry = try await second.requestEntry()
        #expect(entry.staleReason == .revalidating)
        #expect(second.statistics.staleServed == 1)
        #expect(second.statistics.diskHits == 1)
        gate.open(returning: 2)
        await next.events.wait(for: .fetched)
        Self.expectAgreement(second.statistics, next.events)
    }

    @Test func `CO-26 an event contains the reason of a failed fetch and the name of its multiplexer`() async {
        let decoding = DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "secret"))
        let cases: [(any Error, MuxEvent.Reason, line: String)] = [
            (StatusError(), .status(503), "status 503"),
            (SilenceableError(StatusError()), .status(503), "status 503"),
            (URLError(.timedOut), .timeOut, "time-out"),
            (POSIXError(.ETIMEDOUT), .timeOut, "time-out"),
            (RunnerError.updateTimedOut(after: .seconds(1)), .timeOut, "time-out"),
            (URLError(.notConnectedToInternet), .connection, "connection"),
            (POSIXError(.ECONNREFUSED), .connection, "connection"),
            (SocketClosed(), .connection, "connection"),
            (decoding, .decoding, "decoding"),
            (CancellationError(), .cancellation, "cancelled"),
            (URLError(.cancelled), .cancellation, "cancelled"),
            (NotAllowed(), .refused, "refused"),
            (RunnerError.updateFailed(underlying: nil), .refused, "refused"),
            (RunnerError.noUpdate, .other("RunnerError.noUpdate"), "RunnerError.noUpdate"),
            (RunnerError.tokensUnreadable(underlying: URLError(.timedOut)), .timeOut, "time-out"),
            (RetryError(.attemptsExhausted, attempts: [], lastError: SocketClosed()), .connection, "connection"),
            (ShopError.soldOut, .other("ShopError.soldOut"), "ShopError.soldOut"),
            (ShopError.refused(password: "secret"), .other("ShopError"), "ShopError"),
        ]
        for (error, reason, word) in cases {
            let lines = Locked<[String]>([])
            let log = LoggingObserver(
                observesHits: true,
                showsKeys: false,
                isIncluded: { $0.kind == .fetchFailed },
                write: { line, _ in lines.withLock { $0.append(line) } }
            )
            let events = EventTally()
            for observer in [log, events] as [any MuxObserver] {
                let world = World(observer: observer)
                let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { throw error }
                _ = try? await number.request()
                await number.expectAtRest()
            }
            await events.wait(for: .fetchFailed)
            let event = events.events.first { $0.kind == .fetchFailed }
            #expect(event?.reason == reason)
            #expect(event?.name == "Number")
            while lines.withLock({ $0.isEmpty }) { await Task.yield() }
            #expect(lines.withLock { $0 } == ["Number fetchFailed (\(word)) in 0.0 ms"])
        }
    }

    @Test func `CO-26 a fetch that is cancelled at its time-out has the reason time-out`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let policy = MuxPolicy(fetchTimeout: .seconds(5))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await gate.pass() }
        let caller = Task { try await number.request() }
        await gate.waitForCall(1)
        await world.clock.waitForSleepers(1)
        world.clock.advance(by: .seconds(5))
        await #expect(throws: MuxError.timedOut(after: .seconds(5))) { try await caller.value }
        await world.events.wait(for: .fetchFailed)
        #expect(world.events.events.first { $0.kind == .fetchFailed }?.reason == .timeOut)

        let next = Task { try await number.request() }
        await gate.waitForCall(2)
        next.cancel()
        _ = await next.result
        await world.clock.waitForSleepers(2)
        world.clock.advance(by: .seconds(1))
        await world.events.wait(for: .fetchFailed, count: 2)
        #expect(world.events.events.last { $0.kind == .fetchFailed }?.reason == .cancellation)
    }

    @Test func `CO-26 a retry event contains the reason of the previous attempt's failure`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.failure(StatusError()), .failure(SocketClosed()), .value(1)])
        let policy = MuxPolicy(retry: .immediate(maxAttempts: 3))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        let retried = world.events.events.filter { $0.kind == .fetchRetried }
        #expect(retried.map(\.reason) == [.status(503), .connection])
    }

    @Test func `CO-26 a multiplexer without a name is named after the type of its values`() async throws {
        let world = World()
        let plain = Multiplexer<[Int]>(repository: world.repository) { [1] }
        let named = Multiplexer<Int>(cacheKey: "N", policy: .init(name: "Number"), repository: world.repository) { 1 }
        _ = try await plain.request()
        _ = try await named.request()
        #expect(world.events.events.filter { $0.kind == .missed }.map(\.name) == ["Array<Int>", "Number"])
    }

    @Test func `CO-26 a runner has a name, and its events contain the reason of a failed update`() async {
        let events = EventTally()
        var policy = RunnerPolicy()
        policy.name = "Session"
        let named = DependentRunner<Int>(policy: policy, observer: events) { _ in throw URLError(.timedOut) }
        let plain = DependentRunner<Int>(observer: events) { _ in .updateFailed }
        for (number, runner) in [named, plain].enumerated() {
            _ = try? await runner.run { .output($0) }
            // The event is reported after the callers resume.
            await events.wait(for: .updateFailed, count: number + 1)
        }
        let failures = events.events.filter { $0.kind == .updateFailed }
        #expect(failures.map(\.name) == ["Session", "Int"])
        #expect(failures.map(\.reason) == [.timeOut, .refused])
    }

    @Test func `CO-26 the tokens of a session have their own names in events`() async throws {
        let world = World()
        let runner = OAuthDependentRunner<String, String>(
            repository: world.repository,
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: { OAuthSignIn(access: nil, refresh: "refresh") }
        )
        _ = try await runner.run { .output($0) }
        await world.events.wait(for: .updated, count: 2)
        let names = Set(world.events.events.filter { $0.kind == .updated }.map(\.name))
        #expect(names == ["OAuth access token", "OAuth refresh token"])
    }

    @Test func `CO-26 an observer can leave out hits, which are counted nevertheless`() async throws {
        let observer = WithoutHits()
        let world = World(observer: observer)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        for _ in 0..<3 {
            _ = try await map.request(key: 1)
            _ = try await map.request(key: 1, .maxAge(.seconds(5)))
            _ = try await map.request(key: 1, .cacheOnly)
        }
        #expect(map.statistics.hits == 8)
        #expect(observer.tally.count(of: .hit) == 0)
        #expect(observer.tally.count(of: .missed) == 1)
    }

    @Test func `CO-26 gauges report entries, unsaved values, waiters, flights and failures of the store`() async throws
    {
        let store = UnreliableStore()
        let world = World(store: store)
        let gate = Gate<Int>()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { key in
            key < 0 ? try await gate.pass() : key
        }
        #expect(await world.repository.gauges() == MuxRepository.Gauges())
        for key in 0..<5 { _ = try await map.request(key: key) }
        let callers = (0..<3).map { _ in Task { try await map.request(key: -1) } }
        await gate.waitForCall(1)
        await world.events.wait(for: .joined, count: 2)

        var gauges = await world.repository.gauges()
        #expect(gauges.entries == 5)
        #expect(gauges.unsaved == 5)
        #expect(gauges.waiters == 3)
        #expect(gauges.flights == 1)

        gate.open(returning: 0)
        for caller in callers { _ = try await caller.value }
        for fails in [store.failsSaves, store.failsEpochs] { fails.withLock { $0 = true } }
        let report = await world.repository.saveAll()
        gauges = await world.repository.gauges()
        #expect(report.failed.count == 6)
        #expect(gauges.lastSaveFailures == 6 + report.repairFailures.count)
        #expect(gauges.unsaved == 6)
        await world.repository.clearAll()
        #expect(await world.repository.gauges().owesRemoval)

        for fails in [store.failsSaves, store.failsEpochs] { fails.withLock { $0 = false } }
        await world.repository.saveAll()
        #expect(await world.repository.gauges() == MuxRepository.Gauges())
    }
}
