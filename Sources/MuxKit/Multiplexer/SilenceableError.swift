public import Foundation

/// Wraps an error for which an older value is good enough.
///
/// Throw it from a fetch to have the caller served with the value of before, as far as
/// ``MuxPolicy/staleIfError`` permits; without one the caller gets this error.
public struct SilenceableError: Error {
    /// What really went wrong.
    public let underlying: any Error

    /// Wraps `underlying`.
    public init(_ underlying: any Error) {
        self.underlying = underlying
    }

    /// Whether `error` is of this type, a ``ConnectivityError`` that says so, or an error of the system that does.
    ///
    /// The test of ``MuxPolicy`` unless it is given another. An error of the URL loading system is judged by its code: timed
    /// out, no such host, cannot connect, connection lost, offline, roaming off, call active,
    /// data not allowed. A failed TLS handshake is not connectivity. A `POSIXError` is judged by its code, too: connection refused,
    /// reset, aborted, timed out, not connected or broken, network or host down or unreachable.
    @Sendable public static func isSilenceable(_ error: any Error) -> Bool {
        if error is SilenceableError { return true }
        if let error = error as? any ConnectivityError { return error.isConnectivityFailure }
        let error = error as NSError
        switch error.domain {
        case "NSURLErrorDomain": return Self.connectivityCodes.contains(error.code)
        case POSIXError.errorDomain: return Self.socketCodes.contains(Int32(truncatingIfNeeded: error.code))
        default: return false
        }
    }

    /// `NSURLError` codes, in the order of the documentation above.
    private static let connectivityCodes: Set<Int> = [-1001, -1003, -1006, -1004, -1005, -1009, -1018, -1019, -1020]

    /// Error numbers of sockets, in the order of the documentation above.
    private static let socketCodes: Set<Int32> = Set(
        [
            POSIXError.Code.ECONNREFUSED, .ECONNRESET, .ECONNABORTED, .ETIMEDOUT, .ENOTCONN, .EPIPE, .ENETDOWN,
            .ENETUNREACH, .ENETRESET, .EHOSTDOWN, .EHOSTUNREACH,
        ].map(\.rawValue)
    )
}

extension SilenceableError: LocalizedError {
    /// The text of the wrapped error.
    public var errorDescription: String? { self.underlying.localizedDescription }
}
