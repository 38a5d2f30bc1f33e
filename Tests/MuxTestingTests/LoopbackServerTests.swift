import Foundation
import MuxKit
import MuxNetwork
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(5)))
struct LoopbackServerTests {
    let transport = URLSessionTransport()

    @Test(arguments: [("X-Large", String(repeating: "x", count: 20_000), 431), ("Content-Length", "x", 400)])
    func `P-04 the server refuses what it does not take`(name: String, value: String, status: Int) async throws {
        let server = LoopbackServer { _ in .text("") }
        let url = try server.start()

        let reply = try await self.transport.send(HTTPCall(url: url, headers: [name: value]))

        #expect(reply.status == status)
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

    @Test func `P-04 stopping breaks off what is held and starting again serves on the same port`() async throws {
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

    @Test func `P-04 stopping a handler that does not listen to cancellation does not wait for it`() async throws {
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
}
