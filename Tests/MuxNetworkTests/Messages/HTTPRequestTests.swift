import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct HTTPRequestTests {
    private struct Minimal: HTTPRequest {
        var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/users/{id}") }
        var method: HTTPMethod { .get }
    }

    private struct User: Codable, Sendable, Equatable {
        var name: String
        var age: Int
    }

    private struct GetUser: HTTPRequest {
        var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/users/{id}") }
        var method: HTTPMethod { .get }
        typealias Output = User
    }

    private struct DeleteUser: HTTPCommand {
        var endpoint: HTTPEndpoint { .init(host: "h", path: "/users/{id}") }
        var method: HTTPMethod { .delete }
    }

    private let client = HTTPClient(transport: ScriptedTransport([]))

    @Test func `G12 a request needs only two members`() async throws {
        let transport = ScriptedTransport([], thereafter: .json(#"{"name":"A","age":3}"#))
        let client = HTTPClient(transport: transport)

        let data = try await client.output(of: Minimal(), path: ["id": "1"])
        let user = try await client.output(of: GetUser(), path: ["id": "2"])
        try await client.execute(DeleteUser(), path: ["id": "3"])

        #expect(data == Data(#"{"name":"A","age":3}"#.utf8))
        #expect(user == User(name: "A", age: 3))
        #expect(
            transport.calls.map { "\($0.method) \($0.url.absoluteString)" } == [
                "GET https://api.domain.com/users/1", "GET https://api.domain.com/users/2", "DELETE https://h/users/3",
            ]
        )
        #expect(transport.calls.map(\.body) == [nil, nil, nil])
    }

    @Test(arguments: ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "PURGE"])
    func `G13 the server receives the method of the request`(name: String) async throws {
        let method = try #require(HTTPMethod(rawValue: name))
        let seen = Tapped()
        let server = LoopbackServer { request in
            seen.add("\(request.method) \(String(decoding: request.body, as: UTF8.self))")
            return LoopbackServer.Response(status: 204)
        }
        let base = try HTTPEndpoint(try server.start())

        let ask = Ask { ask in
            ask.endpoint = base
            ask.method = method
            ask.body = method.allowsBody ? .text("x") : nil
        }
        _ = try await HTTPClient().execute(ask)
        await server.stop()

        #expect(seen.all == ["\(name) \(method.allowsBody ? "x" : "")"])
    }

    @Test func `G14 every part of a request is sent`() throws {
        let call = try self.client.call(
            for: Ask { ask in
                ask.endpoint = HTTPEndpoint(scheme: .http, host: "h", path: "/{a}/{b}", query: ["v": "1"])
                ask.method = .post
                ask.pathValues = ["a": "own", "b": "B"]
                ask.queryItems = ["w": "2"]
                ask.headers = ["X-A": "1", "x-a": "2"]
                ask.body = .text("body")
                ask.timeout = .seconds(3)
            },
            path: ["a": "given"]
        )

        #expect(call.url.absoluteString == "http://h/given/B?v=1&w=2")
        #expect(call.headers["X-A"] == "1, 2")
        #expect(call.headers["Content-Type"] == "text/plain; charset=utf-8")
        #expect(call.body?.data == Data("body".utf8))
        #expect(call.timeout == .seconds(3))
        #expect(call.method == "POST")
    }

    @Test func `G14 a request without a time-out has the client's time-out`() throws {
        var configuration = HTTPClient.Configuration()
        configuration.transport.timeout = .seconds(7)

        #expect(try self.client.call(for: Ask()).timeout == .seconds(20))
        #expect(try HTTPClient(configuration: configuration).call(for: Ask()).timeout == .seconds(7))
    }

    @Test func `G15 an Encodable is sent as JSON`() throws {
        let user = User(name: "ü/\"", age: 5)

        let call = try self.client.call(
            for: Ask {
                $0.method = .post
                $0.body = .json(user)
            }
        )

        #expect(call.headers["Content-Type"] == "application/json")
        #expect(try JSONDecoder().decode(User.self, from: try #require(call.body?.data)) == user)
    }

    @Test func `G15 parameters of mixed types are sent as JSON`() throws {
        let parameters: [String: JSONValue] = [
            "s": "x/y", "i": 5, "d": 0.5, "b": true, "n": nil, "a": [1, "2", [:]], "o": ["k": ["v"]],
        ]

        let call = try self.client.call(
            for: Ask {
                $0.method = .post
                $0.body = .json(parameters)
            }
        )

        let body = try #require(call.body?.data)
        let expected = #"{"a":[1,"2",{}],"b":true,"d":0.5,"i":5,"n":null,"o":{"k":["v"]},"s":"x/y"}"#
        #expect(String(decoding: body, as: UTF8.self) == expected)
        #expect(try JSONDecoder().decode([String: JSONValue].self, from: body) == parameters)
        #expect(call.headers["Content-Type"] == "application/json")
    }

    @Test func `G15 a custom encoder is used, and dates are ISO 8601 by default`() throws {
        let date = Date(timeIntervalSince1970: 0)
        let encoder = JSONEncoder()
        encoder.dateEncodingStrategy = .secondsSince1970

        #expect(try HTTPBody.json([date]).encoded().body.data == Data(#"["1970-01-01T00:00:00Z"]"#.utf8))
        #expect(try HTTPBody.json([date], encoder: encoder).encoded().body.data == Data("[0]".utf8))
    }

    @Test func `G16 a form is sent as URL-encoded parameters`() throws {
        let call = try self.client.call(
            for: Ask {
                $0.method = .post
                $0.body = .form(["a": "1", "b": "x y", "c": "+&=", "a": "2"])
            }
        )

        #expect(call.body?.data == Data("a=1&b=x%20y&c=%2B%26%3D&a=2".utf8))
        #expect(call.headers["Content-Type"] == "application/x-www-form-urlencoded")
    }

    @Test func `G17 header precedence rises from session to body, request, call and token`() async throws {
        struct Key: HTTPToken {
            var headers: HTTPHeaders { ["t": "token"] }
        }
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 200))
        var configuration = HTTPClient.Configuration()
        configuration.headers = [
            "s": "session", "r": "session", "x": "session", "t": "session", "content-type": "session",
        ]
        let ask = Ask { ask in
            ask.method = .post
            ask.headers = ["r": "request", "x": "request", "t": "request"]
            ask.body = .text("")
        }

        _ = try await HTTPClient(configuration: configuration, transport: transport)
            .response(to: ask, token: Key(), headers: ["x": "call", "t": "call"])

        let sent = try #require(transport.calls.first).headers
        #expect(sent["s"] == "session" && sent["r"] == "request" && sent["x"] == "call" && sent["t"] == "token")
        #expect(sent[.contentType] == "text/plain; charset=utf-8" && sent[.accept] == "application/json")
        #expect(sent.fields.count == 6)
    }

    @Test(arguments: [false, true], [false, true])
    func `G17 private headers exclude the headers of the session and of the token`(
        isPrivate: Bool,
        hasOwn: Bool
    ) async throws {
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 200))
        var configuration = HTTPClient.Configuration()
        configuration.headers = ["x": "session", "accept": "session"]
        let client = HTTPClient(configuration: configuration, transport: transport)
        let ask = Ask { ask in
            ask.method = .post
            ask.body = .json([1])
            ask.usesPrivateHeaders = isPrivate
            if hasOwn { ask.headers = ["x": "own", "authorization": "own", "content-type": "own"] }
        }

        _ = try await client.execute(ask, token: "token")

        let sent = try #require(transport.calls.first).headers
        #expect(sent["x"] == (hasOwn ? "own" : isPrivate ? nil : "session"))
        #expect(sent[.authorization] == (isPrivate ? (hasOwn ? "own" : nil) : "Bearer token"))
        #expect(sent[.accept] == (isPrivate ? nil : "session"))
        #expect(sent[.contentType] == (hasOwn ? "own" : "application/json"))
    }

    @Test(arguments: [HTTPMethod.get, .head, .trace, .connect])
    func `G18 a body for a method without a body is refused and nothing is sent`(method: HTTPMethod) async {
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 200))
        let ask = Ask {
            $0.method = method
            $0.body = .text("x")
        }

        await #expect(throws: HTTPError.preparation(.bodyNotAllowed(method))) {
            try await HTTPClient(transport: transport).execute(ask)
        }
        #expect(transport.calls == [])
    }

    @Test func `G18 a request that HTTP cannot express is refused and nothing is sent`() async {
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 200))
        let asks: [(Ask<Data, Never>, HTTPError.PreparationFailure)] = [
            (Ask { $0.headers = ["X": "a\r\nY: b"] }, .invalidHeader(name: "X")),
            (Ask { $0.headers = ["X": "a\0"] }, .invalidHeader(name: "X")),
            (Ask { $0.headers = ["X Y": "a"] }, .invalidHeader(name: "X Y")),
            (Ask { $0.headers = ["": "a"] }, .invalidHeader(name: "")),
            (Ask { $0.headers = [.contentLength: "1"] }, .framingHeader(name: "Content-Length")),
            (Ask { $0.headers = ["host": "other"] }, .framingHeader(name: "host")),
            (Ask { $0.headers = ["transfer-encoding": "chunked"] }, .framingHeader(name: "transfer-encoding")),
            (Ask { $0.method = "GET /" }, .invalidMethod), (Ask { $0.endpoint.host = "" }, .missingHost),
            (
                Ask {
                    $0.method = .post
                    $0.body = .json(["x": Double.nan])
                }, .encoding(CancellationError())
            ),
        ]
        for (ask, reason) in asks {
            let error = await #expect(throws: HTTPError.self) {
                try await HTTPClient(transport: transport).execute(ask)
            }
            guard case .preparation(let found, _)? = error else {
                Issue.record("\(reason)")
                continue
            }
            if case .encoding = reason, case .encoding = found { continue }
            #expect(found.description == reason.description)
        }
        await #expect(throws: HTTPError.preparation(.invalidHeader(name: "Authorization"))) {
            try await HTTPClient(transport: transport).execute(Ask(), token: "a\r\nX-Evil: 1")
        }
        #expect(transport.calls == [])
    }

    @Test func `G19 a repeated request has the same bytes`() throws {
        let bodies: [HTTPBody] = [
            .json(Dictionary(uniqueKeysWithValues: (0..<50).map { ("k\($0)", $0) })), .form(["a": "1"]),
            .multipart(HTTPMultipart(fields: ["a": "1"], files: [.init(name: "f", fileName: "n", data: Data([1]))])),
        ]
        for body in bodies {
            let ask = Ask {
                $0.method = .post
                $0.body = body
                $0.headers = ["b": "1", "a": "2"]
            }
            let first = try self.client.call(for: ask)

            #expect(try self.client.call(for: ask) == first)
        }
        var shrunk: [String: Int] = [:]
        for number in 0..<500 { shrunk["k\(number)"] = number }
        for number in 50..<500 { shrunk["k\(number)"] = nil }
        let body = try HTTPBody.json(shrunk).encoded().body
        #expect(try bodies[0].encoded().body == body)
    }

    /// Texts that a server recorded.
    private final class Tapped: Sendable {
        private let texts = Locked<[String]>([])
        func add(_ text: String) { self.texts.withLock { $0.append(text) } }
        var all: [String] { self.texts.withLock { $0 } }
    }
}
