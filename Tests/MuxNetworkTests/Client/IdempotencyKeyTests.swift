import Foundation
import MuxConformance
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxNetwork

/// Requests with an idempotency key, which are repeatable with any method.
@Suite(.standard)
struct IdempotencyKeyTests {
    private static let late = HTTPError.timedOut(after: .seconds(1))

    private func client(_ transport: any HTTPTransport, retry: RetryPolicy? = nil) -> HTTPClient {
        var configuration = HTTPClient.Configuration()
        configuration.retry = retry
        return HTTPClient(configuration: configuration, transport: transport)
    }

    private func keys(_ transport: ScriptedTransport) -> [[String]] {
        transport.calls.map { $0.headers.values(of: .idempotencyKey) }
    }

    @Test(arguments: [false, true])
    func `OB-02 the key is sent once, unchanged, also with private headers`(isPrivate: Bool) async throws {
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 200))
        let client = self.client(transport)
        let ask = Ask {
            $0.method = .post
            $0.headers = ["Idempotency-Key": "former", "X-Other": "1"]
            $0.idempotencyKey = "8e03978e"
            $0.usesPrivateHeaders = isPrivate
        }
        _ = try await client.execute(ask)
        #expect(self.keys(transport) == [["8e03978e"]] && transport.calls[0].headers["X-Other"] == "1")
        for key in [nil, ""] {
            _ = try await client.execute(
                Ask {
                    $0.method = .post
                    $0.idempotencyKey = key
                }
            )
        }
        #expect(self.keys(transport).dropFirst() == [[], []])
    }

    @Test(arguments: ["a\r\nX: y", "a\u{0}"])
    func `OB-02 a key that cannot be sent is an error before the sending`(key: String) async throws {
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 200))
        let ask = Ask {
            $0.method = .post
            $0.idempotencyKey = key
        }
        await #expect(throws: HTTPError.invalidHeader(name: "Idempotency-Key")) {
            try await self.client(transport).execute(ask)
        }
        #expect(transport.calls.isEmpty)
    }

    @Test(arguments: [HTTPMethod.post, .patch])
    func `OB-02 a request with a key is retried with the same key after a lost response and a busy server`(
        method: HTTPMethod
    ) async throws {
        for (key, count) in [(nil, 1), ("k1", 3)] {
            let busy = HTTPReply(status: 503)
            let transport = ScriptedTransport(
                [.failure(Self.late), .success(busy)],
                thereafter: HTTPReply(status: 200)
            )
            let client = self.client(transport, retry: .immediate(maxAttempts: 3))
            let ask = Ask {
                $0.method = method
                $0.idempotencyKey = key
            }
            let response = try? await client.response(to: ask)
            #expect(response?.status.code == (key == nil ? nil : 200))
            #expect(self.keys(transport) == Array(repeating: key.map { [$0] } ?? [], count: count))
        }
    }

    @Test(arguments: [(nil, false), ("k1", true)] as [(String?, Bool)])
    func `OB-02 the advice of a status failure permits a repetition with a key`(key: String?, isRepeatable: Bool)
        async throws
    {
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 503))
        let ask = Ask {
            $0.method = .post
            $0.idempotencyKey = key
        }
        let error = await #expect(throws: HTTPError.self) { try await self.client(transport).execute(ask) }
        #expect(try #require(error).retryAdvice.isRepeatable == isRepeatable)
    }

    @Test(arguments: [(307, "k1"), (303, nil), (301, nil)] as [(Int, String?)])
    func `OB-02 a redirection that becomes a GET has no key`(status: Int, key: String?) async throws {
        let url = try #require(URL(string: "https://host/a"))
        var redirects = HTTPRedirects(HTTPCall(method: "POST", url: url, headers: ["Idempotency-Key": "k1"]))
        let next = try redirects.next(after: HTTPReply(status: status, headers: ["Location": "/b"]))
        #expect(try #require(next).headers[.idempotencyKey] == key)
    }

    #if os(Linux)
    /// A server that closes the kept connection after the second request, without a response.
    @Test(arguments: [nil, "k1"], ["", "body"])
    func `OB-02 a POST with a key is sent again if its kept connection ends`(key: String?, body: String) async throws {
        let server = RawServer { connection in
            for number in 1... {
                let request = try connection.readRequest()
                if connection.number == 1, number == 2 { return }
                try connection.respond(200, "\(request.line) \(String(decoding: request.body, as: UTF8.self))")
            }
        }
        let url = try server.start()
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        let transport = SystemTransport(options)
        _ = try await transport.send(HTTPCall(url: url))

        var call = HTTPCall(
            method: "POST",
            url: url.appending(path: "own"),
            body: body.isEmpty ? nil : .data(Data(body.utf8))
        )
        call.headers[.idempotencyKey] = key
        do {
            let reply = try await transport.send(call)
            #expect(key != nil && String(decoding: reply.body, as: UTF8.self) == "POST /own \(body)")
        } catch {
            #expect(key == nil, "\(error)")
        }
        #expect(server.requests.map(\.connection) == (key == nil ? [1, 1] : [1, 1, 2]))
        await server.stop()
    }

    /// A server that reads the second request on a kept connection, and ends before the response.
    @Test(arguments: [
        ("POST", "body", false), ("PUT", "body", false), ("DELETE", "", false), ("POST", "body", true),
        ("PUT", "body", true),
    ])
    func `OB-02 a request may have arrived if its kept connection ends and no other is possible`(
        method: String,
        text: String,
        isURLSession: Bool
    ) async throws {
        let running = Locked<RawServer?>(nil)
        let server = RawServer { connection in
            _ = try connection.readRequest()
            try connection.respond(200, "")
            _ = try connection.readRequest()
            running.withLock(\.self)?.closePort()
        }
        running.withLock { $0 = server }
        let url = try server.start()
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        let transport: any HTTPTransport = isURLSession ? URLSessionTransport() : SystemTransport(options)
        _ = try await transport.send(HTTPCall(url: url))

        let error = await #expect(throws: HTTPError.self) {
            let body: HTTPCall.Body? = text.isEmpty ? nil : .data(Data(text.utf8))
            _ = try await transport.send(HTTPCall(method: method, url: url, body: body))
        }
        #expect(error?.isUnsentRequest == false)
        #expect(error?.isConnectivityFailure == true)
        #expect(server.requests.count == 2)
        running.withLock { $0 = nil }
        await server.stop()
    }

    @Test(arguments: [
        // Sendings, whether the last is refused, whether the request is repeatable: whether a sending may count.
        (0, false, false, false), (0, true, true, false), (1, false, false, true), (1, false, true, true),
        (1, true, false, false), (1, true, true, false), (2, true, false, false), (2, true, true, true),
        (2, false, true, true),
    ])
    func `OB-02 only a request whose every sending was refused is certainly unsent`(
        sendings: Int,
        isRefused: Bool,
        isRepeatable: Bool,
        mayHaveArrived: Bool
    ) {
        let result = CurlTransfer.mayHaveArrived(
            afterSendings: sendings,
            isRefused: isRefused,
            isRepeatable: isRepeatable
        )
        #expect(result == mayHaveArrived)
    }

    @Test func `OB-02 a safe request keeps the failure of its last connection`() {
        let failure = HTTPError(loading: URLError(.serverCertificateUntrusted))
        #expect(failure.isUnsentRequest == true)
        #expect(failure.afterEarlierSending(of: .get).isConnectivityFailure == false)
        #expect(failure.afterEarlierSending(of: .put).isUnsentRequest == false)
        #expect(failure.afterEarlierSending(of: .put).retryAdvice.isTransient)
    }
    #endif
}
