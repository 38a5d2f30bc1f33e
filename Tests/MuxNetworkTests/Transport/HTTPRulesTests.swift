import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.timeLimit(.minutes(5)), .takesTurns)
struct HTTPRulesTests {
    private func redirects(from text: String) throws -> HTTPRedirects {
        HTTPRedirects(origin: try #require(URL(string: text).flatMap { HTTPOrigin($0) }), limit: 10)
    }

    @Test(arguments: [
        ("https://a/x", "https://A:443/y", HTTPRedirects.Step.follow), ("http://a/", "http://a:80/", .follow),
        ("http://a/", "https://a/", .followWithoutCredentials), ("https://a/", "http://a/", .refuse(.insecure)),
        ("https://a/", "https://b/", .followWithoutCredentials),
        ("https://a/", "https://a.b/", .followWithoutCredentials),
        ("http://a/", "http://a:81/", .followWithoutCredentials), ("http://a/", "ftp://a/", .refuse(.unknownScheme)),
        ("http://a/", "file:///a", .refuse(.unknownScheme)),
    ])
    func `Q-07 a redirection is judged by scheme, host and port`(
        from: String,
        to: String,
        step: HTTPRedirects.Step
    ) throws {
        var redirects = try self.redirects(from: from)

        #expect(redirects.redirected(to: try #require(URL(string: to)), carriesBody: false) == step)
    }

    @Test func `Q-07 credentials once left behind do not come back`() throws {
        var redirects = try self.redirects(from: "https://a/")
        let home = try #require(URL(string: "https://a/"))
        let away = try #require(URL(string: "https://b/"))

        #expect(redirects.redirected(to: home, carriesBody: true) == .follow)
        #expect(redirects.redirected(to: away, carriesBody: false) == .followWithoutCredentials)
        #expect(redirects.redirected(to: home, carriesBody: false) == .followWithoutCredentials)
        #expect(redirects.redirected(to: away, carriesBody: true) == .refuse(.carriesBody))
    }

    @Test func `Q-07 what became secure on the way does not become insecure again`() throws {
        var redirects = try self.redirects(from: "http://a/")

        #expect(redirects.redirected(to: try #require(URL(string: "https://a/")), carriesBody: false) != .follow)
        #expect(
            redirects.redirected(to: try #require(URL(string: "http://a/")), carriesBody: false) == .refuse(.insecure)
        )
    }

    private func exchange(_ method: String = "GET") throws -> HTTPExchange {
        let url = try #require(URL(string: "http://a/"))
        return HTTPExchange(try ValidatedCall(HTTPCall(method: method, url: url)), .init(), sizeLimit: 100)
    }

    @Test(arguments: [
        ("GET", 200, [:], true), ("HEAD", 200, [:], false), ("GET", 304, [:], false),
        ("GET", 200, ["Content-Encoding": "gzip"], false), ("GET", 200, ["Content-Encoding": "identity"], true),
    ])
    func `Q-07 a body shorter than announced is truncated unless the length means something else`(
        method: String,
        status: Int,
        headers: [String: String],
        isTruncated: Bool
    ) throws {
        var exchange = try self.exchange(method)
        let headers = headers.merging(["Content-Length": "9"]) { $1 }

        #expect(exchange.received(HTTPReply(status: status, headers: headers)) == nil)
        let result = exchange.ended(nil)

        #expect((try? result.get()) == nil ? isTruncated : !isTruncated)
    }

    @Test func `G18 a token's fields are validated, and replace those of a validated call`() throws {
        let url = try #require(URL(string: "http://a/"))
        let call = try ValidatedCall(HTTPCall(url: url, headers: ["authorization": "own", "X": "1"]))

        let authorized = try call.authorized(by: [.authorization: "token"]).authorized(by: [.authorization: "new"])

        #expect(authorized.call.headers == ["Authorization": "new", "X": "1"])
        #expect(authorized.call.credentialHeaders == ["Authorization"])
        #expect(throws: HTTPError.preparation(.invalidHeader(name: "X"))) {
            try call.authorized(by: ["X": "a\r\nY: b"])
        }
        #expect(throws: HTTPError.preparation(.invalidHeader(name: "X Y"))) { try call.authorized(by: ["X Y": "1"]) }
    }

    @Test func `Q-07 a cancellation after a challenge is the refusal itself and otherwise a cancellation`() throws {
        var exchange = try self.exchange()
        #expect(throws: CancellationError.self) { try exchange.ended(.cancelled).get() }

        exchange.challenged(HTTPReply(status: 401))

        #expect(try exchange.ended(.cancelled).get().status == 401)
        #expect(throws: HTTPError.notHTTP) { try self.exchange().ended(nil).get() }
    }
}
