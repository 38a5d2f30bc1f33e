public import Foundation

/// A request as a value, with the type of its output.
///
/// Two members are required:
///
/// ```swift
/// struct GetUser: HTTPRequest {
///     var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/users/{id}") }
///     var method: HTTPMethod { .get }
///     typealias Output = User
/// }
/// let (user, response) = try await client.execute(GetUser(), path: ["id": "42"])
/// ```
///
/// The other members have defaults. A request has no reference to a client, and may be sent several times.
public protocol HTTPRequest<Output>: Sendable {
    /// The type of the output: a `Decodable` type, or `Data` (the default). Use an optional type if the body
    /// may be absent (status 204).
    ///
    /// A type that is not `Decodable` needs a ``mapper``. For requests without an output, conform to
    /// ``HTTPCommand``.
    associatedtype Output: Sendable = Data

    /// The type of the body of a failure response; with `Never`, the default, the body is ignored.
    associatedtype ServerError: Decodable & Sendable = Never

    /// The endpoint.
    var endpoint: HTTPEndpoint { get }

    /// The method.
    var method: HTTPMethod { get }

    /// The values of the path's placeholders; empty by default.
    var pathValues: [String: String] { get }

    /// The query parameters, which follow the parameters of the endpoint; empty by default.
    var queryItems: HTTPQuery { get }

    /// The header fields; empty by default.
    ///
    /// Precedence, from low to high: the client's ``HTTPClient/Configuration/headers``, the content type of
    /// ``body``, this property, ``idempotencyKey``, the argument `headers` of
    /// ``HTTPClient/response(to:path:token:headers:)``, the token.
    var headers: HTTPHeaders { get }

    /// Whether the client adds neither its configured fields nor a token to ``headers``; `false` by default.
    var usesPrivateHeaders: Bool { get }

    /// The key of a change on the server, sent in the header field `Idempotency-Key`; `nil`, the default, or
    /// an empty text for no key.
    ///
    /// A server that supports the field applies requests with the same key once. So a request with a key is
    /// repeated as if its method were idempotent: by ``HTTPClient/Configuration/retry``, and by libcurl after
    /// the end of a kept connection. Use a new random key for each change, such as a UUID, and the same key
    /// for each repetition of the change.
    ///
    /// The key is sent unchanged. The draft of the field (draft-ietf-httpapi-idempotency-key-header) requires
    /// a string in quotation marks; widely used servers expect a key without the marks.
    var idempotencyKey: String? { get }

    /// The body; `nil` by default.
    var body: HTTPBody? { get }

    /// The maximum time that the client waits for the server without any activity on the connection; `nil`,
    /// the default, for the client's time-out.
    var timeout: Duration? { get }

    /// The statuses of a success; 200 to 299 by default.
    var successStatuses: ClosedRange<HTTPStatus> { get }

    /// Decodes the output; the default depends on the type of the output.
    var mapper: HTTPMapper<Output> { get }
}

extension HTTPRequest {
    /// An empty dictionary.
    public var pathValues: [String: String] { [:] }

    /// An empty query.
    public var queryItems: HTTPQuery { [] }

    /// No header fields.
    public var headers: HTTPHeaders { [:] }

    /// `false`.
    public var usesPrivateHeaders: Bool { false }

    /// `nil`.
    public var idempotencyKey: String? { nil }

    /// `nil`.
    public var body: HTTPBody? { nil }

    /// `nil`, for the client's time-out.
    public var timeout: Duration? { nil }

    /// 200 to 299.
    public var successStatuses: ClosedRange<HTTPStatus> { 200...299 }
}

extension HTTPRequest where Output: Decodable {
    /// Returns `Data` unchanged, and decodes any other type from JSON, with dates in ISO 8601
    /// (`tolerantISO8601`).
    ///
    /// The same as ``HTTPMapper/data(errors:)`` and ``HTTPMapper/json(errors:dates:)``. `Data?` is `nil` for
    /// an empty body.
    public var mapper: HTTPMapper<Output> {
        let data = HTTPMapper<Data>.data(errors: ServerError.self)
        return data as? HTTPMapper<Output>
            ?? data.map { $0.isEmpty ? nil : Optional($0) } as? HTTPMapper<Output>
            ?? .json(errors: ServerError.self)
    }
}

/// A request without an output: only the status of the response matters.
///
/// ```swift
/// struct DeletePhoto: HTTPCommand {
///     var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/photos/{id}") }
///     var method: HTTPMethod { .delete }
/// }
/// try await client.execute(DeletePhoto(), path: ["id": "42"])
/// ```
public protocol HTTPCommand: HTTPRequest where Output == Void {}

extension HTTPCommand {
    /// Ignores the body.
    public var mapper: HTTPMapper<Void> { .ignoringBody(errors: ServerError.self) }
}
