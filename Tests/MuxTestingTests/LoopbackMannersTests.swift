import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Behaviour that every HTTP client may expect.
@Suite(.standard(.waiting))
struct LoopbackMannersTests {
    private struct Place: Codable, Identifiable, Sendable { var id: String }

    /// Runs `body` with a server, and stops the server.
    private func serving(
        port: UInt16? = nil,
        _ handler: @escaping LoopbackServer.Handler = { .text("Hello from \($0.path)") },
        _ body: (LoopbackServer, URL) async throws -> Void
    ) async throws {
        let server = LoopbackServer(port: port, handler: handler)
        let url = try server.start()
        try await body(server, url)
        await server.stop()
    }

    @Test(arguments: [
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nConnection: keep-alive, Close\r\n\r\n", true),
        ("GET / HTTP/1.1\r\n\r\n", false),
        ("GET / HTTP/1.0\r\n\r\n", true),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false),
    ])
    func `CO-42 the server closes the connection of a client that wants one response`(
        request: String,
        isEnded: Bool
    ) async throws {
        try await self.serving { _, url in
            let answer = try await RawClient.exchange(request, with: url)

            #expect(answer.text.hasPrefix("HTTP/1.1 200"))
            #expect(answer.body == "Hello from /")
            #expect(answer.isEnded == isEnded)
            let connection = answer.text.lowercased().contains("connection: close")
            #expect(connection == isEnded)
        }
    }

    @Test func `CO-42 data after the last request gets no response`() async throws {
        try await self.serving { server, url in
            let requests = "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\nGET /3 HTTP/1.1\r\n\r\n"
            let answer = try await RawClient.exchange(requests, with: url)

            #expect(answer.isEnded && answer.text.hasSuffix("/2"))
            #expect(server.requestCount == 2)
        }
    }

    @Test func `CO-42 a close option in a response's Connection field closes the connection`() async throws {
        let handler: LoopbackServer.Handler = { _ in
            LoopbackServer.Response(headers: ["Connection": "close"], body: Data("x".utf8))
        }
        try await self.serving(handler) { _, url in
            let answer = try await RawClient.exchange("GET / HTTP/1.1\r\n\r\n", with: url)

            #expect(answer.isEnded && answer.body == "x")
        }
    }

    @Test func `CO-42 a half-closed client gets its response after any delay`() async throws {
        let gate = Gate<Void>()
        let handler: LoopbackServer.Handler = { _ in
            do { try await gate.pass() } catch { return .text("cancelled") }
            return .text("worth the wait")
        }
        try await self.serving(handler) { server, url in
            let clients = try [RawClient(url), RawClient(url)]
            clients[0].send("GET / HTTP/1.1\r\n\r\n")
            await gate.waitForCall(1)
            clients[0].endSending()
            clients[1].send("GET / HTTP/1.0\r\n\r\n")
            clients[1].endSending()
            await gate.waitForCall(2)
            // The server has received both ends by the time of 50 responses to another client.
            for _ in 0..<50 { _ = try await RawClient.exchange("GET x HTTP/1.1\r\n\r\n", with: url) }
            gate.openForGood(returning: ())

            for client in clients {
                let answer = await client.answer()
                #expect(answer.body == "worth the wait" && answer.isEnded)
            }
        }
    }

    @Test func `CO-42 all requests before the end of sending get a response`() async throws {
        try await self.serving { _, url in
            let client = try RawClient(url)
            client.send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n")
            client.endSending()
            let answer = await client.answer()

            for number in 1...3 { #expect(answer.text.contains("Hello from /\(number)")) }
            #expect(answer.isEnded)
        }
    }

    enum HangUp: CaseIterable, Sendable {
        case atOnce
        case withMoreSent
        case afterEndOfSending
    }

    @Test(arguments: HangUp.allCases)
    func `CO-42 a client's disconnection cancels its handler`(hangUp: HangUp) async throws {
        let gate = Gate<Void>()
        let cancelled = Tally()
        let handler: LoopbackServer.Handler = { _ in
            do { try await gate.pass() } catch { cancelled.add() }
            return .text("late")
        }
        try await self.serving(handler) { server, url in
            let client = try RawClient(url)
            client.send("GET / HTTP/1.1\r\n\r\n")
            await gate.waitForCall()

            switch hangUp {
            case .atOnce: break
            case .withMoreSent: client.send("GET /more HTTP/1.1\r\n\r\n")
            case .afterEndOfSending: client.endSending()
            }
            client.close()

            await server.waitForClosedConnection()
            await cancelled.reached(1)
        }
    }

    @Test(arguments: ["HEAD", "GET"], [200, 204, 304])
    func `CO-42 a response has a body only if method and status permit a body`(method: String, status: Int) async throws
    {
        let responses = [
            LoopbackServer.Response(status: status, body: Data("body".utf8)),
            .text("body", status: status),
            .json("body", status: status),
        ]
        let handler: LoopbackServer.Handler = { responses[Int($0.segments.first ?? "") ?? 0] }
        try await self.serving(handler) { _, url in
            for index in responses.indices {
                let request = "\(method) /\(index) HTTP/1.1\r\n\r\nGET /0 HTTP/1.1\r\nConnection: close\r\n\r\n"
                let answer = try await RawClient.exchange(request, with: url)

                let has = method == "GET" && status == 200
                #expect(answer.text.components(separatedBy: "body").count - 1 == (has ? 2 : status == 200 ? 1 : 0))
                #expect(answer.text.components(separatedBy: "HTTP/1.1 \(status)").count == 3)
                #expect(answer.text.contains("Content-Length") == (status == 200))
            }
        }
    }

    @Test func `CO-42 a HEAD request sends neither a file nor a stream`() async throws {
        let file = LoopbackServer.File(size: 1_000_000)
        let waits = Locked(0)
        let handler: LoopbackServer.Handler = { request in
            guard request.path == "/stream" else { return file.response(to: request) }
            return .streamed(contentType: "text/plain") {
                waits.withLock { $0 += 1 }
                return nil
            }
        }
        try await self.serving(handler) { _, url in
            let whole = try await RawClient.exchange("HEAD /file HTTP/1.0\r\n\r\n", with: url)
            #expect(whole.text.contains("Content-Length: 1000000") && whole.body == "")
            let stream = try await RawClient.exchange("HEAD /stream HTTP/1.1\r\n\r\n", with: url)
            #expect(stream.isEnded && stream.body == "")
        }
        #expect(file.bytesSent == 0)
        #expect(waits.withLock { $0 } == 0)
    }

    @Test func `CO-42 a blocking handler stalls neither another server nor another connection`() async throws {
        let block = DispatchSemaphore(value: 0)
        let began = Tally()
        let handler: LoopbackServer.Handler = { request in
            if request.path == "/block" {
                began.add()
                Self.wait(for: block)
            }
            return .text("free")
        }
        try await self.serving(handler) { _, url in
            let blocked = try RawClient(url)
            blocked.send("GET /block HTTP/1.1\r\n\r\n")
            await began.reached(1)

            try await self.serving { _, other in
                let answer = try await RawClient.exchange("GET / HTTP/1.0\r\n\r\n", with: other)
                #expect(answer.body == "Hello from /")
            }
            let answer = try await RawClient.exchange("GET / HTTP/1.0\r\n\r\n", with: url)
            #expect(answer.body == "free")
            block.signal()
            blocked.close()
        }
    }

    private static func wait(for semaphore: DispatchSemaphore) { _ = semaphore.wait(timeout: .now() + 20) }

    @Test func `CO-42 port zero selects a free port, and the server reports the port`() async throws {
        try await self.serving(port: 0) { server, url in
            #expect((url.port ?? 0) > 0 && server.url == url)
            let answer = try await RawClient.exchange("GET /port HTTP/1.0\r\n\r\n", with: url)
            #expect(answer.body == "Hello from /port")
            await server.stop()
            #expect(try server.start() == url)
        }
    }

    @Test func `CO-42 all callers of stop wait until the server has stopped`() async throws {
        for _ in 0..<20 {
            let server = LoopbackServer { _ in .text("") }
            let url = try server.start()
            let clients = try (0..<8).map { _ in try RawClient(url) }
            for client in clients { client.send("GET / HTTP/1.1\r\n\r\n") }
            await server.waitForRequest(8)
            await withTaskGroup { group in
                for _ in 0..<8 {
                    group.addTask {
                        await server.stop()
                        // After `stop` all sockets are closed, and the server can start again.
                        #expect(server.openConnectionCount == 0)
                        #expect(throws: RawClient.Refused.self) { try RawClient(url).close() }
                    }
                }
                // Cancellation does not shorten the wait.
                group.addTask {
                    withUnsafeCurrentTask { $0?.cancel() }
                    await server.stop()
                    #expect(server.openConnectionCount == 0)
                }
            }
            for client in clients { client.close() }
            try server.start()
            await server.stop()
        }
    }

    @Test(arguments: [
        ("bytes=0-9223372036854775807", 206, "bytes 0-99/100"),
        ("bytes=5-99999999999999999999999", 206, "bytes 5-99/100"),
        ("bytes=9223372036854775807-", 416, "bytes */100"),
        ("bytes=-10", 206, "bytes 90-99/100"),
        ("bytes=-9223372036854775807", 206, "bytes 0-99/100"),
        ("bytes=-0", 416, "bytes */100"),
        ("bytes=10-5", 200, ""), ("bytes=1-x", 200, ""), ("bytes=", 200, ""), ("bytes=1-2-3", 200, ""),
    ])
    func `CO-42 a range may be arbitrarily large`(range: String, status: Int, content: String) async throws {
        let file = LoopbackServer.File(size: 100)
        let empty = LoopbackServer.File(size: 0)
        let handler: LoopbackServer.Handler = { request in
            (request.path == "/empty" ? empty : file).response(to: request)
        }
        try await self.serving(handler) { _, url in
            let request = "GET / HTTP/1.0\r\nRange: \(range)\r\n\r\n"
            let answer = try await RawClient.exchange(request, with: url)
            #expect(answer.text.hasPrefix("HTTP/1.1 \(status)"))
            #expect(content == "" ? !answer.text.contains("Content-Range") : answer.text.contains(content))

            let request2 = "GET /empty HTTP/1.0\r\nRange: \(range)\r\n\r\n"
            let other = try await RawClient.exchange(request2, with: url)
            #expect(other.text.hasPrefix("HTTP/1.1 \(status == 200 ? 200 : 416)"))
        }
    }

    @Test func `CO-42 a client that sends too much gets a response with the reason`() async throws {
        try await self.serving { _, url in
            let body = String(repeating: "x", count: 6_000_000)
            let client = try RawClient(url)
            async let answer = client.answer()
            client.send("POST / HTTP/1.1\r\nContent-Length: \(body.utf8.count)\r\n\r\n" + body)
            #expect(await answer.text.hasPrefix("HTTP/1.1 413"))
        }
    }

    @Test(arguments: [
        ("", 400, "invalid_request"), ("refresh_token=x", 400, "invalid_request"),
        ("grant_type=", 400, "invalid_request"), ("grant_type=password", 400, "unsupported_grant_type"),
        ("grant_type=refresh_token", 400, "invalid_request"),
        ("grant_type=refresh_token&refresh_token=x", 400, "invalid_grant"),
    ])
    func `CO-42 the token endpoint returns the error codes of RFC 6749`(
        form: String,
        status: Int,
        code: String
    ) async throws {
        let backend = try LoopbackBackend(oauth: FakeOAuthServer(users: [:]), places: [Place]())
        let url = try backend.goOnline()

        let head = "POST /token HTTP/1.0\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        let request = head + "Content-Length: \(form.utf8.count)\r\n\r\n" + form
        let answer = try await RawClient.exchange(request, with: url)

        #expect(answer.text.hasPrefix("HTTP/1.1 \(status)"))
        #expect(answer.body == #"{"error":"\#(code)"}"#)
        await backend.goOffline()
    }

    @Test(arguments: [("", false), ("Authorization: Bearer bad\r\n", true), ("Authorization: Basic YTpi\r\n", false)])
    func `CO-42 a refusal names a bad token only if the request has a token`(field: String, isNamed: Bool) async throws
    {
        let backend = try LoopbackBackend(oauth: FakeOAuthServer(users: [:]), places: [Place]())
        let url = try backend.goOnline()

        let answer = try await RawClient.exchange("GET /me HTTP/1.0\r\n\(field)\r\n", with: url)

        #expect(answer.text.hasPrefix("HTTP/1.1 401"))
        #expect(answer.text.contains("WWW-Authenticate: Bearer"))
        // RFC 6750, section 3.1: without any authentication information there is no error code.
        #expect(answer.text.contains("invalid_token") == isNamed)
        await backend.goOffline()
    }
}
