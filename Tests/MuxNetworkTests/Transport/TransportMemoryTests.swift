#if os(macOS) || os(Linux)
import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The memory, threads and processor time of calls, each measured in a separate process.
@Suite(.standard, .serialized)
struct TransportMemoryTests {
    /// The body has 64 MB, or 1 GB with `MUX_FUZZ=16` or more.
    @Test(.ownThreads) func `TR-07 a large body for a slow consumer needs less than 16 megabytes of memory`() async {
        await #expect(processExitsWith: .success) {
            let size = FuzzRun().factor >= 16 ? 1 << 30 : 64 << 20
            let isFull = Gate<Void>()
            let server = RawServer { connection in
                while try connection.readRequest().target == "/small" {
                    try connection.respond(200, String(repeating: "x", count: 1 << 20))
                }
                try connection.write("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
                let piece = [UInt8](repeating: 7, count: 64 << 10)
                var written = 0
                while written < size {
                    let count = try connection.writeSome(piece.prefix(size - written), milliseconds: 20)
                    // No buffer has room: the server is as far ahead of the consumer as possible.
                    if count == 0, isFull.heldCount > 0 { isFull.open() }
                    written += count
                }
                isFull.openForGood(returning: ())
                connection.waitForEnd()
            }
            let url = try server.start()
            let transport = SystemTransport()
            // One-time allocations are not counted.
            _ = try await transport.send(HTTPCall(url: url.appending(path: "small")))
            let sink = SlowSink(isFull)
            let before = ProcessMemory.resident
            let reply = try await transport.stream(HTTPCall(url: url.appending(path: "large")), into: sink)

            let (count, most) = sink.result
            #expect(reply.status == 200 && count == size && before > 0)
            #expect(most - before < 16 << 20)
            await server.stop()
        }
    }

    /// Waits after each 4 MB until the server can write no more, and then measures the memory.
    private final class SlowSink: HTTPSink {
        private struct State: Sendable {
            var count = 0
            var next = 4 << 20
            var most: Int64 = 0
        }

        private let isFull: Gate<Void>
        private let state = Locked(State())

        init(_ isFull: Gate<Void>) { self.isFull = isFull }

        var result: (count: Int, most: Int64) { self.state.withLock { ($0.count, $0.most) } }

        func receive(head: HTTPReply) {}

        func receive(_ bytes: Data) async throws {
            let waits = self.state.withLock { state in
                state.count += bytes.count
                guard state.count >= state.next else { return false }
                state.next += 4 << 20
                return true
            }
            guard waits else { return }
            try await self.isFull.pass()
            self.state.withLock { $0.most = max($0.most, ProcessMemory.resident) }
        }
    }

    #if os(Linux)
    @Test(.ownThreads) func `TR-07 a large body that is decoded needs less than 16 megabytes of memory`() async {
        await #expect(processExitsWith: .success) {
            // Stored blocks of deflate (RFC 1951, section 3.2.4) in the format zlib (RFC 1950): the encoded
            // body is longer than the decoded body.
            let (blocks, length) = (1 << 10, 0xffff)
            let block: [UInt8] = [0, 0xff, 0xff, 0, 0] + [UInt8](repeating: 7, count: length)
            let count = blocks * length
            // The checksum (Adler-32) of equal bytes.
            let low = (1 + 7 * count) % 65_521
            let high = (count + 7 * (count * (count + 1) / 2)) % 65_521
            let checksum: [Int] = [high / 256, high % 256, low / 256, low % 256]
            let end: [UInt8] = [1, 0, 0, 0xff, 0xff] + checksum.map { UInt8($0) }
            let server = RawServer { connection in
                while try connection.readRequest().target == "/small" {
                    try connection.respond(200, String(repeating: "x", count: 1 << 20))
                }
                let encoded = 2 + blocks * block.count + end.count
                try connection.write(
                    "HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: \(encoded)\r\n\r\n"
                )
                try connection.write([0x78, 0x01])
                for _ in 0..<blocks { try connection.write(block) }
                try connection.write(end)
                connection.waitForEnd()
            }
            let url = try server.start()
            let transport = SystemTransport()
            _ = try await transport.send(HTTPCall(url: url.appending(path: "small")))
            let gate = Gate<Void>()
            gate.openForGood(returning: ())
            let sink = SlowSink(gate)
            let before = ProcessMemory.resident
            let reply = try await transport.stream(HTTPCall(url: url.appending(path: "large")), into: sink)

            let result = sink.result
            #expect(reply.status == 200 && result.count == count && before > 0)
            #expect(result.most - before < 16 << 20)
            await server.stop()
        }
    }

    @Test(.ownThreads) func `TR-07 ten thousand calls wait on a single thread, and no core is busy`() async {
        await #expect(processExitsWith: .success) {
            let count = 10_000
            let held = Tally()
            let server = RawServer { connection in
                try connection.readRequest()
                held.add()
                connection.waitForEnd()
            }
            let url = try server.start()
            // The clock measures the limits of the calls, so its sleepers are the waiting calls.
            let clock = VirtualClock()
            let transport = SystemTransport(clock: clock)
            let calls = (0..<count).map { number in
                Task { try await transport.send(HTTPCall(url: url.appending(path: "\(number)"))) }
            }
            await clock.waitForSleepers(count)
            await held.reached(HTTPTransportConfiguration().connectionsPerHost)
            #expect(transport.pendingCount == count)

            // Measures idle seconds. In the first second, the last calls may still begin.
            var used = 1.0
            for _ in 0..<10 where used >= 0.5 {
                let (start, before) = (ContinuousClock.now, Self.processorTime)
                try await TimeSource(ContinuousClock()).sleep(for: .seconds(1))
                used = (Self.processorTime - before) / start.duration(to: .now)
            }
            // The list may lack some threads if threads begin or end meanwhile, but not always the same
            // threads.
            let threads = try (0..<20).map { _ in try Self.threads(named: "mux.http") }.max()
            #expect(threads == 1 && used < 0.5, "\(threads ?? 0) threads, \(used) cores: \(Self.ticksByThread)")

            for call in calls { call.cancel() }
            // A check of each error by Swift Testing takes time in proportion to the number of all errors.
            var cancelled = 0
            for call in calls {
                if case .failure(let error) = await call.result, error is CancellationError { cancelled += 1 }
            }
            #expect(cancelled == count)
            #expect(transport.pendingCount == 0)
            await server.stop()
        }
    }

    /// The number of this process's threads with that name.
    private static func threads(named name: String) throws -> Int {
        let folder = "/proc/self/task"
        return try FileManager.default.contentsOfDirectory(atPath: folder).count {
            let text = try? String(contentsOfFile: "\(folder)/\($0)/comm", encoding: .utf8)
            return text?.trimmingCharacters(in: .newlines) == name
        }
    }

    /// The processor time of each thread by name, in hundredths of a second, for the message of a failure.
    private static var ticksByThread: [String] {
        let folder = "/proc/self/task"
        let threads = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        return threads.compactMap { thread in
            // proc(5): the name is in parentheses, and the fields 14 and 15 are the times.
            let text = try? String(contentsOfFile: "\(folder)/\(thread)/stat", encoding: .utf8)
            let parts = text?.split(separator: ")")
            guard let fields = parts?.last?.split(separator: " "), fields.count > 12 else { return nil }
            let ticks = (Int(fields[11]) ?? 0) + (Int(fields[12]) ?? 0)
            return ticks > 10 ? "\(parts?.first?.split(separator: "(").last ?? ""): \(ticks)" : nil
        }
    }

    /// The processor time of this process, which Linux counts in microseconds.
    private static var processorTime: Duration { .microseconds(clock()) }
    #endif
}
#endif
