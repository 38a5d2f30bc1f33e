import Foundation

/// Sends requests and brings back what the server answered, whatever its status.
///
/// ``URLSessionTransport`` is the one for real servers; a test hands in a transport of its own, which needs
/// ``send(_:)`` alone.
///
/// **Errors.** A transport may throw errors of its own. Whoever uses the transport sees them as
/// ``HTTPTransportError/unreachable(_:)``, and they keep their class by one protocol, `ConnectivityError`: one that says that
/// the server was not reached is tried again (``HTTPConfiguration/retry``), answered with an older value
/// (`MuxPolicy.staleIfError`), and a download goes on where it stopped; one that denies it, such as a certificate that is not
/// trusted, is thrown at once. An error that says nothing counts as a lost connection, unless it is a cancellation or says that a
/// value cannot be encoded or decoded. A `RetryableError` decides on its own retries.
public protocol HTTPTransport: Sendable {
    /// Sends a request and returns the complete answer.
    ///
    /// - Throws: ``HTTPError``, or an error of the transport's own, if there is no complete answer; `CancellationError`, at
    ///   once, if the task is cancelled.
    func send(_ call: HTTPCall) async throws -> HTTPReply

    /// Sends a request and hands the answer to `sink` while it arrives.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body piece by piece.
    /// - Returns: The head of the answer, once the body is complete; its own body is empty.
    /// - Throws: ``HTTPError``, or an error of the transport's own, if there is no complete answer; what the sink threw;
    ///   `CancellationError`, at once, if the task is cancelled, while the sink may still be taking one last piece.
    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply
}

extension HTTPTransport {
    /// Sends a request with ``send(_:)`` and hands the whole answer to `sink`: for transports that have all of it anyway.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body in one piece.
    /// - Returns: The head of the answer.
    /// - Throws: What ``send(_:)`` or the sink threw.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        var reply = try await self.send(call)
        let body = reply.body
        reply.body = Data()
        try sink.receive(head: reply)
        if !body.isEmpty { try sink.receive(body) }
        return reply
    }
}
