import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Failures of a server start a pause instead of further requests.
@Suite(.standard)
struct FailingServerTests {
    /// An error that reports a `Retry-After`.
    private struct Busy: RetryableError {
        var retryAfter: Duration?
        var retryAdvice: RetryAdvice { RetryAdvice(isTransient: true, status: 503, retryAfter: self.retryAfter) }
    }

    enum Kind: CaseIterable, Sendable { case one, map }

    /// A multiplexer, or one key of a map, whose fetches succeed or fail.
    private struct Subject: Sendable {
        let world = World()
        let error = Locked<(any Error)?>(nil)
        let fetches = Locked(0)
        let request: @Sendable (RequestOptions) async throws -> MuxEntry<Int>
        let refresh: @Sendable () -> Void
        let atRest: @Sendable () async -> Void

        init(_ kind: Kind, _ policy: MuxPolicy) {
            let (error, fetches, repository) = (self.error, self.fetches, self.world.repository)
            let fetch: @Sendable () throws -> Int = {
                let number = fetches.next()
                if let error = error.withLock({ $0 }) { throw error }
                return number
            }
            switch kind {
            case .one:
                let one = Multiplexer<Int>(policy: policy, repository: repository) { try fetch() }
                self.request = { try await one.requestEntry($0) }
                self.refresh = { one.refresh() }
                self.atRest = { await one.expectAtRest() }
            case .map:
                let map = MultiplexerMap<Int, Int>(policy: policy, repository: repository) { _ in try fetch() }
                self.request = { try await map.requestEntry(key: 1, $0) }
                self.refresh = { map.refresh(key: 1) }
                self.atRest = { await map.expectAtRest() }
            }
        }

        var count: Int { self.fetches.withLock { $0 } }

        func fails(with error: (any Error)?) { self.error.withLock { $0 = error } }

        /// Makes `times` requests, each after the end of the previous background fetch.
        func requests(_ times: Int) async throws {
            for _ in 0..<times {
                #expect(try await self.request(.init()).value == 1)
                await self.atRest()
            }
        }

        func advance(_ seconds: Int64) { self.world.clock.advance(by: .seconds(seconds)) }
    }

    private let policy = MuxPolicy(timeToLive: .seconds(10), staleWhileRevalidate: .seconds(100_000))

    @Test(arguments: Kind.allCases, [true, false])
    func `WR-07 background renewals pause after any failure, and each failure extends the pause`(
        kind: Kind,
        isSilenceable: Bool
    ) async throws {
        let subject = Subject(kind, self.policy)
        try await subject.requests(1)
        subject.advance(10)
        subject.fails(with: isSilenceable ? offline : FetchFailed())

        try await subject.requests(200)
        #expect(subject.count == 2)
        var expected = 2
        for pause in [1, 2, 4, 8, 16, 32, 60, 60, 60] as [Int64] {
            subject.advance(pause - 1)
            try await subject.requests(3)
            #expect(subject.count == expected, "before the end of \(pause) s")
            subject.advance(1)
            try await subject.requests(3)
            expected += 1
            #expect(subject.count == expected, "after \(pause) s")
        }
        #expect(try await subject.request(.init()).staleReason == .backingOff)
    }

    @Test(arguments: Kind.allCases) func `WR-07 a success ends the pause and its growth`(kind: Kind) async throws {
        let subject = Subject(kind, self.policy)
        try await subject.requests(1)
        subject.advance(10)
        subject.fails(with: FetchFailed())
        for pause in [1, 2, 4] as [Int64] {
            try await subject.requests(1)
            subject.advance(pause)
        }
        #expect(subject.count == 4)
        subject.fails(with: nil)
        _ = try await subject.request(.init())
        await subject.atRest()
        #expect(try await subject.request(.init()).value == 5)
        subject.advance(10)
        subject.fails(with: FetchFailed())

        _ = try await subject.request(.init())
        await subject.atRest()
        subject.advance(1)
        _ = try await subject.request(.init())
        await subject.atRest()

        #expect(subject.count == 7)
    }

    @Test(arguments: Kind.allCases) func `WR-07 background renewals obey Retry-After`(kind: Kind) async throws {
        let subject = Subject(kind, self.policy)
        try await subject.requests(1)
        subject.advance(10)
        subject.fails(with: Busy(retryAfter: .seconds(60)))

        try await subject.requests(140)
        for _ in 0..<59 {
            subject.advance(1)
            try await subject.requests(1)
        }
        #expect(subject.count == 2)
        subject.advance(1)
        try await subject.requests(1)
        #expect(subject.count == 3)
    }

    @Test(arguments: Kind.allCases)
    func `WR-07 a Retry-After is obeyed when a stale value replaces a failure`(kind: Kind) async throws {
        let subject = Subject(kind, MuxPolicy(timeToLive: .seconds(10)))
        try await subject.requests(1)
        subject.advance(10)
        subject.fails(with: SilenceableError(Busy(retryAfter: .seconds(60))))

        #expect(try await subject.request(.init()).staleReason == .fetchFailed)
        subject.advance(59)
        #expect(try await subject.request(.init()).staleReason == .backingOff)
        #expect(subject.count == 2)
        subject.advance(1)
        #expect(try await subject.request(.init()).staleReason == .fetchFailed)
        #expect(subject.count == 3)
    }

    @Test func `WR-07 an absurd Retry-After counts as an hour`() async throws {
        let subject = Subject(.one, self.policy)
        try await subject.requests(1)
        subject.advance(10)
        subject.fails(with: Busy(retryAfter: .seconds(Int64.max)))
        try await subject.requests(1)

        subject.advance(3599)
        try await subject.requests(1)
        #expect(subject.count == 2)
        subject.advance(1)
        try await subject.requests(1)
        #expect(subject.count == 3)
    }

    @Test(arguments: Kind.allCases)
    func `WR-07 a reload and a refresh fetch during a pause`(kind: Kind) async throws {
        let subject = Subject(kind, self.policy)
        try await subject.requests(1)
        subject.advance(10)
        subject.fails(with: Busy(retryAfter: .seconds(60)))
        try await subject.requests(2)
        #expect(subject.count == 2)

        await #expect(throws: Busy.self) { try await subject.request(.reload) }
        #expect(subject.count == 3)
        subject.refresh()
        await #expect(throws: Busy.self) { try await subject.request(.init()) }
        #expect(subject.count == 4)
        subject.fails(with: nil)
        #expect(try await subject.request(.reload).value == 5)
        #expect(try await subject.request(.init()).isStale == false)
    }

    @Test(arguments: Kind.allCases)
    func `WR-07 without a cached value each request fetches in spite of a Retry-After`(kind: Kind) async throws {
        let subject = Subject(kind, self.policy)
        subject.fails(with: Busy(retryAfter: .seconds(60)))
        for number in 1...3 {
            await #expect(throws: Busy.self) { try await subject.request(.init()) }
            #expect(subject.count == number)
        }
        subject.fails(with: nil)
        #expect(try await subject.request(.init()).value == 4)
    }

    @Test func `WR-07 renewals of a fresh value pause after a failure, too`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(1_000), refreshAhead: .seconds(1_000))
        let subject = Subject(.one, policy)
        try await subject.requests(1)
        subject.advance(990)
        subject.fails(with: FetchFailed())

        try await subject.requests(50)
        #expect(subject.count == 2)
        subject.advance(1)
        try await subject.requests(50)
        #expect(subject.count == 3)
        subject.advance(1)
        try await subject.requests(50)
        #expect(subject.count == 3)
    }

    @Test func `WR-07 a fetch timeout pauses renewals like any failure`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let policy = MuxPolicy(
            timeToLive: .seconds(10),
            staleWhileRevalidate: .seconds(100_000),
            fetchTimeout: .seconds(5)
        )
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await gate.pass() }
        let first = Task { try await number.request() }
        await gate.waitForCall(1)
        gate.open(returning: 1)
        _ = try await first.value
        world.clock.advance(by: .seconds(10))
        #expect(try await number.request() == 1)
        await gate.waitForCall(2)
        await world.clock.waitForSleepers(1)

        world.clock.advance(by: .seconds(5))
        await world.events.wait(for: .fetchFailed)
        await number.expectAtRest()

        for _ in 0..<20 { #expect(try await number.requestEntry().staleReason == .backingOff) }
        #expect(gate.callCount == 2)
        world.clock.advance(by: .seconds(1))
        #expect(try await number.requestEntry().staleReason == .revalidating)
        await gate.waitForCall(3)
        gate.open(returning: 3)
        await world.events.wait(for: .fetched, count: 2)
        #expect(try await number.request() == 3)
    }

    @Test func `WR-07 a fetch that ignores its timeout pauses renewals, too`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let policy = MuxPolicy(
            timeToLive: .seconds(10),
            staleWhileRevalidate: .seconds(100_000),
            fetchTimeout: .seconds(5)
        )
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) {
            try await gate.pass(ignoringCancellation: true)
        }
        let first = Task { try await number.request() }
        await gate.waitForCall(1)
        gate.open(1, returning: 1)
        #expect(try await first.value == 1)
        world.clock.advance(by: .seconds(10))
        let second = Task { try await number.request(.reload) }
        await gate.waitForCall(2)
        await world.clock.waitForSleepers(1)
        world.clock.advance(by: .seconds(5))
        await #expect(throws: MuxError.timedOut(after: .seconds(5))) { try await second.value }

        for _ in 0..<20 { #expect(try await number.requestEntry().staleReason == .backingOff) }
        #expect(gate.callCount == 2)

        gate.open(2, returning: 2)
        await world.events.wait(for: .fetched, count: 2)
        #expect(try await number.requestEntry().value == 1)
        await number.expectAtRest()
    }

    @Test func `WR-07 the late end of a timed-out fetch changes no remembered failure`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let policy = MuxPolicy(
            timeToLive: .seconds(10),
            remembersFailure: { $0 is FetchFailed ? .seconds(60) : nil },
            fetchTimeout: .seconds(5)
        )
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) {
            try await gate.pass(ignoringCancellation: true)
        }
        func request(_ call: Int) async -> Task<Int, any Error> {
            let task = Task { try await number.request() }
            await gate.waitForCall(call)
            return task
        }
        let first = await request(1)
        gate.open(1, returning: 1)
        #expect(try await first.value == 1)
        world.clock.advance(by: .seconds(10))
        let second = await request(2)
        await world.clock.waitForSleepers(1)
        world.clock.advance(by: .seconds(5))
        await #expect(throws: MuxError.timedOut(after: .seconds(5))) { try await second.value }
        let third = await request(3)
        gate.fail(3, with: FetchFailed())
        await #expect(throws: FetchFailed.self) { try await third.value }

        gate.fail(2, with: offline)
        await world.events.wait(for: .fetchFailed, count: 2)

        await #expect(throws: FetchFailed.self) { try await number.request() }
        #expect(gate.callCount == 3)
        await number.expectAtRest()
    }

    @Test func `WR-07 without an errorBackoff only the server's Retry-After pauses renewals`() async throws {
        var policy = self.policy
        policy.errorBackoff = .zero
        let subject = Subject(.one, policy)
        try await subject.requests(1)
        subject.advance(10)
        subject.fails(with: FetchFailed())
        try await subject.requests(3)
        #expect(subject.count == 4)

        subject.fails(with: Busy(retryAfter: .seconds(2)))
        try await subject.requests(3)
        #expect(subject.count == 5)
        subject.advance(2)
        try await subject.requests(1)
        #expect(subject.count == 6)
    }

    @Test(arguments: Kind.allCases)
    func `HS-10 during a pause a stale value from disk or memory is returned without a fetch`(
        kind: Kind
    ) async throws {
        let store = UnreliableStore()
        let before = World(store: store)
        let policy = MuxPolicy(
            timeToLive: .seconds(10),
            staleWhileRevalidate: .seconds(100_000),
            remembersFailure: { _ in .seconds(1) }
        )
        let fetches = Locked(0)
        let fetch: @Sendable () throws -> Int = {
            _ = fetches.next()
            throw Busy(retryAfter: .seconds(60))
        }
        func request(_ world: World, storing value: Int? = nil) async -> @Sendable () async throws -> MuxEntry<Int> {
            switch kind {
            case .one:
                let one = Multiplexer<Int>(cacheKey: "One", policy: policy, repository: world.repository) {
                    try fetch()
                }
                if let value { one.store(value) }
                await one.save()
                return { try await one.requestEntry() }
            case .map:
                let map = MultiplexerMap<Int, Int>(cacheKey: "Map", policy: policy, repository: world.repository) { _ in
                    try fetch()
                }
                if let value { map.store(value, key: 1) }
                await map.save()
                return { try await map.requestEntry(key: 1) }
            }
        }
        _ = await request(before, storing: 1)
        let world = before.relaunched(after: .seconds(1_000))
        let entry = await request(world)
        store.failsLoads.withLock { $0 = true }
        await #expect(throws: Busy.self) { try await entry() }
        store.failsLoads.withLock { $0 = false }
        // The failure is no longer remembered, but the server's Retry-After still applies.
        world.clock.advance(by: .seconds(1))

        let stale = try await entry()

        #expect(stale.value == 1 && stale.isStale && stale.source == .disk)
        #expect(stale.staleReason == .backingOff)
        #expect(try await entry().staleReason == .backingOff)
        #expect(fetches.withLock { $0 } == 1)
    }
}
