import Foundation
import MuxKit
import MuxNetwork
import MuxTesting
import Synchronization

/// Responses in a private cache.
enum CachingGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        try await withFolder { folder in
            [
                try await self.memory(group, effort), try await self.revalidation(group, effort),
                [try await self.storing(group, folder, effort)],
            ].flatMap(\.self)
        }
    }

    /// A server in memory, which confirms any validator.
    private struct Server: HTTPTransport {
        let body: Data

        func send(_ call: HTTPCall) async throws -> HTTPReply {
            let isConditional = call.headers["If-None-Match"] != nil
            return HTTPReply(
                status: isConditional ? 304 : 200,
                headers: [.cacheControl: "max-age=3600", .contentType: "text/plain", .eTag: "\"1\""],
                body: isConditional ? Data() : self.body
            )
        }
    }

    private static func url(_ path: String) -> URL {
        var components = URLComponents()
        (components.scheme, components.host, components.path) = ("http", "example.org", path)
        return components.url ?? URL(filePath: path)
    }

    /// Compares a small response from memory, and a confirmation, with the same response of a server without
    /// latency.
    private static func memory(_ group: String, _ effort: Effort) async throws -> [Row] {
        let server = Server(body: Data("hello".utf8))
        let cache = CachingTransport(server, repository: MuxRepository(store: MemoryStore()))
        let call = HTTPCall(url: self.url("/small"))
        let validating = HTTPCall(url: self.url("/small"), headers: [.cacheControl: "no-cache"])
        _ = try await cache.send(call)
        let confirmed = try await cache.send(validating)
        precondition(confirmed.headers.cacheStatuses.last?.forwardStatus == 304, "a request is not conditional")
        var contest = Contest(rounds: effort.rounds(25))
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await server.send(call)) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await cache.send(call)) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await cache.send(validating)) }
        }
        let outcome = try await contest.play()
        let limit = ("a server without latency", 0)
        return [
            Row(group, "a small answer from memory", outcome, figure: 1, limit: limit, goals: [.atMost(1_500)]),
            Row(group, "a confirmation (304) by a server without latency", outcome, figure: 2, limit: limit, goals: []),
        ]
    }

    /// Compares a request with a stored stale response, which the server confirms, with the same exchange
    /// without a cache, and with the same exchange followed by 20 µs of computation.
    private static func revalidation(_ group: String, _ effort: Effort) async throws -> [Row] {
        let confirmations = Atomic(0)
        let server = LoopbackServer { request in
            let isKnown = request.header("If-None-Match") != nil
            if isKnown { confirmations.wrappingAdd(1, ordering: .relaxed) }
            return LoopbackServer.Response(
                status: isKnown ? 304 : 200,
                headers: ["Cache-Control": "no-cache", "ETag": "\"1\""],
                body: isKnown ? Data() : Data("hello".utf8)
            )
        }
        let url = try server.start()
        let transport = SystemTransport()
        let cache = CachingTransport(transport, repository: MuxRepository(store: MemoryStore()))
        let call = HTTPCall(url: url)
        let conditional = HTTPCall(url: url, headers: ["If-None-Match": "\"1\""])
        consume(try await cache.send(call))
        var contest = Contest(rounds: effort.rounds(15))
        contest.add(times: 200) { count in
            for _ in 0..<count { consume(try await transport.send(conditional)) }
        }
        contest.add(times: 200) { count in
            for _ in 0..<count { consume(try await cache.send(call)) }
        }
        contest.add(times: 200) { count in
            for _ in 0..<count {
                consume(try await transport.send(conditional))
                let end = ContinuousClock.now.advanced(by: .microseconds(20))
                while ContinuousClock.now < end {}
            }
        }
        let outcome = try await contest.play()
        let count = confirmations.load(ordering: .relaxed)
        precondition(count == server.requestCount - 1, "a request is not conditional")
        await server.stop()
        let limit = ("the exchange without a cache", 0)
        return [
            Row(
                group,
                "a confirmation of a stored answer (304)",
                outcome,
                figure: 1,
                limit: limit,
                goals: [.timesLimit(1.2)]
            ),
            Row(group, "the exchange and 20 µs of computation", outcome, figure: 2, limit: limit, goals: []),
        ]
    }

    /// Compares storing a response of 1 MB in a file with writing the file.
    private static func storing(_ group: String, _ folder: URL, _ effort: Effort) async throws -> Row {
        let body = Data(repeating: 7, count: 1 << 20)
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.directory = folder.appending(path: "cache")
        let cache = CachingTransport(
            Server(body: body),
            options: options,
            repository: MuxRepository(store: MemoryStore())
        )
        let count = 20
        var contest = Contest(rounds: effort.rounds(9))
        contest.add(times: count) { count in
            for number in 0..<count { try body.write(to: folder.appending(path: "file-\(number)")) }
        }
        contest.add(times: count) { count in
            for number in 0..<count {
                let call = HTTPCall(
                    url: self.url("/\(number)"),
                    headers: [.cacheControl: "no-cache"]
                )
                consume(try await cache.send(call))
            }
        }
        return Row(
            group,
            "storing an answer of 1 MB",
            try await contest.play(),
            figure: 1,
            limit: ("writing the file", 0),
            goals: [.timesLimit(1.3)]
        )
    }
}
