/// An error that can tell whether it came of not reaching the server.
///
/// Thrown from a fetch, it permits to answer with an older value if it says so; see
/// ``SilenceableError/isSilenceable(_:)``.
public protocol ConnectivityError: Error {
    /// Whether the server was not reached, or did not answer, so that it has said nothing about the request.
    var isConnectivityFailure: Bool { get }
}
