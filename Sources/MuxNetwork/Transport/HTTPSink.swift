public import Foundation
import MuxKit

/// Takes an answer while it arrives, so that no more than a piece of it is in memory.
///
/// A transport calls it on a thread of its own, one call at a time and in order. The calls hold up the transport, so each does a
/// bounded amount of work, such as writing the piece to a file.
///
/// **After a failure.** An error that it throws ends the exchange, and the transport's caller gets that error.
public protocol HTTPSink: Sendable {
    /// Takes the head of the answer: the status and the header fields, before any of the body.
    ///
    /// - Parameter head: The head; its body is empty.
    /// - Throws: Any error, to end the exchange.
    func receive(head: HTTPReply) throws

    /// Takes the next piece of the body.
    ///
    /// - Parameter bytes: The piece, decoded from any content encoding.
    /// - Throws: Any error, to end the exchange.
    func receive(_ bytes: Data) throws
}

/// A sink that keeps the body in memory, up to a limit.
final class HTTPBuffer: HTTPSink {
    private let limit: Int
    private let bytes = Locked(Data())

    init(limit: Int) { self.limit = limit }

    var body: Data { self.bytes.withLock { $0 } }

    func receive(head: HTTPReply) {}

    func receive(_ bytes: Data) throws {
        let fits = self.bytes.withLock { body -> Bool in
            guard bytes.count <= self.limit - body.count else { return false }
            body.append(bytes)
            return true
        }
        guard fits else { throw HTTPError.bodyTooLarge(limit: self.limit) }
    }
}

/// Remembers the first error that another sink threw.
final class RecordingSink: HTTPSink {
    private let base: any HTTPSink
    private let first = Locked<(any Error)?>(nil)

    init(_ base: any HTTPSink) { self.base = base }

    var failure: (any Error)? { self.first.withLock { $0 } }

    func receive(head: HTTPReply) throws { try self.recording { try self.base.receive(head: head) } }

    func receive(_ bytes: Data) throws { try self.recording { try self.base.receive(bytes) } }

    private func recording(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch {
            self.first.withLock { $0 = $0 ?? error }
            throw error
        }
    }
}
