public import Foundation

/// A request as a value, with the type of its output.
///
/// Two members are required:
///
/// ```swift
/// struct GetUser: HTTPRequest {
///     var endPoint: HTTPEndPoint { .init(scheme: .https, host: "api.domain.com", path: "/users/{id}") }
///     var method: HTTPMethod { .get }
///     typealias Output = User
/// }
/// let (user, response) = try await client.execute(GetUser(), path: ["id": "42"])
/// ```
///
/// The others have defaults. A request does not depend on the client; sent twice, it is the same bytes.
public protocol HTTPRequest<Output>: Sendable {
    /// The type of the output: a `Decodable` type, or `Data` (the default); an optional may be absent (204).
    ///
    /// Where only the status counts, conform to ``HTTPCommand``. Any other type needs a ``mapper`` of your own.
    associatedtype Output: Sendable = Data

    /// The type of a failure's body; `Never` (the default) to ignore it.
    associatedtype ServerError: Decodable & Sendable = Never

    /// The end point.
    var endPoint: HTTPEndPoint { get }

    /// The method.
    var method: HTTPMethod { get }

    /// The values of the path's placeholders; none by default.
    var pathValues: [String: String] { get }

    /// Parameters that follow those of the end point; none by default.
    var queryItems: HTTPQuery { get }

    /// Header fields; none by default.
    ///
    /// Precedence, from low to high: the client's ``HTTPClient/Configuration/headers``, the content type of ``body``, these, the token.
    var headers: HTTPHeaders { get }

    /// Whether neither the client's fields nor a token is added to ``headers``; `false` by default.
    var usesPrivateHeaders: Bool { get }

    /// The body; none by default.
    var body: HTTPBody? { get }

    /// How long the server may be silent; `nil`, the default, for the client's time.
    var timeout: Duration? { get }

    /// The statuses of a success; 200 to 299 by default.
    var successStatuses: ClosedRange<HTTPStatus> { get }

    /// Decodes the output; chosen by its type by default.
    var mapper: HTTPMapper<Output> { get }
}

extension HTTPRequest {
    /// None.
    public var pathValues: [String: String] { [:] }

    /// None.
    public var queryItems: HTTPQuery { [] }

    /// None.
    public var headers: HTTPHeaders { [:] }

    /// `false`.
    public var usesPrivateHeaders: Bool { false }

    /// None.
    public var body: HTTPBody? { nil }

    /// The client's time.
    public var timeout: Duration? { nil }

    /// 200 to 299.
    public var successStatuses: ClosedRange<HTTPStatus> { 200...299 }
}

extension HTTPRequest where Output: Decodable {
    /// Returns `Data` as it is, and decodes any other type from JSON, with dates in any form of ISO 8601.
    ///
    /// The same as ``HTTPMapper/data(errors:)`` and ``HTTPMapper/json(errors:dates:)``.
    public var mapper: HTTPMapper<Output> {
        HTTPMapper<Data>.data(errors: ServerError.self) as? HTTPMapper<Output> ?? .json(errors: ServerError.self)
    }
}

/// A request without an output: only the status of its answer counts.
///
/// ```swift
/// struct DeletePhoto: HTTPCommand {
///     var endPoint: HTTPEndPoint { .init(scheme: .https, host: "api.domain.com", path: "/photos/{id}") }
///     var method: HTTPMethod { .delete }
/// }
/// try await client.execute(DeletePhoto(), path: ["id": "42"])
/// ```
public protocol HTTPCommand: HTTPRequest where Output == Void {}

extension HTTPCommand {
    /// Ignores the body.
    public var mapper: HTTPMapper<Void> { .ignoringBody(errors: ServerError.self) }
}
