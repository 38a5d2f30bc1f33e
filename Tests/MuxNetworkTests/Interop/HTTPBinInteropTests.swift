import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import Testing

/// The transport against httpbin, which echoes each request.
@Suite(
    .standard,
    .enabled(if: Interop.httpbin != nil, "Tests/Interop/run starts the server that this needs"),
    .serialized
)
struct HTTPBinInteropTests {
    /// The echo of a request.
    private struct Anything: Decodable {
        var method: String
        var url: String
        var args: [String: String]
        var data: String
        var form: [String: String]
        var headers: [String: String]
    }

    private let base = Interop.httpbin ?? URL(filePath: "/")
    private let transport = SystemTransport()

    private func url(_ target: String) throws -> URL {
        try #require(URL(string: self.base.absoluteString + target))
    }

    private func send(
        _ target: String,
        method: String = "GET",
        _ headers: HTTPHeaders = [:],
        body: HTTPCall.Body? = nil,
        timeout: Duration? = nil,
        deadline: Duration? = nil
    ) async throws -> HTTPReply {
        try await self.transport.send(
            HTTPCall(
                method: method,
                url: self.url(target),
                headers: headers,
                body: body,
                timeout: timeout,
                deadline: deadline
            )
        )
    }

    private func anything(_ reply: HTTPReply) throws -> Anything {
        #expect(reply.status == 200)
        return try JSONDecoder().decode(Anything.self, from: reply.body)
    }

    @Test(arguments: ["GET", "POST", "PUT", "PATCH", "DELETE"])
    func `TR-03 httpbin receives methods, targets, fields and bodies unchanged`(method: String) async throws {
        let body = method == "GET" ? nil : HTTPCall.Body.data(Data("tea & cake\n".utf8))
        let headers: HTTPHeaders = [.contentType: "text/plain", "X-Own": "own value"]

        let seen = try self.anything(
            try await self.send("/anything/a%20b/c?q=1%262&empty=", method: method, headers, body: body)
        )

        #expect(seen.method == method)
        #expect(seen.url == "\(self.base.absoluteString)/anything/a%20b/c?q=1%262&empty=")
        #expect(seen.args == ["q": "1&2", "empty": ""])
        #expect(seen.data == (body == nil ? "" : "tea & cake\n"))
        #expect(seen.headers["X-Own"] == "own value" && seen.headers["Content-Type"] == "text/plain")
        #expect(seen.headers["Content-Length"] == (body == nil ? nil : "11"))
    }

    @Test func `TR-03 httpbin receives a form and a streamed body completely`() async throws {
        let form = try self.anything(
            try await self.send(
                "/anything",
                method: "POST",
                [.contentType: "application/x-www-form-urlencoded"],
                body: .data(Data("a=1&b=%C3%A9".utf8))
            )
        )
        #expect(form.form == ["a": "1", "b": "é"])

        let piece = Data(String(repeating: "x", count: 30_000).utf8)
        let stream = HTTPCall.BodyStream(length: 90_000) {
            AsyncStream { continuation in
                for _ in 0..<3 { continuation.yield(piece) }
                continuation.finish()
            }
        }
        let seen = try self.anything(try await self.send("/anything", method: "PUT", body: .stream(stream)))
        #expect(seen.data.utf8.count == 90_000 && seen.headers["Content-Length"] == "90000")
    }

    @Test(arguments: [307, 308])
    func `TR-03 httpbin gets a redirected POST with its body`(status: Int) async throws {
        let reply = try await self.send(
            "/redirect-to?url=/anything/there&status_code=\(status)",
            method: "POST",
            [.contentType: "text/plain"],
            body: .data(Data("once more".utf8))
        )

        let seen = try self.anything(reply)
        #expect(seen.method == "POST" && seen.data == "once more" && seen.headers["Content-Type"] == "text/plain")
        #expect(reply.url?.path() == "/anything/there")
    }

    @Test(arguments: [301, 302, 303])
    func `TR-03 httpbin gets a GET without a body after a 301, 302 or 303 to a POST`(status: Int) async throws {
        let reply = try await self.send(
            "/redirect-to?url=/anything&status_code=\(status)",
            method: "POST",
            [.contentType: "text/plain"],
            body: .data(Data("no more".utf8))
        )

        let seen = try self.anything(reply)
        #expect(seen.method == "GET" && seen.data == "" && seen.headers["Content-Type"] == nil)
    }

    @Test func `TR-03 httpbin's redirections are followed up to the limit`() async throws {
        #expect(try await self.send("/redirect/5").status == 200)
        await #expect(throws: HTTPError.redirectRefused(.tooMany(limit: 10))) { try await self.send("/redirect/11") }
    }

    @Test(arguments: ["gzip", "deflate", "brotli"])
    func `TR-06 httpbin's compressed bodies arrive decoded`(coding: String) async throws {
        struct Coded: Decodable {
            var gzipped: Bool?
            var deflated: Bool?
            var brotli: Bool?
        }
        let reply = try await self.send("/\(coding)")

        let coded = try JSONDecoder().decode(Coded.self, from: reply.body)
        #expect((coded.gzipped ?? coded.deflated ?? coded.brotli) == true)
    }

    @Test func `TR-04 httpbin's chunked bodies arrive complete`() async throws {
        let reply = try await self.send("/stream/100")

        #expect(reply.headers["Transfer-Encoding"] == "chunked")
        #expect(String(decoding: reply.body, as: UTF8.self).split(separator: "\n").count == 100)
        #expect(try await self.send("/stream-bytes/100000?chunk_size=777&seed=1").body.count == 100_000)
    }

    @Test func `TR-07 httpbin's slow bodies end at the deadline and do not trigger the idle time-out`() async throws {
        let drip = "/drip?numbytes=8&duration=2&delay=0"
        // httpbin sends a byte every 250 ms.
        #expect(try await self.send(drip, timeout: .milliseconds(1_500)).body == Data(repeating: 42, count: 8))
        await #expect(throws: HTTPError.transport(.deadlineExceeded(after: .milliseconds(700)))) {
            try await self.send(drip, deadline: .milliseconds(700))
        }
        await #expect(throws: HTTPError.timedOut(after: .milliseconds(300))) {
            try await self.send("/delay/2", timeout: .milliseconds(300))
        }
    }

    @Test(arguments: [0, 1, 1_000, 100_000])
    func `TR-04 httpbin's bodies of known length arrive complete`(count: Int) async throws {
        let (first, again) = (
            try await self.send("/bytes/\(count)?seed=7"), try await self.send("/bytes/\(count)?seed=7")
        )

        #expect(first.body.count == count && first.body == again.body)
        #expect(first.headers[.contentLength] == "\(count)")
    }

    @Test(arguments: [200, 204, 304, 400, 401, 404, 407, 418, 429, 500, 503])
    func `TR-04 every status of httpbin is a response and not an error`(status: Int) async throws {
        for method in ["GET", "POST", "DELETE"] {
            #expect(try await self.send("/status/\(status)", method: method).status == status, "\(method)")
        }
        let head = try await self.send("/status/\(status)", method: "HEAD")
        #expect(head.status == status && head.body.isEmpty)
    }

    @Test func `TR-04 httpbin's cookies are not stored`() async throws {
        struct Cookies: Decodable { var cookies: [String: String] }

        // The redirect leads to /cookies, which returns the received cookies.
        let after = try await self.send("/cookies/set?a=b&c=d")
        let later = try await self.send("/cookies")
        let own = try await self.send("/cookies", ["Cookie": "mine=1"])

        #expect(after.url?.path() == "/cookies")
        #expect(try JSONDecoder().decode(Cookies.self, from: after.body).cookies == [:])
        #expect(try JSONDecoder().decode(Cookies.self, from: later.body).cookies == [:])
        #expect(try JSONDecoder().decode(Cookies.self, from: own.body).cookies == ["mine": "1"])
    }

    @Test func `TR-04 httpbin's 401 is a response, and a password is not stored`() async throws {
        let credentials = Data("user:pass".utf8).base64EncodedString()

        let refused = try await self.send("/basic-auth/user/pass")
        let accepted = try await self.send("/basic-auth/user/pass", [.authorization: "Basic \(credentials)"])
        let refusedAgain = try await self.send("/basic-auth/user/pass")

        #expect(refused.status == 401 && refused.headers["WWW-Authenticate"] == "Basic realm=\"Fake Realm\"")
        #expect(accepted.status == 200)
        #expect(refusedAgain.status == 401)
    }
}
