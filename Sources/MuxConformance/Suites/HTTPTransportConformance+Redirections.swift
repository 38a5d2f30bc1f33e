import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// Rules for redirections, as specified in `HTTPRedirects`.
extension HTTPTransportConformance {
    /// A script: redirects targets that begin with `/start` to `location`, and responds to others with "end".
    ///
    /// If `location` is `nil`, the redirection has no `Location` field.
    private static func redirecting(
        _ status: Int,
        to location: String? = "/end",
        _ body: String = ""
    ) -> RawServer.Script {
        self.responding { request in
            guard request.target.hasPrefix("/start") else {
                return self.text(200, "", request.method == "HEAD" ? "" : "end")
            }
            let fields = location.map { "Location: \($0)\r\n" } ?? ""
            return self.text(status, fields, request.method == "HEAD" ? "" : body)
        }
    }

    static func redirectedPosts(_ transport: any HTTPTransport) async throws {
        for status in [301, 302, 303] {
            try await self.servingEach(self.redirecting(status)) { way, server, base in
                let call = HTTPCall(
                    method: "POST",
                    url: try self.url(base, "/start"),
                    headers: ["Content-Type": "text/plain", "Content-Language": "en", "X-Other": "1"],
                    body: .data(Data("content".utf8))
                )
                let reply = try await self.reply(way, transport, call)
                let lines = server.requests.map(\.line)
                try self.expect(lines == ["POST /start", "GET /end"], "after \(status), the server got \(lines)")
                try self.expect(reply, 200, "end", "after \(status)")
                try self.expect(
                    reply.url?.path() == "/end",
                    "after \(status), the response is from \(reply.url?.path() ?? "")"
                )
                let last = server.requests.last
                let left = ["Content-Type", "Content-Language", "Content-Length", "Transfer-Encoding"].filter {
                    last?.values(of: $0) != []
                }
                try self.expect(left == [], "after \(status), the GET still has \(left)")
                try self.expect(last?.body == [], "after \(status), the GET still has a body")
                try self.expect(last?.values(of: "X-Other") == ["1"], "after \(status), a field was lost")
            }
        }
    }

    static func redirectedMethods(_ transport: any HTTPTransport) async throws {
        let cases: [(status: Int, method: String, then: String)] = [
            (301, "PUT", "PUT"), (302, "PUT", "PUT"), (303, "PUT", "GET"), (301, "DELETE", "DELETE"),
            (302, "DELETE", "DELETE"), (303, "DELETE", "GET"), (302, "PATCH", "PATCH"), (303, "PATCH", "GET"),
            (301, "HEAD", "HEAD"), (302, "HEAD", "HEAD"), (303, "HEAD", "HEAD"), (307, "HEAD", "HEAD"),
            (308, "HEAD", "HEAD"), (301, "GET", "GET"), (303, "GET", "GET"), (307, "GET", "GET"), (308, "GET", "GET"),
        ]
        for (status, method, then) in cases {
            try await self.serving(self.redirecting(status)) { server, base in
                var call = HTTPCall(method: method, url: try self.url(base, "/start"))
                if ["PUT", "PATCH"].contains(method) { call.body = .data(Data("content".utf8)) }
                let reply = try await transport.send(call)
                let lines = server.requests.map(\.line)
                try self.expect(
                    lines == ["\(method) /start", "\(then) /end"],
                    "after \(status), the server got \(lines) instead of \(method) and \(then)"
                )
                try self.expect(reply, 200, then == "HEAD" ? "" : "end", "after \(status)")
                let expected = method == then ? Data(call.body?.data ?? Data()) : Data()
                let body = Data(server.requests.last?.body ?? [])
                try self.expect(
                    body == expected,
                    "after \(status), \(then) has a body of \(body.count) bytes instead of \(expected.count)"
                )
            }
        }
    }

    private static func resend(_ transport: any HTTPTransport, _ bodies: [HTTPCall.Body], _ whole: Data) async throws {
        for status in [307, 308] {
            for method in ["POST", "PUT"] {
                for body in bodies {
                    try await self.serving(self.redirecting(status)) { server, base in
                        let call = HTTPCall(
                            method: method,
                            url: try self.url(base, "/start"),
                            headers: ["Content-Type": "x/y"],
                            body: body
                        )
                        let reply = try await transport.send(call)
                        let lines = server.requests.map(\.line)
                        try self.expect(
                            lines == ["\(method) /start", "\(method) /end"],
                            "after \(status), the server got \(lines)"
                        )
                        try self.expect(reply, 200, "end", "after \(status)")
                        let sent = server.requests.map(\.body.count)
                        try self.expect(
                            server.requests.allSatisfy { Data($0.body) == whole },
                            "after \(status), the bodies of \(method) have \(sent) bytes instead of \(whole.count) each"
                        )
                        try self.expect(
                            server.requests.last?.values(of: "Content-Type") == ["x/y"],
                            "after \(status), the second \(method) has no Content-Type"
                        )
                    }
                }
            }
        }
    }

    static func resentBodies(_ transport: any HTTPTransport) async throws {
        for size in [10, 200_000] {
            let whole = Data(count: size)
            try await self.resend(transport, [.data(whole)], whole)
        }
    }

    static func resentStreams(_ transport: any HTTPTransport) async throws {
        for size in [10, 100_000] {
            let pieces = [Data(count: size), Data([1, 2, 3])]
            let bodies: [HTTPCall.Body] = [.pieces(pieces, length: size + 3), .pieces(pieces, length: nil)]
            try await self.resend(transport, bodies, Data(pieces.joined()))
        }
    }

    static func redirectionBodies(_ transport: any HTTPTransport) async throws {
        for size in [10, 1_000_000] {
            let script = self.redirecting(302, String(repeating: "moved ", count: size / 6))
            try await self.servingEach(script) { way, _, base in
                let call = HTTPCall(url: try self.url(base, "/start"))
                let reply = try await self.reply(way, transport, call)
                try self.expect(reply, 200, "end", "after a redirection with \(size) bytes")
                try self.expect(reply.headers[.location] == nil, "the head is the head of the redirection")
            }
        }
    }

    static func unusableLocations(_ transport: any HTTPTransport) async throws {
        for status in [301, 302, 303, 307, 308] {
            for location in [nil, "", "http:///nowhere", "http://[::1"] {
                let script = self.redirecting(status, to: location, "moved")
                try await self.servingEach(script) { way, server, base in
                    let call = HTTPCall(method: "POST", url: try self.url(base, "/start"), body: .data(Data([1])))
                    let reply = try await self.reply(way, transport, call)
                    let text = "after \(status) with \(location.map { "the Location \"\($0)\"" } ?? "no Location")"
                    try self.expect(reply, status, "moved", text)
                    let count = server.requests.count
                    try self.expect(count == 1, "\(text), the server got \(count) requests")
                }
            }
        }
    }

    static func otherRedirections(_ transport: any HTTPTransport) async throws {
        for status in [300, 304, 305, 306, 201, 400] {
            let body = status == 304 ? "" : "here"
            try await self.servingEach(self.redirecting(status, body)) { way, server, base in
                let reply = try await self.reply(way, transport, HTTPCall(url: try self.url(base, "/start")))
                try self.expect(reply, status, body, "after \(status)")
                try self.expect(reply.headers[.location] == "/end", "after \(status), there is no Location")
                let count = server.requests.count
                try self.expect(count == 1, "after \(status), the server got \(count) requests")
            }
        }
    }

    static func relativeLocations(_ transport: any HTTPTransport) async throws {
        let cases: [(location: String, target: String, fragment: String)] = [
            ("c?y", "/start/c?y", "top"), ("../d", "/d", "top"), ("?z=1%2F", "/start/b?z=1%2F", "top"),
            ("/e#own", "/e", "own"), ("./f%20g", "/start/f%20g", "top"),
        ]
        for (location, target, fragment) in cases {
            let script = self.responding { request in
                guard request.target == "/start/b?x" else { return self.text(200, "", "end") }
                return self.text(302, "Location: \(location)\r\n")
            }
            try await self.serving(script) { server, base in
                let reply = try await transport.send(HTTPCall(url: try self.url(base, "/start/b?x#top")))
                let targets = server.requests.map(\.target)
                try self.expect(
                    targets == ["/start/b?x", target],
                    "with the Location \(location), the server got \(targets)"
                )
                let url = reply.url?.absoluteString ?? "no URL"
                try self.expect(
                    url == "\(base.absoluteString)\(target)#\(fragment)",
                    "with the Location \(location), the response is from \(url)"
                )
            }
        }
    }

    // MARK: - Other origins

    static func credentials(_ transport: any HTTPTransport) async throws {
        let secrets = ["Authorization", "Cookie", "X-Api-Key", "X-Own-Token"]
        for status in [302, 307] {
            let home = Locked("")
            try await self.serving(
                self.responding { request in
                    guard request.target == "/away" else { return self.text(200, "", "end") }
                    return self.text(status, "Location: \(home.withLock { $0 })/back\r\n")
                }
            ) { away, awayURL in
                try await self.serving(
                    self.responding { request in
                        switch request.target {
                        case "/start": self.text(status, "Location: /kept\r\n")
                        case "/kept": self.text(status, "Location: \(awayURL.absoluteString)/away\r\n")
                        default: self.text(200, "", "end")
                        }
                    }
                ) { server, base in
                    home.withLock { $0 = base.absoluteString }
                    var call = HTTPCall(url: try self.url(base, "/start"), headers: ["X-Harmless": "1"])
                    for name in secrets { call.headers.append("secret", for: HTTPHeaders.Name(stringLiteral: name)) }
                    call.credentialHeaders = ["x-own-token"]
                    let reply = try await transport.send(call)
                    try self.expect(reply, 200, "end", "after \(status)")

                    let requests = [server.requests.prefix(2), away.requests[...], server.requests.dropFirst(2)]
                    let found = requests.joined().map { request in secrets.filter { request.values(of: $0) != [] } }
                    try self.expect(found.count == 4, "the servers got \(found.count) requests instead of 4")
                    try self.expect(found[1] == secrets, "at the same port, only \(found[1]) were sent again")
                    try self.expect(found[2] == [], "\(found[2]) were sent to another port")
                    try self.expect(found[3] == [], "\(found[3]) were sent again after a return")
                    let kept = away.requests.first?.values(of: "X-Harmless") == ["1"]
                    try self.expect(kept, "a field without credentials was not sent to another port")
                }
            }
        }
    }

    static func bodiesForOthers(_ transport: any HTTPTransport) async throws {
        let bodies: [HTTPCall.Body] = [
            .data(Data([1])), .pieces([Data([1])], length: 1), .pieces([Data([1])], length: nil),
        ]
        for (status, method) in [(307, "POST"), (308, "POST"), (301, "PUT"), (302, "PUT"), (307, "PATCH")] {
            for body in bodies {
                try await self.serving(self.responding { _ in self.text() }) { other, otherURL in
                    try await self.serving(self.redirecting(status, to: "\(otherURL.absoluteString)/")) { _, base in
                        let call = HTTPCall(method: method, url: try self.url(base, "/start"), body: body)
                        let text = "after \(status) to another port"
                        let failure = try await self.expect(.redirectRefused, text) { try await transport.send(call) }
                        guard case .redirectRefused(.carriesBody) = failure else {
                            throw RuleBroken(detail: "\(text), the reason is unexpected: \(failure)")
                        }
                        try self.expect(other.requests.isEmpty, "\(text), the other port got a request")
                    }
                }
            }
        }
    }

    static func foreignSchemes(_ transport: any HTTPTransport) async throws {
        for location in ["ftp://127.0.0.1/x", "file:///etc/hostname", "data:,x", "unknown:x"] {
            try await self.serving(self.redirecting(302, to: location)) { _, base in
                let call = HTTPCall(url: try self.url(base, "/start"))
                let text = "with the Location \(location)"
                let failure = try await self.expect(.redirectRefused, text) { try await transport.send(call) }
                guard case .redirectRefused(.unknownScheme) = failure else {
                    throw RuleBroken(detail: "\(text), the reason is unexpected: \(failure)")
                }
            }
        }
    }

    static func redirectionLimit(_ transport: any HTTPTransport) async throws {
        let limit = Limits.redirections
        let script = self.responding { request in
            let left = Int(request.target.dropFirst()) ?? 0
            return left == 0 ? self.text(200, "", "end") : self.text(302, "Location: /\(left - 1)\r\n")
        }
        try await self.serving(script) { _, base in
            let reply = try await transport.send(HTTPCall(url: try self.url(base, "/\(limit)")))
            try self.expect(reply, 200, "end", "after \(limit) redirections")
        }
        try await self.serving(script) { server, base in
            let call = HTTPCall(url: try self.url(base, "/\(limit + 1)"))
            let text = "after one redirection more than \(limit)"
            let failure = try await self.expect(.redirectRefused, text) { try await transport.send(call) }
            guard case .redirectRefused(.tooMany(limit)) = failure else {
                throw RuleBroken(detail: "\(text), the reason is unexpected: \(failure)")
            }
            let count = server.requests.count
            try self.expect(count == limit + 1, "\(text), the server got \(count) requests instead of \(limit + 1)")
        }
    }
}
