public import Foundation
public import MuxKit

/// Why a request did not lead to a value.
///
/// Descriptions and mirrors contain no body, no header, no URL and nothing of an underlying error but its kind:
/// each may hold a secret. Cancellation is always `CancellationError`, never one of these.
@nonexhaustive
public enum HTTPError: Error, Sendable {
    /// The URL is not an absolute `http` or `https` URL with a host, or the path does not name a place below it.
    case invalidURL

    /// The method or the header field of this name would not survive the way to the server; nothing was sent.
    case invalidHeader(name: String)

    /// The body could not be encoded; nothing was sent.
    case encoding(any Error)

    /// The server was not reached, or the exchange broke off.
    case transport(any Error)

    /// There was no complete answer within this time.
    case timedOut(after: Duration)

    /// What answered does not speak HTTP.
    case notHTTP

    /// The body ended early.
    case truncated(expected: Int, received: Int)

    /// The body is larger than the transport accepts.
    case bodyTooLarge(limit: Int)

    /// The server sent the client to a place where it does not follow.
    case redirectRefused(HTTPRedirectRefusal)

    /// The server answered with a status that is not 2xx. Its body is kept, and kept out of every description.
    case status(code: Int, body: Data)

    /// The body of a successful answer is not what was asked for.
    case decoding(any Error)
}

extension HTTPError: BadDependencyError {
    /// Whether the server refused the token: status 401.
    public var isBadDependency: Bool {
        guard case .status(code: 401, body: _) = self else { return false }
        return true
    }
}

extension HTTPError: ConnectivityError {
    /// Whether the server was not reached, or did not answer in time.
    public var isConnectivityFailure: Bool {
        switch self {
        case .timedOut: true
        case .transport(let error): SilenceableError.isSilenceable(error)
        default: false
        }
    }
}

extension HTTPError: LocalizedError, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// A text for people, without anything secret.
    public var errorDescription: String? {
        switch self {
        case .invalidURL: "The address of the request is not valid."
        case .invalidHeader(let name): "The request's \(name.debugDescription) is not valid."
        case .encoding(let error): "The request could not be encoded (\(Self.kind(of: error)))."
        case .transport(let error): "The server could not be reached (\(Self.kind(of: error)))."
        case .timedOut(let time): "The server did not answer within \(time)."
        case .notHTTP: "The answer is not an HTTP answer."
        case .truncated(let expected, let received): "The answer ended after \(received) of \(expected) bytes."
        case .bodyTooLarge(let limit): "The answer is larger than \(limit) bytes."
        case .redirectRefused(let reason): "A redirection was not followed: \(reason.description)."
        case .status(let code, _): "The server answered with status \(code)."
        case .decoding(let error): "The answer could not be read (\(Self.kind(of: error)))."
        }
    }

    /// The same text.
    public var description: String { self.errorDescription ?? "" }

    /// The same text.
    public var debugDescription: String { self.description }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// Type and code of an error: what is safe to show of it.
    private static func kind(of error: any Error) -> String {
        "\(type(of: error)) \((error as NSError).code)"
    }
}
