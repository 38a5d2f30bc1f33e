import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct ClientRetryTests {
    private static let busy = HTTPReply(status: 503)
    private static let late = HTTPError.transport(.timedOut(after: .seconds(1)))

    private func client(
        _ transport: ScriptedTransport,
        _ policy: RetryPolicy? = .immediate(maxAttempts: 3),
        clock: any Clock<Duration> = ContinuousClock(),
        budget: RetryBudget = RetryBudget()
    ) -> HTTPClient {
        var configuration = HTTPClient.Configuration()
        configuration.retry = policy
        configuration.retryBudget = budget
        configuration.clock = clock
        return HTTPClient(configuration: configuration, transport: transport)
    }

    @Test func `K14 a transport that fails twice succeeds at the third attempt with the same bytes`() async throws {
        let transport = ScriptedTransport([.failure(Self.late), .success(Self.busy), .success(.json("[1]"))])
        let ask = Ask([Int].self, errors: Never.self) { ask in
            ask.method = .put
            ask.body = .json(["a": 1])
        }

        #expect(try await self.client(transport).output(of: ask) == [1])
        #expect(transport.calls.count == 3 && Set(transport.calls).count == 1)
    }

    @Test func `K14 without a policy a request is sent once`() async {
        let transport = ScriptedTransport([.failure(Self.late)], thereafter: HTTPReply(status: 200))

        await #expect(throws: Self.late) { try await self.client(transport, nil).execute(Ask()) }
        #expect(transport.calls.count == 1)
        #expect(HTTPClient.Configuration.default.retry == nil)
    }

    @Test func `K14 the caller gets the error of the last attempt`() async throws {
        let failing = ScriptedTransport([.success(Self.busy), .failure(HTTPError.notHTTP)])
        let refusing = ScriptedTransport(
            [.failure(Self.late)],
            thereafter: .json(#"{"code":1,"message":""}"#, status: 503)
        )

        await #expect(throws: HTTPError.notHTTP) { try await self.client(failing).execute(Ask()) }
        let ask = Ask([Int].self, errors: Problem.self)
        let error = await #expect(throws: HTTPError.self) { try await self.client(refusing).execute(ask) }

        #expect(try error?.status == .serviceUnavailable && error?.decode(Problem.self).code == 1)
        #expect(failing.calls.count == 2 && refusing.calls.count == 3)
    }

    @Test(arguments: [
        ("GET", 503, 3), ("GET", 404, 1), ("GET", 401, 1), ("GET", 500, 3), ("DELETE", 429, 3), ("POST", 503, 1),
        ("PATCH", 500, 1),
    ])
    func `K14 only an idempotent request with a transient status is sent again`(method: String, status: Int, count: Int)
        async throws
    {
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: status))
        let method = try #require(HTTPMethod(rawValue: method))

        _ = try await self.client(transport).response(to: Ask { $0.method = method })

        #expect(transport.calls.count == count)
    }

    @Test func `K14 a POST whose response was lost is not sent again`() async {
        let transport = ScriptedTransport([.failure(Self.late)], thereafter: HTTPReply(status: 200))

        await #expect(throws: Self.late) { try await self.client(transport).execute(Ask { $0.method = .post }) }
        #expect(transport.calls.count == 1)
    }

    // The retry advice of a status marks a repetition as unsafe, and the advice of a lost response does not.
    @Test(arguments: [("PATCH", 1), ("PURGE", 1), ("PUT", 2)] as [(HTTPMethod, Int)])
    func `PT-01 a request whose response was lost is sent again only if it is idempotent`(
        method: HTTPMethod,
        count: Int
    ) async {
        let transport = ScriptedTransport([.failure(Self.late)], thereafter: HTTPReply(status: 200))

        let response = try? await self.client(transport).response(to: Ask { $0.method = method })

        #expect((response == nil) == (count == 1))
        #expect(transport.calls.count == count)
    }

    @Test func `K14 a POST is sent again if the policy permits the repetition of unsafe work`() async throws {
        var policy = RetryPolicy.immediate(maxAttempts: 3)
        policy.repeatsUnsafeWork = true
        let transport = ScriptedTransport(
            [.failure(Self.late), .success(Self.busy)],
            thereafter: HTTPReply(status: 200)
        )

        _ = try await self.client(transport, policy).execute(Ask { $0.method = .post })

        #expect(transport.calls.count == 3)
    }

    @Test func `K14 a retry waits for the time of Retry-After`() async throws {
        let clock = VirtualClock()
        let busy = HTTPReply(status: 503, headers: ["Retry-After": "7"])
        let transport = ScriptedTransport([.success(busy)], thereafter: HTTPReply(status: 200))
        let client = self.client(transport, clock: clock)

        let call = Task { try await client.response(to: Ask()).status }
        await clock.waitForSleepers(1)
        #expect(clock.advanceToNextDeadline() == .seconds(7))

        #expect(try await call.value == .ok)
    }

    @Test func `K14 a request to a host that is down is not sent and is a connectivity error`() async {
        var options = RetryBudget.Limits()
        options.failuresToOpen = 1
        let transport = ScriptedTransport([.failure(Self.late)])
        let client = self.client(transport, .never, budget: RetryBudget(options))

        await #expect(throws: Self.late) { try await client.execute(Ask()) }
        let error = await #expect(throws: HTTPError.self) { try await client.execute(Ask()) }

        #expect(error?.isConnectivityFailure == true && transport.calls.count == 1)
    }

    @Test func `K14 a cancelled wait between attempts ends at once`() async {
        let clock = VirtualClock()
        let transport = ScriptedTransport([], thereafter: Self.busy)
        let client = self.client(transport, .fixed(.seconds(100), maxAttempts: 9), clock: clock)

        let call = Task { _ = try await client.execute(Ask()) }
        await clock.waitForSleepers(1)
        call.cancel()

        await #expect(throws: CancellationError.self) { try await call.value }
        #expect(transport.calls.count == 1)
    }
}
