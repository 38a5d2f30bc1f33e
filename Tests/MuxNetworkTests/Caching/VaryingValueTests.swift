import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Values of responses that vary on header fields of the request: RFC 9111, section 4.1.
@Suite(.standard)
struct VaryingValueTests {
    private let world: CachingWorld
    /// The `Accept-Language` field of the next request.
    private let language = Locked<String?>("en")
    private let fails = Locked(false)

    init() { self.init(CachingWorld()) }

    private init(_ world: CachingWorld) { self.world = world }

    /// A page in the requested language.
    private struct GetPage: HTTPRequest {
        typealias Output = [String]
        var language: String?
        var endpoint: HTTPEndpoint { .init(scheme: .https, host: "example.com", path: "/page") }
        var method: HTTPMethod { .get }
        var headers: HTTPHeaders { self.language.map { [.acceptLanguage: $0] } ?? [:] }
    }

    private func server(_ headers: HTTPHeaders) -> ClosureTransport {
        ClosureTransport { [fails] call in
            if fails.withLock(\.self) { throw FetchLost() }
            let language = call.headers[.acceptLanguage] ?? "none"
            let tag = "\"\(language.filter(\.isLetter))\""
            let headers = headers.merging(["ETag": tag])
            if call.headers["If-None-Match"] == tag { return HTTPReply(status: 304, headers: headers) }
            return HTTPReply(status: 200, headers: headers, body: Data("[\"\(language)\"]".utf8))
        }
    }

    private func page(_ server: ClosureTransport) -> Multiplexer<[String]> {
        self.world.client(server).multiplexer(
            cacheKey: "Page",
            policy: MuxPolicy(staleIfError: .seconds(1_000)),
            repository: self.world.repository,
            GetPage(language: self.language.withLock(\.self))
        )
    }

    private func ask(for language: String?) { self.language.withLock { $0 = language } }

    @Test func `HC-02 a value is used only for requests with the same fields`() async throws {
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Accept-Language"])
        let page = self.page(server)
        for _ in 0..<2 { #expect(try await page.request() == ["en"]) }
        #expect(server.calls.count == 1)

        self.ask(for: "de")
        for _ in 0..<2 { #expect(try await page.request() == ["de"]) }
        #expect(server.calls.count == 2)
        self.ask(for: nil)
        #expect(try await page.request(.maxAge(.seconds(50))) == ["none"])
        #expect(server.calls.count == 3)
        // The validator of one variant is never sent for another variant.
        #expect(server.calls.allSatisfy { $0.headers["If-None-Match"] == nil })
    }

    @Test func `HC-02 fields that differ only in blanks and case are equal`() async throws {
        self.ask(for: "en, de")
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "accept-language"])
        let page = self.page(server)
        #expect(try await page.request() == ["en, de"])
        self.ask(for: "EN,de")
        #expect(try await page.request() == ["en, de"])
        #expect(server.calls.count == 1)
    }

    @Test func `HC-02 Vary on fields that are equal in all requests causes no request`() async throws {
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Accept-Encoding, Origin"])
        let page = self.page(server)
        _ = try await page.request()
        self.ask(for: "de")
        #expect(try await page.request() == ["en"])
        #expect(server.calls.count == 1)
    }

    @Test func `HC-02 a value for other fields does not replace an error`() async throws {
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Accept-Language"])
        let page = self.page(server)
        _ = try await page.request()
        self.fails.withLock { $0 = true }
        self.ask(for: "de")
        for _ in 0..<2 { await #expect(throws: (any Error).self) { try await page.request() } }
        await #expect(throws: MuxError.notCached) { try await page.request(.cacheOnly) }

        self.ask(for: "en")
        #expect(try await page.request() == ["en"])
        #expect(try await page.request(.cacheOnly) == ["en"])
        self.world.clock.advance(by: .seconds(200))
        #expect(try await page.request() == ["en"])
    }

    @Test func `HC-02 a stale value for the same fields is revalidated`() async throws {
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Accept-Language"])
        let page = self.page(server)
        _ = try await page.request()
        self.world.clock.advance(by: .seconds(101))
        _ = try await page.request()
        #expect(server.calls.last?.headers["If-None-Match"] == "\"en\"")
        self.ask(for: "de")
        #expect(try await page.request() == ["de"])
        #expect(server.calls.count == 3)
    }

    @Test(arguments: ["en", "de"])
    func `HC-02 a value on disk is used only for requests with the same fields`(next: String) async throws {
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Accept-Language"])
        let page = self.page(server)
        _ = try await page.request()
        await page.save()

        let relaunched = Self(self.world.relaunched())
        relaunched.ask(for: next)
        let again = relaunched.page(server)
        for _ in 0..<2 { #expect(try await again.request() == [next]) }
        #expect(server.calls.count == (next == "en" ? 1 : 2))
    }

    @Test func `HC-02 a migrated value that varies on request fields is fetched again`() async throws {
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Accept-Language"])
        let page = self.page(server)
        _ = try await page.request()
        await page.save()

        let world = self.world.relaunched()
        var policy = MuxPolicy()
        policy.schemaVersion += 1
        policy.migrations = [MuxMigration(from: policy.schemaVersion - 1) { (old: [String]) in old }]
        let again = world.client(server).multiplexer(
            cacheKey: "Page",
            policy: policy,
            repository: world.repository,
            GetPage(language: "de")
        )
        #expect(try await again.request() == ["de"])
    }

    @Test func `HC-02 a value on disk for other fields is not returned without a request`() async throws {
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Accept-Language"])
        let page = self.page(server)
        _ = try await page.request()
        await page.save()

        let relaunched = Self(self.world.relaunched())
        relaunched.ask(for: "de")
        let again = relaunched.page(server)
        await #expect(throws: MuxError.notCached) { try await again.request(.cacheOnly) }
        #expect(await again.loadCachedValue() == nil)
        relaunched.ask(for: "en")
        #expect(try await again.request(.cacheOnly) == ["en"])
        #expect(server.calls.count == 1)
    }

    @Test func `HC-02 a response that varies on the request's own credentials is not stored`() async throws {
        struct GetMine: HTTPRequest {
            typealias Output = [String]
            var endpoint: HTTPEndpoint { .init(scheme: .https, host: "example.com", path: "/mine") }
            var method: HTTPMethod { .get }
            var headers: HTTPHeaders { [.authorization: "Basic secret"] }
        }
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Authorization"])
        let mine = self.world.client(server).multiplexer(repository: self.world.repository, GetMine())
        for _ in 0..<2 { _ = try await mine.request() }
        #expect(server.calls.count == 2)
    }

    @Test func `HC-02 a value that varies on a credential field of the configuration is not stored`() async throws {
        struct GetMine: HTTPRequest {
            typealias Output = [String]
            let endpoint: HTTPEndpoint
            var method: HTTPMethod { .get }
            var headers: HTTPHeaders { ["X-Own-Token": "secret"] }
        }
        let server = LoopbackServer { _ in
            LoopbackServer.Response(
                headers: ["Cache-Control": "max-age=100", "Vary": "X-Own-Token", "Content-Type": "application/json"],
                body: Data("[]".utf8)
            )
        }
        let request = GetMine(endpoint: try HTTPEndpoint(try server.start()))
        let transport = SystemTransport(HTTPTransportConfiguration(credentialHeaders: ["X-Own-Token"]))
        let mine = HTTPClient(transport: transport).multiplexer(repository: self.world.repository, request)
        for _ in 0..<2 { _ = try await mine.request() }
        #expect(server.requestCount == 2)
        await server.stop()
    }

    @Test func `HC-02 a map fetches each key whose stored value is for other fields`() async throws {
        let server = self.server(["Cache-Control": "max-age=100", "Vary": "Accept-Language"])
        let pages = self.world.client(server).multiplexerMap(repository: self.world.repository) { [language] (_: Int) in
            GetPage(language: language.withLock(\.self))
        }
        #expect(try await pages.request(keys: [1, 2]).count == 2)
        self.ask(for: "de")
        let values = try await pages.request(keys: [1, 2])
        #expect(values[1] == ["de"] && values[2] == ["de"])
        #expect(server.calls.count == 4)
    }
}
