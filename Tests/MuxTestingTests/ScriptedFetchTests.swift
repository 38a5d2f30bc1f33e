import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct ScriptedFetchTests {
    private struct Offline: Error {}

    @Test func `P-04 a scripted fetch plays its script in order and then throws ScriptEnded`() async throws {
        let fetch = ScriptedFetch<Int>([.value(1), .failure(Offline()), .computed { $0 * 10 }])

        #expect(try await fetch() == 1)
        await #expect(throws: Offline.self) { try await fetch() }
        #expect(try await fetch() == 30)
        await #expect(throws: ScriptEnded(call: 4)) { try await fetch() }

        #expect(fetch.callCount == 4 && fetch.endedCount == 4 && fetch.maximumConcurrency == 1)
    }

    @Test func `P-04 a scripted fetch counts the calls that run at the same time`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
        let tasks = (0..<3).map { _ in Task { try await fetch() } }
        await fetch.waitForCall(3)
        #expect(fetch.runningCount == 3)

        tasks[0].cancel()
        gate.openForGood(returning: 5)
        await fetch.waitForEnd(3)

        #expect(fetch.runningCount == 0 && fetch.maximumConcurrency == 3)
        for task in tasks.dropFirst() { #expect(try await task.value == 5) }
        #expect(try await fetch() == 5)
        #expect(fetch.maximumConcurrency == 3, "one alone does not lower it")
    }

    @Test func `PT-01 a scripted transport counts the requests that run at the same time`() async throws {
        let gate = Gate<HTTPReply>()
        let transport = ScriptedTransport { _, number in
            number > 2 ? try await gate.pass() : HTTPReply(status: 200)
        }
        let call = HTTPCall(url: try #require(URL(string: "http://host.example")))
        for _ in 0..<2 { _ = try await transport.send(call) }
        #expect(transport.maximumConcurrency == 1, "one after the other")

        let tasks = (0..<3).map { _ in Task { try await transport.send(call) } }
        await transport.waitForCall(5)
        gate.openForGood(returning: HTTPReply(status: 200))
        for task in tasks { _ = try await task.value }
        #expect(transport.maximumConcurrency == 3)
    }

    @Test func `CS-01 a script of a transport has statuses, values as JSON, and errors`() async throws {
        let transport = ScriptedTransport([
            .status(503, headers: ["Retry-After": "1"]), .json([1, 2]),
            .json(["title": "Closed", "at": "/"], status: 409, headers: ["Content-Type": "application/problem+json"]),
            .failure(Offline()), .json(Double.nan),
        ])
        let call = HTTPCall(url: try #require(URL(string: "http://host.example")))

        let busy = try await transport.send(call)
        #expect(busy.status == 503 && busy.headers["Retry-After"] == "1" && busy.body.isEmpty)
        let list = try await transport.send(call)
        #expect(list.status == 200 && list.headers["Content-Type"] == "application/json")
        #expect(list.body == Data("[1,2]".utf8))
        let refusal = try await transport.send(call)
        #expect(refusal.status == 409 && refusal.headers["Content-Type"] == "application/problem+json")
        #expect(refusal.body == Data(#"{"at":"/","title":"Closed"}"#.utf8))
        await #expect(throws: Offline.self) { try await transport.send(call) }
        await #expect(throws: EncodingError.self) { try await transport.send(call) }

        let date = Date(timeIntervalSince1970: 60)
        let client = HTTPClient(transport: ScriptedTransport([.json([date])]))
        #expect(try await client.get(call.url, as: [Date].self) == [date])
    }

    @Test func `P-04 the closure of a fake server of changes can read the server`() async throws {
        let later = Locked<FakeChangeServer?>(nil)
        let server = FakeChangeServer { _, _ in
            later.withLock { $0 }?.applied.isEmpty ?? true ? .confirm : .refuse(status: 409, "The second change.")
        }
        later.withLock { $0 = server }
        defer { later.withLock { $0 = nil } }

        try await server.receive("one", key: "1")
        await #expect(throws: FakeChangeServer.Failure.self) { try await server.receive("two", key: "2") }
        #expect(server.applied.map(\.content) == ["one"])
    }
}
