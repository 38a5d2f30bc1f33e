public import Foundation

/// An answer whose status is not a success.
///
/// The whole answer is kept, its body included, and kept out of every description.
public struct HTTPStatusError: Error, Sendable {
    /// The answer.
    public var response: HTTPResponse

    /// What the server said about the failure, as the request's ``HTTPRequest/ServerError``; `nil` if it could not be read.
    public var serverError: (any Sendable)?

    /// Why ``serverError`` could not be read, as for a page in HTML that a gateway sent in place of JSON.
    public var decodingError: (any Error)?

    /// Describes a failure.
    public init(_ response: HTTPResponse, serverError: (any Sendable)? = nil, decodingError: (any Error)? = nil) {
        self.response = response
        self.serverError = serverError
        self.decodingError = decodingError
    }

    /// The status.
    public var status: HTTPStatus { self.response.status }

    /// What the server said about the failure, if it is of this type.
    public func serverError<ServerError>(as type: ServerError.Type = ServerError.self) -> ServerError? {
        self.serverError as? ServerError
    }
}

extension HTTPStatusError: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String { "The server answered with status \(self.status)." }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
