import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Remembered failures beside a cached value.
@Suite(.standard)
struct RememberedFailureTests {
    private let world = World()

    private func number(_ policy: MuxPolicy, _ fetch: ScriptedFetch<Int>) async throws -> Multiplexer<Int> {
        var policy = policy
        policy.timeToLive = .seconds(10)
        policy.remembersFailure = { _ in .seconds(60) }
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { try await fetch() }
        number.store(1)
        return number
    }

    @Test func `MX-13 a failure that is not silenceable is remembered beside a stale value`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed(call: 1))], thereafter: .computed { $0 })
        let number = try await self.number(.init(), fetch)
        self.world.clock.advance(by: .seconds(10))

        for _ in 0..<5 { await #expect(throws: FetchFailed(call: 1)) { try await number.request() } }
        #expect(fetch.callCount == 1, "no fetch inside it")
        #expect(number.cachedValue == 1)
        self.world.clock.advance(by: .seconds(59))
        await #expect(throws: FetchFailed(call: 1)) { try await number.request(.within(.seconds(1))) }
        self.world.clock.advance(by: .seconds(1))
        #expect(try await number.request() == 2)
    }

    @Test func `MX-13 a refresh of all keys forgets remembered failures of keys without a value`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed(call: 1))], thereafter: .computed { $0 })
        let policy = MuxPolicy(remembersFailure: { _ in .seconds(60) })
        let numbers = MultiplexerMap<Int, Int>(policy: policy, repository: self.world.repository) { _ in
            try await fetch()
        }
        for _ in 0..<2 { await #expect(throws: FetchFailed(call: 1)) { try await numbers.request(key: 7) } }
        #expect(fetch.callCount == 1)

        numbers.refresh()

        #expect(try await numbers.request(key: 7) == 2)
    }

    @Test func `MX-13 a stored value ends the remembered failure of its key, even after an eviction`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed(call: 1))], thereafter: .computed { $0 })
        let policy = MuxPolicy(remembersFailure: { _ in .seconds(60) }, maximumCount: 1)
        let numbers = MultiplexerMap<Int, Int>(policy: policy, repository: self.world.repository) { _ in
            try await fetch()
        }
        await #expect(throws: FetchFailed(call: 1)) { try await numbers.request(key: 7) }

        numbers.store(0, key: 7)
        numbers.store(0, key: 8)
        #expect(numbers.cachedValue(key: 7) == nil)

        #expect(try await numbers.request(key: 7) == 2)
    }

    @Test func `MX-13 a reload fetches in spite of a remembered failure`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed())], thereafter: .computed { $0 })
        let number = try await self.number(.init(), fetch)
        self.world.clock.advance(by: .seconds(10))
        await #expect(throws: FetchFailed.self) { try await number.request() }
        #expect(try await number.request(.reload) == 2)
        #expect(try await number.request() == 2)
    }

    @Test func `MX-13 a fetch is not retried while its silenceable failure is remembered`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(offline)], thereafter: .computed { $0 })
        let number = try await self.number(.init(), fetch)
        self.world.clock.advance(by: .seconds(10))
        #expect(try await number.requestEntry().staleReason == .fetchFailed)
        self.world.clock.advance(by: .seconds(59))
        #expect(try await number.requestEntry().staleReason == .backingOff)
        #expect(fetch.callCount == 1)
        self.world.clock.advance(by: .seconds(1))
        #expect(try await number.request() == 2)
    }

    @Test func `MX-13 a value in staleWhileRevalidate is not renewed during a remembered failure`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed())], thereafter: .computed { $0 })
        let number = try await self.number(.init(staleWhileRevalidate: .seconds(1_000)), fetch)
        self.world.clock.advance(by: .seconds(10))
        #expect(try await number.request() == 1)
        await self.world.events.wait(for: .fetchFailed)
        for _ in 0..<5 { #expect(try await number.request() == 1) }
        #expect(fetch.callCount == 1)
        self.world.clock.advance(by: .seconds(60))
        #expect(try await number.request() == 1)
        await self.world.events.wait(for: .fetched)
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test func `MX-13 a failure is remembered although the value is too old to replace the failure`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(offline)], thereafter: .computed { $0 })
        let number = try await self.number(.init(staleIfError: .zero), fetch)
        self.world.clock.advance(by: .seconds(10))
        for _ in 0..<3 { await #expect(throws: SilenceableError.self) { try await number.request() } }
        #expect(fetch.callCount == 1)
    }

    @Test func `MX-13 another failure ends a remembered failure`() async throws {
        let fetch = ScriptedFetch<Int>(
            [.failure(FetchFailed(call: 404)), .failure(FetchFailed(call: 500))],
            thereafter: .value(3)
        )
        let policy = MuxPolicy(remembersFailure: { ($0 as? FetchFailed)?.call == 404 ? .seconds(60) : nil })
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { try await fetch() }
        await #expect(throws: FetchFailed(call: 404)) { try await number.request() }
        await #expect(throws: FetchFailed(call: 500)) { try await number.request(.reload) }
        #expect(try await number.request() == 3)
    }

    @Test(arguments: [-1, 2, .nan, .infinity] as [Double])
    func `MX-06 a jitter outside of 0 to 1 is clamped`(jitter: Double) async throws {
        let policy = MuxPolicy(timeToLive: .seconds(100), timeToLiveJitter: jitter)
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { 1 }
        _ = try await number.request()
        #expect(number.cachedEntry?.timeToLive == .seconds(jitter > 0 ? 50 : 100), "half of it is taken off at most")
    }
}
