import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct FreshnessTests {
    private static let counting = ScriptedFetch<Int>.Outcome.computed { $0 }

    @Test func `MX-06 a value is fresh for thirty minutes by default`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: Self.counting)
        let number = Multiplexer<Int>(repository: world.repository) { try await fetch() }

        #expect(try await number.request() == 1)
        world.clock.advance(by: .seconds(30 * 60) - .nanoseconds(1))
        #expect(try await number.request() == 1)
        world.clock.advance(by: .nanoseconds(1))
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test func `MX-06 each multiplexer has its own time to live`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: Self.counting)
        let policy = MuxPolicy(timeToLive: .seconds(10))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }

        #expect(try await number.request() == 1)
        world.clock.advance(by: .seconds(9))
        #expect(try await number.request() == 1)
        world.clock.advance(by: .seconds(1))
        #expect(try await number.request() == 2)
    }

    @Test func `MX-06 a fetch may set the time to live of its value`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: Self.counting)
        let number = Multiplexer<Int>(repository: world.repository) { _ in
            let call = try await fetch()
            return Fetched(call, timeToLive: .seconds(call == 1 ? 5 : 100))
        }

        #expect(try await number.request() == 1)
        world.clock.advance(by: .seconds(5))
        #expect(try await number.request() == 2)
        world.clock.advance(by: .seconds(99))
        #expect(try await number.request() == 2)
        #expect(number.cachedEntry?.timeToLive == .seconds(100))
    }

    @Test func `MX-06 jitter shortens the time to live`() async throws {
        let world = World(random: { 0.5 })
        let fetch = ScriptedFetch<Int>(thereafter: Self.counting)
        let policy = MuxPolicy(timeToLive: .seconds(100), timeToLiveJitter: 0.4)
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }

        #expect(try await number.request() == 1)
        #expect(number.cachedEntry?.timeToLive == .seconds(80))
        world.clock.advance(by: .seconds(80))
        #expect(try await number.request() == 2)
    }

    @Test(arguments: [Duration.zero, .seconds(-5), .seconds(Int64.min / 4)])
    func `MX-06 without a time to live every request fetches`(timeToLive: Duration) async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: Self.counting)
        let policy = MuxPolicy(timeToLive: timeToLive)
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }

        #expect(try await number.request() == 1)
        #expect(try await number.request() == 2)
    }

    @Test func `MX-06 an extremely long time to live does not overflow`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: Self.counting)
        let policy = MuxPolicy(
            timeToLive: .seconds(Int64.max),
            timeToLiveJitter: .nan,
            staleIfError: .seconds(Int64.max),
            errorBackoff: .seconds(Int64.max)
        )
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }

        #expect(try await number.request() == 1)
        world.clock.advance(by: .seconds(3_000_000_000))
        #expect(try await number.request() == 1)
        #expect(try await number.refresh().request() == 2)
    }

    @Test func `MX-09 a fetch with a silenceable error returns the stale value`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1), .failure(offline)])
        let number = Multiplexer<Int>(policy: .init(timeToLive: .seconds(10)), repository: world.repository) {
            try await fetch()
        }

        #expect(try await number.request() == 1)
        world.clock.advance(by: .seconds(10))
        let entry = try await number.requestEntry()

        #expect(entry.value == 1)
        #expect(entry.isStale)
        #expect(entry.age == .seconds(10))
        #expect(fetch.callCount == 2)
        #expect(number.statistics.staleServed == 1)
        await number.expectAtRest()
    }

    @Test func `MX-09 another error is thrown, and the value stays cached`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1), .failure(FetchFailed())])
        let number = Multiplexer<Int>(policy: .init(timeToLive: .seconds(10)), repository: world.repository) {
            try await fetch()
        }

        #expect(try await number.request() == 1)
        world.clock.advance(by: .seconds(10))
        await #expect(throws: FetchFailed.self) { try await number.request() }

        #expect(number.cachedValue == 1)
    }

    @Test func `MX-09 the policy decides which errors are silenceable`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1), .failure(FetchFailed())])
        let policy = MuxPolicy(timeToLive: .seconds(10), isSilenceable: { $0 is FetchFailed })
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }

        _ = try await number.request()
        world.clock.advance(by: .seconds(10))

        #expect(try await number.request() == 1)
    }

    @Test func `MX-09 a stale value replaces an error only within the policy's staleIfError`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1)], thereafter: .failure(offline))
        let policy = MuxPolicy(timeToLive: .seconds(10), staleIfError: .seconds(50), errorBackoff: .zero)
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }

        _ = try await number.request()
        world.clock.advance(by: .seconds(59))
        #expect(try await number.request() == 1)
        world.clock.advance(by: .seconds(1))
        await #expect(throws: SilenceableError.self) { try await number.request() }
        #expect(number.cachedValue == 1)
    }

    @Test(arguments: [-1001, -1003, -1004, -1005, -1006, -1009, -1018, -1019, -1020])
    func `MX-09 connectivity errors of the URL loading system are silenceable, by their codes`(code: Int) {
        #expect(SilenceableError.isSilenceable(NSError(domain: NSURLErrorDomain, code: code)))
        #expect(!SilenceableError.isSilenceable(NSError(domain: "Other", code: code)))
        #expect(!SilenceableError.isSilenceable(NSError(domain: NSURLErrorDomain, code: -1202)))
        #expect(!SilenceableError.isSilenceable(CancellationError()))
    }

    @Test(arguments: [true, false])
    func `MX-09 a ConnectivityError reports whether it is a connectivity failure`(isConnectivityFailure: Bool) {
        struct Reported: ConnectivityError { let isConnectivityFailure: Bool }
        let error = Reported(isConnectivityFailure: isConnectivityFailure)
        #expect(SilenceableError.isSilenceable(error) == isConnectivityFailure)
    }

    @Test func `MX-10 serving a stale value does not mark the value fresh`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1), .failure(offline), .failure(offline), .value(4)])
        let policy = MuxPolicy(timeToLive: .seconds(10), errorBackoff: .seconds(5))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        world.clock.advance(by: .seconds(10))

        #expect(try await number.request() == 1)
        #expect(fetch.callCount == 2)
        // Within the back-off the value is served without a fetch and reported as stale.
        world.clock.advance(by: .seconds(5) - .nanoseconds(1))
        #expect(try await number.requestEntry().isStale)
        #expect(fetch.callCount == 2)
        // After the back-off, the next request fetches.
        world.clock.advance(by: .nanoseconds(1))
        #expect(try await number.request() == 1)
        #expect(fetch.callCount == 3)
        world.clock.advance(by: .seconds(5))
        #expect(try await number.request() == 4)
        #expect(try await number.requestEntry().isStale == false)
    }

    @Test func `MX-10 a refresh does not wait for the back-off`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1), .failure(offline), .value(3)])
        let policy = MuxPolicy(timeToLive: .seconds(10), errorBackoff: .seconds(60))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        world.clock.advance(by: .seconds(10))
        #expect(try await number.request() == 1)

        #expect(try await number.refresh().request() == 3)
    }

    @Test func `MX-10 a new value ends the back-off of the previous value`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1), .failure(offline), .value(3)])
        let policy = MuxPolicy(timeToLive: .seconds(10), errorBackoff: .seconds(60))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        world.clock.advance(by: .seconds(10))
        #expect(try await number.request() == 1)

        number.store(2)
        world.clock.advance(by: .seconds(10))

        #expect(try await number.request() == 3)
    }

    @Test func `MX-27 a stale value that reaches no caller does not count as served`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let policy = MuxPolicy(isSilenceable: { _ in true }, whenAbandoned: .cancel(linger: .zero))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        number.refresh()
        let caller = Task { try await number.request() }
        await gate.waitForCall(1)

        caller.cancel()
        _ = await caller.result
        await world.events.wait(for: .fetchFailed)

        #expect(number.statistics.staleServed == 0)
    }

    @Test func `MX-16 a value stored during a failing fetch is not stale`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }
        let caller = Task { try await number.requestEntry() }
        await gate.waitForCall(1)

        number.store(5)
        gate.fail(1, with: offline)

        let entry = try await caller.value
        #expect(entry.value == 5)
        #expect(!entry.isStale)
        #expect(number.statistics.staleServed == 0)
    }
}
