import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Requests, changes, sign-outs and cancellations in many orders.
@Suite(.timeLimit(.minutes(15)), .takesTurns)
struct CacheScheduleTests {
    @Test func `HC-05 no order of requests, changes and sign-outs shows what is over`() async throws {
        try await SeededExecutor.explore(1_000) { try await CacheScenario($0).play() }
    }
}

/// A server with versions and users, behind a cache.
private struct CacheScenario: Sendable {
    struct Server: Sendable {
        var versions = [0, 0]
        /// The versions whose change is over.
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
                guard schedule.draw(0..<4) > 0 else { throw HTTPError.transport(.closedWithoutAnswer(FetchLost())) }
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
                    // Credentials and session in one step: whoever asks has those of the session.
                    let (user, version, session) = self.server.withLock {
                        ($0.user, $0.known[place], self.cache.session)
                    }
                    let call = try ValidatedCall(self.call("GET", place, user: user))
                    let limits = HTTPExchange.Limits(
                        silence: .seconds(1_000),
                        deadline: nil,
                        body: nil,
                        from: self.cache.time.now,
                        session: session
                    )
                    let sink = HTTPBuffer(limit: .max)
                    let exchange = HTTPExchange(call, limits, self.cache.time)
                    var reply = try await self.cache.perform(call, exchange, into: sink)
                    reply.body = sink.body
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
            // A renewal that is under way while the answer is used is the only reason for an older version.
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
            // From now on everybody has to see the change.
            self.server.withLock { $0.known[place] = $0.versions[place] }
        }
    }

    private func signOut() async {
        for _ in 0..<self.schedule.draw(0..<6) { await self.schedule.pause() }
        // While the session ends, nobody has credentials.
        self.server.withLock { $0.user = -1 }
        await self.repository.clearAll()
        self.server.withLock { $0.user = 1 }
    }
}
