import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RequestOptionsTests {
    private let world = World()

    private func number(_ policy: MuxPolicy = .init(), _ fetch: ScriptedFetch<Int>) -> Multiplexer<Int> {
        Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: self.world.repository) { try await fetch() }
    }

    // MARK: - Stale while revalidate

    @Test func `MX-11 a stale value returns at once and one fetch runs in the background`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let policy = MuxPolicy(timeToLive: .seconds(10), staleWhileRevalidate: .seconds(10))
        let number = self.number(policy, fetch)
        _ = try await number.request()
        self.world.clock.advance(by: .seconds(19))

        for _ in 0..<5 {
            let entry = try await number.requestEntry()
            #expect(entry.value == 1)
            #expect(entry.staleReason == .revalidating)
        }
        await gate.waitForCall(1)
        #expect(fetch.callCount == 2)
        gate.open(returning: 2)
        await self.world.events.wait(for: .fetched, count: 2)

        #expect(try await number.requestEntry().isStale == false)
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test func `MX-11 after the staleWhileRevalidate window callers wait`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let policy = MuxPolicy(timeToLive: .seconds(10), staleWhileRevalidate: .seconds(10))
        let number = self.number(policy, fetch)
        _ = try await number.request()
        self.world.clock.advance(by: .seconds(20))
        #expect(try await number.request() == 2)
    }

    @Test func `MX-11 a request after a refresh does not get the value from before the refresh`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let policy = MuxPolicy(timeToLive: .seconds(10), staleWhileRevalidate: .seconds(10))
        let number = self.number(policy, fetch)
        _ = try await number.request()
        #expect(try await number.refresh().request() == 2)
    }

    @Test func `MX-11 a stale entry on disk is returned at once after a relaunch`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(10), staleWhileRevalidate: .seconds(100))
        let number = self.number(policy, ScriptedFetch([.value(1)]))
        _ = try await number.request()
        #expect(await number.save().saved == 1)

        let next = self.world.relaunched(after: .seconds(50))
        let gate = Gate<Int>()
        let again = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: next.repository) {
            try await gate.pass()
        }
        #expect(try await again.request() == 1)
        await gate.waitForCall(1)
        gate.open(returning: 2)
        await next.events.wait(for: .fetched)
        #expect(try await again.request() == 2)
        await again.expectAtRest()
    }

    // MARK: - Refresh ahead

    @Test func `MX-12 a value is renewed in the background before its expiry`() async throws {
        let world = World(random: { 1 / 2.718_281_828_459_045 })
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let policy = MuxPolicy(timeToLive: .seconds(100), refreshAhead: .seconds(40))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        // -ln(1/e) / 4 of the window of 40 seconds is 10 seconds before the expiry.
        world.clock.advance(by: .seconds(89))
        #expect(try await number.request() == 1)
        #expect(fetch.callCount == 1)
        world.clock.advance(by: .seconds(2))
        let entry = try await number.requestEntry()
        #expect(entry.value == 1)
        #expect(!entry.isStale)
        await world.events.wait(for: .fetched, count: 2)
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test func `MX-12 values that were fetched together are not renewed together`() {
        let policy = MuxPolicy(refreshAhead: .seconds(40))
        let ages = stride(from: 0.05, to: 1, by: 0.05).map { policy.renewalAge(.seconds(100), random: $0) }
        #expect(Set(ages).count == ages.count)
        #expect(ages.allSatisfy { $0.map { $0 >= .seconds(60) && $0 <= .seconds(100) } == true })
        #expect(policy.renewalAge(.seconds(10), random: 0) == .zero)
        #expect(policy.renewalAge(.seconds(100), random: 1e-9) == .seconds(60), "never before the window")
        #expect(MuxPolicy().renewalAge(.seconds(10), random: 0) == nil)
    }

    @Test func `PF-15 with the policy for services a request waits for the first fetch only`() async throws {
        let gate = Gate<Void>()
        let world = World()
        let calls = Locked(0)
        let policy = MuxPolicy.service(timeToLive: .seconds(10))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) {
            let call = calls.withLock { calls in
                calls += 1
                return calls
            }
            if call > 1 { try await gate.pass() }
            return call
        }
        _ = try await number.request()
        // The end of the time to live and of the time of stale values, with every jitter.
        for _ in 0..<19 {
            world.clock.advance(by: .seconds(1))
            #expect(try await number.request() == 1)
        }
        await gate.waitForCall()
        #expect(calls.withLock { $0 } == 2)
        gate.open()
        await world.events.wait(for: .fetched, count: 2)
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test(arguments: [.longest, .seconds(Int64.max), .zero, .seconds(-1)] as [Duration])
    func `PF-15 any time to live is valid for a service`(timeToLive: Duration) async throws {
        let world = World()
        let number = Multiplexer<Int>(policy: .service(timeToLive: timeToLive), repository: world.repository) { 1 }
        for _ in 0..<2 { #expect(try await number.request() == 1) }
        await number.expectAtRest()
    }

    @Test func `PF-15 the policy for services causes no more fetches than the default`() async throws {
        let random = Locked(SplitMix64(state: 1))
        let world = World(random: { random.withLock { .random(in: 0..<1, using: &$0) } })
        let policies = [MuxPolicy(timeToLive: .seconds(10)), .service(timeToLive: .seconds(10))]
        var fetches: [Int] = []
        for policy in policies {
            let map = MultiplexerMap<Int, Int>(policy: policy, repository: world.repository) { $0 }
            for _ in 0..<2_000 {
                for key in 0..<5 { _ = try await map.request(key: key) }
                await map.expectAtRest()
                world.clock.advance(by: .milliseconds(500))
            }
            fetches.append(map.statistics.fetches)
        }
        #expect(fetches[1] <= fetches[0] && fetches[1] >= fetches[0] * 9 / 10, "\(fetches)")
    }

    // MARK: - Remembered failures

    @Test func `MX-13 the policy decides how long each class of failure is remembered`() async throws {
        let fetch = ScriptedFetch<Int>(
            [.failure(FetchFailed(call: 404)), .failure(FetchFailed(call: 500)), .failure(FetchFailed(call: 404))],
            thereafter: .value(4)
        )
        let policy = MuxPolicy(remembersFailure: { ($0 as? FetchFailed)?.call == 404 ? .seconds(60) : nil })
        let number = self.number(policy, fetch)

        for _ in 0..<5 { await #expect(throws: FetchFailed(call: 404)) { try await number.request() } }
        #expect(fetch.callCount == 1)
        self.world.clock.advance(by: .seconds(60))
        await #expect(throws: FetchFailed(call: 500)) { try await number.request() }
        await #expect(throws: FetchFailed(call: 404)) { try await number.request() }
        #expect(fetch.callCount == 3)
        #expect(try await number.refresh().request() == 4, "a refresh ends it")
    }

    @Test func `MX-13 cancellations and decoding failures are never remembered`() async throws {
        let broken = DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: ""))
        let fetch = ScriptedFetch<Int>([.failure(CancellationError()), .failure(broken)], thereafter: .value(3))
        let number = self.number(.init(remembersFailure: { _ in .seconds(60) }), fetch)
        await #expect(throws: MuxError.fetchCancelled) { try await number.request() }
        await #expect(throws: DecodingError.self) { try await number.request() }
        #expect(try await number.request() == 3)
    }

    @Test func `MX-13 clear and store end a remembered failure`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed()), .failure(FetchFailed())], thereafter: .value(3))
        let number = self.number(.init(remembersFailure: { _ in .seconds(60) }), fetch)
        await #expect(throws: FetchFailed.self) { try await number.request() }
        number.store(9)
        #expect(try await number.request() == 9)
        await number.clear()
        await #expect(throws: FetchFailed.self) { try await number.request() }
        await number.clear()
        #expect(try await number.request() == 3)
    }

    // MARK: - Options

    @Test func `MX-15 cacheOnly returns a cached value of any age and never fetches`() async throws {
        let fetch = ScriptedFetch<Int>([.value(1)])
        let number = self.number(.init(timeToLive: .seconds(1)), fetch)
        await #expect(throws: MuxError.notCached) { try await number.request(.cacheOnly) }
        _ = try await number.request()
        await number.save()
        self.world.clock.advance(by: .seconds(100))
        #expect(try await number.requestEntry(.cacheOnly).staleReason == .cacheOnly)

        let next = self.world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { try await fetch() }
        #expect(try await again.request(.cacheOnly) == 1)
        #expect(fetch.callCount == 1)
    }

    @Test func `MX-15 maxAge requires a younger value than the policy`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let policy = MuxPolicy(staleWhileRevalidate: .seconds(1_000))
        let number = self.number(policy, fetch)
        _ = try await number.request()
        self.world.clock.advance(by: .seconds(5))
        #expect(try await number.request(.maxAge(.seconds(6))) == 1)
        #expect(try await number.request(.maxAge(.seconds(5))) == 2)
        #expect(try await number.request() == 2)
    }

    @Test func `MX-15 maxAge is not satisfied by an older entry on disk`() async throws {
        let number = self.number(.init(), ScriptedFetch([.value(1)]))
        _ = try await number.request()
        #expect(await number.save().saved == 1)
        let next = self.world.relaunched(after: .seconds(50))
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 2 }
        #expect(try await again.request(.maxAge(.seconds(10))) == 2)
    }

    @Test func `MX-15 reload fetches, joins other reloads, and falls back to the cached value`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)], thereafter: .failure(offline))
        let number = self.number(.init(), fetch)
        _ = try await number.request()

        let callers = (0..<10).map { _ in Task { try await number.request(.reload) } }
        await self.world.events.wait(for: .joined, count: 9)
        gate.open(returning: 2)
        for caller in callers { #expect(try await caller.value == 2) }
        #expect(fetch.callCount == 2)
        #expect(try await number.requestEntry(.reload).staleReason == nil, "the value of before is still fresh")
        #expect(try await number.request(.reload) == 2)
    }

    @Test func `MX-15 staleWhileRevalidate returns a stale value of any age`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let number = self.number(.init(timeToLive: .seconds(1)), fetch)
        _ = try await number.request()
        self.world.clock.advance(by: .seconds(1_000_000))
        #expect(try await number.request(.staleWhileRevalidate) == 1)
        await self.world.events.wait(for: .fetched, count: 2)
        #expect(number.cachedValue == 2)
    }

    @Test func `MX-15 within returns the stale value at the time limit, and the fetch continues`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let number = self.number(.init(timeToLive: .seconds(1)), fetch)
        _ = try await number.request()
        self.world.clock.advance(by: .seconds(1))

        let caller = Task { try await number.requestEntry(.within(.seconds(2))) }
        await gate.waitForCall(1)
        // The deadlines of the two flights share one sleeper. The other sleeper is the caller's time limit.
        await self.world.clock.waitForSleepers(2)
        self.world.clock.advance(by: .seconds(2))
        let entry = try await caller.value
        #expect(entry.value == 1)
        #expect(entry.staleReason == .outOfPatience)
        #expect(gate.heldCount == 1)
        gate.open(returning: 2)
        await self.world.events.wait(for: .fetched, count: 2)
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test func `MX-15 within continues to wait without a stale value, and a quick fetch wins`() async throws {
        let gate = Gate<Int>()
        let number = self.number(.init(timeToLive: .seconds(1)), ScriptedFetch(thereafter: .gated(gate)))
        let caller = Task { try await number.request(.within(.zero)) }
        await gate.waitForCall(1)
        gate.open(returning: 1)
        #expect(try await caller.value == 1)
        self.world.clock.advance(by: .seconds(1))
        gate.open(returning: 2)
        #expect(try await number.request(.within(.seconds(5))) == 2)
    }

    @Test func `MX-16 an entry reports its source, its age and the reason for its staleness`() async throws {
        let fetch = ScriptedFetch<Int>([.value(1), .failure(offline)])
        let policy = MuxPolicy(timeToLive: .seconds(10), errorBackoff: .seconds(5))
        let number = self.number(policy, fetch)
        let fetched = try await number.requestEntry()
        #expect(fetched.source == .fetch)
        #expect(fetched.age == .zero)
        await number.save()
        self.world.clock.advance(by: .seconds(3))
        let hit = try await number.requestEntry()
        #expect(hit.source == .memory)
        #expect(hit.age == .seconds(3))
        #expect(hit.staleReason == nil)
        self.world.clock.advance(by: .seconds(7))
        #expect(try await number.requestEntry().staleReason == .fetchFailed)
        #expect(try await number.requestEntry().staleReason == .backingOff)

        let next = self.world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", policy: .init(), repository: next.repository) { 2 }
        #expect(try await again.requestEntry(.cacheOnly).source == .disk)
    }
}
