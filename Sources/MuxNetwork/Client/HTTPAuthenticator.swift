public import Foundation
public import MuxKit

/// Hands out tokens for the requests of an ``HTTPClient``, and renews one that is refused, once for all requests.
///
/// `DependentRunner` and `OAuthDependentRunner` are authenticators if their dependency is an ``HTTPToken``.
public protocol HTTPAuthenticator: Sendable {
    /// Runs `send` with a token, and again with a new one if it reports that the token is bad.
    ///
    /// - Parameter send: Sends a request with the token's headers.
    /// - Returns: What `send` returned.
    /// - Throws: Why there is no token.
    nonisolated(nonsending) func authorized<Output: Sendable>(
        _ send: (any HTTPToken) async throws -> RunResult<Output>
    ) async throws -> Output
}

extension HTTPAuthenticator where Self: DependencyRunner, Dependency: HTTPToken {
    /// Runs `send` with the runner's dependency.
    ///
    /// - Parameter send: Sends a request with the token's headers.
    /// - Returns: What `send` returned.
    /// - Throws: What the runner throws.
    public nonisolated(nonsending) func authorized<Output: Sendable>(
        _ send: (any HTTPToken) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.run { try await send($0) }
    }
}

extension DependentRunner: HTTPAuthenticator where Dependency: HTTPToken {}

extension OAuthDependentRunner: HTTPAuthenticator where AccessToken: HTTPToken {}

/// What a client shows to a server to be let in.
///
/// `String` is one, shown as a bearer token; so are ``HTTPCredentials`` and ``JSONWebToken``. A type of one's own says
/// which fields it becomes:
///
/// ```swift
/// struct Key: HTTPToken {
///     var key: String
///     var headers: HTTPHeaders { ["X-Api-Key": self.key] }
/// }
/// ```
public protocol HTTPToken: PerishableDependency {
    /// The header fields that show it; they stay behind when a redirection leads to another scheme, host or port.
    var headers: HTTPHeaders { get }

    /// When it ends; `nil`, the default, if it does not say. A runner renews it before that.
    var expiry: Date? { get }
}

extension HTTPToken {
    /// It does not say.
    public var expiry: Date? { nil }
}

extension String: HTTPToken {
    /// The text as a bearer token: RFC 6750, section 2.1.
    public var headers: HTTPHeaders { HTTPCredentials.bearer(self).headers }
}

extension HTTPCredentials: HTTPToken {
    /// The `Authorization` field: RFC 9110, section 11.6.2.
    public var headers: HTTPHeaders { [.authorization: self.headerValue] }
}
