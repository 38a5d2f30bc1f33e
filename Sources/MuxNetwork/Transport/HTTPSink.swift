public import Foundation
import MuxKit

/// Receives a response piece by piece while the response arrives, so the entire body need not be in memory.
///
/// The caller's task calls the sink, one call at a time and in order; the transports of this library call the
/// sink on the concurrent pool. During a call, these transports read from the server until a buffer is full.
/// Blocking work, such as writing to a file, belongs on another thread.
///
/// **After a failure.** An error of the sink ends the exchange; the transport throws that error to its
/// caller.
public protocol HTTPSink: Sendable {
    /// Receives the head of the response: the status and the header fields, before the body.
    ///
    /// - Parameter head: The head; the body in `head` is empty.
    /// - Throws: Any error, to end the exchange.
    func receive(head: HTTPReply) async throws

    /// Receives the next piece of the body.
    ///
    /// Bytes that arrive while the sink is busy may be joined to one piece for the next call.
    ///
    /// - Parameter bytes: The piece, decoded as described in ``HTTPReply/body``.
    /// - Throws: Any error, to end the exchange.
    func receive(_ bytes: Data) async throws
}

/// A sink that keeps the body in memory.
///
/// A body above the limit in bytes throws ``HTTPError/TransportFailure/bodyTooLarge(limit:)``.
package final class HTTPBuffer: HTTPSink {
    private let limit: Int
    private let bytes = Locked(Data())

    package init(limit: Int) { self.limit = limit }

    package var body: Data { self.bytes.withLock { $0 } }

    package func receive(head: HTTPReply) {}

    package func receive(_ bytes: Data) throws {
        try self.bytes.withLock { body throws(HTTPError) in
            guard bytes.count <= self.limit - body.count else { throw .bodyTooLarge(limit: self.limit) }
            if body.isEmpty { body = bytes } else { body.append(bytes) }
        }
    }
}

/// Records the first error of another sink.
final class RecordingSink: HTTPSink {
    private let base: any HTTPSink
    private let first = Locked<(any Error)?>(nil)

    init(_ base: any HTTPSink) { self.base = base }

    var failure: (any Error)? { self.first.withLock { $0 } }

    func receive(head: HTTPReply) async throws {
        try await self.recording { try await self.base.receive(head: head) }
    }

    func receive(_ bytes: Data) async throws { try await self.recording { try await self.base.receive(bytes) } }

    private func recording(_ body: () async throws -> Void) async throws {
        do {
            try await body()
        } catch {
            self.first.withLock { $0 = $0 ?? error }
            throw error
        }
    }
}
