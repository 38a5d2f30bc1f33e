import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The reasons of failures in events, and the statistics of a response cache.
@Suite(.standard)
struct FailureReasonTests {
    private struct Refused: Error {}

    private let world = CachingWorld()

    @Test func `CO-26 an error of the network has the reason of its cause`() {
        let response = HTTPResponse(request: self.world.call(), status: .init(503))
        let cases: [(any Error, MuxEvent.Reason)] = [
            (HTTPError.status(.init(response)), .status(503)),
            (HTTPError.decoding(.init(response, underlying: Refused())), .decoding),
            (HTTPError.transport(.timedOut(after: .seconds(1))), .timeOut),
            (HTTPError.transport(.deadlineExceeded(after: .seconds(1))), .timeOut),
            (HTTPError.TransportFailure.timedOut(after: .seconds(1)), .timeOut),
            (HTTPError.transport(.notResolved(URLError(.cannotFindHost))), .connection),
            (HTTPError.transport(.truncated(expected: 2, received: 1)), .connection),
            (HTTPError.transport(.unreachable(URLError(.timedOut))), .timeOut),
            (HTTPError.transport(.unreachable(URLError(.networkConnectionLost))), .connection),
            (HTTPError.transport(.unreachable(Refused())), .connection),
            (HTTPError.transport(.notHTTP), .decoding),
            (HTTPError.authentication(RunnerError.updateFailed(underlying: nil)), .refused),
            (HTTPError.authentication(URLError(.timedOut)), .timeOut),
            (OAuthError.refused(.init(.invalidGrant)), .refused),
            (OAuthError.refused(.init(.invalidClient, status: .unauthorized)), .status(401)),
            (OAuthError.unavailable(.init(503), retryAfter: nil), .status(503)),
            (OAuthError.malformed(.init(200), .notAnObject), .decoding),
            (OAuthError.transport(URLError(.timedOut)), .timeOut),
            (MediaError.brokeOff, .connection),
            (MediaError.diskFull, .other("MediaError")),
        ]
        for (error, reason) in cases { #expect(MuxEvent.Reason(of: error) == reason, "\(error)") }
    }

    @Test func `CO-26 the statistics of a response cache match its events`() async throws {
        let events = EventTally()
        let world = CachingWorld(observer: events)
        let gate = Gate<HTTPReply>()
        let headers: HTTPHeaders = ["Cache-Control": "max-age=10, stale-if-error=100"]
        let fails = Locked<Int?>(nil)
        let (cache, _) = world.cache { call in
            if call.url.path() == "/slow" { return try await gate.pass() }
            switch fails.withLock({ $0 }) {
            case nil: return HTTPReply(status: 200, headers: headers, body: Data("a".utf8))
            case 0: throw URLError(.networkConnectionLost)
            case .some(let status): return HTTPReply(status: status)
            }
        }
        let slow = HTTPCall(method: "GET", url: CacheFolder.url("/slow"))
        func send(_ headers: HTTPHeaders = [:]) async throws -> Int {
            try await cache.send(world.call("GET", headers)).status
        }
        #expect(try await send(["Cache-Control": "only-if-cached"]) == 504)
        for _ in 0..<3 { #expect(try await send() == 200) }
        world.clock.advance(by: .seconds(20))
        #expect(try await send(["Cache-Control": "max-stale"]) == 200)
        for status in [503, 0] {
            fails.withLock { $0 = status }
            #expect(try await send() == 200, "stale-if-error")
        }
        // The response may not be stored, so the waiters, which are already counted, send their own requests.
        try await withThrowingTaskGroup { group in
            for _ in 0..<3 { group.addTask { _ = try await cache.send(slow) } }
            await gate.waitForCall(1)
            await events.wait(for: .joined, count: 2)
            gate.openForGood(returning: HTTPReply(status: 200, headers: ["Cache-Control": "no-store"]))
            try await group.waitForAll()
        }

        let statistics = cache.statistics
        #expect(statistics.requests == 10)
        #expect(statistics.staleServed == 3)
        let counters: [(MuxEvent.Kind, Int)] = [
            (.hit, statistics.hits), (.joined, statistics.joins), (.missed, statistics.misses),
            (.fetchStarted, statistics.fetches), (.fetchFailed, statistics.failures),
            (.servedStale, statistics.staleServed),
        ]
        for (kind, count) in counters { #expect(events.count(of: kind) == count, "\(kind)") }
        #expect(events.count(of: .fetched) + events.count(of: .fetchFailed) == statistics.fetches)
        let failures = events.events.filter { $0.kind == .fetchFailed }
        #expect(failures.map(\.reason) == [.status(503), .connection])
        #expect(failures.allSatisfy { $0.name == "CachingTransport" })
    }

    /// A sink that refuses the head and the body.
    private struct Closed: HTTPSink {
        func receive(head: HTTPReply) async throws { throw Refused() }
        func receive(_ bytes: Data) async throws { throw Refused() }
    }

    @Test func `CO-26 a fetch with a refused response has an end event, and a refused hit is a hit`() async throws {
        let events = EventTally()
        let world = CachingWorld(observer: events)
        let status = Locked(200)
        let (cache, _) = world.cache { _ in
            let headers: HTTPHeaders = ["Cache-Control": "max-age=10, stale-if-error=100", "ETag": "\"1\""]
            let status = status.withLock { $0 }
            return HTTPReply(status: status, headers: headers, body: status == 200 ? Data("a".utf8) : Data())
        }
        _ = try await cache.send(world.call())
        await #expect(throws: Refused.self) { try await cache.stream(world.call(), into: Closed()) }
        #expect(cache.statistics.hits == 1)
        for number in [304, 503] {
            status.withLock { $0 = number }
            world.clock.advance(by: .seconds(20))
            await #expect(throws: Refused.self) { try await cache.stream(world.call(), into: Closed()) }
        }
        #expect(cache.statistics.requests == 4)
        #expect(cache.statistics.fetches == 3)
        #expect(events.count(of: .fetched) == 1)
        let failures = events.events.filter { $0.kind == .fetchFailed }
        #expect(failures.map(\.reason) == [.other("Refused"), .status(503)])
    }
}
