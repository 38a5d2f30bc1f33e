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

    /// Whether `error` is of this type, a ``ConnectivityError`` that says so, or an error of the system that does, or wraps such an
    /// error (``WrappingError``).
    ///
    /// The test of ``MuxPolicy`` unless it is given another. An error of the URL loading system is judged by its code: timed
    /// out, no such host, cannot connect, connection lost, offline, roaming off, call active, data not allowed. A failed TLS
    /// handshake (-1200) is connectivity only if the error says that the connection was closed. A `POSIXError` is judged by its
    /// code, too: connection refused, reset, aborted, timed out, not connected or broken, network or host down or unreachable.
    @Sendable public static func isSilenceable(_ error: any Error) -> Bool { error.firstAnswer(Self.answer) ?? false }

    /// Whether an error is silenceable, regardless of the error it wraps; `nil` if its type does not say.
    static func answer(of error: any Error) -> Bool? {
        switch error {
        case is SilenceableError: return true
        case let error as any ConnectivityError: return error.isConnectivityFailure
        case is CancellationError, is DecodingError, is EncodingError: return false
        default: break
        }
        let error = error as NSError
        switch error.domain {
        case "NSURLErrorDomain" where error.code == -1200:
            return (error.userInfo["_kCFStreamErrorCodeKey"] as? Int).map { Self.closures.contains($0) } ?? false
        case "NSURLErrorDomain": return Self.connectivityCodes.contains(error.code)
        case POSIXError.errorDomain: return Self.socketCodes.contains(Int32(truncatingIfNeeded: error.code))
        default: return nil
        }
    }

    /// `NSURLError` codes, in the order of the documentation above.
    private static let connectivityCodes: Set<Int> = [-1001, -1003, -1006, -1004, -1005, -1009, -1018, -1019, -1020]

    /// Numbers of Security/SecureTransport.h: closed in order, by an error, without notice.
    private static let closures: Set<Int> = [-9805, -9806, -9816]

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

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

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
