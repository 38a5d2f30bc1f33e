import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// Rules for failures: each circumstance has a specified failure, and no limit ends a call early.
extension HTTPTransportConformance {
    static func refusedConnections(_ transport: any HTTPTransport) async throws {
        let (descriptor, port) = try Socket.reservePort()
        defer { if let descriptor { Socket.close(descriptor) } }
        guard let url = URL(string: "http://127.0.0.1:\(port)/") else { return }
        for way in Way.allCases {
            try await self.expect(.notConnected, "without a server, with \(way)") {
                try await self.reply(way, transport, HTTPCall(url: url))
            }
        }
    }

    static func unknownNames(_ transport: any HTTPTransport) async throws {
        guard let url = URL(string: "http://mux-conformance.invalid/") else { return }
        for way in Way.allCases {
            try await self.expect(.notResolved, "with a name under .invalid, with \(way)") {
                try await self.reply(way, transport, HTTPCall(url: url))
            }
        }
    }

    static func otherProtocols(_ transport: any HTTPTransport) async throws {
        let banners = [
            "SSH-2.0-OpenSSH_9.6\r\n", "220 mail ESMTP\r\n", "<html>hello</html>", "\u{15}\u{3}\u{1}\u{0}\u{2}\u{2}F",
        ]
        for banner in banners {
            let text = "with the response \(banner.debugDescription)"
            try await self.expect(.notHTTP, text, transport, self.ending(after: banner))
        }
    }

    static func malformedHeads(_ transport: any HTTPTransport) async throws {
        let heads = [
            "HTTP/1.1 200 OK\r\n folded: 1\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: no name\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-A : blank\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-A: \u{0}\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\nX-A: b\nContent-Length: 0\n\n",
            "HTTP/1.1 103 Early\r\n folded\r\nLink\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 999\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/9.9 200 OK\r\n\r\n",
        ]
        let script: RawServer.Script = { connection in
            while true {
                let request = try connection.readRequest()
                guard let index = Int(request.target.dropFirst()) else {
                    try connection.respond(200, fields: "X-A: b\r\n", "well-formed")
                    continue
                }
                return try connection.write(heads[index])
            }
        }
        try await self.serving(script) { _, base in
            for index in Array(repeating: Array(heads.indices), count: 8).flatMap(\.self) {
                // A malformed head must not harm the next response.
                _ = try await transport.send(HTTPCall(url: try self.url(base, "/well-formed")))
                do {
                    _ = try await transport.send(HTTPCall(url: try self.url(base, "/\(index)")))
                } catch HTTPError.transport(.notHTTP, _) {
                } catch HTTPError.TransportFailure.notHTTP {
                } catch {
                    throw RuleBroken(detail: "after \(heads[index].debugDescription), the call threw \(error)")
                }
            }
        }
    }

    static func missingResponses(_ transport: any HTTPTransport) async throws {
        for byReset in [false, true] {
            let text = "without a byte, then \(byReset ? "RST" : "FIN")"
            try await self.expect(.closedWithoutResponse, text, transport, self.ending(after: "", byReset: byReset))
        }
    }

    static func halfHeads(_ transport: any HTTPTransport) async throws {
        let heads = [
            "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r", "HTTP/1.1 200", "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n",
        ]
        for head in heads {
            for byReset in [false, true] {
                let text = "after \(head.debugDescription), then \(byReset ? "RST" : "FIN")"
                let script = self.ending(after: head, byReset: byReset)
                try await self.expect(.closedWithoutResponse, text, transport, script)
            }
        }
    }

    static func halfBodies(_ transport: any HTTPTransport) async throws {
        for body in ["", "half"] {
            let script = self.ending(after: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n\(body)")
            try await self.servingEach(script) { way, _, url in
                let text = "after \(body.count) of 10 bytes, with \(way)"
                let failure = try await self.expect(.truncated, text) {
                    try await self.reply(way, transport, HTTPCall(url: url))
                }
                guard case .truncated(10, body.count) = failure else {
                    throw RuleBroken(detail: "\(text), the failure has other counts: \(failure)")
                }
            }
        }
    }

    static func halfChunks(_ transport: any HTTPTransport) async throws {
        for body in [
            "", "5", "5\r\nhel", "5\r\nhello", "5\r\nhello\r\n", "5\r\nhello\r\n5\r\nhello\r\n", "5;x=1\r\nhello\r\n0",
        ] {
            let script = self.ending(after: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\(body)")
            try await self.expect(.truncated, "after the chunks \(body.debugDescription)", transport, script)
        }
        for body in [
            "x\r\nhello", "-5\r\nhello\r\n0\r\n\r\n", "5\r\nhelloo\r\n0\r\n\r\n", "fffffffffffffffff\r\nhello",
        ] {
            let script = self.ending(after: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\(body)")
            try await self.checkEachFailure("with the chunks \(body.debugDescription)", transport, script)
        }
    }

    static func resetBodies(_ transport: any HTTPTransport) async throws {
        let heads = ["Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "\r\nhalf"]
        for head in heads {
            let script: RawServer.Script = { connection in
                try connection.readRequest()
                try connection.write("HTTP/1.1 200 OK\r\n\(head)")
                // A reset discards unread bytes, so the script waits until the sink has a piece of the body.
                try connection.waitToProceed()
                connection.resetAtEnd()
            }
            try await self.serving(script) { server, url in
                let sink = WatchedSink(onPiece: { server.proceed() })
                try await self.expect(.truncated, "after \(head.debugDescription), then RST") {
                    try await transport.stream(HTTPCall(url: url), into: sink)
                }
            }
        }
    }

    // MARK: - Time

    /// Expects a call to fail with the given kind and limit, and not before the limit.
    private static func expect(
        _ kind: Kind,
        after limit: Duration,
        _ circumstances: String,
        _ operation: () async throws -> HTTPReply
    ) async throws {
        let time = TimeSource(ContinuousClock())
        var start = time.now
        var failure = try await self.failure(circumstances, operation)
        // On a busy machine the limit may pass before the connection is established, and the failure is then
        // `notConnected`: the call is repeated, at most ten times.
        for _ in 0..<10 {
            guard case .notConnected = failure else { break }
            start = time.now
            failure = try await self.failure(circumstances, operation)
        }
        let took = time.now.duration(since: start)
        // Checks the kind of the failure above, without another call.
        _ = try await self.expect(kind, circumstances) { throw HTTPError.transport(failure) }
        // The tolerance is for transports with a coarse clock. No upper bound is checked: the machine may be
        // busy.
        try self.expect(
            took > limit - .milliseconds(20),
            "\(circumstances), a limit of \(limit) ended the call after \(took)"
        )
        switch failure {
        case .timedOut(limit), .deadlineExceeded(limit): break
        default:
            throw RuleBroken(detail: "\(circumstances), the failure does not have the limit \(limit): \(failure)")
        }
    }

    /// A script: writes a byte of a body every 25 ms until the connection ends.
    ///
    /// The body has no end, because a busy machine may delay the deadline by any time.
    private static func endless(_ connection: inout RawConnection) throws {
        try connection.readRequest()
        try connection.write("HTTP/1.1 200 OK\r\n\r\n")
        while true {
            try connection.write("x")
            try connection.pause(milliseconds: 25)
        }
    }

    /// A script: writes a body of 50 bytes, with one byte every 25 ms.
    private static func slow(_ connection: inout RawConnection) throws {
        try connection.readRequest()
        try connection.write("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n")
        for _ in 0..<50 {
            try connection.write("x")
            try connection.pause(milliseconds: 25)
        }
        connection.waitForEnd()
    }

    static func silence(_ transport: any HTTPTransport) async throws {
        let stages = [
            ("without a response", ""), ("after half a head", "HTTP/1.1 200 OK\r\nConte"),
            ("after a head", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
            ("after half a body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
        ]
        for (stage, bytes) in stages {
            try await self.servingEach(self.silent(after: bytes)) { way, server, url in
                try await self.expect(.timedOut, after: Limits.short, "silent \(stage), with \(way)") {
                    try await self.reply(way, transport, HTTPCall(url: url))
                }
                // On a busy machine the limit may have passed before the server read the request.
                if !server.requests.isEmpty { await server.waitForClosedConnection() }
            }
        }
        // The total time of the server's response exceeds the limit, but each silence is shorter.
        try await self.serving(self.slow) { _, url in
            try self.expect(
                try await transport.send(HTTPCall(url: url, timeout: .seconds(1))),
                200,
                String(repeating: "x", count: 50),
                "from a slow server"
            )
        }
    }

    static func slowResponses(_ transport: any HTTPTransport) async throws {
        try await self.serving(self.endless) { server, url in
            try await self.expect(.deadlineExceeded, after: Limits.short, "from a slow server") {
                try await transport.send(HTTPCall(url: url))
            }
            if !server.requests.isEmpty { await server.waitForClosedConnection() }
        }
        try await self.serving(self.slow) { _, url in
            try self.expect(
                try await self.reply(.stream, transport, HTTPCall(url: url)),
                200,
                String(repeating: "x", count: 50),
                "with stream, without the deadline of the transport"
            )
        }
        // The deadline covers all redirections together.
        let slowly: RawServer.Script = { connection in
            while true {
                try connection.readRequest()
                try connection.pause(milliseconds: 100)
                try connection.write(self.text(302, "Location: /\r\n"))
            }
        }
        try await self.serving(slowly) { _, url in
            try await self.expect(.deadlineExceeded, after: Limits.short, "with slow redirections") {
                try await transport.send(HTTPCall(url: url))
            }
        }
    }

    static func callLimits(_ transport: any HTTPTransport) async throws {
        let limit = Limits.short
        try await self.servingEach(self.silent(after: "")) { way, _, url in
            try await self.expect(.timedOut, after: limit, "with the time-out of the call, with \(way)") {
                try await self.reply(way, transport, HTTPCall(url: url, timeout: limit))
            }
        }
        try await self.servingEach(self.endless) { way, _, url in
            try await self.expect(.deadlineExceeded, after: limit, "with the deadline of the call, with \(way)") {
                try await self.reply(way, transport, HTTPCall(url: url, deadline: limit))
            }
        }
    }
}
