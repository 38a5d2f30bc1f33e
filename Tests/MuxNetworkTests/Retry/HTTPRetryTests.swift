import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct HTTPRetryTests {
    private let clock = VirtualClock()

    private func repository() -> MuxRepository {
        let clock = self.clock
        return MuxRepository(
            store: MemoryStore(),
            durability: .relaxed,
            observer: nil,
            time: TimeSource(clock),
            wallTime: { Date(timeIntervalSinceReferenceDate: 0) },
            random: { 0.5 },
            spawn: TaskLauncher()
        )
    }

    /// Sends a request, and throws the client's error for any status but 200.
    @Sendable private static func text(_ call: HTTPCall) async throws -> String {
        let response = HTTPResponse(request: call, reply: try await SystemTransport().send(call))
        guard response.status.code == 200 else { throw HTTPError.status(HTTPError.StatusFailure(response)) }
        return String(decoding: response.body, as: UTF8.self)
    }

    /// A server that responds with `refusal` to the first `times` requests, and with "welcome" to later
    /// requests.
    private func server(refusing refusal: LoopbackServer.Response, times: Int = 2) -> LoopbackServer {
        let count = Locked(0)
        return LoopbackServer { _ in
            let number = count.withLock { count in
                count += 1
                return count
            }
            return number <= times ? refusal : .text("welcome")
        }
    }

    @Test func `E09 a multiplexer with a retry policy succeeds although the server fails twice`() async throws {
        let server = self.server(refusing: .text("busy", status: 503))
        let url = try server.start()
        let policy = MuxPolicy(fetchTimeout: .seconds(1_000), retry: .web)
        let page = Multiplexer<String>(policy: policy, repository: self.repository()) {
            try await Self.text(HTTPCall(url: url))
        }

        let callers = (0..<10).map { _ in Task { try await page.request() } }
        var waits: [Duration] = []
        for _ in 0..<2 {
            await self.clock.waitForSleepers(2)
            waits.append(self.clock.advanceToNextDeadline() ?? .zero)
        }

        for caller in callers { #expect(try await caller.value == "welcome") }
        #expect(try await page.request() == "welcome")
        #expect(waits == [.milliseconds(250), .milliseconds(500)], "half of 0.5 s and 1 s is what this chance draws")
        #expect(server.requestCount == 3, "two failures and one success for all callers")
        #expect(page.statistics.fetches == 1)
        #expect(page.statistics.retries == 2)
        #expect(page.statistics.failures == 0)
        await server.stop()
    }

    @Test(arguments: [("GET", 3), ("HEAD", 3), ("PUT", 3), ("DELETE", 3), ("POST", 1), ("PATCH", 1), ("PURGE", 1)])
    func `E11 only idempotent methods are sent again`(method: String, expected: Int) async throws {
        let server = self.server(refusing: .text("busy", status: 503), times: 99)
        let url = try server.start()

        await #expect(throws: RetryError.self) {
            try await retry(.immediate(maxAttempts: 3)) { _ in try await Self.text(HTTPCall(method: method, url: url)) }
        }

        #expect(server.requestCount == expected)
        await server.stop()
    }

    @Test func `E11 a POST is sent again where the policy opts in`() async throws {
        let server = self.server(refusing: .text("busy", status: 503))
        let url = try server.start()
        var policy = RetryPolicy.immediate(maxAttempts: 3)
        policy.repeatsUnsafeWork = true

        let text = try await retry(policy) { _ in try await Self.text(HTTPCall(method: "POST", url: url)) }

        #expect(text == "welcome")
        #expect(server.requestCount == 3)
        await server.stop()
    }

    @Test func `E12 a retry waits for the seven seconds of a Retry-After`() async throws {
        let refusal = LoopbackServer.Response(status: 503, headers: ["Retry-After": "7"])
        let server = self.server(refusing: refusal, times: 1)
        let url = try server.start()
        let clock = self.clock
        let caller = Task {
            try await retry(.web, clock: clock) { attempt in
                _ = try await Self.text(HTTPCall(url: url))
                return attempt.elapsed
            }
        }

        await clock.waitForSleepers(1)
        #expect(clock.advanceToNextDeadline() == .seconds(7))

        #expect(try await caller.value == .seconds(7))
        await server.stop()
    }

    @Test(arguments: [(404, 1), (401, 1), (400, 1), (503, 3), (429, 3), (408, 3), (500, 3), (501, 1)])
    func `E13 transient statuses are retried and other statuses are not`(status: Int, expected: Int) async throws {
        let server = self.server(refusing: .text("no", status: status), times: 99)
        let url = try server.start()

        let error = await #expect(throws: RetryError.self) {
            try await retry(.immediate(maxAttempts: 3)) { _ in try await Self.text(HTTPCall(url: url)) }
        }

        #expect(server.requestCount == expected)
        #expect((error?.lastError as? HTTPError)?.status?.code == status)
        #expect(error?.isBadDependency == (status == 401), "a runner around it renews the token")
        await server.stop()
    }

    @Test func `E13 an interrupted exchange is retried and a refused redirection is not`() {
        let down = NSError(domain: "NSURLErrorDomain", code: -1004)
        let table: [(HTTPError, Bool)] = [
            (.transport(.timedOut(after: .seconds(1))), true), (.transport(.unreachable(down)), true),
            (.transport(.truncated(expected: 2, received: 1)), true), (.transport(.notHTTP), false),
            (.transport(.truncated(expected: nil, received: 1)), true), (.transport(.notResolved(down)), true),
            (.transport(.notConnected(down)), true), (.transport(.closedWithoutResponse(down)), true),
            (.transport(.deadlineExceeded(after: .seconds(1))), true),
            (.transport(.insecureConnection(down)), false), (.transport(.damagedContent(coding: "gzip")), false),
            (.transport(.headTooLarge(limit: 1)), false),
            (.transport(.bodyTooLarge(limit: 1)), false), (.transport(.redirectRefused(.insecure)), false),
            (.transport(.unreachable(NSError(domain: "NSURLErrorDomain", code: -1200))), false),
            (.authentication(down), true), (.authentication(BadDependency()), false),
        ]

        for (error, isTransient) in table { #expect(error.retryAdvice.isTransient == isTransient, "\(error)") }
    }

    @Test(
        arguments: [
            ("7", Duration.seconds(7)), ("0", .zero), ("", nil), ("-1", nil), ("soon", nil), (" 7 ", .seconds(7)),
            ("7.5", .milliseconds(7500)), ("0.25", .milliseconds(250)), ("7.", nil), (".5", nil), ("1.2.3", nil),
            ("1e3", nil), ("-1.5", nil), ("7,5", nil), ("0x1.8", nil), ("inf", nil), ("nan", nil),
            ("99999999999999999999999.5", .seconds(1 << 31)), ("0.0", .zero),
            ("1.99999999999999999999999", .seconds(2)),
            ("Sun, 06 Nov 1994 08:49:44 GMT", .seconds(7)), ("Sun, 06 Nov 1994 08:49:30 GMT", .zero),
            ("99999999999999999999999", .seconds(1 << 31)),
        ] as [(String, Duration?)]
    )
    func `WR-07 E12 Retry-After is parsed as seconds, with or without decimals, or as an HTTP date`(
        text: String,
        expected: Duration?
    ) throws {
        let url = try #require(URL(string: "http://example.com"))
        let date = "Sun, 06 Nov 1994 08:49:37 GMT"
        let reply = HTTPReply(status: 503, headers: ["Retry-After": text, "Date": date])

        #expect(HTTPResponse(request: HTTPCall(url: url), reply: reply).retryAfter == expected)
    }
}
