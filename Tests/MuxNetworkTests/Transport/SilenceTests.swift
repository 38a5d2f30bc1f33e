import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Only the silence of the server counts, and only while the caller waits for the server.
@Suite(.standard)
struct SilenceTests {
    /// An exchange with the producer and the sink of the test, measured by a virtual clock.
    private final class World: HTTPSink, HTTPProducer {
        let clock = VirtualClock()
        let exchange: HTTPExchange
        /// Holds the sink at each piece of the body.
        let sink = Gate<Void>()
        private let bytes = Locked(Data())

        init(silence: Duration, deadline: Duration? = nil) throws {
            let time = TimeSource(self.clock)
            let call = try ValidatedCall(HTTPCall(url: try #require(URL(string: "http://host.example"))))
            let limits = HTTPExchange.Limits(silence: silence, deadline: deadline, body: nil, from: time.now)
            self.exchange = HTTPExchange(call, limits, time)
        }

        var body: Data { self.bytes.withLock { $0 } }

        func run() async throws -> HTTPReply { try await self.exchange.run(into: self) { _ in self } }

        func receive(head: HTTPReply) {}

        func receive(_ bytes: Data) async throws {
            try await self.sink.pass(ignoringCancellation: true)
            self.bytes.withLock { $0.append(bytes) }
        }

        func resume() {}
        func stop() {}

        /// Advances the time, and waits until the timer of the exchange sleeps again or has ended the
        /// exchange.
        func pass(_ duration: Duration) async {
            await self.clock.waitForSleepers()
            self.clock.advance(by: duration)
            while self.clock.sleeperCount == 0, !self.exchange.hasEnded { await Task.yield() }
        }

        /// Lets the consumer continue to its wait for the server, which no event reports.
        func settle() async { for _ in 0..<1_000 { await Task.yield() } }
    }

    private static let head = HTTPReply(status: 200, headers: [.contentLength: "8"])

    @Test func `PT-01 the slowness of a sink beyond the time-out is no silence of the server`() async throws {
        let world = try World(silence: .seconds(20))
        let call = Task { try await world.run() }
        await world.clock.waitForSleepers()
        // The server has sent everything but the end at once.
        _ = world.exchange.receive(head: Self.head)
        _ = world.exchange.receive(Data("complete".utf8))
        world.exchange.flush()
        await world.sink.waitForCall()

        for _ in 0..<5 { await world.pass(.seconds(20)) }
        #expect(!world.exchange.hasEnded)
        world.exchange.end(with: nil)
        world.sink.openForGood(returning: ())

        #expect(try await call.value.status == 200)
        #expect(world.body == Data("complete".utf8))
    }

    @Test func `PT-01 after a slow sink the server has the full time-out again`() async throws {
        let world = try World(silence: .seconds(20))
        let call = Task { try await world.run() }
        await world.clock.waitForSleepers()
        _ = world.exchange.receive(head: Self.head)
        _ = world.exchange.receive(Data("half".utf8))
        world.exchange.flush()
        await world.sink.waitForCall()
        await world.pass(.seconds(30))
        world.clock.advance(by: .seconds(10))

        world.sink.open()
        await world.settle()
        // The timer fires after 50 seconds. The caller has waited for the server only in the last 10.
        await world.pass(.seconds(10))
        #expect(!world.exchange.hasEnded)
        _ = world.exchange.receive(Data("late".utf8))
        world.exchange.end(with: nil)
        world.sink.openForGood(returning: ())

        #expect(try await call.value.status == 200)
        #expect(world.body == Data("halflate".utf8))
    }

    @Test func `PT-01 a slow sink does not suspend the deadline`() async throws {
        let world = try World(silence: .seconds(20), deadline: .seconds(50))
        let call = Task { try await world.run() }
        await world.clock.waitForSleepers()
        _ = world.exchange.receive(head: Self.head)
        _ = world.exchange.receive(Data("complete".utf8))
        world.exchange.flush()
        await world.sink.waitForCall()

        for _ in 0..<3 where !world.exchange.hasEnded { await world.pass(.seconds(20)) }
        world.sink.openForGood(returning: ())

        await #expect(throws: HTTPError.transport(.deadlineExceeded(after: .seconds(50)))) { try await call.value }
    }

    @Test func `PT-01 silence while the caller waits for the server is a time-out at the limit, not before`()
        async throws
    {
        let world = try World(silence: .seconds(20))
        let call = Task { try await world.run() }
        await world.pass(.seconds(15))
        await world.settle()
        world.exchange.recordActivity()
        await world.pass(.seconds(5))
        await world.pass(.seconds(14))
        #expect(!world.exchange.hasEnded)
        while !world.exchange.hasEnded { await world.pass(.seconds(1)) }

        await #expect(throws: HTTPError.timedOut(after: .seconds(20))) { try await call.value }
        #expect(world.clock.now.offset <= .seconds(40))
        #expect(world.clock.sleeperCount == 0)
    }

    @Test func `PT-01 silence does not count while the client has to send or waits for a connection`() async throws {
        let world = try World(silence: .seconds(20))
        let call = Task { try await world.run() }
        world.exchange.setWaitingForServer(false)
        await world.settle()
        for _ in 0..<3 { await world.pass(.seconds(20)) }
        #expect(!world.exchange.hasEnded)
        world.clock.advance(by: .seconds(10))

        world.exchange.setWaitingForServer(true)
        await world.pass(.seconds(10))
        #expect(!world.exchange.hasEnded, "the limit counts from when it is the server's turn")
        while !world.exchange.hasEnded { await world.pass(.seconds(1)) }

        await #expect(throws: HTTPError.timedOut(after: .seconds(20))) { try await call.value }
    }
}
