public import Foundation

/// Takes in an answer while it arrives, so that no more than a piece of it is in memory.
///
/// A transport calls it on a thread of its own, one call at a time and in order. Nothing holds the server back meanwhile,
/// so each call does a bounded amount of work, such as writing the piece to a file, and returns.
///
/// **After a failure.** An error that it throws ends the exchange, and the transport's caller gets that error.
public protocol HTTPSink: Sendable {
    /// Takes the head of the answer: the status and the header fields, before any of the body.
    ///
    /// - Parameter head: The head; its body is empty.
    /// - Throws: Any error, to go no further.
    func receive(head: HTTPReply) throws

    /// Takes the next piece of the body.
    ///
    /// - Parameter bytes: The piece, decoded from any content encoding.
    /// - Throws: Any error, to go no further.
    func receive(_ bytes: Data) throws
}
