import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

extension HTTPEndpoint {
    fileprivate static let feature = HTTPEndpoint(
        scheme: .https,
        host: "api.domain.com",
        path: "/{resourceid1}/feature/function"
    )
}

@Suite(.standard)
struct HTTPEndpointTests {
    private func text(
        _ path: HTTPPath,
        _ values: [String: String] = [:],
        host: HTTPHost = "h",
        query: HTTPQuery = []
    ) throws -> String {
        try HTTPEndpoint(scheme: .http, host: host, path: path).url(path: values, query: query).absoluteString
    }

    @Test func `G08 a static end point with a path value and a parameter has the expected URL`() throws {
        let url = try HTTPEndpoint.feature.url(path: ["resourceid1": "12345"], query: ["item1": "value1"])

        #expect(url.absoluteString == "https://api.domain.com/12345/feature/function?item1=value1")
    }

    @Test func `G08 a base URL is an end point to which paths and queries are appended`() throws {
        let base = try HTTPEndpoint(try #require(URL(string: "http://h:8080/api/a%2Fb/?v=1%2B1#x")))

        #expect(base.scheme == .http && base.host == "h:8080")
        #expect(try base.url().absoluteString == "http://h:8080/api/a%2Fb/?v=1%2B1")
        let place = base.appending("/users/{id}", query: ["w": "2"])
        #expect(try place.url(path: ["id": "7"]).absoluteString == "http://h:8080/api/a%2Fb/users/7?v=1%2B1&w=2")
        let root = try HTTPEndpoint(try #require(URL(string: "https://h")))
        #expect(try root.url().absoluteString == "https://h/")
        #expect(try root.appending("/a").url().absoluteString == "https://h/a")
        let six = try HTTPEndpoint(try #require(URL(string: "http://[::1]:81/")))
        #expect(try six.appending("/a").url().absoluteString == "http://[::1]:81/a")
    }

    @Test(arguments: [
        "https://h", "https://h/", "https://h/a", "https://h/a/", "https://h/a//b//", "https://h//a",
        "https://h/a:b;c=d,e/f@g", "https://h/%E4/%e4/%C3%A4/a%2Fb", "https://h/a+b/%20/~x", "https://h/(a)!*'$&",
        "https://h:8443/a?b+c=d+e&f=%E4&%20", "https://h/a?x=1&&y&=z&x=2&q=a:b;c/d?e", "http://[::1]:81/a?k",
    ])
    func `CO-30 an end point reproduces its URL`(text: String) throws {
        let url = try HTTPEndpoint(try #require(URL(string: text))).url()
        #expect(url.absoluteString == (text == "https://h" ? "https://h/" : text))
    }

    @Test func `CO-30 an appended path or query leaves the rest of the URL unchanged`() throws {
        let base = try HTTPEndpoint(try #require(URL(string: "https://h/v1/%E4;x//?k=a+b")))
        let place = base.appending("/users/{id}", query: ["w": "a+b"])
        #expect(try place.url(path: ["id": "7"]).absoluteString == "https://h/v1/%E4;x//users/7?k=a+b&w=a%2Bb")
        let empty = try HTTPEndpoint(try #require(URL(string: "https://h/s?")))
        #expect(empty.query.isEmpty)
        #expect(try empty.appending("/", query: ["w": "2"]).url().absoluteString == "https://h/s/?w=2")
        var changed = base
        #expect(changed.query["k"] == "a b")
        changed.query.items[0].value = "c d"
        #expect(try changed.url().absoluteString == "https://h/v1/%E4;x//?k=c%20d")
    }

    @Test(arguments: ["https://h/v1", "https://h/v1/"])
    func `G08 an appended path without a slash is a separate segment`(base: String) throws {
        let base = try HTTPEndpoint(try #require(URL(string: base)))
        let (name, id) = ("users", "a/b")

        #expect(try base.appending("users").url().absoluteString == "https://h/v1/users")
        #expect(try base.appending("/users").url().absoluteString == "https://h/v1/users")
        #expect(try base.appending("\(name)/\(id)").url().absoluteString == "https://h/v1/users/a%2Fb")
        #expect(try base.appending(HTTPPath(segments: [id])).url().absoluteString == "https://h/v1/a%2Fb")
    }

    @Test func `CO-30 a value without its placeholder is an error`() throws {
        #expect(throws: HTTPError.PreparationFailure.unusedPathValue(name: "id")) {
            try self.text("/users", ["id": "7"])
        }
        #expect(throws: HTTPError.PreparationFailure.unusedPathValue(name: "ID")) {
            try self.text("/users/{id}", ["id": "7", "ID": "8"])
        }
    }

    @Test func `CO-30 a JSON object of mixed types can be a literal`() throws {
        let (mixed, _) = try HTTPBody.json(["a": 1, "b": "x", "c": nil, "d": [true]]).encoded()
        #expect(mixed.data.map { String(decoding: $0, as: UTF8.self) } == #"{"a":1,"b":"x","c":null,"d":[true]}"#)
        let (plain, _) = try HTTPBody.json(["a": 1, "b": 2]).encoded()
        #expect(plain.data.map { String(decoding: $0, as: UTF8.self) } == #"{"a":1,"b":2}"#)
    }

    @Test(arguments: ["relative", "ftp://h/", "file:///etc", "http:///p", "http://u@h/", "http://u:p@h/", "mailto:a@b"])
    func `G08 a URL that is not a plain absolute HTTP URL is no end point`(text: String) throws {
        let url = try #require(URL(string: text))
        #expect(throws: HTTPError.PreparationFailure.self) { try HTTPEndpoint(url) }
    }

    @Test func `G09 names with a common prefix are different placeholders`() throws {
        let values = ["id1": "A", "id10": "B", "id": "C"]

        #expect(try self.text("/{id10}/{id1}/{id}", values) == "http://h/B/A/C")
        #expect(try self.text("/id1/id10/{id10}{id1}-{id}", values) == "http://h/id1/id10/BA-C")
    }

    @Test func `G09 a placeholder inside a value is not replaced`() throws {
        #expect(try self.text("/{a}/{b}", ["a": "{b}", "b": "{a}"]) == "http://h/%7Bb%7D/%7Ba%7D")
        #expect(try self.text("/x/\("{a}")") == "http://h/x/%7Ba%7D")
    }

    @Test(arguments: [
        ("a/b", "a%2Fb"), ("../x", "..%2Fx"), ("ü ?#%&+;=", "%C3%BC%20%3F%23%25%26%2B%3B%3D"),
        ("a\r\nb\0", "a%0D%0Ab%00"),
        ("%2e%2e", "%252e%252e"), ("a-._~Z9", "a-._~Z9"), ("...", "..."), ("👩‍🚀", "%F0%9F%91%A9%E2%80%8D%F0%9F%9A%80"),
    ])
    func `G09 a value becomes a single segment regardless of its characters`(value: String, segment: String) throws {
        #expect(try self.text("/p/{id}/q", ["id": value]) == "http://h/p/\(segment)/q")
        #expect(try self.text("/p/\(value)/q") == "http://h/p/\(segment)/q")
        #expect(try self.text(HTTPPath(segments: ["p", value, "q"])) == "http://h/p/\(segment)/q")
    }

    @Test func `G09 the literal text of a path is encoded only where necessary`() throws {
        #expect(try self.text("/v1/a:b@c,d;e=f/") == "http://h/v1/a:b@c,d;e=f/")
        #expect(try self.text("/ü /100%/a?b#c}") == "http://h/%C3%BC%20/100%25/a%3Fb%23c%7D")
        // The slash and the combining accent after the slash are a single `Character`.
        #expect(try self.text("/a/\u{301}b") == "http://h/a/%CC%81b")
    }

    @Test(arguments: ["", ".", ".."])
    func `G09 a value that would change the path's structure is refused`(value: String) {
        let expected = value.isEmpty ? HTTPError.PreparationFailure.emptyPathSegment : .dotPathSegment
        #expect(throws: expected) { try self.text("/a/{id}", ["id": value]) }
        #expect(throws: expected) { try self.text("/a/\(value)") }
        #expect(throws: expected) { try self.text("/a/{id}/b", ["id": value]) }
        #expect(throws: expected) { try self.text(HTTPPath(segments: ["a", value])) }
    }

    @Test(arguments: ["http://h/a/%2E%2e/b", "http://h/a/%2e/b", "http://h/%2E%2E"])
    func `PT-01 an encoded dot segment of a URL is refused`(text: String) throws {
        let place = try HTTPEndpoint(try #require(URL(string: text)))
        #expect(throws: HTTPError.PreparationFailure.dotPathSegment) { try place.url() }
    }

    @Test func `G09 each fault of a path has a separate error`() {
        #expect(throws: HTTPError.PreparationFailure.missingPathValue(name: "id")) {
            try self.text("/{id}", ["ID": "1"])
        }
        for path: HTTPPath in ["/{", "/{}", "/{a/b}", "/{a{b}}", "/a{b"] {
            #expect(throws: HTTPError.PreparationFailure.malformedPlaceholder) {
                try self.text(path, ["a": "1", "b": "2"])
            }
        }
        #expect(throws: HTTPError.PreparationFailure.dotPathSegment) { try self.text("/a/../b") }
        #expect(throws: HTTPError.PreparationFailure.dotPathSegment) { try self.text("/.{a}", ["a": "."]) }
        #expect(throws: HTTPError.PreparationFailure.emptyPathSegment) { try self.text("/a//b") }
    }

    /// A host name of the maximum length, 253 bytes.
    private static let longest =
        String(repeating: String(repeating: "a", count: 63) + ".", count: 3)
        + String(repeating: "a", count: 61)

    @Test(arguments: [
        ("h", "h"), (Self.longest, Self.longest), (Self.longest + ".", Self.longest + "."), ("api:8080", "api:8080"),
        ("api.domain.com", "api.domain.com"), ("127.0.0.1:1", "127.0.0.1:1"),
        ("h:65535", "h:65535"), ("a_b-c", "a_b-c"), ("h.", "h."), ("[::1]", "[::1]"),
        ("[fe80::1.2.3.4]:80", "[fe80::1.2.3.4]:80"),
    ])
    func `G11 a host may have a port`(host: String, authority: String) throws {
        #expect(try self.text("/", host: HTTPHost(host)) == "http://\(authority)/")
        #expect(HTTPHost(host).description == host)
    }

    @Test(
        arguments: [
            ("", .missingHost), (":80", .missingHost), ("h:", .invalidPort), ("h:0", .invalidPort),
            ("h:080", .invalidPort),
            ("h:65536", .invalidPort),
            ("h:99999999999999999999", .invalidPort), ("h:-1", .invalidPort), ("h:8o", .invalidPort),
            ("::1", .missingHost),
            ("a b", .invalidHost), ("a/b", .invalidHost), ("u@h", .userInfo), ("a..b", .invalidHost),
            (".a", .invalidHost),
            ("ü", .invalidHost), ("a?b", .invalidHost), ("a#b", .invalidHost), ("[::1", .invalidHost),
            ("[x]", .invalidHost),
            ("[::1]x", .invalidHost), ("a%41", .invalidHost), ("h\r\n", .invalidHost),
            (String(repeating: "a", count: 64), .invalidHost), (Self.longest + "a", .invalidHost),
            ("a..", .invalidHost),
            (".", .invalidHost),
            ("u:p@h", .userInfo), ("[:]", .invalidHost), ("[]", .invalidHost),
        ] as [(String, HTTPError.PreparationFailure)]
    )
    func `G11 an invalid host is refused with the reason`(host: String, reason: HTTPError.PreparationFailure) {
        #expect(throws: reason) { try self.text("/", host: HTTPHost(host)) }
        #expect(HTTPHost(host).description == "invalid host")
    }

    @Test func `G11 a path without a leading slash and an unsupported scheme are refused with the reason`() throws {
        for path: HTTPPath in ["", "a", "a/b", "\("/a")", "{a}"] {
            #expect(throws: HTTPError.PreparationFailure.pathWithoutSlash) { try self.text(path, ["a": "/"]) }
        }
        let scheme = try #require(HTTPHost.Scheme(rawValue: "ftp"))
        #expect(throws: HTTPError.PreparationFailure.unsupportedScheme(scheme)) {
            try HTTPEndpoint(scheme: scheme, host: "h").url()
        }
        #expect(try self.text("/", host: HTTPHost("h", port: 81)) == "http://h:81/")
        #expect(throws: HTTPError.PreparationFailure.invalidPort) { try self.text("/", host: HTTPHost("h", port: -1)) }
    }
}
