import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The back-off after failures of a token endpoint.
@Suite(.standard)
struct TokenPauseTests {
    /// An error of a token endpoint, with an optional retry delay.
    private struct Busy: Error, RetryableError, Equatable {
        var retryAfter: Duration?
        var retryAdvice: RetryAdvice { RetryAdvice(isTransient: true, status: 503, retryAfter: self.retryAfter) }
    }

    /// The result of a call.
    private struct Outcome: Sendable {
        var token: String?
        var busy: Busy?
    }

    /// A token endpoint with a token lifetime of one minute.
    private struct Service: Sendable {
        let world = World()
        let failure = Locked<(any Error)?>(nil)
        /// The times of the requests.
        let requests = Locked<[Duration]>([])
        let signIns = Locked(0)
        let signInFailure = Locked<(any Error)?>(nil)

        var runner: OAuthDependentRunner<String, String> {
            OAuthDependentRunner(
                repository: self.world.repository,
                refreshAccess: { _ in
                    let now = self.world.clock.now.offset
                    let count = self.requests.withLock { requests in
                        requests.append(now)
                        return requests.count
                    }
                    if let failure = self.failure.withLock({ $0 }) { throw failure }
                    return OAuthRenewal(access: "a\(count)", accessLifetime: .seconds(60))
                },
                signIn: {
                    self.signIns.withLock { $0 += 1 }
                    if let failure = self.signInFailure.withLock({ $0 }) { throw failure }
                    return OAuthSignIn(refresh: "r")
                }
            )
        }

        /// Makes `count` calls at intervals, with a task that accepts every token except `bad`.
        func calls(
            _ count: Int,
            every interval: Duration,
            _ runner: OAuthDependentRunner<String, String>,
            bad: String? = nil
        ) async -> [Outcome] {
            var outcomes: [Outcome] = []
            for _ in 0..<count {
                do {
                    outcomes.append(Outcome(token: try await runner.run { $0 == bad ? .badDependency : .output($0) }))
                } catch {
                    outcomes.append(Outcome(busy: error as? Busy))
                }
                self.world.clock.advance(by: interval)
            }
            return outcomes
        }

        var count: Int { self.requests.withLock { $0.count } }
    }

    @Test func `WR-07 a failing token endpoint gets few requests, and callers get the error at once`() async throws {
        let service = Service()
        let runner = service.runner
        service.failure.withLock { $0 = Busy() }

        let results = await service.calls(60, every: .milliseconds(50), runner)

        #expect(results.allSatisfy { $0.busy == Busy() })
        #expect(service.requests.withLock { $0 } == [.zero, .milliseconds(50), .milliseconds(1050)])
        _ = await service.calls(597, every: .seconds(1), runner)
        #expect(service.count <= 8 + 600 / 60, "the pause grows to a minute")

        service.failure.withLock { $0 = nil }
        let after = await service.calls(61, every: .seconds(1), runner)
        #expect(after.contains { $0.token != nil }, "and no longer")
    }

    @Test func `WR-07 after a single failure the very next call sends a request`() async throws {
        let service = Service()
        let runner = service.runner
        service.failure.withLock { $0 = Busy() }
        await #expect(throws: Busy.self) { try await runner.run { .output($0) } }
        service.failure.withLock { $0 = nil }

        #expect(try await runner.run { .output($0) } == "a2")

        // A success resets the count of failures.
        service.failure.withLock { $0 = Busy() }
        await #expect(throws: Busy.self) { try await runner.run { $0 == "a2" ? .badDependency : .output($0) } }
        service.failure.withLock { $0 = nil }
        #expect(try await runner.run { $0 == "a2" ? .badDependency : .output($0) } == "a4")
    }

    @Test func `WR-07 the retry delay of the token endpoint is obeyed`() async throws {
        let service = Service()
        let runner = service.runner
        service.failure.withLock { $0 = Busy(retryAfter: .seconds(30)) }
        let results = await service.calls(30, every: .seconds(1), runner)
        #expect(service.count == 1)
        #expect(results.allSatisfy { $0.busy == Busy(retryAfter: .seconds(30)) })

        service.failure.withLock { $0 = nil }
        #expect(try await runner.run { .output($0) } == "a2")

        let absurd = Service()
        absurd.failure.withLock { $0 = Busy(retryAfter: .seconds(1 << 40)) }
        let other = absurd.runner
        _ = await absurd.calls(2, every: .seconds(1800), other)
        #expect(absurd.count == 1)
        _ = await absurd.calls(1, every: .zero, other)
        #expect(absurd.count == 2, "an hour of it")
    }

    @Test func `WR-07 early renewals pause after any failure, and calls use the old token`() async throws {
        for failure in [Busy(), offline, Busy(retryAfter: .seconds(20))] as [any Error] {
            let service = Service()
            let runner = service.runner
            #expect(try await runner.run { .output($0) } == "a1")
            service.world.clock.advance(by: .seconds(30))
            service.failure.withLock { $0 = failure }

            let results = await service.calls(100, every: .milliseconds(290), runner)

            #expect(results.allSatisfy { $0.token == "a1" })
            let expected = (failure as? Busy)?.retryAfter == nil ? 6 : 3
            #expect(service.count == expected, "\(failure)")
            // The pause does not apply after the end of the token: the next call needs a token.
            guard expected == 6 else { continue }
            service.failure.withLock { $0 = nil }
            service.world.clock.advance(by: .seconds(1))
            #expect(try await runner.run { .output($0) } == "a7")
        }
    }

    @Test func `WR-07 the first failure after a failed early renewal does not count twice`() async throws {
        let service = Service()
        let runner = service.runner
        _ = try await runner.run { .output($0) }
        service.failure.withLock { $0 = Busy() }
        service.world.clock.advance(by: .seconds(59))
        _ = try await runner.run { .output($0) }
        service.world.clock.advance(by: .seconds(2))
        await #expect(throws: Busy.self) { try await runner.run { .output($0) } }
        service.failure.withLock { $0 = nil }

        #expect(try await runner.run { .output($0) } == "a4")
    }

    @Test func `WR-07 without a network the pause stays short`() async throws {
        let service = Service()
        let runner = service.runner
        service.failure.withLock { $0 = offline }
        _ = await service.calls(300, every: .seconds(1), runner)
        #expect((70...90).contains(service.count))
        service.failure.withLock { $0 = nil }

        let results = await service.calls(5, every: .seconds(1), runner)

        #expect(results.contains { $0.token != nil })
    }

    @Test func `WR-07 a sign-in and a forced renewal do not wait`() async throws {
        let service = Service()
        let runner = service.runner
        service.signInFailure.withLock { $0 = Busy(retryAfter: .seconds(60)) }
        for count in 1...4 {
            await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
            #expect(service.signIns.withLock { $0 } == count)
        }
        service.signInFailure.withLock { $0 = nil }
        service.failure.withLock { $0 = Busy(retryAfter: .seconds(60)) }
        for count in 1...3 {
            await #expect(throws: Busy.self) { try await runner.renew() }
            #expect(service.count == count)
        }
        // A new session does not inherit the failures of the previous session.
        await runner.signOut()
        service.failure.withLock { $0 = nil }
        #expect(try await runner.run { .output($0) } == "a4")
    }

    @Test func `WR-07 any runner obeys its server's retry delay, and pauses for no other error`() async throws {
        let clock = VirtualClock()
        let (count, failure) = (Locked(0), Locked<any Error>(FetchFailed()))
        let runner = DependentRunner<Int>(clock: clock) { _ in
            count.withLock { $0 += 1 }
            throw failure.withLock { $0 }
        }
        for _ in 0..<5 { await #expect(throws: FetchFailed.self) { try await runner.run { .output($0) } } }
        #expect(count.withLock { $0 } == 5)

        failure.withLock { $0 = Busy(retryAfter: .seconds(9)) }
        for _ in 0..<5 { await #expect(throws: (any Error).self) { try await runner.run { .output($0) } } }
        #expect(count.withLock { $0 } == 6)
        clock.advance(by: .seconds(9))
        await #expect(throws: Busy.self) { try await runner.run { .output($0) } }
        #expect(count.withLock { $0 } == 7)
    }
}
