/// Sends requests and brings back what the server answered, whatever its status.
///
/// ``URLSessionTransport`` is the one for real servers; a test hands in a transport of its own.
public protocol HTTPTransport: Sendable {
    /// Sends a request and returns the complete answer.
    ///
    /// - Throws: ``HTTPError`` if there is no complete answer; `CancellationError`, at once, if the task is cancelled.
    func send(_ call: HTTPCall) async throws -> HTTPReply
}
