public import Foundation
public import MuxKit

/// Why there is no complete answer to a request that was sent, or was about to be.
@nonexhaustive
public enum HTTPTransportError: Error, Sendable {
    /// The server was not reached, or the exchange broke off.
    ///
    /// Whatever else a transport throws becomes one of these: see ``HTTPTransport``.
    case unreachable(any Error)

    /// There was no complete answer within this time.
    case timedOut(after: Duration)

    /// What answered does not speak HTTP.
    case notHTTP

    /// The body ended early; both counts are in bytes.
    case truncated(expected: Int, received: Int)

    /// The body is larger than the transport accepts, in bytes.
    case bodyTooLarge(limit: Int)

    /// The server asked to be left alone (`Retry-After`), and this long of that is still to come; nothing was sent.
    case serverBusy(retryAfter: Duration)

    /// The server sent the client to a place where it does not follow.
    case redirectRefused(HTTPRedirectRefusal)
}

extension HTTPTransportError: ConnectivityError {
    /// Whether the server was not reached, or did not answer in time.
    ///
    /// An error that ``unreachable(_:)`` wraps has the last word if it is a `ConnectivityError`, or one of the system. Any other
    /// counts as one of connectivity if another attempt may help, since it ended an exchange.
    public var isConnectivityFailure: Bool {
        switch self {
        case .timedOut, .serverBusy: true
        case .unreachable(let error as any ConnectivityError): error.isConnectivityFailure
        case .unreachable(let error): RetryAdvice.of(error).isTransient
        case .notHTTP, .truncated, .bodyTooLarge, .redirectRefused: false
        }
    }
}

extension HTTPTransportError: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String {
        switch self {
        case .unreachable(let error): "The server could not be reached (\(HTTPError.kind(of: error)))."
        case .timedOut(let time): "The server did not answer within \(time)."
        case .notHTTP: "The answer is not an HTTP answer."
        case .truncated(let expected, let received): "The answer ended after \(received) of \(expected) bytes."
        case .bodyTooLarge(let limit): "The answer is larger than \(limit) bytes."
        case .serverBusy(let time): "The server wants to be left alone for \(time)."
        case .redirectRefused(let reason): "A redirection was not followed: \(reason.description)."
        }
    }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
