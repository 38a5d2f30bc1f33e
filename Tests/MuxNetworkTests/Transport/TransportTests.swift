import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct TransportTests {

    /// Runs `body` against a server that responds with `handler`, and stops the server afterwards.
    private func serving(
        _ handler: @escaping LoopbackServer.Handler,
        _ body: (LoopbackServer, URL) async throws -> Void
    ) async throws {
        let server = LoopbackServer(handler: handler)
        let url = try server.start()
        let result: Result<Void, any Error>
        do { result = .success(try await body(server, url)) } catch { result = .failure(error) }
        await server.stop()
        try result.get()
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a plain GET returns status, headers and body`(kind: TransportKind) async throws {
        let transport = kind.make()
        try await self.serving { request in
            LoopbackServer.Response(
                status: 203,
                headers: ["X-Case-Test": "yes"],
                body: Data("\(request.method) \(request.target) \(request.header("x-ask") ?? "")".utf8)
            )
        } _: { server, url in
            let reply = try await transport.send(
                HTTPCall(url: url.appending(path: "a"), headers: ["X-Ask": "please"])
            )

            #expect(reply.status == 203)
            #expect(reply.headers["x-case-TEST"] == "yes")
            #expect(String(decoding: reply.body, as: UTF8.self) == "GET /a please")
            #expect(transport.pendingCount == 0)
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a POST arrives with its body`(kind: TransportKind) async throws {
        let transport = kind.make()
        let body = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0) })
        try await self.serving { request in
            LoopbackServer.Response(body: Data("\(request.method) ".utf8) + request.body)
        } _: { _, url in
            let reply = try await transport.send(HTTPCall(method: "POST", url: url, body: .data(body)))

            #expect(reply.body == Data("POST ".utf8) + body)
        }
    }

    @Test(arguments: [#"Basic realm="x""#, "Bearer", #"Digest realm="x", nonce="y""#, "Basic"], TransportKind.allCases)
    func `Q-07 a 401 is a response with a body regardless of its challenge`(challenge: String, kind: TransportKind)
        async throws
    {
        let transport = kind.make()
        try await self.serving { _ in
            LoopbackServer.Response(status: 401, headers: ["WWW-Authenticate": challenge], body: Data("no".utf8))
        } _: { server, url in
            let reply = try await transport.send(HTTPCall(url: url))

            #expect(reply.status == 401)
            #expect(reply.body == Data("no".utf8))
            #expect(server.requestCount == 1)
        }
    }

    @Test(arguments: [302, 307], TransportKind.allCases)
    func `Q-07 credentials are dropped on a redirect to another port`(status: Int, kind: TransportKind) async throws {
        let transport = kind.make()
        let names = ["Authorization", "X-Api-Key", "Cookie", "Proxy-Authorization", "X-Own-Token", "X-Harmless"]
        let seen = Locked<[[String]]>([])
        let record: @Sendable (LoopbackServer.Request) -> Void = { request in
            seen.withLock { $0.append(names.filter { request.header($0) != nil }) }
        }
        try await self.serving { request in
            record(request)
            return .text("arrived")
        } _: { _, other in
            try await self.serving { request in
                record(request)
                if request.path == "/start" { return .redirect(to: other, status: status) }
                return .redirect(to: URL(filePath: "/start"), status: status)
            } _: { _, url in
                var call = HTTPCall(
                    url: url.appending(path: "start"),
                    headers: HTTPHeaders(Dictionary(uniqueKeysWithValues: names.map { ($0, "secret") }))
                )
                call.credentialHeaders = ["x-own-token"]
                let reply = try await transport.send(call)

                #expect(reply.status == 200)
                #expect(reply.body == Data("arrived".utf8))
                #expect(seen.withLock { $0 } == [names, ["X-Harmless"]])
            }
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-09 extreme time limits cause no trap`(kind: TransportKind) async throws {
        try await self.serving { _ in
            .text("here")
        } _: { _, url in
            for patience in [Duration.seconds(Int64.max), .seconds(Int64.min), .seconds(9e15), .zero] {
                var options = HTTPTransportConfiguration()
                options.timeout = patience
                options.deadline = patience
                let reply = try? await kind.make(options).send(HTTPCall(url: url))
                // With a limit of zero or less, the response may arrive in time nevertheless.
                #expect(reply?.status == 200 || patience <= .zero)
            }
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a redirect within the server keeps credentials`(kind: TransportKind) async throws {
        let transport = kind.make()
        try await self.serving { request in
            guard request.path == "/start" else { return .text(request.bearerToken ?? "none") }
            return LoopbackServer.Response(status: 302, headers: ["Location": "/end"])
        } _: { _, url in
            let reply = try await transport.send(
                HTTPCall(url: url.appending(path: "start"), headers: ["Authorization": "Bearer t"])
            )

            #expect(reply.body == Data("t".utf8))
            #expect(reply.url?.path() == "/end")
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 endless redirects are refused at the limit`(kind: TransportKind) async throws {
        let transport = kind.make()
        try await self.serving { _ in
            LoopbackServer.Response(status: 302, headers: ["Location": "/again"])
        } _: { server, url in
            await #expect(throws: HTTPError.redirectRefused(.tooMany(limit: 10))) {
                try await transport.send(HTTPCall(url: url))
            }
            #expect(server.requestCount == 11)
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a redirect to a file is refused`(kind: TransportKind) async throws {
        let transport = kind.make()
        try await self.serving { _ in
            LoopbackServer.Response(status: 302, headers: ["Location": "file:///etc/hostname"])
        } _: { _, url in
            await #expect(throws: HTTPError.redirectRefused(.unknownScheme)) {
                try await transport.send(HTTPCall(url: url))
            }
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a truncated body is an error`(kind: TransportKind) async throws {
        let transport = kind.make()
        try await self.serving { _ in
            LoopbackServer.Response(body: Data("0123456789".utf8), claimedLength: 1000)
        } _: { _, url in
            await #expect(throws: HTTPError.truncated(expected: 1000, received: 10)) {
                try await transport.send(HTTPCall(url: url))
            }
        }
    }

    @Test(arguments: ["garbage\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "\0\0\0", ""], TransportKind.allCases)
    func `Q-07 a garbage reply is a typed error`(garbage: String, kind: TransportKind) async throws {
        let transport = kind.make()
        try await self.serving { _ in
            LoopbackServer.Response(steps: [.send(Data(garbage.utf8)), .close])
        } _: { _, url in
            let error = await #expect(throws: HTTPError.self) { try await transport.send(HTTPCall(url: url)) }
            #expect(error?.isBadDependency == false)
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a connection that is reset is a typed error`(kind: TransportKind) async throws {
        let transport = kind.make()
        try await self.serving { _ in
            LoopbackServer.Response(steps: [.reset])
        } _: { _, url in
            await #expect(throws: HTTPError.self) { try await transport.send(HTTPCall(url: url)) }
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a refused port is a typed error`(kind: TransportKind) async throws {
        let transport = kind.make()
        let server = LoopbackServer { _ in .text("") }
        let url = try server.start()
        await server.stop()

        await #expect(throws: HTTPError.self) { try await transport.send(HTTPCall(url: url)) }
        #expect(server.requestCount == 0)
    }

    @Test(arguments: [true, false], TransportKind.allCases)
    func `Q-07 a body above the limit is an error, also without a length`(isAnnounced: Bool, kind: TransportKind)
        async throws
    {
        var options = HTTPTransportConfiguration()
        options.maximumBodySize = 1000
        let transport = kind.make(options)
        try await self.serving { _ in
            guard !isAnnounced else { return LoopbackServer.Response(body: Data(count: 1001)) }
            return LoopbackServer.Response(steps: [
                .send(Data("HTTP/1.1 200 OK\r\n\r\n".utf8) + Data(count: 1001)), .close,
            ])
        } _: { _, url in
            await #expect(throws: HTTPError.bodyTooLarge(limit: 1000)) {
                try await transport.send(HTTPCall(url: url))
            }
            #expect(transport.pendingCount == 0)
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 the deadline is measured with the given clock`(kind: TransportKind) async throws {
        let clock = VirtualClock()
        let transport = kind.make(clock: clock)
        let gate = Gate<Void>()
        try await self.serving { _ in
            .held(body: Data(count: 100), after: 50) { try? await gate.pass() }
        } _: { _, url in
            let call = Task { try await transport.send(HTTPCall(url: url, timeout: .seconds(3600))) }
            await gate.waitForCall()
            await clock.waitForSleepers()

            clock.advance(by: .seconds(40))

            await #expect(throws: HTTPError.transport(.deadlineExceeded(after: .seconds(40)))) { try await call.value }
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a slow server without long silence is no time-out`(kind: TransportKind) async throws {
        let clock = VirtualClock()
        let transport = kind.make(clock: clock)
        let gate = Gate<Void>()
        let sink = CountingSink()
        try await self.serving { _ in
            await clock.waitForSleepers()
            clock.advance(by: .seconds(12))
            return .held(body: Data(count: 100), after: 50) { try? await gate.pass() }
        } _: { _, url in
            let call = Task { try await transport.stream(HTTPCall(url: url, timeout: .seconds(20)), into: sink) }
            await gate.waitForCall()
            await sink.pieces.reached(1)
            await clock.waitForSleepers()

            clock.advance(by: .seconds(12))
            await clock.waitForSleepers()
            gate.open()

            let reply = try await call.value
            #expect(reply.status == 200)
            #expect(clock.sleeperCount == 0, "nobody waits for the time of a call that has ended")
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a silent server is a time-out`(kind: TransportKind) async throws {
        let clock = VirtualClock()
        let transport = kind.make(clock: clock)
        let gate = Gate<Void>()
        try await self.serving { _ in
            try? await gate.pass()
            return .text("")
        } _: { _, url in
            let isOver = Locked(false)
            let call = Task {
                defer { isOver.withLock { $0 = true } }
                return try await transport.send(HTTPCall(url: url, timeout: .seconds(5)))
            }
            await gate.waitForCall()
            // The silence starts at the last activity, which may follow the server's receipt of the request.
            while !isOver.withLock({ $0 }) {
                // The steps do not reach any other limit.
                if clock.sleeperCount > 0, clock.now.offset < .seconds(30) { clock.advance(by: .seconds(5)) }
                await Task.yield()
            }
            await #expect(throws: HTTPError.timedOut(after: .seconds(5))) { try await call.value }
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 a body that arrives in single bytes is complete`(kind: TransportKind) async throws {
        let transport = kind.make()
        let body = Data("The quick brown fox".utf8)
        try await self.serving { _ in
            let rest = Locked(Array(body))
            return LoopbackServer.Response(steps: [
                .send(Data("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\r\n".utf8)),
                .sendPieces { rest.withLock { $0.isEmpty ? nil : Data([$0.removeFirst()]) } },
            ])
        } _: { _, url in
            let reply = try await transport.send(HTTPCall(url: url))
            #expect(reply.body == body)
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `Q-07 an endless slow response ends at the deadline`(kind: TransportKind) async throws {
        let clock = VirtualClock()
        let transport = kind.make(clock: clock)
        let gate = Gate<Void>()
        let trickle = (0..<1_000).flatMap { _ -> [LoopbackServer.Response.Step] in
            [.wait { try? await gate.pass() }, .send(Data("x".utf8))]
        }
        try await self.serving { _ in
            let head = Data("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".utf8)
            return LoopbackServer.Response(steps: [.send(head)] + trickle)
        } _: { _, url in
            let call = Task { try await transport.send(HTTPCall(url: url, timeout: .seconds(3600))) }
            await gate.waitForCall(1)
            await clock.waitForSleepers()

            for byte in 1...4 {
                gate.open(byte)
                await gate.waitForCall(byte + 1)
                clock.advance(by: .seconds(10))
            }

            await #expect(throws: HTTPError.transport(.deadlineExceeded(after: .seconds(40)))) { try await call.value }
            #expect(transport.pendingCount == 0)
        }
    }
}

/// A sink that counts pieces.
private struct CountingSink: HTTPSink {
    let pieces = Tally()

    func receive(head: HTTPReply) {}
    func receive(_ bytes: Data) { self.pieces.add() }
}
