/// An error that says whether the server was reached.
///
/// One conformance gives an error all that a lost connection gets: a multiplexer answers with an older value in place of it
/// (``SilenceableError/isSilenceable(_:)``), another attempt is worth it (``RetryAdvice``), and a download goes on where it
/// stopped. It holds for an error that a fetch throws, and for one that a transport of `MuxNetwork` throws:
///
/// ```swift
/// extension SocketClosed: ConnectivityError {}
/// ```
///
/// An error that answers `false` gets none of these: the caller sees it at once. Conform to ``RetryableError``, too, to say
/// more of another attempt.
public protocol ConnectivityError: Error {
    /// Whether the server was not reached, or did not answer, so that it has said nothing about the request.
    ///
    /// `true` for an error that only conforms.
    var isConnectivityFailure: Bool { get }
}

extension ConnectivityError {
    /// `true`: an error that only conforms is one of connectivity.
    public var isConnectivityFailure: Bool { true }
}
