import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct HTTPRulesTests {
    private func call(
        _ text: String,
        _ headers: HTTPHeaders = [:],
        method: String = "GET",
        body: HTTPCall.Body? = nil
    ) throws -> HTTPCall {
        HTTPCall(method: method, url: try #require(URL(string: text)), headers: headers, body: body)
    }

    private func redirection(_ status: Int = 302, to location: String) -> HTTPReply {
        HTTPReply(status: status, headers: [.location: location])
    }

    @Test(arguments: [
        ("https://a/x", "https://A:443/y", true), ("http://a/", "http://a:80/", true), ("http://a/x", "/y", true),
        ("http://a/", "https://a/", false), ("https://a/", "https://b/", false), ("https://a/", "https://a.b/", false),
        ("http://a/", "http://a:81/", false), ("http://a/", "//b/", false),
    ])
    func `Q-07 credentials are dropped on a redirection to another scheme, host or port`(
        from: String,
        to: String,
        keeps: Bool
    ) throws {
        var call = try self.call(from, [.authorization: "t", "X-Own": "t", "X-Harmless": "h"])
        call.credentialHeaders = ["x-own"]
        var redirects = HTTPRedirects(call)

        let next = try #require(try redirects.next(after: self.redirection(to: to)))

        #expect(next.headers[.authorization] == (keeps ? "t" : nil))
        #expect(next.headers["X-Own"] == (keeps ? "t" : nil))
        #expect(next.headers["X-Harmless"] == "h")
    }

    @Test(arguments: [
        ("https://a/", "http://a/", HTTPError.RedirectRefusal.insecure), ("http://a/", "ftp://a/", .unknownScheme),
        ("http://a/", "file:///a", .unknownScheme), ("http://a/", "javascript:x", .unknownScheme),
    ])
    func `Q-07 a redirection to a less secure or an unknown scheme is refused`(
        from: String,
        to: String,
        reason: HTTPError.RedirectRefusal
    ) throws {
        var redirects = HTTPRedirects(try self.call(from))

        #expect(throws: HTTPError.redirectRefused(reason)) { try redirects.next(after: self.redirection(to: to)) }
    }

    #if os(Linux)
    @Test(arguments: UnusableURLs.texts)
    func `AC-04 certificate authorities whose URL has no usable path are an error`(text: String) async throws {
        var options = HTTPTransportConfiguration()
        let url = try #require(URL(string: text))
        options.certificateAuthorities = url
        let transport = SystemTransport(options)
        let call = try self.call("http://127.0.0.1:9/")
        let error = await #expect(throws: HTTPError.self) { try await transport.send(call) }
        guard case .preparation(.unsupportedOption(name: "certificateAuthorities"), request: _) = error else {
            Issue.record("\(error as Any)")
            return
        }
    }
    #endif

    @Test func `Q-07 dropped credentials do not return after a later redirection`() throws {
        var redirects = HTTPRedirects(try self.call("https://a/", [.authorization: "t"]))

        #expect(try redirects.next(after: self.redirection(to: "https://a/2"))?.headers[.authorization] == "t")
        #expect(try redirects.next(after: self.redirection(to: "https://b/"))?.headers[.authorization] == nil)
        #expect(try redirects.next(after: self.redirection(to: "https://a/"))?.headers[.authorization] == nil)
    }

    @Test func `Q-07 a redirection from HTTPS back to HTTP is refused`() throws {
        var redirects = HTTPRedirects(try self.call("http://a/"))

        #expect(try redirects.next(after: self.redirection(to: "https://a/")) != nil)
        #expect(throws: HTTPError.redirectRefused(.insecure)) {
            try redirects.next(after: self.redirection(to: "http://a/"))
        }
    }

    @Test(arguments: [
        (301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (303, "PUT", "GET"), (303, "DELETE", "GET"),
        (301, "PUT", "PUT"), (302, "DELETE", "DELETE"), (303, "HEAD", "HEAD"), (301, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "POST", "POST"), (308, "PATCH", "PATCH"),
    ])
    func `TR-03 a redirection changes the method and the body only as in RFC 9110`(
        status: Int,
        method: String,
        then next: String
    ) throws {
        let body = HTTPCall.Body.data(Data("x".utf8))
        var redirects = HTTPRedirects(
            try self.call("http://a/", [.contentType: "text/plain"], method: method, body: body)
        )

        let call = try #require(try redirects.next(after: self.redirection(status, to: "/b")))

        #expect(call.method == next)
        #expect(call.body == (next == method ? body : nil))
        #expect(call.headers[.contentType] == (next == method ? "text/plain" : nil))
        #expect(call.url.absoluteString == "http://a/b")
    }

    @Test func `TR-03 a body is not sent to another server`() throws {
        let call = try self.call("http://a/", method: "POST", body: .data(Data("x".utf8)))
        var redirects = HTTPRedirects(call)

        #expect(throws: HTTPError.redirectRefused(.carriesBody)) {
            try redirects.next(after: self.redirection(307, to: "http://b/"))
        }
    }

    @Test(arguments: [
        HTTPReply(status: 300, headers: [.location: "/b"]), HTTPReply(status: 304, headers: [.location: "/b"]),
        HTTPReply(status: 305, headers: [.location: "/b"]), HTTPReply(status: 302),
        HTTPReply(status: 301, headers: [.location: ""]),
        HTTPReply(status: 308, headers: [.location: "http://"]), HTTPReply(status: 200, headers: [.location: "/b"]),
    ])
    func `TR-04 a redirection that cannot be followed is the response`(reply: HTTPReply) throws {
        var redirects = HTTPRedirects(try self.call("http://a/"))

        #expect(try redirects.next(after: reply) == nil)
    }

    @Test func `TR-03 a location without a fragment has the fragment of the request`() throws {
        var redirects = HTTPRedirects(try self.call("http://a/#part"))

        #expect(try redirects.next(after: self.redirection(to: "/b"))?.url.absoluteString == "http://a/b#part")
        #expect(try redirects.next(after: self.redirection(to: "/c#own"))?.url.absoluteString == "http://a/c#own")
    }

    private func head(_ status: Int, _ headers: HTTPHeaders) -> HTTPReply {
        HTTPReply(status: status, headers: headers)
    }

    @Test(arguments: [
        (HTTPMethod.get, 200, nil, true), (.head, 200, nil, false), (.get, 304, nil, false), (.get, 204, nil, false),
        (.get, 200, "gzip", false), (.get, 200, "identity", true),
    ])
    func `Q-07 a body shorter than announced is truncated unless the length has another meaning`(
        method: HTTPMethod,
        status: Int,
        coding: String?,
        isTruncated: Bool
    ) throws {
        var machine = HTTPExchangeStateMachine(method, sizeLimit: 100)
        var headers: HTTPHeaders = [.contentLength: "9"]
        headers[.contentEncoding] = coding

        #expect(machine.receive(head: self.head(status, headers)) == nil)

        #expect((try? machine.outcome(after: nil).get()) == nil ? isTruncated : !isTruncated)
    }

    @Test(arguments: [
        ["5", "6"], ["5, 6"], ["x"], ["-1"], ["+5"], ["5 5"], [""], ["99999999999999999999"], ["5", "x"],
    ])
    func `TR-04 invalid or different lengths are an error`(values: [String]) {
        var machine = HTTPExchangeStateMachine(.get, sizeLimit: nil)
        var headers = HTTPHeaders()
        for value in values { headers.append(value, for: .contentLength) }

        #expect(machine.receive(head: self.head(200, headers)) == .notHTTP)
    }

    @Test(arguments: [
        ("chunked", false), ("Chunked", false), ("identity", false), ("gzip", true), ("gzip, chunked", true),
        ("mine, chunked", true), ("chunked, mine", true),
    ])
    func `TR-02 a transfer coding that was not requested is an error`(coding: String, isRefused: Bool) {
        var machine = HTTPExchangeStateMachine(.get, sizeLimit: nil)

        let error = machine.receive(head: self.head(200, ["Transfer-Encoding": coding, .contentLength: "5"]))

        #expect(error == (isRefused ? .notHTTP : nil))
    }

    @Test func `TR-04 a repeated equal length is valid`() throws {
        var machine = HTTPExchangeStateMachine(.get, sizeLimit: nil)
        var headers: HTTPHeaders = [.contentLength: "5, 5"]
        headers.append("5", for: .contentLength)

        #expect(machine.receive(head: self.head(200, headers)) == nil)
        machine.receive(count: 5)
        #expect(try machine.outcome(after: nil).get().status == 200)
    }

    @Test func `TR-05 the error of a closed connection depends on the received bytes`() {
        struct Lost: Error {}
        let lost = HTTPError.transport(.closedWithoutResponse(Lost()))
        var machine = HTTPExchangeStateMachine(.get, sizeLimit: nil)

        #expect(throws: lost) { try machine.outcome(after: lost).get() }
        _ = machine.receive(head: self.head(200, [:]))
        machine.receive(count: 7)
        #expect(throws: HTTPError.truncated(expected: nil, received: 7)) { try machine.outcome(after: lost).get() }
    }

    @Test func `G18 a token's fields are validated, and replace those of a validated call`() throws {
        let url = try #require(URL(string: "http://a/"))
        let call = try ValidatedCall(HTTPCall(url: url, headers: ["authorization": "own", "X": "1"]))

        let authorized = try call.authorized(by: [.authorization: "token"]).authorized(by: [.authorization: "new"])

        #expect(authorized.call.headers == ["X": "1", "Authorization": "new"])
        #expect(authorized.call.credentialHeaders == ["Authorization"])
        #expect(throws: HTTPError.preparation(.invalidHeader(name: "X"))) {
            try call.authorized(by: ["X": "a\r\nY: b"])
        }
        #expect(throws: HTTPError.preparation(.invalidHeader(name: "X Y"))) { try call.authorized(by: ["X Y": "1"]) }
    }
}
