import Foundation

/// Sends requests and brings back what the server answered, whatever its status.
///
/// ``URLSessionTransport`` is the one for real servers; a test hands in a transport of its own, which needs
/// ``send(_:)`` alone.
public protocol HTTPTransport: Sendable {
    /// Sends a request and returns the complete answer.
    ///
    /// - Throws: ``HTTPError`` if there is no complete answer; `CancellationError`, at once, if the task is cancelled.
    func send(_ call: HTTPCall) async throws -> HTTPReply

    /// Sends a request and hands the answer to `sink` while it arrives.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body piece by piece.
    /// - Returns: The head of the answer, once the body is complete; its own body is empty.
    /// - Throws: ``HTTPError`` if there is no complete answer; what the sink threw; `CancellationError`, at once, if the
    ///   task is cancelled, while the sink may still be taking one last piece.
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
