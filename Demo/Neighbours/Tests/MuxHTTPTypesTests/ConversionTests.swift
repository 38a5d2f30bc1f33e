import Foundation
import HTTPTypes
import MuxHTTPTypes
import MuxNetwork
import Testing

struct ConversionTests {
    @Test func `NB-02 100,000 generated messages keep every field, the order and repetitions`() throws {
        var messages = GeneratedMessages(seed: 1)
        for _ in 0..<50_000 {
            let call = try messages.call()
            let request = try HTTPTypes.HTTPRequest(call)
            #expect(request.headerFields.map { "\($0.name.rawName): \($0.value)" } == call.headers.lines)
            let result = try HTTPCall(request, body: call.body)
            #expect(result == call && result.headers.lines == call.headers.lines)

            let reply = messages.reply()
            let response = try HTTPTypes.HTTPResponse(reply)
            #expect(response.status.code == reply.status)
            #expect(response.headerFields.map { "\($0.name.rawName): \($0.value)" } == reply.headers.lines)
            let trailers = try HTTPFields(reply.trailers)
            let sameReply = HTTPReply(response, body: reply.body, trailers: trailers, url: reply.url)
            #expect(sameReply == reply && sameReply.headers.lines == reply.headers.lines)
        }
    }

    @Test func `NB-02 names keep their case, and their fields keep their order`() throws {
        var headers: HTTPHeaders = ["x-B": "1", "X-a": "2"]
        headers.append("3", for: "x-b")
        headers.append("", for: "X-A")
        let fields = try HTTPFields(headers)
        #expect(fields.map(\.name.rawName) == ["x-B", "X-a", "x-b", "X-A"])
        #expect(fields[values: HTTPField.Name("X-B")!] == ["1", "3"])
        #expect(HTTPHeaders(fields).lines == headers.lines)
    }

    @Test func `NB-02 a value that is not valid UTF-8 is read as ISO 8859-1`() throws {
        let name = try #require(HTTPField.Name("X-Name"))
        let fields: HTTPFields = [name: ""]
        var latin = fields
        latin[fields: name] = [HTTPField(name: name, value: [0x4A, 0xF6, 0x72, 0x67])]
        #expect(HTTPHeaders(latin)["X-Name"] == "Jörg")
        latin[fields: name] = [HTTPField(name: name, value: Array("Jörg".utf8))]
        #expect(HTTPHeaders(latin)["X-Name"] == "Jörg")
    }

    @Test func `NB-02 no header compression indexes credentials`() throws {
        var call = HTTPCall(
            url: URL(string: "https://a.example/")!,
            headers: ["X-Key": "1", "authorization": "2", "A": "3"]
        )
        call.credentialHeaders = ["x-key"]
        let request = try HTTPTypes.HTTPRequest(call)
        #expect(request.headerFields.map { $0.indexingStrategy == .disallow } == [true, true, false])
        #expect(try HTTPCall(request).credentialHeaders == ["X-Key", "authorization"])
    }

    @Test(arguments: [
        ("https://a.example", "https", "a.example", "/"),
        ("http://a.example:8080/b%2Fc?d=%20#e", "http", "a.example:8080", "/b%2Fc?d=%20"),
        ("https://[::1]:8443?q", "https", "[::1]:8443", "/?q"),
    ])
    func `NB-02 the parts of the URL`(text: String, scheme: String, authority: String, path: String) throws {
        let request = try HTTPTypes.HTTPRequest(HTTPCall(url: #require(URL(string: text))))
        #expect(request.scheme == scheme)
        #expect(request.authority == authority)
        #expect(request.path == path)
        #expect(try HTTPCall(request).url.absoluteString == "\(scheme)://\(authority)\(path)")
    }

    @Test func `NB-02 a call that swift-http-types cannot represent is an error`() throws {
        let url = try #require(URL(string: "https://a.example/"))
        func error(_ call: HTTPCall) -> HTTPConversionError? {
            #expect(throws: HTTPConversionError.self) { try HTTPTypes.HTTPRequest(call) }
        }
        #expect(error(HTTPCall(method: "A B", url: url)) == .invalidMethod)
        #expect(error(HTTPCall(url: URL(string: "/a")!)) == .invalidURL)
        #expect(error(HTTPCall(url: URL(string: "mailto:a@b.example")!)) == .invalidURL)
        #expect(error(HTTPCall(url: URL(string: "https://a:b@c.example/")!)) == .userInformation)
        for value in ["a\r\nb: c", "a\nb", "a\0", "\u{7F}"] {
            #expect(error(HTTPCall(url: url, headers: ["X-A": value])) == .invalidField(name: "X-A"))
        }
        for name in ["", "a b", ":path", "ü"] {
            let headers: HTTPHeaders = [HTTPHeaders.Name(stringLiteral: name): "1"]
            #expect(error(HTTPCall(url: url, headers: headers)) == .invalidField(name: name))
        }
    }

    @Test func `NB-02 the largest number of fields`() throws {
        var headers = HTTPHeaders([:])
        for _ in 0..<65_534 { headers.append("1", for: "A") }
        #expect(try HTTPFields(headers).count == 65_534)
        headers.append("1", for: "A")
        #expect(throws: HTTPConversionError.tooManyFields(count: 65_535)) { try HTTPFields(headers) }
    }

    @Test(arguments: [-1, 1000, .max])
    func `NB-02 a status that swift-http-types cannot represent is an error`(status: Int) {
        #expect(throws: HTTPConversionError.invalidStatus(status)) {
            try HTTPTypes.HTTPResponse(HTTPReply(status: status))
        }
    }

    @Test(arguments: [
        ("https", "good.example", ".evil.example/", HTTPConversionError.invalidURL),
        ("https", "good.example", "@evil.example/", .invalidURL),
        ("https", "good.example", "", .invalidURL),
        ("https", "good.example", "*", .invalidURL),
        ("https", "good.example/", "/a", .invalidURL),
        ("https", "good.example?", "/a", .invalidURL),
        ("https", "", "/a", .invalidURL),
        ("https", "good.example", "/a#b", .invalidURL),
        ("https", "good.example", "/a b", .invalidURL),
        ("https", "good.example", "/%zz", .invalidURL),
        ("https", "user@good.example", "/a", .userInformation),
        ("", "good.example", "/a", .invalidURL),
    ])
    func `NB-02 a request whose parts are not the parts of a URL is an error`(
        scheme: String,
        authority: String,
        path: String,
        error: HTTPConversionError
    ) {
        let request = HTTPTypes.HTTPRequest(method: .get, scheme: scheme, authority: authority, path: path)
        #expect(throws: error) { try HTTPCall(request) }
    }

    @Test func `NB-02 a request without a URL is an error`() {
        let none = HTTPTypes.HTTPRequest(method: .get, scheme: nil, authority: nil, path: "/")
        let tunnel = HTTPTypes.HTTPRequest(method: .connect, scheme: "https", authority: "a.example", path: "/")
        let all = HTTPTypes.HTTPRequest(method: .options, scheme: "https", authority: "a.example", path: "*")
        for request in [none, tunnel, all] {
            #expect(throws: HTTPConversionError.invalidURL) { try HTTPCall(request) }
        }
    }
}

extension HTTPHeaders {
    /// The fields, as on the wire.
    fileprivate var lines: [String] { self.fields.map { "\($0.name.rawValue): \($0.value)" } }
}
