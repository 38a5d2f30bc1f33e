import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Fast requests: reused connections, the limit of connections to a host, and few pieces for a busy sink.
@Suite(.standard)
struct TransportConnectionTests {
    private static func transport() -> SystemTransport {
        var options = HTTPTransportConfiguration()
        (options.usesProxies, options.connectionsPerHost) = (false, 4)
        return SystemTransport(options)
    }

    @Test func `TR-08 sequential requests share a connection`() async throws {
        let server = LoopbackServer { _ in .text("hello") }
        let call = HTTPCall(url: try server.start())
        let transport = Self.transport()
        for _ in 0..<200 { #expect(try await transport.send(call).body == Data("hello".utf8)) }

        #expect(server.requestCount == 200)
        #expect(server.connectionCount == 1)
        await server.stop()
    }

    @Test func `TR-08 concurrent requests share the connections to a host`() async throws {
        let server = LoopbackServer { _ in .text("hello") }
        let call = HTTPCall(url: try server.start())
        let transport = Self.transport()
        try await withThrowingTaskGroup(of: HTTPReply.self) { group in
            for _ in 0..<200 { group.addTask { try await transport.send(call) } }
            for try await reply in group { #expect(reply.status == 200) }
        }

        #expect(server.requestCount == 200)
        #expect((1...4).contains(server.connectionCount))
        await server.stop()
    }

    #if os(Linux)
    @Test func `PT-01 the time in the queue for a connection does not count as silence of the server`() async throws {
        let (clock, gate) = (VirtualClock(), Gate<Void>())
        var options = HTTPTransportConfiguration()
        (options.usesProxies, options.connectionsPerHost) = (false, 1)
        let transport = SystemTransport(options, clock: clock)
        let busy = LoopbackServer { request in
            if request.path == "/held" { try? await gate.pass() }
            return .text("hello")
        }
        let other = LoopbackServer { _ in .text("other") }
        let (url, otherURL) = (try busy.start(), try other.start())
        let held = Task {
            try await transport.send(HTTPCall(url: url.appending(path: "held"), timeout: .seconds(1_000)))
        }
        await gate.waitForCall()
        let hasEnded = Locked(false)
        let waiting = Task {
            defer { hasEnded.withLock { $0 = true } }
            return try await transport.send(HTTPCall(url: url, timeout: .seconds(5)))
        }
        try #require(await settled({ transport.pendingCount }, when: { $0 == 2 }) == 2)
        // libcurl's thread takes requests in order of arrival, so the request above is in the queue now.
        _ = try await transport.send(HTTPCall(url: otherURL, timeout: .seconds(1_000)))
        for _ in 0..<6 where !hasEnded.withLock({ $0 }) {
            await clock.waitForSleepers(2)
            clock.advance(by: .seconds(5))
            _ = await settled({ clock.sleeperCount >= 2 || hasEnded.withLock { $0 } }, when: { $0 })
        }
        gate.openForGood(returning: ())

        #expect(try await waiting.value.body == Data("hello".utf8))
        #expect(try await held.value.status == 200)
        await busy.stop()
        await other.stop()
    }
    #endif

    @Test func `TR-07 a host that does not respond delays no other host`() async throws {
        let (held, limit) = (Tally(), 4)
        let silent = RawServer { connection in
            try connection.readRequest()
            held.add()
            connection.waitForEnd()
        }
        let server = LoopbackServer { _ in .text("hello") }
        let (silentURL, url) = (try silent.start(), try server.start())
        let transport = Self.transport()
        let silentCalls = (0..<100).map { number in
            Task { try await transport.send(HTTPCall(url: silentURL.appending(path: "\(number)"))) }
        }
        await held.reached(limit)
        try await withThrowingTaskGroup(of: HTTPReply.self) { group in
            for _ in 0..<50 { group.addTask { try await transport.send(HTTPCall(url: url, timeout: .seconds(30))) } }
            for try await reply in group { #expect(reply.status == 200) }
        }

        // Calls with a connection leave, and calls that wait for a connection leave too.
        for call in silentCalls { call.cancel() }
        for call in silentCalls { await #expect(throws: CancellationError.self) { try await call.value } }
        #expect(transport.pendingCount == 0)
        #expect(server.connectionCount <= limit)
        for stop in [silent.stop, server.stop] { await stop() }
    }

    @Test func `TR-08 data that arrives while a sink is busy is passed on in a single piece`() async throws {
        let gate = Gate<Void>()
        let transport = ExchangeTransport { _, sink in
            try await sink.receive(head: HTTPReply(status: 200))
            for byte in UInt8(0)..<100 { try await sink.receive(Data([byte])) }
            gate.openForGood(returning: ())
            return [:]
        }
        let sink = BusySink(gate)
        let url = try #require(URL(string: "http://127.0.0.1/"))
        _ = try await transport.stream(HTTPCall(url: url), into: sink)

        let pieces = sink.pieces.withLock(\.self)
        #expect(pieces.reduce(Data(), +) == Data(0..<100))
        #expect(pieces.count <= 2)
    }

    /// A sink that is busy until the gate opens.
    private struct BusySink: HTTPSink {
        let gate: Gate<Void>
        let pieces = Locked<[Data]>([])

        init(_ gate: Gate<Void>) { self.gate = gate }

        func receive(head: HTTPReply) {}

        func receive(_ bytes: Data) async throws {
            self.pieces.withLock { $0.append(bytes) }
            try await self.gate.pass()
        }
    }
}
