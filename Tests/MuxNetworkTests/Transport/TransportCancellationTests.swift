import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxNetwork

@Suite(.standard)
struct TransportCancellationTests {
    let gate = Gate<Void>()

    @Test(arguments: TransportKind.allCases)
    func `K13 a cancelled call leaves at once and its connection is closed`(kind: TransportKind) async throws {
        let transport = kind.make()
        let gate = self.gate
        let server = LoopbackServer { _ in
            try? await gate.pass()
            return .text("late")
        }
        let url = try server.start()
        let call = Task { try await transport.send(HTTPCall(url: url)) }
        await gate.waitForCall()

        call.cancel()

        await #expect(throws: CancellationError.self) { try await call.value }
        #expect(transport.pendingCount == 0)
        await server.waitForClosedConnection()
        #expect(gate.heldCount == 0)
        await server.stop()
    }

    @Test(arguments: TransportKind.allCases)
    func `K13 a call cancelled in the middle of the body leaves at once`(kind: TransportKind) async throws {
        let transport = kind.make()
        let gate = self.gate
        let server = LoopbackServer { _ in
            .held(body: Data(count: 1_000_000), after: 500_000) { try? await gate.pass() }
        }
        let url = try server.start()
        let call = Task { try await transport.send(HTTPCall(url: url)) }
        await gate.waitForCall()

        call.cancel()

        await #expect(throws: CancellationError.self) { try await call.value }
        await server.waitForClosedConnection()
        await server.stop()
    }

    @Test(arguments: TransportKind.allCases)
    func `K13 a call in a cancelled task sends nothing`(kind: TransportKind) async throws {
        let transport = kind.make()
        let gate = self.gate
        let server = LoopbackServer { _ in .text("") }
        let url = try server.start()
        let call = Task {
            try await gate.pass(ignoringCancellation: true)
            return try await transport.send(HTTPCall(url: url))
        }
        await gate.waitForCall()

        call.cancel()
        gate.open()

        await #expect(throws: CancellationError.self) { try await call.value }
        await server.stop()
        #expect(server.connectionCount == 0)
    }

    @Test(arguments: TransportKind.allCases)
    func `K13 a call cancelled during its start leaves at once`(kind: TransportKind) async throws {
        let gate = self.gate
        let server = LoopbackServer { _ in
            try? await gate.pass()
            return .text("late")
        }
        let url = try server.start()
        let clock = CancellingClock()
        let transport = kind.make(clock: clock)
        clock.arm()

        let call = Task { try await transport.send(HTTPCall(url: url)) }

        await #expect(throws: CancellationError.self) { try await call.value }
        #expect(transport.pendingCount == 0)
        await server.stop()
    }

    /// The moment of a call's cancellation, which is in the path of the call.
    private enum Moment: String, CaseIterable {
        case start, arrival, redirection, body, end, never, short
    }

    @Test(arguments: TransportKind.allCases)
    func `K13 calls with random cancellation neither crash nor hang nor leak`(kind: TransportKind)
        async throws
    {
        let calls = Locked<[String: Task<HTTPReply, any Error>]>([:])
        let server = LoopbackServer { request in
            let call = calls.withLock { $0[request.path] }
            switch Moment(rawValue: request.segments.first ?? "") {
            case .arrival:
                call?.cancel()
                return LoopbackServer.Response(body: Data(count: 2000))
            case .redirection:
                call?.cancel()
                return LoopbackServer.Response(status: 302, headers: ["Location": "/never"])
            case .body: return .held(body: Data(count: 2000), after: 1000) { call?.cancel() }
            case .end: return .held(body: Data(count: 2000), after: 2000) { call?.cancel() }
            case .short: return LoopbackServer.Response(body: Data(count: 10), claimedLength: 20)
            case .start, .never, nil: return LoopbackServer.Response(body: Data(count: 2000))
            }
        }
        let url = try server.start()
        let transport = kind.make()
        let counts = await withTaskGroup(of: [Int].self) { group in
            for worker in 0..<20 {
                group.addTask {
                    var random = SplitMix64(state: UInt64(worker))
                    var counts = [0, 0, 0]
                    for number in 0..<repetitions(100) {
                        let moment = Moment.allCases.randomElement(using: &random) ?? .never
                        let target = url.appending(path: "\(moment.rawValue)/\(worker)/\(number)")
                        let call = Task { try await transport.send(HTTPCall(url: target)) }
                        calls.withLock { $0[target.path()] = call }
                        if moment == .start { call.cancel() }
                        switch await call.result {
                        case .success: counts[0] += 1
                        case .failure(is CancellationError): counts[1] += 1
                        case .failure: counts[2] += 1
                        }
                    }
                    return counts
                }
            }
            return await group.reduce(into: [0, 0, 0]) { sum, part in
                for (index, count) in part.enumerated() { sum[index] += count }
            }
        }

        #expect(counts.reduce(0, +) == 20 * repetitions(100))
        #expect(counts.allSatisfy { $0 > repetitions(100) }, "\(counts)")
        #expect(transport.pendingCount == 0)
        await server.stop()
        #expect(server.openConnectionCount == 0)
    }

    #if os(macOS) || os(Linux)
    /// Foundation on Linux ends the process if a cancelled task decides about a redirection.
    @Test(.ownThreads) func `K13 a refused redirection and a cancellation during a redirection do not crash`() async {
        await #expect(processExitsWith: .success) {
            let calls = Locked<[String: Task<HTTPReply, any Error>]>([:])
            let server = LoopbackServer { request in
                if request.path.hasSuffix("/cancelled") { calls.withLock { $0[request.path] }?.cancel() }
                return LoopbackServer.Response(status: 302, headers: ["Location": "/again"])
            }
            let url = try server.start()
            var options = HTTPTransportConfiguration()
            options.maximumRedirects = 0
            let transport = URLSessionTransport(options)
            await withTaskGroup { group in
                for worker in 0..<16 {
                    group.addTask {
                        for number in 0..<repetitions(200) {
                            let kind = number % 2 == 0 ? "refused" : "cancelled"
                            let target = url.appending(path: "\(worker)/\(number)/\(kind)")
                            let call = Task { try await transport.send(HTTPCall(url: target)) }
                            calls.withLock { $0[target.path()] = call }
                            _ = await call.result
                        }
                    }
                }
            }
            await server.stop()
        }
    }

    /// The threads may wait for a session, which waits for its delegate.
    @Test(.ownThreads) func `K13 the delegate is called although all threads of the pool wait`() async {
        await #expect(processExitsWith: .success) {
            let held = DispatchSemaphore(value: 0)
            for _ in 0..<1000 { DispatchQueue.global().async { held.wait() } }
            let called = DispatchSemaphore(value: 0)
            let queue = BoundedOperationQueue()
            queue.addOperation { called.signal() }
            // A waiting pool gets one more thread each second, so the call would come after minutes.
            func isCalled() -> Bool { called.wait(timeout: .now() + 60) == .success }
            guard isCalled() else { exit(1) }
        }
    }
    #endif

    /// A slow sink, so that the session waits for its delegate most of the time.
    private struct SlowSink: HTTPSink {
        let checksum = Locked<UInt64>(0)

        func receive(head: HTTPReply) {}

        func receive(_ piece: Data) {
            self.checksum.withLock { $0 = piece.reduce(into: $0) { $0 = $0 &* 31 &+ UInt64($1) } }
        }
    }

    @Test(arguments: TransportKind.allCases)
    func `K13 a password challenge during a busy download does not stop the session`(kind: TransportKind)
        async throws
    {
        let server = LoopbackServer { request in
            guard request.path == "/large" else {
                return LoopbackServer.Response(status: 401, headers: ["WWW-Authenticate": "Basic realm=\"x\""])
            }
            return LoopbackServer.Response(body: Data(count: 16 << 20))
        }
        let url = try server.start()
        let transport = kind.make()
        let isOver = Locked(false)
        let download = Task {
            defer { isOver.withLock { $0 = true } }
            return try await transport.stream(HTTPCall(url: url.appending(path: "large")), into: SlowSink())
        }
        await server.waitForRequest()
        repeat {
            #expect(try await transport.send(HTTPCall(url: url)).status == 401)
        } while !isOver.withLock(\.self)
        #expect(try await download.value.status == 200)
        await server.stop()
    }

    #if os(Linux)
    @Test func `K13 a stream that ends because of a cancellation does not end the body`() async {
        let (pieces, source) = AsyncStream.makeStream(of: Data.self)
        let upload = CurlUpload(.stream(HTTPCall.BodyStream { pieces }), isRepeatable: false)
        let feeder = upload.feed(failed: { _ in }, more: {})

        feeder?.cancel()
        await feeder?.value

        guard case .failed = upload.read(limit: 10) else {
            Issue.record("the server would get a complete body")
            return
        }
        withExtendedLifetime(source) {}
    }

    @Test func `K13 libcurl gets no piece of a stream after the cancellation of the call`() async {
        let gate = self.gate
        let upload = CurlUpload(
            .stream(
                HTTPCall.BodyStream {
                    AsyncStream {
                        try? await gate.pass()
                        return Data("piece".utf8)
                    }
                }
            ),
            isRepeatable: false
        )
        let calls = Tally()
        guard case .unavailable = upload.read(limit: 10) else {
            Issue.record("a stream has no piece before its first read")
            return
        }
        let feeder = upload.feed(failed: { _ in }, more: { calls.add() })
        await gate.waitForCall()

        feeder?.cancel()
        gate.open()
        await feeder?.value

        guard case .failed = upload.read(limit: 10) else {
            Issue.record("libcurl would send a piece of a cancelled call")
            return
        }
    }
    #endif
}
