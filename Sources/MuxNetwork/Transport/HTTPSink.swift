public import Foundation
import MuxKit

/// Takes an answer while it arrives, so that no more than a piece of it is in memory.
///
/// Called by the caller's own task, on the concurrent pool, one call at a time and in order. While it works, the transport reads no
/// further than a bounded buffer. Work that blocks, such as writing to a file, belongs on another thread.
///
/// **After a failure.** An error that it throws ends the exchange, and the transport's caller gets that error.
public protocol HTTPSink: Sendable {
    /// Takes the head of the answer: the status and the header fields, before any of the body.
    ///
    /// - Parameter head: The head; its body is empty.
    /// - Throws: Any error, to end the exchange.
    func receive(head: HTTPReply) async throws

    /// Takes the next piece of the body.
    ///
    /// What arrives while the sink is busy may come in one piece with the next call.
    ///
    /// - Parameter bytes: The piece, decoded from a content coding that the transport knows and the request asked for.
    /// - Throws: Any error, to end the exchange.
    func receive(_ bytes: Data) async throws
}

/// A sink that keeps the body in memory, up to a limit.
package final class HTTPBuffer: HTTPSink {
    private let limit: Int
    private let bytes = Locked(Data())

    package init(limit: Int) { self.limit = limit }

    package var body: Data { self.bytes.withLock { $0 } }

    package func receive(head: HTTPReply) {}

    package func receive(_ bytes: Data) throws {
        let fits = self.bytes.withLock { body -> Bool in
            guard bytes.count <= self.limit - body.count else { return false }
            if body.isEmpty { body = bytes } else { body.append(bytes) }
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
