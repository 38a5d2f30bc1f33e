public import Foundation
public import MuxKit

/// Why a request did not lead to a value.
///
/// Descriptions and mirrors contain no body, no header, no URL and nothing of an underlying error but its kind:
/// each may hold a secret. Cancellation is always `CancellationError`, never one of these.
@nonexhaustive
public enum HTTPError: Error, Sendable {
    /// The request cannot be sent as it is described; nothing was sent.
    case preparation(HTTPPreparationError)

    /// There is no complete answer.
    case transport(HTTPTransportError)

    /// The server answered with a status that is not a success of this request.
    case status(HTTPStatusError)

    /// The body of a successful answer is not what was asked for.
    case decoding(HTTPDecodingError)

    /// There are no credentials to send: what renews or asks for them threw this.
    case authentication(any Error)
}

extension HTTPError {
    /// What the server said about the failure, if it is of this type.
    ///
    /// ```swift
    /// } catch let error as HTTPError {
    ///     show(error.serverError(as: Problem.self)?.title ?? error.localizedDescription)
    /// }
    /// ```
    public func serverError<ServerError>(as type: ServerError.Type = ServerError.self) -> ServerError? {
        guard case .status(let error) = self else { return nil }
        return error.serverError(as: type)
    }

    /// The status that the server answered with, if that is why.
    public var status: HTTPStatus? {
        guard case .status(let error) = self else { return nil }
        return error.status
    }
}

extension HTTPError: BadDependencyError {
    /// Whether the server refused the token: status 401.
    public var isBadDependency: Bool { self.status == .unauthorized }
}

extension HTTPError: ConnectivityError {
    /// Whether the server was not reached, or did not answer in time; the one that renews tokens included.
    public var isConnectivityFailure: Bool {
        switch self {
        case .transport(let error): error.isConnectivityFailure
        case .authentication(let error): SilenceableError.isSilenceable(error)
        case .preparation, .status, .decoding: false
        }
    }
}

extension HTTPError: LocalizedError, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// A text for people, without anything secret.
    public var errorDescription: String? {
        switch self {
        case .preparation(let error): error.description
        case .transport(let error): error.description
        case .status(let error): error.description
        case .decoding(let error): error.description
        case .authentication(let error): "There are no credentials to send (\(Self.kind(of: error)))."
        }
    }

    /// The same text.
    public var description: String { self.errorDescription ?? "" }

    /// The same text.
    public var debugDescription: String { self.description }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// Type and code of an error: what is safe to show of it.
    static func kind(of error: any Error) -> String {
        "\(type(of: error)) \((error as NSError).code)"
    }
}
