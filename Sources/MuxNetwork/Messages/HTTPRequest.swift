public import Foundation

/// A request as a value: what to ask, and what the answer is.
///
/// Two members are required, and say everything:
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
/// Everything else has a default, and is changed by declaring it. A request knows nothing of clients and servers; sent
/// twice, it is the same bytes twice.
public protocol HTTPRequest<Output>: Sendable {
    /// What the answer is: a `Decodable` type, or `Data` (the default); an optional may be absent (204).
    ///
    /// Where only the status counts, conform to ``HTTPCommand``. Any other type needs a ``mapper`` of one's own.
    associatedtype Output: Sendable = Data

    /// What the server says about a failure; `Never` (the default) if that does not matter.
    associatedtype ServerError: Decodable & Sendable = Never

    /// The place to ask.
    var endPoint: HTTPEndPoint { get }

    /// What to ask of it.
    var method: HTTPMethod { get }

    /// What is put in place of the path's placeholders; nothing by default.
    var pathValues: [String: String] { get }

    /// Parameters that follow those of the end point; none by default.
    var queryItems: HTTPQuery { get }

    /// Header fields; none by default.
    ///
    /// The order of precedence, the last one counts: the client's ``HTTPConfiguration/headers``, the kind of ``body``, these,
    /// the credentials.
    var headers: HTTPHeaders { get }

    /// Whether ``headers`` are all there are, `false` by default: neither the client's fields nor credentials are added.
    var usesPrivateHeaders: Bool { get }

    /// What is sent; nothing by default.
    var body: HTTPBody? { get }

    /// How long the server may be silent; `nil`, the default, for the client's time.
    var timeout: Duration? { get }

    /// The states that are a success, 200 to 299 by default.
    var successStatuses: ClosedRange<HTTPStatus> { get }

    /// What makes the output of an answer; by default, what the type of the output says.
    var mapper: HTTPMapper<Output> { get }
}

extension HTTPRequest {
    /// Nothing.
    public var pathValues: [String: String] { [:] }

    /// None.
    public var queryItems: HTTPQuery { [] }

    /// None.
    public var headers: HTTPHeaders { [:] }

    /// `false`.
    public var usesPrivateHeaders: Bool { false }

    /// Nothing.
    public var body: HTTPBody? { nil }

    /// The client's time.
    public var timeout: Duration? { nil }

    /// 200 to 299.
    public var successStatuses: ClosedRange<HTTPStatus> { 200...299 }
}

extension HTTPRequest where Output: Decodable {
    /// Takes `Data` as it is, and reads anything else as JSON, with dates in whatever form of ISO 8601.
    ///
    /// The same as ``HTTPMapper/data(errors:)`` and ``HTTPMapper/json(errors:dates:)``.
    public var mapper: HTTPMapper<Output> {
        HTTPMapper<Data>.data(errors: ServerError.self) as? HTTPMapper<Output> ?? .json(errors: ServerError.self)
    }
}

/// A request that is done or fails: of its answer only the status counts, and the body is ignored.
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
