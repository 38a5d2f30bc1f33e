import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// Rules for control by the caller: cancellation of the call, and errors and delays of the sink.
extension HTTPTransportConformance {
    static func cancelledBefore(_ transport: any HTTPTransport) async throws {
        try await self.serving(self.responding { _ in self.text() }) { server, url in
            for way in Way.allCases {
                let call: @Sendable @concurrent () async throws -> HTTPReply = {
                    withUnsafeCurrentTask { $0?.cancel() }
                    return try await self.reply(way, transport, HTTPCall(url: url))
                }
                try await self.expectCancellation(of: call, "cancelled before \(way)") {}
            }
            _ = try await transport.send(HTTPCall(url: try self.url(url, "/last")))
            let lines = server.requests.map(\.line)
            try self.expect(lines == ["GET /last"], "the server got \(lines)")
        }
    }

    static func cancelledWaiting(_ transport: any HTTPTransport) async throws {
        for way in Way.allCases {
            for head in ["", "HTTP/1.1 200 OK\r\nConte"] {
                let isWritten = Gate<Void>()
                try await self.serving(self.silent(after: head, isWritten)) { server, url in
                    let call: @Sendable @concurrent () async throws -> HTTPReply = {
                        try await self.reply(way, transport, HTTPCall(url: url))
                    }
                    let text = "cancelled after \(head.utf8.count) bytes of a head, with \(way)"
                    try await self.expectCancellation(of: call, text) { try? await isWritten.pass() }
                    await server.waitForClosedConnection()
                }
            }
        }
    }

    /// The start of a response: the head and 4 of 10 bytes of the body.
    private static let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"

    static func cancelledInBody(_ transport: any HTTPTransport) async throws {
        let isWritten = Gate<Void>()
        try await self.serving(self.silent(after: self.half, isWritten)) { server, url in
            let call: @Sendable @concurrent () async throws -> HTTPReply = {
                try await transport.send(HTTPCall(url: url))
            }
            try await self.expectCancellation(of: call, "cancelled in the body of send") { try? await isWritten.pass() }
            await server.waitForClosedConnection()
        }
        // The call is cancelled once after a piece, and once while the sink processes a piece.
        for isAtWork in [false, true] {
            let hasPiece = Gate<Void>()
            let work = Gate<Void>()
            try await self.serving(self.silent(after: self.half)) { server, url in
                let sink = WatchedSink(onPiece: {
                    hasPiece.open(1)
                    if isAtWork { try? await work.pass() }
                })
                let call: @Sendable @concurrent () async throws -> HTTPReply = {
                    try await transport.stream(HTTPCall(url: url), into: sink)
                }
                let text = "cancelled \(isAtWork ? "while the sink works" : "after a piece")"
                try await self.expectCancellation(of: call, text) { try? await hasPiece.pass() }
                await server.waitForClosedConnection()
            }
        }
    }

    private struct Refused: Error {}

    static func sinkErrors(_ transport: any HTTPTransport) async throws {
        for isAtHead in [true, false] {
            try await self.serving(self.silent(after: self.half)) { server, url in
                let sink = WatchedSink(
                    onHead: { if isAtHead { throw Refused() } },
                    onPiece: { throw Refused() }
                )
                let circumstances = "after an error of the sink at \(isAtHead ? "the head" : "a piece")"
                do {
                    let reply = try await transport.stream(HTTPCall(url: url), into: sink)
                    throw RuleBroken(detail: "\(circumstances), the call succeeded with \(reply)")
                } catch is Refused {
                } catch let broken as RuleBroken {
                    throw broken
                } catch {
                    throw RuleBroken(detail: "\(circumstances), the call threw \(error)")
                }
                await server.waitForClosedConnection()
            }
        }
        // The response needs no more bytes: the error must not be lost at the end of the call.
        try await self.serving(self.ending(after: self.text(200, "", "whole"))) { _, url in
            let sink = WatchedSink(onPiece: { throw Refused() })
            do {
                let reply = try await transport.stream(HTTPCall(url: url), into: sink)
                throw RuleBroken(detail: "after an error of the sink at the end, the call succeeded with \(reply)")
            } catch is Refused {}
        }
    }

    static func slowSinks(_ transport: any HTTPTransport) async throws {
        let size = 32 << 20
        let held = Gate<Int>()
        let gate = Gate<Void>()
        let sink = WatchedSink(keepsBody: false, onPiece: { try await gate.pass() })
        let script: RawServer.Script = { connection in
            try connection.readRequest()
            try connection.write("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            let piece = [UInt8](repeating: 7, count: 64 << 10)
            var (written, stalls) = (0, 0)
            while written < size {
                let count = try connection.writeSome(piece.prefix(size - written), milliseconds: 500)
                stalls = count == 0 ? stalls + 1 : 0
                // Two writes found no space for 500 ms each, and the sink waits: the client does not read.
                if stalls >= 2, gate.callCount > 0 { held.open(1, returning: written) }
                written += count
            }
            held.open(1, returning: written)
            connection.waitForEnd()
        }
        try await self.serving(script) { _, url in
            async let reply = transport.stream(HTTPCall(url: url), into: sink)
            let written = try await held.pass()
            try self.expect(written < 8 << 20, "the server could send \(written) bytes while the sink waited")
            gate.openForGood(returning: ())
            let status = try await reply.status
            try self.expect(status == 200, "the status is \(status)")
            let count = sink.count
            try self.expect(count == size, "the sink got \(count) bytes instead of \(size)")
        }
    }
}
