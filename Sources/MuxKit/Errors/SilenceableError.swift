public import Foundation

/// Wraps an error that a stale value may replace.
///
/// If a fetch throws this error, the caller gets the previous value, within the limit of
/// ``MuxPolicy/staleIfError``. Without such a value, or if ``MuxPolicy/isSilenceable`` rejects this error,
/// the caller gets this error.
public struct SilenceableError: Error {
    /// The cause.
    public let underlying: any Error

    /// Wraps `underlying`.
    public init(_ underlying: any Error) {
        self.underlying = underlying
    }

    /// Whether a stale value may replace `error`; the default of ``MuxPolicy/isSilenceable``.
    ///
    /// Of nested errors (``WrappingError``), the outermost error whose type is mentioned here decides.
    /// `false` for a cancellation, for an encoding or decoding error, and for a refusal of a dependency.
    /// `true` for:
    ///
    /// - A ``SilenceableError``.
    /// - A ``ConnectivityError`` whose ``ConnectivityError/isConnectivityFailure`` is `true`.
    /// - An error of the URL loading system with the code timed out, no such host, failed DNS lookup, cannot
    ///   connect, connection lost, offline, roaming off, call active, or data not allowed. A failed TLS
    ///   handshake (-1200) counts only if the error contains the code of a closed connection.
    /// - A `POSIXError` with the code connection refused, reset, aborted, timed out, not connected or broken
    ///   pipe; network down, unreachable or reset; host down or unreachable.
    @Sendable public static func isSilenceable(_ error: any Error) -> Bool {
        error.firstDecision(Self.decision) ?? false
    }

    /// Whether an error is silenceable, regardless of wrapped errors; `nil` if the type of the error does not
    /// decide.
    static func decision(of error: any Error) -> Bool? {
        switch error {
        case is SilenceableError: return true
        case let error as any ConnectivityError: return error.isConnectivityFailure
        case is CancellationError, is DecodingError, is EncodingError: return false
        default: if error.isRefusal { return false }
        }
        let error = error as NSError
        switch error.domain {
        case "NSURLErrorDomain" where error.code == -1200:
            return (error.userInfo["_kCFStreamErrorCodeKey"] as? Int).map { Self.closedConnectionCodes.contains($0) }
                ?? false
        case "NSURLErrorDomain": return Self.connectivityCodes.contains(error.code)
        case POSIXError.errorDomain: return Self.socketCodes.contains(Int32(truncatingIfNeeded: error.code))
        default: return nil
        }
    }

    /// `NSURLError` codes, in the order of the documentation above.
    private static let connectivityCodes: Set<Int> = [-1001, -1003, -1006, -1004, -1005, -1009, -1018, -1019, -1020]

    /// Codes of Security/SecureTransport.h: connection closed gracefully, by an error, without notice.
    private static let closedConnectionCodes: Set<Int> = [-9805, -9806, -9816]

    /// Error numbers of sockets, in the order of the documentation above.
    private static let socketCodes: Set<Int32> = Set(
        [
            POSIXError.Code.ECONNREFUSED, .ECONNRESET, .ECONNABORTED, .ETIMEDOUT, .ENOTCONN, .EPIPE, .ENETDOWN,
            .ENETUNREACH, .ENETRESET, .EHOSTDOWN, .EHOSTUNREACH,
        ].map(\.rawValue)
    )
}

extension SilenceableError: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// The text of the wrapped error.
    public var errorDescription: String? { self.underlying.sentence }

    /// The same as ``errorDescription``.
    public var description: String { self.underlying.sentence }

    /// Contains only the ``description``.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

/// An error that reports whether the server was reached.
///
/// If ``isConnectivityFailure`` is `true`, the error has the same effects as a lost connection: a multiplexer
/// returns a stale value instead of the error (``SilenceableError/isSilenceable(_:)``), a retry is permitted
/// (``RetryAdvice``), and a download resumes. The conformance applies to errors of a fetch and to errors of a
/// transport of `MuxNetwork`:
///
/// ```swift
/// extension SocketClosed: ConnectivityError {}
/// ```
///
/// If ``isConnectivityFailure`` is `false`, the error has no such effect. Conform to ``RetryableError``, too,
/// for other advice about a retry: this advice takes precedence.
public protocol ConnectivityError: Error {
    /// Whether the server was not reached, or did not respond to the request.
    ///
    /// The default is `true`.
    var isConnectivityFailure: Bool { get }
}

extension ConnectivityError {
    /// `true`: by default, a conforming error is a connectivity failure.
    public var isConnectivityFailure: Bool { true }
}
