import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import Testing

/// Transport and caching against nginx.
@Suite(
    .standard,
    .enabled(if: Interop.nginx != nil, "Tests/Interop/run starts the server that this needs"),
    .serialized
)
struct NginxInteropTests {
    private let base = Interop.nginx ?? URL(filePath: "/")

    /// Records the statuses of responses.
    private final class Watching: HTTPTransport {
        let base = URLSessionTransport()
        let statuses = Locked<[Int]>([])

        func send(_ call: HTTPCall) async throws -> HTTPReply {
            let reply = try await self.base.send(call)
            self.statuses.withLock { $0.append(reply.status) }
            return reply
        }
    }

    @Test(arguments: ["/tag/number.json", "/time/number.json", "/zipped/number.json"])
    func `N02 nginx responds with 304 to a request with its validator`(path: String) async throws {
        let transport = Watching()
        let number = HTTPClient(transport: transport).multiplexer(
            cacheKey: .init(path),
            repository: MuxRepository(store: MemoryStore()),
            GetFrom<Number>(base: self.base, path: path)
        )
        let first = try await number.requestEntry()

        for _ in 0..<3 { #expect(try await number.request() == Number(version: 1)) }

        #expect(transport.statuses.withLock { $0 } == [200, 304, 304, 304])
        #expect(number.store(Number(version: 9), ifUnchangedSince: first))
    }

    @Test func `N02 nginx sends the new content of a changed file`() async throws {
        let folder = try #require(Interop.nginxFolder)
        let file = URL(filePath: folder).appending(path: "changing.json")
        try Data("{\"version\":1}".utf8).write(to: file)
        let transport = Watching()
        let number = HTTPClient(transport: transport).multiplexer(
            cacheKey: "changing",
            repository: MuxRepository(store: MemoryStore()),
            GetFrom<Number>(base: self.base, path: "/tag/changing.json")
        )
        #expect(try await number.request().version == 1)
        try Data("{\"version\":22}".utf8).write(to: file)

        #expect(try await number.request().version == 22)
        #expect(try await number.request().version == 22)
        #expect(transport.statuses.withLock { $0 } == [200, 200, 304])
    }

    @Test func `N01 nginx's freshness lifetime is the lifetime of the value`() async throws {
        let transport = Watching()
        let number = HTTPClient(transport: transport).multiplexer(
            cacheKey: "hour",
            repository: MuxRepository(store: MemoryStore()),
            GetFrom<Number>(base: self.base, path: "/hour/number.json")
        )
        for _ in 0..<3 { _ = try await number.request() }

        let life = try #require(number.cachedEntry?.timeToLive)
        #expect(life > .seconds(3500) && life <= .seconds(3600))
        #expect(transport.statuses.withLock { $0 } == [200])
    }

    @Test func `N04 nginx gets no request before its Retry-After has passed`() async throws {
        let transport = Watching()
        let client = HTTPClient(transport: transport)
        #expect(try await client.response(to: GetFrom<Data>(base: self.base, path: "/busy")).status == 503)

        await #expect { try await client.response(to: GetFrom<Data>(base: self.base, path: "/echo")) } throws: {
            guard case .transport(.serverBusy(let time), _)? = $0 as? HTTPError else { return false }
            return time > .zero && time <= .seconds(7)
        }
        #expect(transport.statuses.withLock { $0 } == [503])
    }

    private func echo(_ path: String, _ headers: HTTPHeaders) async throws -> [String] {
        let request = GetFrom<Data>(base: self.base, path: path, headers: headers)
        let response = try await HTTPClient().response(to: request)
        return String(decoding: response.body, as: UTF8.self).split(separator: "|", omittingEmptySubsequences: false)
            .map { String($0) }
    }

    @Test func `N02 nginx's redirect is followed and credentials are not sent to another server`() async throws {
        let secret: HTTPHeaders = ["Authorization": "Bearer secret"]
        #expect(try await self.echo("/near", secret) == ["GET", "Bearer secret", ""])
        #expect(try await self.echo("/far", secret) == ["GET", "", ""])
        await #expect(throws: HTTPError.self) { try await self.echo("/round", secret) }
    }

    @Test func `N02 nginx's 206 response is not cached as the complete representation`() async throws {
        struct GetPart: HTTPRequest {
            var whole: GetFrom<Data>
            var endpoint: HTTPEndpoint { self.whole.endpoint }
            var method: HTTPMethod { .get }
            var headers: HTTPHeaders { ["Range": "bytes=0-8"] }
        }
        let part = GetPart(whole: GetFrom(base: self.base, path: "/hour/long.txt"))
        let response = try await HTTPClient().response(to: part)
        #expect(response.status == .partialContent)
        #expect(String(decoding: response.body, as: UTF8.self) == "1\n2\n3\n4\n5")
        #expect(response.headers[.contentRange]?.hasPrefix("bytes 0-8/") == true)

        let data = HTTPClient().multiplexer(cacheKey: "part", repository: MuxRepository(store: MemoryStore()), part)
        _ = try await data.request()
        #expect(data.cachedValue == nil)
    }
}
