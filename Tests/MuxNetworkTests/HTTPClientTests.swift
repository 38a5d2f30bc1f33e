import Foundation
import MuxKit
import MuxNetwork
import Testing

@Suite(.timeLimit(.minutes(1)))
struct HTTPClientTests {
    /// Answers as told and remembers what it was asked.
    private final class Recorder: HTTPTransport {
        let reply: HTTPReply
        let calls = Guarded<[HTTPCall]>([])

        init(_ reply: HTTPReply) { self.reply = reply }

        func send(_ call: HTTPCall) async throws -> HTTPReply {
            self.calls.withLock { $0.append(call) }
            return self.reply
        }
    }

    private func client(_ recorder: Recorder, base: String = "http://host:8080/api/") throws -> HTTPClient {
        HTTPClient(baseURL: try #require(URL(string: base)), transport: recorder)
    }

    @Test func `a GET carries the token and decodes the answer`() async throws {
        let recorder = Recorder(HTTPReply(status: 200, body: Data("[1,2]".utf8)))

        let numbers = try await self.client(recorder).get("/numbers", bearer: "t", as: [Int].self)

        #expect(numbers == [1, 2])
        let call = try #require(recorder.calls.withLock { $0.first })
        #expect(call.url.absoluteString == "http://host:8080/api/numbers")
        #expect(call.headers["Authorization"] == "Bearer t")
    }

    @Test func `a POST sends JSON`() async throws {
        let recorder = Recorder(HTTPReply(status: 201, body: Data("7".utf8)))

        #expect(try await self.client(recorder).post("n", json: ["a": 1], as: Int.self) == 7)

        let call = try #require(recorder.calls.withLock { $0.first })
        #expect(call.method == "POST")
        #expect(call.headers["Content-Type"] == "application/json")
        #expect(call.body == Data(#"{"a":1}"#.utf8))
    }

    @Test(arguments: [
        ("a/b", "http://host:8080/api/places/a%2Fb"), ("ü ?#%", "http://host:8080/api/places/%C3%BC%20%3F%23%25"),
        ("..", nil), (".", nil), ("", nil),
    ])
    func `what is interpolated into a path stays one segment`(id: String, url: String?) async throws {
        let recorder = Recorder(HTTPReply(status: 200, body: Data("1".utf8)))
        let client = try self.client(recorder)

        if let url {
            _ = try await client.get("places/\(id)", as: Int.self)
            #expect(recorder.calls.withLock { $0.first?.url.absoluteString } == url)
        } else {
            await #expect(throws: HTTPError.invalidURL) { try await client.get("places/\(id)", as: Int.self) }
        }
    }

    @Test(arguments: ["not a url", "file:///etc/passwd", "http:relative", "ftp://host", "http://"])
    func `a base that is not of the web is an error`(base: String) async throws {
        let url = try #require(URL(string: base))
        await #expect(throws: HTTPError.invalidURL) { try await HTTPClient(baseURL: url).get("a", as: Int.self) }
    }

    @Test(arguments: ["a\r\nX-Evil: 1", "a\0", "a\u{7f}"])
    func `a token cannot smuggle in a header field`(token: String) async throws {
        let url = try #require(URL(string: "http://127.0.0.1:1"))
        await #expect(throws: HTTPError.invalidHeader(name: "Authorization")) {
            try await HTTPClient(baseURL: url).get("a", bearer: token, as: Int.self)
        }
    }

    @Test func `a body that does not fit is a decoding error and 401 a bad dependency`() async throws {
        let odd = try self.client(Recorder(HTTPReply(status: 200, body: Data("secret".utf8))))
        let unauthorized = try self.client(Recorder(HTTPReply(status: 401)))
        let forbidden = try self.client(Recorder(HTTPReply(status: 403)))

        let decoding = await #expect(throws: HTTPError.self) { try await odd.get("a", as: Int.self) }
        guard case .decoding? = decoding else {
            Issue.record("not a decoding error")
            return
        }
        let refused = await #expect(throws: HTTPError.self) { try await unauthorized.get("a", as: Int.self) }
        #expect(refused?.isBadDependency == true)
        let other = await #expect(throws: HTTPError.self) { try await forbidden.get("a", as: Int.self) }
        #expect(other?.isBadDependency == false)
    }

    @Test func `nothing secret is in any description`() throws {
        struct Talkative: Error, CustomStringConvertible {
            var description: String { "SECRET" }
        }
        let secret = Data("SECRET".utf8)
        let url = try #require(URL(string: "http://host/a?token=SECRET"))
        let response = HTTPResponse(
            request: HTTPCall(url: url),
            status: 400,
            headers: [.setCookie: "SECRET"],
            body: secret
        )
        let values: [any Sendable] = [
            HTTPError.status(HTTPStatusError(response)), HTTPError.transport(.unreachable(Talkative())),
            HTTPError.decoding(HTTPDecodingError(response, underlying: Talkative())),
            HTTPError.preparation(.encoding(Talkative())), HTTPError.authentication(Talkative()), response,
            HTTPCall(url: url, headers: ["Authorization": "SECRET"], body: secret),
            HTTPReply(status: 200, headers: ["Set-Cookie": "SECRET"], body: secret, url: url),
        ]

        for value in values {
            var dumped = ""
            dump(value, to: &dumped)
            let texts = [
                "\(value)", String(reflecting: value), dumped, (value as? any Error)?.localizedDescription ?? "",
            ]
            for text in texts {
                #expect(!text.contains("SECRET") && !text.contains("83"), "\(text)")
            }
        }
    }
}
