public import Foundation

/// A successful answer whose body is not what was asked for.
///
/// The whole answer is kept, its body included, and kept out of every description.
public struct HTTPDecodingError: Error, Sendable {
    /// The answer.
    public var response: HTTPResponse

    /// What the mapper threw.
    public var underlying: any Error

    /// Describes a failure.
    public init(_ response: HTTPResponse, underlying: any Error) {
        self.response = response
        self.underlying = underlying
    }
}

extension HTTPDecodingError: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String { "The answer could not be read (\(HTTPError.kind(of: self.underlying)))." }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
