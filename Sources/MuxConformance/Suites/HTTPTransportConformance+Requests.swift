import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// Rules for requests: the head, the body and the connection.
extension HTTPTransportConformance {
    static func methods(_ transport: any HTTPTransport) async throws {
        let target = "/a%2Fb/c;d?x=1%202&y=%2B+z&&e"
        let script = self.responding { self.text(200, "X-Method: \($0.method)\r\n") }
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            try await self.servingEach(script) { way, server, base in
                var call = HTTPCall(method: method, url: try self.url(base, target))
                if ["POST", "PUT", "PATCH"].contains(method) { call.body = .data(Data("content".utf8)) }
                let reply = try await self.reply(way, transport, call)
                try self.expect(
                    server.requests.map(\.line) == ["\(method) \(target)"],
                    "the server got \(server.requests.map(\.line)) instead of \(method) \(target)"
                )
                let body = server.requests.first?.body ?? []
                try self.expect(
                    body == Array(call.body?.data ?? Data()),
                    "the server got a wrong body of \(body.count) bytes with \(method)"
                )
                try self.expect(
                    reply.headers["X-Method"] == method,
                    "the response to \(method) has the wrong field X-Method"
                )
            }
        }
    }

    /// The fields of the server's first request with the given lower-case names, each as a line of text.
    private static func received(_ names: Set<String>, by server: RawServer) -> [String] {
        (server.requests.first?.fields ?? []).filter { names.contains($0.name.lowercased()) }
            .map { "\($0.name): \($0.value)" }
    }

    static func requestFields(_ transport: any HTTPTransport) async throws {
        try await self.serving(self.responding { _ in self.text() }) { server, url in
            let headers: HTTPHeaders = [
                "X-One": "1, 2", "X-Two": "a;b=\"c\"", "X-One": "3", "Accept": "x/y", "X-Three": "4",
            ]
            _ = try await transport.send(HTTPCall(url: url, headers: headers))
            let received = self.received(["x-one", "x-two", "x-three", "accept"], by: server)
            let sent = headers.fields.map { "\($0.name.rawValue): \($0.value)" }
            try self.expect(received == sent, "the server got \(received) instead of \(sent)")
        }
    }

    static func emptyFields(_ transport: any HTTPTransport) async throws {
        try await self.serving(self.responding { _ in self.text() }) { server, url in
            let headers: HTTPHeaders = ["X-Empty": "", "X-Blank": " ", "X-Full": "1"]
            _ = try await transport.send(HTTPCall(url: url, headers: headers))
            let received = self.received(["x-empty", "x-blank", "x-full"], by: server).sorted()
            try self.expect(received == ["X-Blank: ", "X-Empty: ", "X-Full: 1"], "the server got \(received)")
        }
    }

    static func emptyBodies(_ transport: any HTTPTransport) async throws {
        for method in ["POST", "PUT", "PATCH", "GET", "DELETE"] {
            for body in [nil, HTTPCall.Body.data(Data())] where method != "GET" || body == nil {
                try await self.serving(self.responding { _ in self.text() }) { server, url in
                    _ = try await transport.send(HTTPCall(method: method, url: url, body: body))
                    let lengths = server.requests.flatMap { $0.values(of: "Content-Length") }
                    let isChunked = server.requests.contains { $0.isChunked }
                    let isExpected = ["POST", "PUT", "PATCH"].contains(method)
                    try self.expect(
                        isExpected ? lengths == ["0"] && !isChunked : lengths.allSatisfy { $0 == "0" },
                        "\(method) with \(body == nil ? "no body" : "an empty body") was sent with "
                            + (isChunked ? "chunks" : "the lengths \(lengths)")
                    )
                }
            }
        }
    }

    /// A body without repeated pieces, so that lost and reordered pieces change the body.
    private static func bytes(_ count: Int) -> Data {
        Data((0..<count).map { UInt8(truncatingIfNeeded: (UInt64($0) &* 2_654_435_761) >> 13) })
    }

    static func largeBodies(_ transport: any HTTPTransport) async throws {
        let body = self.bytes(300_000)
        let script: RawServer.Script = { connection in
            let request = try connection.readRequest()
            try connection.write("HTTP/1.1 200 OK\r\nContent-Length: \(request.body.count)\r\n\r\n")
            try connection.write(request.body)
            connection.waitForEnd()
        }
        for method in ["POST", "PUT"] {
            try await self.servingEach(script) { way, server, url in
                let reply = try await self.reply(
                    way,
                    transport,
                    HTTPCall(method: method, url: url, body: .data(body))
                )
                let received = server.requests.first?.body ?? []
                try self.expect(Data(received) == body, "the server got a wrong body of \(received.count) bytes")
                try self.expect(reply.body == body, "the caller got a wrong body of \(reply.body.count) bytes")
            }
        }
    }

    // MARK: - Streamed bodies

    static func streamedBodies(_ transport: any HTTPTransport) async throws {
        let pieces = (0..<6).map { self.bytes(40_000 + $0) } + [Data(), Data([1])]
        for pieces in [pieces, []] {
            let whole = Data(pieces.joined())
            for length in [whole.count, nil] {
                try await self.serving(self.responding { _ in self.text() }) { server, url in
                    let call = HTTPCall(method: "POST", url: url, body: .pieces(pieces, length: length))
                    _ = try await transport.send(call)
                    let received = server.requests.first
                    try self.expect(
                        server.requests.count == 1 && Data(received?.body ?? []) == whole,
                        "the server got \(received?.body.count ?? 0) of \(whole.count) bytes of a stream"
                    )
                    let lengths = received?.values(of: "Content-Length") ?? []
                    try self.expect(
                        length == nil || lengths == ["\(whole.count)"],
                        "a stream of a known length was sent with the lengths \(lengths)"
                    )
                }
            }
        }
    }

    static func bodiesInPieces(_ transport: any HTTPTransport) async throws {
        let isReceived = Gate<Void>()
        let script: RawServer.Script = { connection in
            _ = try connection.readHead()
            _ = try connection.read(count: 1_000)
            isReceived.open(1)
            _ = try connection.read(count: 1_000)
            try connection.respond()
            connection.waitForEnd()
        }
        try await self.serving(script) { _, url in
            let pieces = BodyPieces { number in
                if number == 1 { try await isReceived.pass() }
                return number < 2 ? Data(count: 1_000) : nil
            }
            let reply = try await transport.send(
                HTTPCall(method: "POST", url: url, body: .stream(.init(length: 2_000) { pieces }))
            )
            try self.expect(reply.status == 200, "the status is \(reply.status)")
        }
    }

    static func slowServers(_ transport: any HTTPTransport) async throws {
        let (size, piece) = (32 << 20, 64 << 10)
        let made = Tally()
        let script: RawServer.Script = { connection in
            _ = try connection.readHead()
            try connection.waitToProceed()
            for _ in 0..<(size / piece) { _ = try connection.read(count: piece) }
            try connection.respond()
            connection.waitForEnd()
        }
        try await self.serving(script) { server, url in
            let pieces = BodyPieces { number in
                guard number < size / piece else { return nil }
                made.add()
                return Data(count: piece)
            }
            let call = HTTPCall(method: "POST", url: url, body: .stream(.init(length: size) { pieces }))
            async let reply = transport.send(call)
            await made.reached(1)
            // No event shows that the transport requests no more pieces, so the check waits for 300 ms.
            for _ in 0..<10 { try await self.waitBriefly() }
            let held = made.value * piece
            try self.expect(held < 8 << 20, "\(held) bytes were made before the server read the first byte")
            server.proceed()
            let status = try await reply.status
            try self.expect(status == 200, "the status is \(status)")
        }
    }

    private struct StreamFailed: Error {}

    static func brokenBodies(_ transport: any HTTPTransport) async throws {
        let piece = Data(count: 1_000)
        let failing = BodyPieces { number in
            guard number < 2 else { throw StreamFailed() }
            return piece
        }
        let bodies: [(String, HTTPCall.Body)] = [
            ("of 2000 bytes that announced 3000", .pieces([piece, piece], length: 3_000)),
            ("of 2000 bytes that announced 1500", .pieces([piece, piece], length: 1_500)),
            ("that announced 3000 bytes and threw after 2000", .stream(.init(length: 3_000) { failing })),
            ("that threw after 2000 bytes", .stream(.init { failing })),
        ]
        for (name, body) in bodies {
            try await self.serving(self.responding { _ in self.text() }) { server, url in
                do {
                    let reply = try await transport.send(HTTPCall(method: "POST", url: url, body: body))
                    throw RuleBroken(detail: "a stream \(name) was sent; the response is \(reply)")
                } catch let error as any ConnectivityError {
                    try self.expect(
                        !error.isConnectivityFailure,
                        "a stream \(name) counts as a lost connection: \(error)"
                    )
                } catch is StreamFailed {}
                try self.expect(server.requests.isEmpty, "the server got a complete request from a stream \(name)")
            }
        }
    }

    static func earlyResponses(_ transport: any HTTPTransport) async throws {
        let piece = Data(count: 64 << 10)
        let pieces = Array(repeating: piece, count: 128)
        let script: RawServer.Script = { connection in
            _ = try connection.readHead()
            try connection.write(self.text(413, "", "too large"))
            connection.waitForEnd()
        }
        let bodies: [HTTPCall.Body] = [
            .data(Data(count: 8 << 20)), .pieces(pieces, length: 8 << 20), .pieces(pieces, length: nil),
        ]
        for body in bodies {
            try await self.serving(script) { _, url in
                let reply = try await transport.send(HTTPCall(method: "POST", url: url, body: body))
                try self.expect(reply, 413, "too large", "with a response before \(body)")
            }
        }
    }

    static func simultaneousBodies(_ transport: any HTTPTransport) async throws {
        let (count, size) = (512, 16 << 10)
        let script: RawServer.Script = { connection in
            _ = try connection.readHead()
            try connection.write("HTTP/1.1 200 OK\r\nContent-Length: \(count * size)\r\n\r\n")
            for _ in 0..<(4 * count) { try connection.write(try connection.read(count: size / 4)) }
            connection.waitForEnd()
        }
        let pieces = BodyPieces { $0 < count ? Data(repeating: UInt8(truncatingIfNeeded: $0), count: size) : nil }
        try await self.serving(script) { _, url in
            let sink = WatchedSink(onPiece: { await Task.yield() })
            let body = HTTPCall.Body.stream(.init(length: count * size) { pieces })
            _ = try await transport.stream(HTTPCall(method: "POST", url: url, body: body), into: sink)
            let received = sink.body
            try self.expect(received.count == count * size, "the sink got \(received.count) bytes of \(count * size)")
            for number in 0..<count {
                let piece = received.dropFirst(number * size).prefix(size)
                try self.expect(
                    piece.allSatisfy { $0 == UInt8(truncatingIfNeeded: number) },
                    "the bytes of the response are out of order at \(number * size)"
                )
            }
        }
    }

    // MARK: - Framing and connections

    static func framingFields(_ transport: any HTTPTransport) async throws {
        try await self.serving(self.responding { _ in self.text() }) { server, url in
            for name in HTTPHeaders.Name.framing.sorted(by: { $0.canonical < $1.canonical }) {
                for value in ["0", "chunked", "close"] {
                    do {
                        let call = HTTPCall(
                            method: "POST",
                            url: url,
                            headers: [name: value],
                            body: .data(Data("x".utf8))
                        )
                        let reply = try await transport.send(call)
                        throw RuleBroken(detail: "\(name): \(value) was sent; the response is \(reply)")
                    } catch HTTPError.preparation {
                    } catch is HTTPError.PreparationFailure {}
                }
            }
            _ = try await transport.send(HTTPCall(url: url))
            let lines = server.requests.map(\.line)
            try self.expect(lines == ["GET /"], "the server got \(lines)")
        }
    }

    static func keptConnections(_ transport: any HTTPTransport) async throws {
        // The server ends each connection right after the first response, or after the second request.
        for (endsBefore, byReset) in [(true, false), (false, false), (false, true)] {
            let script: RawServer.Script = { connection in
                try connection.readRequest()
                try connection.respond()
                if !endsBefore { try connection.readRequest() }
                if byReset { connection.resetAtEnd() }
            }
            try await self.serving(script) { server, base in
                let content = Data("content".utf8)
                let bodies: [(name: String, body: HTTPCall.Body?)] = [
                    ("7 bytes", .data(content)), ("no body", nil), ("no bytes", .data(Data())),
                    ("a stream of 7 bytes", .pieces([content], length: 7)),
                    ("a stream of an unknown length", .pieces([content], length: nil)),
                    ("a stream without pieces", .pieces([], length: nil)),
                    ("100000 bytes", .data(self.bytes(100_000))),
                ]
                for number in 0..<(4 * bodies.count) {
                    let (name, body) = bodies[number % bodies.count]
                    // Opens a connection that the transport may keep for the POST.
                    _ = try? await transport.send(HTTPCall(url: try self.url(base, "/before")))
                    let target = "/\(number)"
                    let call = HTTPCall(method: "POST", url: try self.url(base, target), body: body)
                    let succeeded: Bool
                    do {
                        succeeded = try await transport.send(call).status == 200
                    } catch let error as any ConnectivityError where error.isConnectivityFailure {
                        succeeded = false
                    }
                    let count = server.requests.count { $0.target == target }
                    try self.expect(count <= 1, "a POST with \(name) arrived \(count) times")
                    try self.expect(
                        count == 1 || !succeeded,
                        "a POST with \(name) got a response without arriving at the server"
                    )
                }
            }
        }
    }

    static func manyCalls(_ transport: any HTTPTransport) async throws {
        try await self.serving(self.responding { self.text(200, "X-Target: \($0.target)\r\n", $0.target) }) { _, base in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<200 {
                    group.addTask {
                        let call = HTTPCall(url: try self.url(base, "/\(number)"))
                        let reply = try await self.reply(number % 2 == 0 ? .send : .stream, transport, call)
                        try self.expect(reply, 200, "/\(number)", "asked for /\(number)")
                        try self.expect(reply.headers["X-Target"] == "/\(number)", "a head belongs to another call")
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    static func addresses(_ transport: any HTTPTransport) async throws {
        let script = self.responding { self.text(200, "", $0.values(of: "Host").joined(separator: "|")) }
        // On a machine without the address `::1`, the rule passes without a check.
        guard let probe = try? Socket.listen(on: .ipv6, port: 0, buffers: nil) else { return }
        Socket.close(probe.descriptor)
        try await self.serving(on: .ipv6, script) { _, url in
            let reply = try await transport.send(HTTPCall(url: url))
            try self.expect(reply, 200, "[::1]:\(url.port ?? 0)", "asked for \(url)")
        }
    }
}
