import Foundation
import MuxKit

extension HTTPTransport {
    /// Sends a request and returns the complete answer.
    ///
    /// - Throws: ``HTTPError`` whatever the transport throws, or `CancellationError`.
    package func exchange(_ call: HTTPCall) async throws -> HTTPReply {
        do {
            return try await self.send(call)
        } catch {
            throw HTTPError.ended(by: error)
        }
    }

    /// Sends a request and hands the answer to `sink` while it arrives.
    ///
    /// - Throws: What the sink threw, even if the transport throws something else then; ``HTTPError`` whatever else the
    ///   transport throws; or `CancellationError`.
    package func exchange(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        let sink = RecordingSink(sink)
        do {
            let head = try await self.stream(call, into: sink)
            if let failure = sink.failure { throw failure }
            return head
        } catch {
            throw sink.failure ?? HTTPError.ended(by: error)
        }
    }
}

extension HTTPError {
    /// What an exchange has ended with whose transport threw `error`: a ``HTTPError``, or `CancellationError`.
    fileprivate static func ended(by error: any Error) -> any Error {
        switch error {
        case let error as HTTPError: error
        case let error as HTTPTransportError: HTTPError.transport(error)
        case let error as HTTPPreparationError: HTTPError.preparation(error)
        case _ where self.isCancellation(error): CancellationError()
        default: HTTPError.unreachable(error)
        }
    }

    /// Whether `error` is a cancellation, which the URL loading system calls by a number.
    static func isCancellation(_ error: any Error) -> Bool {
        if error is CancellationError { return true }
        let error = error as NSError
        return error.domain == "NSURLErrorDomain" && error.code == -999
    }
}

/// Remembers the first error that another sink threw.
private final class RecordingSink: HTTPSink {
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
