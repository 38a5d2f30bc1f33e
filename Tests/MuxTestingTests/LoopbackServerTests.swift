import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct LoopbackServerTests {
    let transport = SystemTransport()

    @Test(arguments: [("X-Large", String(repeating: "x", count: 20_000), 431), ("Content-Length", "x", 400)])
    func `P-04 the server refuses requests with too large or invalid fields`(name: String, value: String, status: Int)
        async throws
    {
        let server = LoopbackServer { _ in .text("") }
        let url = try server.start()

        // Raw bytes: the library's transports refuse a Content-Length from the caller.
        let answer = try await RawClient.exchange("GET / HTTP/1.1\r\nHost: x\r\n\(name): \(value)\r\n\r\n", with: url)

        #expect(answer.text.hasPrefix("HTTP/1.1 \(status) "))
        #expect(server.requestCount == 0)
        await server.stop()
    }

    @Test func `P-04 one connection serves many requests and stopping closes it`() async throws {
        let server = LoopbackServer { .text($0.path) }
        let url = try server.start()
        for number in 0..<50 {
            let reply = try await self.transport.send(HTTPCall(url: url.appending(path: "\(number)")))
            #expect(reply.body == Data("/\(number)".utf8))
        }
        #expect(server.connectionCount == 1 && server.openConnectionCount == 1)

        await server.stop()

        #expect(server.openConnectionCount == 0)
    }

    @Test(arguments: [
        ("GET", "\"1\"", 206), ("GET", "W/\"1\"", 200), ("HEAD", "\"1\"", 200),
    ])
    func `P-04 a file has ranges for GET only, and no weak tag permits a range`(
        method: String,
        tag: String,
        status: Int
    ) async throws {
        let file = LoopbackServer.File(size: 100, etag: tag)
        let server = LoopbackServer { file.response(to: $0) }
        var call = HTTPCall(method: method, url: try server.start())
        call.headers["Range"] = "bytes=5-"
        call.headers["If-Range"] = tag
        #expect(try await self.transport.send(call).status == status)
        await server.stop()
    }

    @Test func `P-04 a stop ends held requests, and a restart serves on the same port`() async throws {
        let gate = Gate<Void>()
        let server = LoopbackServer { _ in
            try? await gate.pass()
            return .text("passed")
        }
        let url = try server.start()
        let held = Task { try await self.transport.send(HTTPCall(url: url)) }
        await server.waitForRequest("GET /")

        await server.stop()
        await #expect(throws: HTTPError.self) { try await held.value }
        gate.openForGood(returning: ())

        for _ in 0..<20 {
            #expect(try server.start() == url)
            #expect(try await self.transport.send(HTTPCall(url: url)).status == 200)
            await server.stop()
        }
    }

    @Test func `P-04 a stop does not wait for a handler that ignores cancellation`() async throws {
        let gate = Gate<Void>()
        let server = LoopbackServer { _ in
            try? await gate.pass(ignoringCancellation: true)
            return .text("late")
        }
        let url = try server.start()
        let held = Task { try await self.transport.send(HTTPCall(url: url)) }
        await gate.waitForCall()

        await server.stop()

        #expect(gate.heldCount == 1)
        await #expect(throws: HTTPError.self) { try await held.value }
        gate.open()
    }

    /// Lets a test wait for the pieces of a response.
    private final class PieceSink: HTTPSink {
        let pieces = Locked<[String]>([])
        let tally = Tally()

        func receive(head: HTTPReply) {}

        func receive(_ bytes: Data) {
            self.pieces.withLock { $0.append(String(decoding: bytes, as: UTF8.self)) }
            self.tally.add()
        }
    }

    @Test func `P-04 a response can be written in pieces, each as soon as it is available`() async throws {
        let gate = Gate<Data?>()
        let server = LoopbackServer { _ in
            .streamed(contentType: "text/event-stream") { (try? await gate.pass()) ?? nil }
        }
        let url = try server.start()
        let sink = PieceSink()
        let held = Task { try await self.transport.stream(HTTPCall(url: url), into: sink) }

        for (count, piece) in ["data: 1\n\n", "data: 2\n\n"].enumerated() {
            gate.open(returning: Data(piece.utf8))
            await sink.tally.reached(count + 1)
            #expect(sink.pieces.withLock { $0.last } == piece)
        }
        await gate.waitForCall(3)
        gate.open(returning: nil)

        let reply = try await held.value
        #expect(reply.headers["Content-Type"] == "text/event-stream")
        #expect(sink.pieces.withLock { $0.count } == 2)
        await server.stop()
    }

    @Test func `P-04 a client's disconnection cancels the wait for the next piece of a streamed response`() async throws
    {
        let gate = Gate<Data?>()
        let server = LoopbackServer { _ in
            .streamed(contentType: "text/plain") { (try? await gate.pass()) ?? nil }
        }
        let url = try server.start()
        let held = Task { try await self.transport.stream(HTTPCall(url: url), into: PieceSink()) }
        await gate.waitForCall()

        held.cancel()
        await server.waitForClosedConnection()

        #expect(server.openConnectionCount == 0)
        await #expect(throws: CancellationError.self) { try await held.value }
        await server.stop()
    }

    @Test func `P-04 a server listens on the given port or reports an error`() async throws {
        let free = LoopbackServer { _ in .text("free") }
        let url = try free.start()
        let port = try #require(url.port.flatMap { UInt16(exactly: $0) })
        let other = LoopbackServer(port: port) { _ in .text("told") }

        let error = #expect(throws: LoopbackServer.Failure.self) { try other.start() }
        #expect(error == .cannotListen(code: EADDRINUSE, port: port))
        #expect(error.map { "\($0)" } == "The loopback server cannot listen. Port \(port) is in use.")
        await free.stop()
        #expect(try other.start() == url)
        #expect(try await self.transport.send(HTTPCall(url: url)).body == Data("told".utf8))
        await other.stop()
        #expect(try other.start() == url)
        await other.stop()
    }
}
