import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A response cache backs off from a failing server.
@Suite(.standard)
struct FailingServerTests {
    private let world = CachingWorld()

    private static let swr: HTTPHeaders = ["Cache-Control": "max-age=10, stale-while-revalidate=100000"]

    /// How the server fails after its first response; `nil` for a lost connection.
    private static let failures: [HTTPReply?] = [
        nil, HTTPReply(status: 500), HTTPReply(status: 503), HTTPReply(status: 408), HTTPReply(status: 429),
    ]

    private func cache(
        _ headers: HTTPHeaders = swr,
        failing failure: HTTPReply?,
        works: Locked<Bool> = Locked(false)
    ) async throws -> (CachingTransport, ClosureTransport) {
        let isFirst = Locked(true)
        let (cache, server) = self.world.cache { _ in
            let answers = isFirst.withLock { isFirst in
                defer { isFirst = false }
                return isFirst
            }
            if answers || works.withLock(\.self) {
                return HTTPReply(status: 200, headers: headers, body: Data("1".utf8))
            }
            guard let failure else { throw HTTPError.transport(.closedWithoutResponse(FetchLost())) }
            return failure
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        return (cache, server)
    }

    /// Sends requests, and expects the stored response for each request.
    private func ask(_ cache: CachingTransport, times: Int, every pause: Duration = .zero) async throws {
        for _ in 0..<times {
            #expect(try await cache.send(self.world.call()).body == Data("1".utf8))
            #expect(await settledOccupancy { cache.occupancy } == (0, 0, 0))
            self.world.clock.advance(by: pause)
        }
    }

    @Test(arguments: failures)
    func `WR-07 background revalidations pause after a failure, longer after each further failure`(failure: HTTPReply?)
        async throws
    {
        let (cache, server) = try await self.cache(failing: failure)
        try await self.ask(cache, times: 200)
        #expect(server.calls.count == 2)

        // After 1, 2, 4, 8, 16, 32, 60, 60, … seconds.
        try await self.ask(cache, times: 303, every: .seconds(1))
        #expect(server.calls.count == 2 + 9)
    }

    @Test func `WR-07 a success ends the pause`() async throws {
        let works = Locked(false)
        let (cache, server) = try await self.cache(failing: nil, works: works)
        try await self.ask(cache, times: 16, every: .seconds(1))
        #expect(server.calls.count == 1 + 5)
        works.withLock { $0 = true }
        self.world.clock.advance(by: .seconds(20))
        try await self.ask(cache, times: 1)
        works.withLock { $0 = false }
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.timeToLive == .seconds(10))
        #expect(server.calls.count == 1 + 6)

        self.world.clock.advance(by: .seconds(11))
        try await self.ask(cache, times: 2, every: .seconds(1))
        #expect(server.calls.count == 1 + 8, "the pauses begin again with a second")
    }

    @Test(arguments: [(404, true), (410, true), (501, true), (404, false)])
    func `WR-07 the confirmation of a stored error response is no failure`(status: Int, isConfirmed: Bool) async throws
    {
        let (cache, server) = self.world.cache { call in
            let headers: HTTPHeaders = ["Cache-Control": "max-age=0, stale-while-revalidate=1000", "ETag": "\"1\""]
            guard isConfirmed, call.headers["If-None-Match"] != nil else {
                return HTTPReply(status: status, headers: headers, body: Data("1".utf8))
            }
            return HTTPReply(status: 304, headers: headers)
        }
        try await self.ask(cache, times: 6)
        #expect(server.calls.count == 6, "each use of the stale response is followed by a revalidation")
    }

    @Test(arguments: [(200, [200, 200], 2), (404, [200, 404], 3)])
    func `WR-07 a response to HEAD in the background updates or invalidates the stored response`(
        status: Int,
        replies: [Int],
        count: Int
    ) async throws {
        let (cache, server) = self.world.cache { call in
            HTTPReply(status: call.method == "HEAD" ? status : 200, headers: Self.swr)
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        var statuses: [Int] = []
        for _ in 0..<2 {
            statuses.append(try await cache.send(self.world.call("HEAD")).status)
            #expect(await settledOccupancy { cache.occupancy } == (0, 0, 0))
        }
        #expect(statuses == replies && server.calls.count == count)
    }

    /// Some web frameworks send the same field with each response.
    @Test(arguments: ["no-cache, private", "max-age=0, private, must-revalidate", "private", "public"])
    func `WR-07 a server error without a lifetime replaces no stored response`(field: String) async throws {
        let phase = Locked(0)
        let (cache, _) = self.world.cache { _ in
            switch phase.withLock(\.self) {
            case 0: return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=10"], body: Data("1".utf8))
            case 1: return HTTPReply(status: 500, headers: ["Cache-Control": field, "ETag": "\"error\""])
            default: throw HTTPError.transport(.closedWithoutResponse(FetchLost()))
            }
        }
        #expect(try await cache.send(self.world.call()).status == 200)
        self.world.clock.advance(by: .seconds(11))
        phase.withLock { $0 = 1 }
        #expect(try await cache.send(self.world.call()).status == 500)
        phase.withLock { $0 = 2 }
        #expect(try await cache.send(self.world.call()).body == Data("1".utf8))
    }

    @Test func `WR-07 the Cache-Status of another cache is no confirmation by the server`() async throws {
        let headers: HTTPHeaders = ["Cache-Status": "CDN; fwd=stale; fwd-status=304"]
        let (cache, server) = try await self.cache(failing: HTTPReply(status: 500, headers: headers))
        try await self.ask(cache, times: 200)
        #expect(server.calls.count == 2)
    }

    @Test(arguments: [403, 429, 503])
    func `WR-07 background revalidations obey Retry-After`(status: Int) async throws {
        let busy = HTTPReply(status: status, headers: ["Retry-After": "60"])
        let (cache, server) = try await self.cache(failing: busy)
        try await self.ask(cache, times: 200, every: .milliseconds(299))
        #expect(server.calls.count == 2)
        self.world.clock.advance(by: .seconds(1))
        try await self.ask(cache, times: 1)
        #expect(server.calls.count == 3)
    }

    @Test func `WR-07 requests that may receive a stale response obey Retry-After`() async throws {
        let busy = HTTPReply(status: 503, headers: ["Retry-After": "60"])
        let (cache, server) = try await self.cache(
            ["Cache-Control": "max-age=10, stale-if-error=1000"],
            failing: busy
        )
        try await self.ask(cache, times: 200, every: .milliseconds(299))
        #expect(server.calls.count == 2)
        self.world.clock.advance(by: .seconds(1))
        try await self.ask(cache, times: 1)
        #expect(server.calls.count == 3)
    }

    @Test(arguments: [false, true])
    func `WR-07 a busy server gets no requests, and fresh responses are used meanwhile`(viaClient: Bool) async throws {
        let server = NumberServer()
        let cache = CachingTransport(server.transport, repository: self.world.repository)
        let client = self.world.client(cache)
        func number(_ id: String) async throws -> Int {
            guard !viaClient else { return try await client.output(of: GetNumber(id: id)).version }
            let reply = try await cache.send(try client.call(for: GetNumber(id: id)))
            guard reply.status == 200 else { throw FetchLost() }
            return try JSONDecoder().decode(Number.self, from: reply.body).version
        }
        #expect(try await number("a") == 1)
        server.state.withLock { $0.instead = HTTPReply(status: 503, headers: ["Retry-After": "60"]) }
        await #expect(throws: (any Error).self) { try await number("b") }
        #expect(server.calls.count == 2)
        server.state.withLock { $0.instead = nil }

        #expect(try await number("a") == 1)
        await #expect(throws: HTTPError.transport(.serverBusy(retryAfter: .seconds(60)))) { try await number("b") }
        #expect(server.calls.count == 2)
        self.world.clock.advance(by: .seconds(60))
        #expect(try await number("b") == 1)
    }
}
