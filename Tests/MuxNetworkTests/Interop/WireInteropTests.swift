#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import Testing

/// Idle connections that servers close after a second, or on which a server sends stray bytes.
///
/// The server of stray bytes responds to `/pause/s` after `s` seconds. The tests wait for this response to
/// let time pass.
@Suite(
    .standard,
    .enabled(if: !Interop.wire.isEmpty, "Tests/Interop/wire/run starts the servers that this needs"),
    .serialized
)
struct WireInteropTests {
    private static let shortLived = Interop.wire.filter {
        !$0.key.hasPrefix("stray-") && !$0.key.hasPrefix("refusing-")
    }
    private static let strays = Interop.wire.filter { $0.key.hasPrefix("stray-") }

    private static func transport(connections: Int = 10) -> SystemTransport {
        var options = HTTPTransportConfiguration()
        options.certificateAuthorities = Interop.authority
        (options.usesProxies, options.connectionsPerHost) = (false, connections)
        return SystemTransport(options)
    }

    private static func pause(seconds: Double) async throws {
        let url = try #require(Interop.wire["stray-plain"])
        _ = try await self.transport().send(HTTPCall(url: url.appending(path: "pause/\(seconds)")))
    }

    /// The words of a response body: protocol, method, path, port of the client, request body.
    private static func words(_ reply: HTTPReply) -> [String] {
        String(decoding: reply.body, as: UTF8.self).split(separator: " ").map { String($0) }
    }

    @Test func `WR-01 all expected servers are running`() {
        let versions = ["12", "13"]
        let names = versions.flatMap { ["uvicorn-\($0)", "stray-\($0)"] } + ["stray-plain", "refusing-13-h2"]
        let both = ["nginx", "hypercorn"].flatMap { name in versions.flatMap { ["\(name)-\($0)", "\(name)-\($0)-h2"] } }
        #expect(Set(Interop.wire.keys) == Set(names + both))
    }

    @Test func `WR-01 two hundred POSTs at intervals above the idle limit each reach the server once`() async throws {
        let (lanes, rounds) = (20, 10)
        let transports = Self.shortLived.mapValues { ($0, Self.transport(connections: lanes)) }
        let answers = Locked<[String: [[String]]]>([:])
        for round in 0..<rounds {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (name, (url, transport)) in transports {
                    for lane in 0..<lanes {
                        group.addTask {
                            let body = HTTPCall.Body.data(Data("body-\(round)-\(lane)".utf8))
                            let call = HTTPCall(
                                method: "POST",
                                url: url.appending(path: "\(round)-\(lane)"),
                                body: body
                            )
                            do {
                                let words = Self.words(try await transport.send(call))
                                answers.withLock { $0[name, default: []].append(words) }
                            } catch {
                                Issue.record("\(name), round \(round): \(error)")
                            }
                        }
                    }
                }
                try await group.waitForAll()
            }
            try await Self.pause(seconds: 1.25)
        }

        for (name, words) in answers.withLock(\.self) {
            let expected = (0..<rounds).flatMap { round in (0..<lanes).map { "/\(round)-\($0)" } }
            #expect(words.map { $0[2] }.sorted() == expected.sorted(), "\(name)")
            #expect(words.allSatisfy { $0[1] == "POST" && ($0[0].contains("2") == name.hasSuffix("-h2")) }, "\(name)")
            // nginx does not send the body back.
            #expect(words.allSatisfy { $0.count < 5 || "/" + $0[4].dropFirst(5) == $0[2] }, "\(name)")
            // The server closed the connections of each round.
            #expect(Set(words.map { $0[3] }).count > rounds, "\(name)")
        }
    }

    @Test func `WR-01 twelve hundred requests share a connection over TLS 1.2 and 1.3, HTTP 1.1 and 2`() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (name, url) in Self.shortLived {
                group.addTask {
                    let transport = Self.transport()
                    var ports: Set<String> = []
                    for number in 0..<1_200 {
                        let method = number % 4 == 3 ? "POST" : "GET"
                        let call = HTTPCall(method: method, url: url.appending(path: "\(number)"))
                        let words = Self.words(try await transport.send(call))
                        #expect(words[1...2] == [method, "/\(number)"], "\(name)")
                        ports.insert(words[3])
                    }
                    #expect(ports.count == 1, "\(name)")
                }
            }
            try await group.waitForAll()
        }
    }

    @Test(arguments: ["refused", "goaway"])
    func `WR-08 a POST that the server has not processed is sent again`(kind: String) async throws {
        let url = try #require(Interop.wire["refusing-13-h2"])
        let name = UUID().uuidString
        // On a new connection. For GOAWAY also on a reused connection, where the last stream identifier shows
        // that the server has not processed the request.
        for path in ["\(kind)/\(name)"] + (kind == "goaway" ? ["first/\(name)", "\(kind)/kept-\(name)"] : []) {
            let call = HTTPCall(method: "POST", url: url.appending(path: path), body: .data(Data("body".utf8)))
            let reply = try await Self.refusedTransport.send(call)
            #expect(String(decoding: reply.body, as: UTF8.self) == "/\(path) body")
        }
    }

    private static let refusedTransport = Self.transport()

    @Test func `WR-01 stray bytes 1 ms to 3 s after a response are not the next response, over TLS too`() async throws {
        struct Meeting: Sendable {
            var name: String
            var url: URL
            var kind: String
            var delay: Double
        }
        let kinds = ["joined", "length", "chunked", "head", "nocontent", "notmodified"]
        let meetings = Self.strays.flatMap { name, url in
            kinds.flatMap { kind in
                [0.001, 0.05, 1, 3].map { Meeting(name: name, url: url, kind: kind, delay: $0) }
            }
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for meeting in meetings {
                group.addTask {
                    let transport = Self.transport()
                    let repository = MuxRepository(store: MemoryStore())
                    let caching = CachingTransport(transport, repository: repository)
                    let first = HTTPCall(
                        method: meeting.kind == "head" ? "HEAD" : "GET",
                        url: meeting.url.appending(path: "stray/\(meeting.kind)/\(meeting.delay)")
                    )
                    for method in ["GET", "POST"] {
                        let reply = try await caching.send(first)
                        let hasBody = ["joined", "length", "chunked"].contains(meeting.kind)
                        #expect(reply.body == Data((hasBody ? "first" : "").utf8), "\(meeting)")
                        try await Self.pause(seconds: meeting.delay + 0.2)
                        for number in 0..<3 {
                            let call = HTTPCall(
                                method: method,
                                url: meeting.url.appending(path: "own\(number)"),
                                headers: ["Cache-Control": "no-cache"]
                            )
                            let own = try await caching.send(call)
                            #expect(own.body == Data("own\(number)".utf8), "\(meeting)")
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
    }
}
#endif
