import Foundation
import MuxNetwork
import MuxTesting

/// Rules for responses: the head, the content codings and the framing.
extension HTTPTransportConformance {
    /// Calls `check` with the response of `send`, and then with the response of `stream`.
    private static func checkEachResponse(
        _ transport: any HTTPTransport,
        servedBy script: @escaping RawServer.Script,
        _ check: (HTTPReply) throws -> Void
    ) async throws {
        try await self.servingEach(script) { way, _, url in
            try check(try await self.reply(way, transport, HTTPCall(url: url)))
        }
    }

    static func responsesInPieces(_ transport: any HTTPTransport) async throws {
        let script: RawServer.Script = { connection in
            try connection.readRequest()
            try connection.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
            try connection.waitToProceed()
            try connection.write("abc")
            try connection.waitToProceed()
            try connection.write("def")
            connection.waitForEnd()
        }
        try await self.serving(script) { server, url in
            let sink = WatchedSink(onHead: { server.proceed() }, onPiece: { server.proceed() })
            _ = try await transport.stream(HTTPCall(url: url), into: sink)
            let text = String(decoding: sink.body, as: UTF8.self)
            try self.expect(text == "abcdef", "the sink got \(text)")
            try self.expect(sink.disorder == nil, sink.disorder ?? "")
        }
    }

    static func repeatedFields(_ transport: any HTTPTransport) async throws {
        let cookies = ["a=1; Expires=Wed, 21 Oct 2037 07:28:00 GMT", "b=2; Path=/"]
        let fields = "Set-Cookie: \(cookies[0])\r\nX-Between: 1\r\nset-cookie: \(cookies[1])\r\n"
        try await self.checkEachResponse(transport, servedBy: self.ending(after: self.text(200, fields))) { reply in
            let found = reply.headers.values(of: .setCookie)
            try self.expect(found == cookies, "the cookies are \(found)")
        }
    }

    static func fieldBytes(_ transport: any HTTPTransport) async throws {
        for (bytes, text) in [
            ([0x63, 0xe9] as [UInt8], "cé"), ([0x63, 0xc3, 0xa9], "cé"), ([0xe6, 0x97, 0xa5], "日"),
        ] {
            let script: RawServer.Script = { connection in
                try connection.readRequest()
                try connection.write(Array("HTTP/1.1 200 OK\r\nX-Text: ".utf8) + bytes)
                try connection.write("\r\nContent-Length: 2\r\n\r\nok")
            }
            try await self.checkEachResponse(transport, servedBy: script) { reply in
                try self.expect(reply, 200, "ok", "with the bytes \(bytes) in a field")
                let found = reply.headers["X-Text"] ?? "no text"
                try self.expect(found == text, "the bytes \(bytes) in a field are \(found)")
            }
        }
    }

    static func trailers(_ transport: any HTTPTransport) async throws {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Check\r\n\r\n"
        let body = "5\r\nhello\r\n0\r\nX-Check: abc\r\nX-Count: 5\r\n\r\n"
        try await self.checkEachResponse(transport, servedBy: self.ending(after: head + body)) { reply in
            try self.expect(reply, 200, "hello", "with trailers")
            let found = ["X-Check", "X-Count"].map { reply.trailers[$0] }
            try self.expect(found == ["abc", "5"], "the trailers are \(found.map { $0 ?? "none" })")
            try self.expect(reply.headers["X-Count"] == nil, "a trailer is among the header fields")
        }
    }

    // MARK: - Content codings

    static func unknownCodings(_ transport: any HTTPTransport) async throws {
        for coding in ["x-mux", "gzip, x-mux"] {
            let response = self.text(200, "Content-Encoding: \(coding)\r\n", "as it is")
            try await self.checkEachResponse(transport, servedBy: self.ending(after: response)) { reply in
                try self.expect(reply, 200, "as it is", "with the coding \(coding)")
                let found = reply.headers[.contentEncoding] ?? "no coding"
                try self.expect(found == coding, "the field of the coding \(coding) became \(found)")
            }
        }
    }

    /// A text of 400 bytes: longer than ``Limits/body``, with a shorter gzip encoding.
    private static let plain = String(repeating: "MuxKit conformance. ", count: 20)

    /// The gzip encoding of `plain`.
    private static let gzip = Array(
        Data(base64Encoded: "H4sIAAAAAAACA/MtrfDOLFFIzs9Lyy/KTcxLTtVT8B0VGzAxAMGWavWQAQAA") ?? Data()
    )

    /// A script: writes a response with `bytes` as gzip content.
    private static func gzipped(_ bytes: [UInt8], _ framing: Framing) -> RawServer.Script {
        { connection in
            try connection.readRequest()
            let head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
            switch framing {
            case .length: try connection.write(Array("\(head)Content-Length: \(bytes.count)\r\n\r\n".utf8) + bytes)
            case .chunks:
                try connection.write("\(head)Transfer-Encoding: chunked\r\n\r\n")
                for byte in bytes { try connection.write(Array("1\r\n".utf8) + [byte, 13, 10]) }
                try connection.write("0\r\n\r\n")
            case .end: try connection.write(Array("\(head)\r\n".utf8) + bytes)
            }
        }
    }

    /// Sends a request, and returns whether the transport requests gzip by default.
    ///
    /// A transport that does not request gzip need not decode gzip.
    private static func asksForGzip(_ transport: any HTTPTransport) async throws -> Bool {
        try await self.serving(self.responding { _ in self.text() }) { server, url in
            _ = try await transport.send(HTTPCall(url: url))
            return server.requests.flatMap { $0.values(of: "Accept-Encoding") }.joined().lowercased().contains("gzip")
        }
    }

    private enum Framing: CaseIterable {
        case length
        case chunks
        case end
    }

    static func knownCodings(_ transport: any HTTPTransport) async throws {
        // The caller's `Accept-Encoding` is sent without additions.
        try await self.serving(self.responding { _ in self.text() }) { server, url in
            _ = try await transport.send(HTTPCall(url: url, headers: [.acceptEncoding: "identity"]))
            let found = server.requests.flatMap { $0.values(of: "Accept-Encoding") }
            try self.expect(found == ["identity"], "the server got the codings \(found)")
        }
        guard try await self.asksForGzip(transport) else { return }
        for framing in Framing.allCases {
            try await self.checkEachResponse(transport, servedBy: self.gzipped(self.gzip, framing)) { reply in
                try self.expect(reply, 200, self.plain, "with gzip and the framing \(framing)")
            }
        }
    }

    /// Expects a failure that `isExpected` accepts, from each call with `bytes` as the gzip content.
    ///
    /// Checks nothing for a transport that does not request gzip by default.
    private static func expectFailure(
        _ transport: any HTTPTransport,
        _ bytes: [UInt8],
        _ circumstances: String,
        _ isExpected: (HTTPError.TransportFailure) -> Bool
    ) async throws {
        guard try await self.asksForGzip(transport) else { return }
        for framing in Framing.allCases {
            let text = "\(circumstances) and the framing \(framing)"
            try await self.checkEachFailure(text, transport, self.gzipped(bytes, framing)) { failure in
                try self.expect(isExpected(failure), "\(text), the failure is unexpected: \(failure)")
            }
        }
    }

    static func cutContent(_ transport: any HTTPTransport) async throws {
        for count in [self.gzip.count - 1, self.gzip.count - 8, 30, 5] {
            let bytes = Array(self.gzip.prefix(count))
            try await self.expectFailure(transport, bytes, "with \(count) of \(self.gzip.count) bytes of gzip") {
                failure in
                guard case .truncated = failure else { return false }
                return true
            }
        }
    }

    static func damagedContent(_ transport: any HTTPTransport) async throws {
        var bytes = self.gzip
        bytes[bytes.count - 6] ^= 1
        try await self.expectFailure(transport, bytes, "with a wrong checksum of gzip") { _ in true }
    }

    // MARK: - Framing

    static func interimResponses(_ transport: any HTTPTransport) async throws {
        let interim = [
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nContent-Length: 7\r\n\r\n",
        ]
        for responses in [[interim[0]], [interim[1]], [interim[0], interim[1], interim[1]]] {
            let script = self.ending(after: responses.joined() + self.text(200, "X-Last: 1\r\n", "body"))
            try await self.checkEachResponse(transport, servedBy: script) { reply in
                try self.expect(reply, 200, "body", "after \(responses.count) interim responses")
                try self.expect(reply.headers["X-Last"] == "1", "the fields of the response are missing")
                try self.expect(reply.headers["Link"] == nil, "a field of an interim response is in the response")
            }
        }
    }

    static func responsesWithoutBody(_ transport: any HTTPTransport) async throws {
        let script = self.responding { request in
            switch request.target {
            case "/head": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nX-It: 1\r\n\r\n"
            case "/chunked-head": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-It: 1\r\n\r\n"
            case "/204": "HTTP/1.1 204 No Content\r\nX-It: 1\r\n\r\n"
            case "/304": "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\nX-It: 1\r\n\r\n"
            case "/zero": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-It: 1\r\n\r\n"
            default: self.text(200, "X-It: 2\r\n", "next")
            }
        }
        try await self.servingEach(script) { way, _, base in
            for (target, status) in [
                ("/head", 200), ("/chunked-head", 200), ("/204", 204), ("/304", 304), ("/zero", 200),
            ] {
                let method = target.hasSuffix("head") ? "HEAD" : "GET"
                let call = HTTPCall(method: method, url: try self.url(base, target))
                let reply = try await self.reply(way, transport, call)
                try self.expect(reply, status, "", "asked for \(target)")
                try self.expect(
                    reply.headers["X-It"] == "1",
                    "the response to \(target) has the wrong field X-It: \(reply.headers["X-It"] ?? "none")"
                )
                let next = try await self.reply(way, transport, HTTPCall(url: try self.url(base, "/next")))
                try self.expect(next, 200, "next", "asked after \(target)")
            }
        }
    }

    static func unannouncedBodies(_ transport: any HTTPTransport) async throws {
        let body = String(repeating: "all of it. ", count: 10_000)
        for text in [body, ""] {
            let script = self.ending(after: "HTTP/1.1 200 OK\r\nX-It: 1\r\n\r\n\(text)")
            try await self.checkEachResponse(transport, servedBy: script) {
                try self.expect($0, 200, text, "without a length")
            }
        }
    }

    static func contradictingLengths(_ transport: any HTTPTransport) async throws {
        let fields = [
            "Content-Length: 5\r\nContent-Length: 6", "Content-Length: 6\r\nContent-Length: 5", "Content-Length: 5, 6",
            "Content-Length: five", "Content-Length: -5", "Content-Length: 99999999999999999999999",
        ]
        for fields in fields {
            let script = self.ending(after: "HTTP/1.1 200 OK\r\n\(fields)\r\n\r\nhello")
            try await self.checkEachFailure("with \(fields.debugDescription)", transport, script)
        }
    }

    static func bodyLimit(_ transport: any HTTPTransport) async throws {
        let limit = Limits.body
        let fits = String(repeating: "x", count: limit)
        let chunk = "\(String(limit - 1, radix: 16))\r\n\(fits.dropLast())\r\n"
        try await self.serving(self.ending(after: self.text(200, "", fits))) { _, url in
            try self.expect(try await transport.send(HTTPCall(url: url)), 200, fits, "at the limit")
        }
        var tooLarge: [(String, RawServer.Script)] = [
            (
                "with a length over the limit",
                self.silent(after: "HTTP/1.1 200 OK\r\nContent-Length: \(limit + 1)\r\n\r\n")
            ),
            (
                "with chunks over the limit",
                self.silent(after: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\(chunk)\(chunk)")
            ),
            ("with more than the limit and no length", self.ending(after: "HTTP/1.1 200 OK\r\n\r\n\(fits)x")),
        ]
        if try await self.asksForGzip(transport) {
            tooLarge.append(("with more than the limit after decoding", self.gzipped(self.gzip, .length)))
        }
        for (name, script) in tooLarge {
            try await self.serving(script) { _, url in
                let failure = try await self.expect(.bodyTooLarge, name) {
                    try await transport.send(HTTPCall(url: url))
                }
                guard case .bodyTooLarge(limit) = failure else {
                    throw RuleBroken(detail: "\(name), the failure has a different limit: \(failure)")
                }
            }
        }
        // The limit does not apply to a sink.
        try await self.serving(self.ending(after: self.text(200, "", fits + "x"))) { _, url in
            try self.expect(
                try await self.reply(.stream, transport, HTTPCall(url: url)),
                200,
                fits + "x",
                "with a sink"
            )
        }
    }
}
