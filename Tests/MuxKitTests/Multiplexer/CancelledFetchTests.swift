import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Fetches, updates and sign-ins that throw a cancellation, although no caller is cancelled.
@Suite(.standard)
struct CancelledFetchTests {
    private let world = World()

    private static let cancellations: [any Error] = [
        CancellationError(), URLError(.cancelled), NSError(domain: "NSURLErrorDomain", code: -999),
    ]

    @Test func `DS-11 the callers of a fetch that throws a cancellation get a typed error`() async throws {
        for cancellation in Self.cancellations {
            let gate = Gate<Int>()
            let number = Multiplexer<Int>(repository: self.world.repository) { try await gate.pass() }
            let joined = self.world.events.count(of: .joined)
            let callers = [Task { try await number.request() }, Task { try await number.request(.reload) }]
            await self.world.events.wait(for: .joined, count: joined + 1)
            gate.fail(with: cancellation)

            for caller in callers { await #expect(throws: MuxError.fetchCancelled) { try await caller.value } }
            await number.expectAtRest()
        }
        await self.world.events.wait(for: .fetchFailed, count: 3)
    }

    @Test func `DS-11 a task that the fetch itself has cancelled is a failure of the fetch`() async {
        let number = Multiplexer<Int>(repository: self.world.repository) {
            try await withThrowingTaskGroup(of: Int.self) { group in
                group.cancelAll()
                group.addTask {
                    try Task.checkCancellation()
                    return 1
                }
                return try await group.next() ?? 0
            }
        }
        await #expect(throws: MuxError.fetchCancelled) { try await number.request() }
    }

    @Test func `DS-11 a stale value is served for a fetch that throws a cancellation`() async throws {
        let fetch = ScriptedFetch<Int>(
            [.value(1), .failure(CancellationError()), .failure(URLError(.cancelled))],
            thereafter: .value(4)
        )
        let policy = MuxPolicy(timeToLive: .seconds(10), errorBackoff: .zero)
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { try await fetch() }
        #expect(try await number.request() == 1)
        self.world.clock.advance(by: .seconds(20))

        for _ in 0..<2 { #expect(try await number.requestEntry().staleReason == .fetchFailed) }
        #expect(try await number.request() == 4)

        // A policy that permits no stale value receives the typed error.
        let asked = Locked<[any Error]>([])
        var strict = MuxPolicy(timeToLive: .seconds(10))
        strict.isSilenceable = { error in
            asked.withLock { $0.append(error) }
            return false
        }
        let failing = ScriptedFetch<Int>([.value(1)], thereafter: .failure(CancellationError()))
        let other = Multiplexer<Int>(policy: strict, repository: self.world.repository) { try await failing() }
        #expect(try await other.request() == 1)
        self.world.clock.advance(by: .seconds(20))
        await #expect(throws: MuxError.fetchCancelled) { try await other.request() }
        #expect(asked.withLock { $0.map { $0 as? MuxError } } == [.fetchCancelled])
    }

    @Test func `DS-11 a retry policy sees a cancellation that no caller has asked for`() async throws {
        let fetch = ScriptedFetch<Int>(
            [.failure(CancellationError()), .failure(URLError(.cancelled))],
            thereafter: .value(3)
        )
        let policy = MuxPolicy(retry: .immediate(maxAttempts: 3))
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { try await fetch() }
        #expect(try await number.request() == 3)
        #expect(number.statistics.retries == 2)

        let always = ScriptedFetch<Int>(thereafter: .failure(CancellationError()))
        let other = Multiplexer<Int>(policy: policy, repository: self.world.repository) { try await always() }
        await #expect(throws: MuxError.fetchCancelled) { try await other.request() }
        #expect(always.callCount == 3)
    }

    @Test func `DS-11 keys of a batch that throws a cancellation get a typed error`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(60))
        let map = MultiplexerMap<Int, Int>(
            policy: policy,
            batching: .init(window: .zero),
            repository: self.world.repository
        ) { (_: [Int]) -> [Int: Int] in throw CancellationError() }

        let results = await map.results(keys: [1, 2, 3])

        for key in 1...3 { #expect(throws: MuxError.fetchCancelled) { try results[key]?.get() } }
    }

    @Test
    func `DS-11 a cancelled caller leaves at once, and an abandoned fetch fails no later caller`() async throws {
        let gate = Gate<Int>()
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .zero))
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { try await gate.pass() }
        let callers = (0..<2).map { _ in Task { try await number.request() } }
        await self.world.events.wait(for: .joined)

        callers[0].cancel()
        await #expect(throws: CancellationError.self) { try await callers[0].value }
        callers[1].cancel()
        await #expect(throws: CancellationError.self) { try await callers[1].value }

        let next = Task { try await number.request() }
        await gate.waitForCall(2)
        gate.open(2, returning: 5)
        #expect(try await next.value == 5)
        await number.expectAtRest()
    }

    @Test func `DS-11 the callers of an update that throws a cancellation get a typed error`() async throws {
        for cancellation in Self.cancellations {
            let gate = Gate<Int>()
            let runner = DependentRunner<Int> { _ in .updatedDependency(try await gate.pass()) }
            let callers = (0..<2).map { _ in Task { try await runner.run { .output($0) } } }
            await gate.waitForCall(1)
            gate.fail(1, with: cancellation)
            gate.fail(2, with: cancellation)  // for a caller that arrives after the first update
            for caller in callers { await #expect(throws: MuxError.fetchCancelled) { try await caller.value } }
            await runner.expectAtRest()

            // An update passed by the caller.
            let own = DependentRunner<Int>()
            await #expect(throws: MuxError.fetchCancelled) {
                try await own.run {
                    .output($0)
                } update: { _ in
                    throw cancellation
                }
            }
        }
    }

    @Test func `DS-11 the retry policy of a runner sees a cancellation that no caller has asked for`() async throws {
        var policy = RunnerPolicy()
        policy.retry = .immediate(maxAttempts: 3)
        let update = ScriptedFetch<Int>(
            [.failure(CancellationError()), .failure(URLError(.cancelled))],
            thereafter: .value(3)
        )
        let runner = DependentRunner<Int>(policy: policy) { _ in .updatedDependency(try await update()) }

        #expect(try await runner.run { .output($0) } == 3)
        #expect(update.callCount == 3)
    }

    @Test func `DS-11 the callers of a refresh that throws a cancellation get a typed error`() async throws {
        let runner = OAuthDependentRunner<String, String>(
            repository: self.world.repository,
            refreshAccess: { _ in throw URLError(.cancelled) },
            signIn: { throw CancellationError() }
        )
        // A sign-in has its own error.
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect(error?.code == .signInFailed)

        try await runner.set(access: nil, refresh: "r")
        await #expect(throws: MuxError.fetchCancelled) { try await runner.run { .output($0) } }
    }
}
