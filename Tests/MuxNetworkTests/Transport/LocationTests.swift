import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// URL references of servers, compared with the requests of `curl -L` 7.88.1 to the same server.
@Suite(.standard)
struct LocationTests {
    /// A `Location` and the request targets that follow it, from `/base/start?s`.
    struct Row: Sendable, CustomTestStringConvertible {
        var location: [UInt8]
        /// The target that this library requests.
        var target: String
        /// The target that curl requests, as measured.
        ///
        /// curl leaves most illegal characters unchanged, and writes a space in a query as `+`.
        var curl: String

        init(_ location: String, _ target: String, curl: String? = nil) {
            self.init(bytes: Array(location.utf8), target, curl: curl)
        }

        init(bytes: [UInt8], _ target: String, curl: String? = nil) {
            (self.location, self.target, self.curl) = (bytes, target, curl ?? target)
        }

        var testDescription: String { String(decoding: self.location, as: UTF8.self) }
    }

    static let rows = [
        Row("/a%20b c", "/a%20b%20c"),
        Row(
            "/plain?sig=ab%2Bcd%2F= &x=a b",
            "/plain?sig=ab%2Bcd%2F=%20&x=a%20b",
            curl: "/plain?sig=ab%2Bcd%2F=+&x=a+b"
        ),
        Row("/caf%C3%A9/café", "/caf%C3%A9/caf%C3%A9", curl: "/caf%C3%A9/caf%c3%a9"),
        Row("/a|b%7C", "/a%7Cb%7C", curl: "/a|b%7C"),
        Row("/{x}%7By%7D", "/%7Bx%7D%7By%7D", curl: "/{x}%7By%7D"),
        Row("/a b", "/a%20b"),
        Row("/a%20b", "/a%20b"),
        Row("?q=%20 ", "/base/start?q=%20"),
        Row("/%zz a", "/%25zz%20a", curl: "/%zz%20a"),
        Row("/100%/x%2", "/100%25/x%252", curl: "/100%/x%2"),
        Row(bytes: Array("/caf".utf8) + [0xe9], "/caf%E9", curl: "/caf%e9"),
        Row(
            bytes: Array("/caf".utf8) + [0xc3, 0xa9] + Array("?n=%20 ".utf8) + [0xe9],
            "/caf%C3%A9?n=%20%20%E9",
            curl: "/caf%c3%a9?n=%20+%e9"
        ),
        Row("/a\\b", "/a%5Cb", curl: "/a\\b"),
        Row("/\"q\"<t>`^", "/%22q%22%3Ct%3E%60%5E", curl: "/\"q\"<t>`^"),
        Row("/a[1]?b[]=%5B", "/a%5B1%5D?b%5B%5D=%5B", curl: "/a[1]?b[]=%5B"),
        Row("a/../b/./c d", "/base/b/c%20d"),
        Row("../up", "/up"),
        Row("?only", "/base/start?only"),
        Row("/p?x#f g", "/p?x"),
        Row("//HOST/p%20q r", "/p%20q%20r"),
        Row("http://HOST/abs%2Fx y", "/abs%2Fx%20y"),
        Row("http://HOST?q", "/?q"),
        Row("/a;p=1,2:3@4", "/a;p=1,2:3@4"),
        Row("/q?a=b?c/d", "/q?a=b?c/d"),
        Row("g;x=1/../y", "/base/y"),
        Row("/..//x", "//x"),
        Row("/x?a+b=%2B", "/x?a+b=%2B"),
        // curl refuses a tab, and loses the end of the path here.
        Row("/t\tx%20", "/t%09x%20"),
        Row("#part", "/base/start?s"),
    ]

    /// A common form: illegal characters encoded, escapes in upper case, and a space in a query as an escape.
    private static func comparable(_ target: String) -> String {
        let parts = target.split(separator: "?", maxSplits: 1).map { part in
            PercentEncoding.encodeIllegal(part.utf8) { byte in
                byte == UInt8(ascii: "/") || byte == UInt8(ascii: "?") || PercentEncoding.isPathByte(byte)
            }
        }
        let query = parts.dropFirst().map { $0.replacingOccurrences(of: "+", with: "%20") }
        return PercentEncoding.normalized(([parts[0]] + query).joined(separator: "?"))
    }

    @Test(arguments: Self.rows)
    func `WR-03 a location leads to the same target as with curl`(row: Row) async throws {
        let targets = Locked<[String]>([])
        let server = LoopbackServer { request in
            targets.withLock { $0.append(request.target) }
            guard request.target == "/base/start?s", targets.withLock({ $0.count }) == 1 else { return .text("here") }
            let host = request.header("Host") ?? ""
            let text = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
            let parts = row.location.split(separator: Array("HOST".utf8), omittingEmptySubsequences: false)
            let location = Array(parts.joined(separator: Array(host.utf8)))
            return LoopbackServer.Response(steps: [.send(Data(text.utf8 + location + "\r\n\r\n".utf8))])
        }
        let url = try #require(URL(string: "base/start?s", relativeTo: server.start())?.absoluteURL)

        let reply = try await SystemTransport().send(HTTPCall(url: url))
        await server.stop()

        #expect(targets.withLock { $0 } == ["/base/start?s", row.target])
        #expect(reply.body == Data("here".utf8))
        #expect(Self.comparable(row.target) == Self.comparable(row.curl))
    }

    @Test(arguments: [
        "http://ho st/", "http://ho|st/a", "//a\\b/", "http://[::1/", "http://a\"b/", "http://<a>/", "http://a{b}/", "",
        " ",
        "http://", "http:///x", "//", "http://a\u{7f}/", "http://\u{fffd}/", "http:rel",
    ])
    func `WR-03 a location without a legal host is not followed`(location: String) throws {
        var redirects = HTTPRedirects(HTTPCall(url: try #require(URL(string: "http://a/b"))))

        #expect(try redirects.next(after: HTTPReply(status: 302, headers: [.location: location])) == nil)
    }

    @Test func `WR-03 references resolve as in the examples of RFC 3986, section 5.4`() throws {
        let base = try #require(URL(string: "http://a/b/c/d;p?q"))
        let response = HTTPResponse(request: HTTPCall(url: base), status: .ok)
        let examples = [
            "g:h": "g:h", "g": "http://a/b/c/g", "./g": "http://a/b/c/g", "g/": "http://a/b/c/g/", "/g": "http://a/g",
            "//g": "http://g", "?y": "http://a/b/c/d;p?y", "g?y": "http://a/b/c/g?y", "#s": "http://a/b/c/d;p?q#s",
            "g#s": "http://a/b/c/g#s", "g?y#s": "http://a/b/c/g?y#s", ";x": "http://a/b/c/;x",
            "g;x": "http://a/b/c/g;x",
            "g;x?y#s": "http://a/b/c/g;x?y#s", ".": "http://a/b/c/", "./": "http://a/b/c/", "..": "http://a/b/",
            "../": "http://a/b/", "../g": "http://a/b/g", "../..": "http://a/", "../../": "http://a/",
            "../../g": "http://a/g", "../../../g": "http://a/g", "../../../../g": "http://a/g", "/./g": "http://a/g",
            "/../g": "http://a/g", "g.": "http://a/b/c/g.", ".g": "http://a/b/c/.g", "g..": "http://a/b/c/g..",
            "..g": "http://a/b/c/..g", "./../g": "http://a/b/g", "./g/.": "http://a/b/c/g/",
            "g/./h": "http://a/b/c/g/h",
            "g/../h": "http://a/b/c/h", "g;x=1/./y": "http://a/b/c/g;x=1/y", "g;x=1/../y": "http://a/b/c/y",
            "g?y/./x": "http://a/b/c/g?y/./x", "g#s/../x": "http://a/b/c/g#s/../x", "http:g": "http:g",
            // Additional examples.
            "a b:1": "http://a/b/c/a%20b:1", "http://x": "http://x", "g#a%20b c": "http://a/b/c/g#a%20b%20c",
            "http://x:8080/a%2fb c": "http://x:8080/a%2fb%20c", "http://[::1]:8080/a b": "http://[::1]:8080/a%20b",
        ]
        for (link, url) in examples { #expect(response.url(of: link)?.absoluteString == url, "\(link)") }
        let bare = HTTPResponse(request: HTTPCall(url: try #require(URL(string: "http://a"))), status: .ok)
        #expect(bare.url(of: "g")?.absoluteString == "http://a/g")
        #expect(bare.url(of: "?y")?.absoluteString == "http://a?y")
    }

    @Test func `WR-03 a random reference is nil or a legal URL that resolves to itself`() throws {
        let base = try #require(URL(string: "http://a/b?c"))
        let response = HTTPResponse(request: HTTPCall(url: base), status: .ok)
        var random = SplitMix64(state: 3)
        let alphabet = Array("ab/?#%:@[]{}|\\\" <>^`é\u{7f}\t2F.;=&+-_~\u{0}😀".unicodeScalars)
        var urls = 0
        for _ in 0..<20_000 {
            var text = ["", "http://", "//", "/", "https://h/"].randomElement(using: &random) ?? ""
            for _ in 0..<Int.random(in: 0...10, using: &random) {
                text.unicodeScalars.append(alphabet.randomElement(using: &random) ?? "a")
            }
            guard let url = response.url(of: text) else { continue }
            urls += 1
            #expect(url.absoluteString.utf8.allSatisfy { (33...126).contains($0) }, "\(text)")
            #expect(response.url(of: url.absoluteString) == url, "\(text)")
        }
        #expect(urls > 10_000)
    }

    @Test func `WR-03 media follow a signed location`() async throws {
        let file = LoopbackServer.File(size: 1000)
        let world = try MediaWorld(
            file,
            answer: { request in
                if request.target == "/s%20x%20y?sig=ab%2Bcd%2F=%20" { return nil }
                let isFirst = request.path == "/picture.jpg"
                return LoopbackServer.Response(
                    status: isFirst ? 302 : 403,
                    headers: ["Location": "/s%20x y?sig=ab%2Bcd%2F=%20"]
                )
            }
        )
        try await world.run { (world) async throws in
            #expect(try Data(contentsOf: await world.media().request(url: world.url)) == file.content)
        }
    }

    @Test(arguments: ["Location", "Content-Location"])
    func `WR-03 a change may name its resource with an escape and an illegal character`(name: String) async throws {
        let world = CachingWorld()
        let url = try #require(URL(string: "http://example.org/a%20b%20c?s=%2B"))
        let (cache, server) = world.cache { call in
            guard call.method == "GET" else {
                return HTTPReply(status: 201, headers: [.init(stringLiteral: name): "/a%20b c?s=%2B"])
            }
            return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=100"], body: Data("x".utf8))
        }
        _ = try await cache.send(HTTPCall(url: url))
        _ = try await cache.send(HTTPCall(url: url))
        #expect(server.calls.count == 1)

        _ = try await cache.send(world.call("POST"))
        _ = try await cache.send(HTTPCall(url: url))

        #expect(server.calls.count == 3)
    }

    @Test func `WR-03 a response to POST is stored under its Content-Location`() async throws {
        let world = CachingWorld()
        let url = try #require(URL(string: "http://example.org/a%20b%20c"))
        let (cache, server) = world.cache { _ in
            HTTPReply(
                status: 200,
                headers: ["Cache-Control": "max-age=100", "Content-Location": "/a%20b c"],
                body: Data("x".utf8)
            )
        }
        _ = try await cache.send(HTTPCall(method: "POST", url: url))

        _ = try await cache.send(HTTPCall(url: url))

        #expect(server.calls.count == 1)
    }

    @Test func `WR-03 a redirect URI may have an escape and an illegal character`() throws {
        let endpoint = try #require(URL(string: "https://server.example.com/authorize"))
        let authorization = try #require(
            OAuthAuthorization(
                endpoint: endpoint,
                client: OAuthClient(id: "c"),
                redirectURI: "https://app.example/a%20b c"
            )
        )
        let callback = try #require(
            URL(string: "https://app.example/a%20b%20c?code=x&state=\(authorization.state)")
        )

        #expect(try authorization.code(from: callback) == "x")
    }
}
