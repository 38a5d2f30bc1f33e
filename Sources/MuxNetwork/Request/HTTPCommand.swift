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
