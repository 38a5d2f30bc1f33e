public import Foundation

/// Why a ``LoopbackServer`` did not start.
@nonexhaustive
public enum LoopbackError: Error, Sendable, Hashable, LocalizedError {
    /// The system refused the socket, for the reason that `errno` gave.
    case cannotListen(code: Int32)

    /// The server is running, or has not finished stopping.
    case alreadyRunning

    /// A text for the test's log.
    public var errorDescription: String? {
        switch self {
        case .cannotListen(let code): "The loopback server cannot listen (errno \(code))."
        case .alreadyRunning: "The loopback server is running already."
        }
    }
}
