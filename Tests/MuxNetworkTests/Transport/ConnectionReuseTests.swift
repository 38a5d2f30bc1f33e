#if os(Linux)
import Dispatch
import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Stray bytes on an idle connection become no response, and the end of an idle connection is no failure.
@Suite(.standard)
struct ConnectionReuseTests {
    /// A response whose end does not depend on the connection.
    private enum First: String, CaseIterable {
        case length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
        case chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n"
        case head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
        case noContent = "HTTP/1.1 204 No Content\r\n\r\n"
        case notModified = "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"
        case chunkedNoContent = "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"

        var method: String { self == .head ? "HEAD" : "GET" }
    }

    /// The bytes or the ending that arrives before the second request.
    private enum Stray: String, CaseIterable {
        case response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: max-age=1000\r\n\r\nstray"
        case timeout = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        case lastChunk = "0\r\n\r\n"
        case blank = " "
        case end = "FIN"
        case reset = "RST"

        var isEnd: Bool { self == .end || self == .reset }
    }

    private static func transport() -> SystemTransport {
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        return SystemTransport(options)
    }

    /// A server that responds to `/first` with `first`, and to other requests with their method, target and
    /// body.
    private struct Server {
        let base: RawServer
        /// The number of written strays.
        let strays: Tally
        let url: URL

        init(_ first: String, then stray: Stray, inOneWrite: Bool = false) throws {
            let strays = Tally()
            self.strays = strays
            self.base = RawServer { connection in
                while true {
                    let request = try connection.readRequest()
                    guard request.target == "/first" else {
                        try connection.respond(200, "\(request.line) \(String(decoding: request.body, as: UTF8.self))")
                        continue
                    }
                    guard !inOneWrite else {
                        try connection.write(first + stray.rawValue)
                        continue
                    }
                    try connection.write(first)
                    try connection.waitToProceed()
                    if stray == .reset { connection.resetAtEnd() }
                    if stray.isEnd { return }
                    try connection.write(stray.rawValue)
                    strays.add()
                }
            }
            self.url = try self.base.start()
        }

        /// Sends the stray bytes or the end, and returns after their arrival at the client.
        func sendStray(_ stray: Stray) async {
            self.base.proceed()
            if stray.isEnd { await self.base.waitForClosedConnection() } else { await self.strays.reached(1) }
        }
    }

    @Test(arguments: First.allCases, Stray.allCases)
    private func `WR-01 stray bytes between two requests are not the response to the second request`(
        first: First,
        stray: Stray
    ) async throws {
        for method in ["GET", "POST", "PUT"] {
            let server = try Server(first.rawValue, then: stray)
            let transport = Self.transport()
            _ = try await transport.send(HTTPCall(method: first.method, url: server.url.appending(path: "first")))
            await server.sendStray(stray)

            let body: HTTPCall.Body? = method == "GET" ? nil : .data(Data("body".utf8))
            let call = HTTPCall(method: method, url: server.url.appending(path: "own"), body: body)
            for _ in 0..<2 {
                let reply = try await transport.send(call)
                #expect(reply.status == 200)
                #expect(String(decoding: reply.body, as: UTF8.self) == "\(method) /own \(body == nil ? "" : "body")")
            }

            // Each request was sent once, and the client closes the first connection.
            #expect(server.base.requests.map(\.connection) == [1, 2, 2])
            await server.base.waitForClosedConnection()
            await server.base.stop()
        }
    }

    @Test(arguments: First.allCases, Stray.allCases.filter { !$0.isEnd })
    private func `WR-01 stray bytes together with a response are not the response to the next request`(
        first: First,
        stray: Stray
    ) async throws {
        let server = try Server(first.rawValue, then: stray, inOneWrite: true)
        let transport = Self.transport()
        let reply = try await transport.send(
            HTTPCall(method: first.method, url: server.url.appending(path: "first"))
        )
        let isChunkedNoContent = first == .chunkedNoContent || first == .noContent || first == .notModified
        #expect(reply.body == Data((isChunkedNoContent || first == .head ? "" : "first").utf8))
        for number in 0..<3 {
            let own = try await transport.send(HTTPCall(method: "POST", url: server.url.appending(path: "\(number)")))
            #expect(String(decoding: own.body, as: UTF8.self) == "POST /\(number) ")
        }
        #expect(server.base.requests.count == 4)
        await server.base.stop()
    }

    @Test func `WR-01 a streamed body is sent once, complete, on the new connection`() async throws {
        let server = try Server(First.length.rawValue, then: .response)
        let transport = Self.transport()
        _ = try await transport.send(HTTPCall(url: server.url.appending(path: "first")))
        await server.sendStray(.response)

        let pieces = (0..<100).map { Data("\($0),".utf8) }
        let made = Tally()
        let body = HTTPCall.Body.stream(
            .init {
                AsyncStream { continuation in
                    made.add()
                    for piece in pieces { continuation.yield(piece) }
                    continuation.finish()
                }
            }
        )
        let reply = try await transport.send(
            HTTPCall(method: "POST", url: server.url.appending(path: "own"), body: body)
        )

        let text = String(decoding: pieces.reduce(Data(), +), as: UTF8.self)
        #expect(String(decoding: reply.body, as: UTF8.self) == "POST /own \(text)")
        #expect(made.value == 1)
        #expect(server.base.requests.map(\.connection) == [1, 2])
        await server.base.stop()
    }

    @Test func `WR-01 a cache stores no response that was sent before its request`() async throws {
        let server = try Server(First.length.rawValue, then: .response)
        let repository = MuxRepository(store: MemoryStore())
        let transport = CachingTransport(Self.transport(), repository: repository)
        _ = try await transport.send(HTTPCall(url: server.url.appending(path: "first")))
        await server.sendStray(.response)

        let call = HTTPCall(url: server.url.appending(path: "own"))
        for _ in 0..<2 { #expect(try await transport.send(call).body == Data("GET /own ".utf8)) }

        // The stray response is cacheable. The response to the request is not.
        #expect(server.base.requests.map(\.line) == ["GET /first", "GET /own", "GET /own"])
        await server.base.stop()
    }

    @Test(arguments: ["stray", "end"])
    func `WR-01 a token endpoint returns no tokens of another request`(kind: String) async throws {
        let sent = Tally()
        let server = RawServer { connection in
            while true {
                let request = try connection.readRequest()
                let body = String(decoding: request.body, as: UTF8.self)
                let own = body.split(separator: "&").first { $0.hasPrefix("refresh_token=") }?.dropFirst(14) ?? ""
                func json(_ name: some StringProtocol) -> String {
                    #"{"access_token":"\#(name)","token_type":"Bearer"}"#
                }
                try connection.respond(fields: "Content-Type: application/json\r\n", json(own))
                guard own == "first" else { continue }
                try connection.waitToProceed()
                if kind == "end" { return }
                try connection.respond(fields: "Content-Type: application/json\r\n", json("foreign"))
                sent.add()
            }
        }
        let endpoint = OAuthTokenEndpoint(
            url: try server.start().appending(path: "token"),
            client: OAuthClient(id: "app"),
            transport: Self.transport()
        )
        #expect(try await endpoint.refresh("first").access.value == "first")
        server.proceed()
        if kind == "end" { await server.waitForClosedConnection() } else { await sent.reached(1) }

        #expect(try await endpoint.refresh("second").access.value == "second")
        #expect(server.requests.map(\.connection) == [1, 2])
        await server.stop()
    }

    @Test func `WR-01 twelve hundred requests share a connection that is checked each time`() async throws {
        let server = LoopbackServer { request in .text(request.path) }
        let url = try server.start()
        let transport = Self.transport()
        for number in 0..<1_200 {
            let call = HTTPCall(method: number % 3 == 0 ? "POST" : "GET", url: url.appending(path: "\(number)"))
            #expect(try await transport.send(call).body == Data("/\(number)".utf8))
        }

        #expect(server.connectionCount == 1)
        await server.stop()
    }

    @Test func `WR-01 many stale connections are replaced at the same time, each once`() async throws {
        let (count, answered, closed) = (8, Tally(), Tally())
        let allHaveArrived = DispatchSemaphore(value: 0)
        let server = RawServer { connection in
            let number = connection.number
            while true {
                let request = try connection.readRequest()
                answered.add()
                // The server responds to the first requests together, so each request has a separate
                // connection.
                if number <= count { allHaveArrived.wait() }
                try connection.respond(200, request.target)
                guard number <= count else { continue }
                try connection.waitToProceed()
                try connection.write("stray")
                closed.add()
            }
        }
        let url = try server.start()
        let transport = Self.transport()
        func round(_ name: String) async throws {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<count {
                    group.addTask {
                        let call = HTTPCall(method: "POST", url: url.appending(path: "\(name)\(number)"))
                        let reply = try await transport.send(call)
                        #expect(reply.body == Data("/\(name)\(number)".utf8))
                    }
                }
                if name == "first" {
                    await answered.reached(count)
                    for _ in 0..<count { allHaveArrived.signal() }
                }
                try await group.waitForAll()
            }
        }
        try await round("first")
        for _ in 0..<count { server.proceed() }
        await closed.reached(count)
        try await round("second")

        #expect(server.requests.count == 2 * count)
        #expect(server.requests.suffix(count).allSatisfy { $0.connection > count })
        await server.waitForClosedConnection(count)
        await server.stop()
    }
}
#endif
