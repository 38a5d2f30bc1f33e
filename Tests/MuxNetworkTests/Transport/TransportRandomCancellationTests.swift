import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Calls that are cancelled at random points, and short limits.
///
/// `MUX_FUZZ=100` multiplies the number of calls by 100. `MUX_SEED=7` starts with the seed 7.
@Suite(.standard(minutes: 60))
struct TransportRandomCancellationTests {
    private let fuzz = FuzzRun()

    init() { self.fuzz.announce() }

    /// The point at which a call is cancelled.
    private enum Point: String, CaseIterable {
        /// Immediately after the creation of its task.
        case start
        /// After a random time.
        case moment
        /// When the server has received the request.
        case arrival
        /// When the server has received the request, and redirects it.
        case redirection
        /// When the server has sent a random part of the body.
        case sending
        /// When the sink receives the head.
        case head
        /// When the sink receives a random piece.
        case piece
        /// When a random piece of the request's body is produced.
        case upload
        /// When the server has sent the complete response.
        case end
        case never
    }

    /// A call, with the point and the time of its cancellation.
    private final class Flight: Sendable {
        private struct State: Sendable {
            var task: Task<Void, any Error>?
            var cancelled: ContinuousClock.Instant?
            var isEarly = false
        }

        let point: Point
        /// The number of the piece at which the call is cancelled.
        let piece: Int
        private let state = Locked(State())

        init(_ point: Point, _ piece: Int) {
            self.point = point
            self.piece = piece
        }

        var cancelled: ContinuousClock.Instant? { self.state.withLock { $0.cancelled } }

        func cancel() {
            let task = self.state.withLock { state in
                state.cancelled = state.cancelled ?? .now
                state.isEarly = state.task == nil
                return state.task
            }
            task?.cancel()
        }

        func set(_ task: Task<Void, any Error>) {
            let isEarly = self.state.withLock { state in
                state.task = task
                return state.isEarly
            }
            if isEarly { task.cancel() }
        }
    }

    private struct Report: Sendable {
        var successes = 0
        var cancellations = 0
        var worst = Duration.zero
    }

    private static let pieces = 8
    private static let pieceSize = 16 << 10

    /// A server that sends 128 KB, and cancels the flight of the path if its point is at the server.
    private static func server(_ flights: Locked<[String: Flight]>) -> LoopbackServer {
        LoopbackServer { request in
            let flight = flights.withLock { $0[request.segments.last ?? ""] }
            if flight?.point == .arrival { flight?.cancel() }
            if flight?.point == .redirection, request.segments.count == 1 {
                flight?.cancel()
                return LoopbackServer.Response(status: 302, headers: ["Location": "/again\(request.path)"])
            }
            let length = "\(Self.pieces * Self.pieceSize)"
            var steps: [LoopbackServer.Response.Step] = [.head(status: 200, headers: [("Content-Length", length)])]
            for number in 0..<Self.pieces {
                if flight?.point == .sending, flight?.piece == number { steps.append(.wait { flight?.cancel() }) }
                steps.append(.send(Data(count: Self.pieceSize)))
            }
            if flight?.point == .end { steps.append(.wait { flight?.cancel() }) }
            return LoopbackServer.Response(steps: steps)
        }
    }

    @Test func `TR-07 a call that is cancelled at any point ends at once and leaves no resources`() async throws {
        let flights = Locked<[String: Flight]>([:])
        let server = Self.server(flights)
        let url = try server.start()
        let count = 640 * self.fuzz.factor

        // The transport is deallocated at the end of this function.
        let report = await self.fly(count, flights, to: url)

        #expect(report.successes + report.cancellations == count)
        #expect(report.cancellations > count / 3 && report.successes > count / 20, "\(report)")
        if self.fuzz.factor > 1 { print("TR-07: \(report)") }
        await server.waitForClosedConnection(server.connectionCount)
        #expect(server.openConnectionCount == 0)
        await server.stop()
    }

    private func fly(_ count: Int, _ flights: Locked<[String: Flight]>, to url: URL) async -> Report {
        let transport = SystemTransport()
        let lanes = 16
        let report = await withTaskGroup(of: Report.self) { group in
            for lane in 0..<lanes {
                group.addTask {
                    var report = Report()
                    for number in stride(from: lane, to: count, by: lanes) {
                        await self.flyOne(self.fuzz.seed &+ UInt64(number), flights, transport, url, &report)
                    }
                    return report
                }
            }
            return await group.reduce(into: Report()) { sum, part in
                sum.successes += part.successes
                sum.cancellations += part.cancellations
                sum.worst = max(sum.worst, part.worst)
            }
        }
        #expect(transport.pendingCount == 0)
        return report
    }

    private func flyOne(
        _ seed: UInt64,
        _ flights: Locked<[String: Flight]>,
        _ transport: SystemTransport,
        _ url: URL,
        _ report: inout Report
    ) async {
        var random = SplitMix64(state: seed)
        let flight = Flight(
            Point.allCases.randomElement(using: &random) ?? .start,
            Int.random(in: 0..<Self.pieces, using: &random)
        )
        let pause = Duration.microseconds(Int.random(in: 0..<3_000, using: &random))
        flights.withLock { $0["\(seed)"] = flight }
        defer { flights.withLock { $0["\(seed)"] = nil } }
        var call = HTTPCall(url: url.appending(path: "\(seed)"))
        if flight.point == .upload {
            call.method = "POST"
            call.body = .stream(.init { Pieces(flight) })
        }
        let sink = Sink(flight)
        let ended = Locked(ContinuousClock.now)
        let task = Task { [call] in
            defer { ended.withLock { $0 = .now } }
            _ = try await transport.stream(call, into: sink)
        }
        flight.set(task)
        switch flight.point {
        case .start: flight.cancel()
        case .moment:
            // At a random time of the call, independent of events.
            try? await TimeSource(ContinuousClock()).sleep(for: pause)
            flight.cancel()
        default: break
        }
        do {
            try await task.value
            report.successes += 1
        } catch is CancellationError {
            report.cancellations += 1
            let took = (flight.cancelled ?? .now).duration(to: ended.withLock(\.self))
            report.worst = max(report.worst, took)
            #expect(took < .busyMachine, "MUX_SEED=\(seed): \(flight.point) took \(took)")
        } catch {
            Issue.record("MUX_SEED=\(seed): \(flight.point): \(error)")
        }
    }

    /// A sink that cancels the flight at the head or at a piece, if this is the flight's point.
    private struct Sink: HTTPSink {
        let flight: Flight
        let count = Locked(0)

        init(_ flight: Flight) { self.flight = flight }

        func receive(head: HTTPReply) { if self.flight.point == .head { self.flight.cancel() } }

        func receive(_ bytes: Data) {
            let place = self.flight.piece * TransportRandomCancellationTests.pieceSize
            let isReached = self.count.withLock { count in
                count += bytes.count
                return count > place
            }
            if self.flight.point == .piece, isReached { self.flight.cancel() }
        }
    }

    /// A body of eight pieces, which cancels the flight when it produces the flight's piece.
    private struct Pieces: AsyncSequence, AsyncIteratorProtocol, Sendable {
        let flight: Flight
        var number = 0

        init(_ flight: Flight) { self.flight = flight }

        func makeAsyncIterator() -> Self { self }

        mutating func next() async -> Data? {
            guard self.number < TransportRandomCancellationTests.pieces else { return nil }
            if self.number == self.flight.piece { self.flight.cancel() }
            self.number += 1
            return Data(count: TransportRandomCancellationTests.pieceSize)
        }
    }

    // MARK: - Short limits

    @Test func `TR-07 a time-out of ten milliseconds is respected`() async throws {
        let limit = Duration.milliseconds(10)
        let server = RawServer { connection in
            let target = try connection.readRequest().target
            if target == "/body" { try connection.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel") }
            connection.waitForEnd()
        }
        let url = try server.start()
        let transport = SystemTransport()
        var (least, most) = (Duration.seconds(60), Duration.zero)
        for number in 0..<(20 * min(50, self.fuzz.factor)) {
            let path = number.isMultiple(of: 2) ? "head" : "body"
            let start = ContinuousClock.now
            do {
                _ = try await transport.send(HTTPCall(url: url.appending(path: path), timeout: limit))
                Issue.record("a server that is silent has answered")
            } catch HTTPError.transport(.notConnected, _) {
                continue  // on a busy machine, connecting can take as long
            } catch {
                #expect(error as? HTTPError == HTTPError.timedOut(after: limit))
            }
            let took = start.duration(to: .now)
            (least, most) = (min(least, took), max(most, took))
        }
        #expect(least >= limit && least < .seconds(2) && most < .busyMachine, "between \(least) and \(most)")
        if self.fuzz.factor > 1 { print("TR-07: time-outs of \(limit) took between \(least) and \(most)") }
        #expect(transport.pendingCount == 0)
        await server.stop()
    }
}
