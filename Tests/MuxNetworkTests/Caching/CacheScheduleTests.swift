import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Requests, changes, sign-outs and cancellations in many orders.
@Suite(.standard)
struct CacheScheduleTests {
    @Test func `HC-05 no order of requests, changes and sign-outs returns an outdated response`() async throws {
        try await SeededExecutor.explore(250) { try await CacheScenario($0).play() }
    }

    @Test func `WR-11 no order of requests and reloads returns to an older response`() async throws {
        try await SeededExecutor.explore(75) { try await ReloadScenario($0).play() }
    }
}

/// A server with versions and users, behind a cache.
private struct CacheScenario: Sendable {
    struct Server: Sendable {
        var versions = [0, 0]
        /// The latest version of each resource whose change has returned.
        var known = [0, 0]
        var user = 0
        var exchanges = 0
    }

    struct Violation: Error {
        let text: String
    }

    let schedule: SeededExecutor
    let server = Locked(Server())
    let repository: MuxRepository
    let cache: CachingTransport

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        let server = self.server
        let clock = schedule.clock
        self.repository = MuxRepository(store: MemoryStore(), durability: .relaxed, clock: clock)
        let lifetime = ["max-age=60", "max-age=0", "no-store", "max-age=0, stale-while-revalidate=60"][
            schedule.draw(0..<4)
        ]
        let transport = ClosureTransport { call in
            let place = call.url.path() == "/a" ? 0 : 1
            for _ in 0..<schedule.draw(0..<3) { await schedule.pause() }
            guard call.method == "GET" else {
                server.withLock { $0.versions[place] += 1 }
                for _ in 0..<schedule.draw(0..<3) { await schedule.pause() }
                guard schedule.draw(0..<4) > 0 else { throw HTTPError.transport(.closedWithoutResponse(FetchLost())) }
                return HTTPReply(status: 204)
            }
            let version = server.withLock { server in
                server.exchanges += 1
                return server.versions[place]
            }
            let user = call.headers["Authorization"] ?? ""
            for _ in 0..<schedule.draw(0..<3) { await schedule.pause() }
            let tag = "\"\(user)-\(version)\""
            guard call.headers["If-None-Match"] != tag else {
                return HTTPReply(status: 304, headers: ["Cache-Control": lifetime, "ETag": tag])
            }
            return HTTPReply(
                status: 200,
                headers: ["Cache-Control": lifetime, "ETag": tag],
                body: Data("\(user) \(version)".utf8)
            )
        }
        self.cache = CachingTransport(transport, repository: self.repository)
    }

    func play() async throws {
        try await withThrowingTaskGroup { group in
            for _ in 0..<3 { group.addTask { try await self.read() } }
            group.addTask { try await self.change() }
            group.addTask { await self.signOut() }
            try await group.waitForAll()
        }
        let left = await settledOccupancy { self.cache.occupancy }
        guard left == (0, 0, 0) else { throw Violation(text: "\(left) is left") }
    }

    private func call(_ method: String, _ place: Int, user: Int) -> HTTPCall {
        HTTPCall(
            method: method,
            url: CacheFolder.url(place == 0 ? "/a" : "/b"),
            headers: ["Authorization": String(user)]
        )
    }

    private func read() async throws {
        for _ in 0..<4 {
            for _ in 0..<self.schedule.draw(0..<3) { await self.schedule.pause() }
            let place = self.schedule.draw(0..<2)
            let result = try await withThrowingTaskGroup(of: (Int, Int, HTTPReply)?.self) { group in
                group.addTask {
                    // A call and its credentials belong to the session in which the call starts.
                    let (user, version) = self.server.withLock { ($0.user, $0.known[place]) }
                    let reply = try await self.cache.send(self.call("GET", place, user: user))
                    return (user, version, reply)
                }
                if self.schedule.draw(0..<6) == 0 {
                    await self.schedule.pause()
                    group.cancelAll()
                }
                do { return try await group.next() ?? nil } catch is CancellationError { return nil }
            }
            guard let (user, version, reply) = result else { continue }
            let words = String(decoding: reply.body, as: UTF8.self).split(separator: " ").compactMap { Int($0) }
            guard words.count == 2 else { throw Violation(text: "no answer: \(reply)") }
            // An older version is permitted only in a stale response during a background revalidation.
            let mayBeOlder = reply.headers.cacheStatuses.last?.timeToLive.map { $0 < .zero } ?? false
            if user >= 0, words[0] >= 0, words[0] != user {
                throw Violation(text: "user \(user) got what is of user \(words[0])")
            }
            if words[1] < version, !mayBeOlder { throw Violation(text: "\(words[1]) after \(version)") }
        }
    }

    private func change() async throws {
        for _ in 0..<2 {
            for _ in 0..<self.schedule.draw(0..<3) { await self.schedule.pause() }
            let place = self.schedule.draw(0..<2)
            let user = self.server.withLock { $0.user }
            _ = try? await self.cache.send(self.call("PUT", place, user: user))
            // From now on every reader must see the change.
            self.server.withLock { $0.known[place] = $0.versions[place] }
        }
    }

    private func signOut() async {
        for _ in 0..<self.schedule.draw(0..<6) { await self.schedule.pause() }
        // While the session ends, no user has credentials.
        self.server.withLock { $0.user = -1 }
        await self.repository.clearAll()
        self.server.withLock { $0.user = 1 }
    }
}

/// A server whose resource changes constantly, with responses that are storable, not storable, or errors.
private struct ReloadScenario: Sendable {
    struct Server: Sendable {
        var version = 0
        var second = 0
        /// The latest version that a caller has received.
        var seen = 0
    }

    struct Violation: Error {
        let text: String
    }

    let schedule: SeededExecutor
    let server = Locked(Server())
    let cache: CachingTransport

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        let (server, clock) = (self.server, schedule.clock)
        let transport = ClosureTransport { call in
            for _ in 0..<schedule.draw(0..<3) { await schedule.pause() }
            let (version, second) = server.withLock { server in
                server.second += 1
                server.version += schedule.draw(0..<3) == 0 ? 0 : 1
                return (server.version, server.second)
            }
            for _ in 0..<schedule.draw(0..<4) { await schedule.pause() }
            let tag = "\"\(version)\""
            let lifetime = ["max-age=60", "max-age=0, stale-while-revalidate=60", "no-store", "max-age=60"]
            let kind = schedule.draw(0..<5)
            var headers: HTTPHeaders = ["Date": Self.date(second)]
            guard kind < lifetime.count else {
                return HTTPReply(status: 404, headers: headers, body: Data("\(version)".utf8))
            }
            headers["Cache-Control"] = lifetime[kind]
            if kind < 3 { headers["ETag"] = tag }
            if call.headers["If-None-Match"] == tag { return HTTPReply(status: 304, headers: headers) }
            guard call.headers["Range"] == nil || kind == 2 else {
                headers["Content-Range"] = "bytes 0-\(String(version).count - 1)/*"
                return HTTPReply(status: 206, headers: headers, body: Data("\(version)".utf8))
            }
            return HTTPReply(status: 200, headers: headers, body: Data("\(version)".utf8))
        }
        let repository = MuxRepository(
            store: MemoryStore(),
            durability: .relaxed,
            clock: clock,
            wallTime: { Date(timeIntervalSince1970: 784_111_777) }
        )
        self.cache = CachingTransport(transport, repository: repository)
    }

    private static func date(_ second: Int) -> String {
        "Sun, 06 Nov 1994 08:\(20 + second / 50):\(10 + second % 50) GMT"
    }

    func play() async throws {
        try await withThrowingTaskGroup { group in
            for _ in 0..<4 { group.addTask { try await self.read() } }
            try await group.waitForAll()
        }
        let left = await settledOccupancy { self.cache.occupancy }
        guard left == (0, 0, 0) else { throw Violation(text: "\(left) is left") }
    }

    private func read() async throws {
        for _ in 0..<6 {
            for _ in 0..<self.schedule.draw(0..<3) { await self.schedule.pause() }
            var headers: HTTPHeaders = [:]
            if self.schedule.draw(0..<2) == 0 { headers["Cache-Control"] = "no-cache" }
            if self.schedule.draw(0..<5) == 0 { headers["Range"] = "bytes=0-" }
            let floor = self.server.withLock(\.seen)
            let reply = try await self.cache.send(HTTPCall(url: CacheFolder.url("/a"), headers: headers))
            guard let version = Int(String(decoding: reply.body, as: UTF8.self)) else {
                throw Violation(text: "no version: \(reply)")
            }
            guard version >= floor else { throw Violation(text: "\(version) after \(floor): \(reply.headers)") }
            self.server.withLock { $0.seen = max($0.seen, version) }
        }
    }
}
