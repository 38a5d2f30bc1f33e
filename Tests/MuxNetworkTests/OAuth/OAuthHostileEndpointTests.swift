import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Token endpoints that send arbitrary bytes, over the platform's transport.
///
/// A refusal ends a session, so an incomplete response must not become a refusal.
@Suite(.standard)
struct OAuthHostileEndpointTests {
    private static let tokens = #"{"access_token":"a","token_type":"Bearer","refresh_token":"r2"}"#
    private static let refusal = #"{"error":"invalid_grant"}"#
    private static let short = Duration.milliseconds(300)

    /// The result for the caller of an endpoint.
    private enum Outcome: Equatable, CustomStringConvertible {
        case tokens(refresh: String?)
        case error(OAuthError)

        var description: String {
            switch self {
            case .tokens(let refresh): "tokens with \(refresh ?? "none")"
            case .error(.transport(let error as HTTPError)): "\(error.nameless)"
            case .error(let error): "\(error)"
            }
        }

        static func == (a: Self, b: Self) -> Bool { a.description == b.description }
    }

    private func outcome(
        silence: Duration = .seconds(60),
        deadline: Duration = .seconds(120),
        maximumBodySize: Int = 64 << 20,
        of script: @escaping RawServer.Script
    ) async throws -> Outcome {
        let server = RawServer(script)
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        options.timeout = silence
        options.deadline = deadline
        options.maximumBodySize = maximumBodySize
        let url = try server.start().appending(path: "token")
        let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "app"), transport: SystemTransport(options))
        let start = ContinuousClock.now
        let outcome: Outcome
        do {
            outcome = .tokens(refresh: try await endpoint.refresh("r").refresh)
        } catch let error as OAuthError {
            outcome = .error(error)
        }
        #expect(start.duration(to: .now) < .busyMachine)
        await server.stop()
        #expect(server.requests.count <= 1, "a refresh token is not sent twice")
        return outcome
    }

    /// A script that reads the request, writes `text`, and ends the connection.
    private func ending(after text: String, byReset: Bool = false) -> RawServer.Script {
        { connection in
            try connection.readRequest()
            try connection.write(text)
            if byReset { connection.resetAtEnd() }
        }
    }

    private func message(_ status: Int, _ body: String, length: Int? = nil) -> String {
        "HTTP/1.1 \(status) -\r\nContent-Type: application/json\r\nContent-Length: \(length ?? body.utf8.count)\r\n\r\n\(body)"
    }

    private func chunked(_ status: Int, _ body: String, _ end: String) -> String {
        let size = String(body.utf8.count, radix: 16)
        return "HTTP/1.1 \(status) -\r\nTransfer-Encoding: chunked\r\n\r\n\(size)\r\n\(body)\r\n\(end)"
    }

    @Test func `TR-02 trailers do not change tokens and refusals`() async throws {
        let end = "0\r\nX-Sum: 1\r\nerror: invalid_grant\r\n\r\n"

        #expect(
            try await self.outcome(of: self.ending(after: self.chunked(200, Self.tokens, end)))
                == .tokens(refresh: "r2")
        )

        let refused = try await self.outcome(of: self.ending(after: self.chunked(400, Self.refusal, end)))
        guard case .error(let error) = refused else {
            Issue.record("\(refused)")
            return
        }
        #expect(error.isBadDependency && !error.isConnectivityFailure)
    }

    @Test(arguments: [false, true])
    func `TR-05 an early end of the connection is a connectivity failure and no refusal`(
        byReset: Bool
    ) async throws {
        let texts = [
            "", "HTTP/1.1 400 Bad Req", "HTTP/1.1 400 Bad Request\r\nContent-Ty",
            self.message(400, Self.refusal, length: 100), self.message(400, "{\"error\":\"inva", length: 25),
            self.chunked(400, Self.refusal, ""), self.chunked(400, Self.refusal, "0\r\n"),
            self.chunked(401, Self.refusal, "0\r\nX-Sum"), self.message(200, Self.tokens, length: 1_000),
            self.chunked(200, Self.tokens, ""),
        ]
        for text in texts {
            let outcome = try await self.outcome(of: self.ending(after: text, byReset: byReset))
            guard case .error(let error) = outcome, case .transport(let cause) = error else {
                Issue.record("\(text.debugDescription): \(outcome)")
                continue
            }
            #expect(error.isConnectivityFailure && !error.isBadDependency, "\(text.debugDescription): \(cause)")
        }
    }

    @Test func `TR-05 an endpoint without HTTP is neither a connectivity failure nor a refusal`() async throws {
        for text in [
            "SSH-2.0-OpenSSH_9.6\r\n", "{\"error\":\"invalid_grant\"}", "HTTP/1.1 101 -\r\nUpgrade: x\r\n\r\n",
        ] {
            let outcome = try await self.outcome(of: self.ending(after: text))
            #expect(outcome == .error(.transport(HTTPError.notHTTP)), "\(text.debugDescription)")
            guard case .error(let error) = outcome else { continue }
            #expect(!error.isConnectivityFailure && !error.isBadDependency)
        }
    }

    @Test func `TR-02 a body of ten megabytes is neither tokens nor a refusal`() async throws {
        let size = 10 << 20
        for status in [200, 400] {
            let large = self.message(status, String(repeating: "[", count: size))
            let outcome = try await self.outcome(of: self.ending(after: large))
            guard case .error(let error) = outcome, case .malformed = error else {
                Issue.record("\(status): \(outcome)")
                continue
            }
            #expect(!error.isConnectivityFailure && !error.isBadDependency)

            let limited = try await self.outcome(maximumBodySize: 1 << 20, of: self.ending(after: large))
            #expect(limited == .error(.transport(HTTPError.bodyTooLarge(limit: 1 << 20))))
        }
    }

    @Test(arguments: [200, 400])
    func `TR-02 a slow endpoint ends at the deadline, and a silent endpoint at the time-out`(status: Int) async throws {
        let message = self.message(status, status == 200 ? Self.tokens : Self.refusal, length: 10_000)
        let dripping = try await self.outcome(deadline: Self.short) { connection in
            try connection.readRequest()
            try connection.write(message)
            // Spaces after the complete JSON value.
            for _ in 0..<1_000 {
                try connection.write(" ")
                try connection.pause(milliseconds: 20)
            }
        }
        var silent: Outcome?
        for _ in 0..<10 {
            silent = try await self.outcome(silence: Self.short) { connection in
                try connection.readRequest()
                try connection.write(message)
                connection.waitForEnd()
            }
            // On a busy machine, the connection may take longer than the permitted silence.
            guard case .error(.transport(let error))? = silent, case .transport(.notConnected, _) = error as? HTTPError
            else {
                break
            }
        }
        let expected = [HTTPError.transport(.deadlineExceeded(after: Self.short)), .timedOut(after: Self.short)]
        for (outcome, expected) in zip([dripping, silent], expected) {
            #expect(outcome == .error(.transport(expected)))
            guard case .error(let error) = outcome else { continue }
            #expect(error.isConnectivityFailure && !error.isBadDependency)
        }
    }
}
