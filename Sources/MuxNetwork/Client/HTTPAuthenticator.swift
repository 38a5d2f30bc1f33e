public import Foundation
public import MuxKit

/// Provides the tokens of an ``HTTPClient``'s requests, and renews a refused token once for concurrent
/// requests.
///
/// `DependentRunner` and `OAuthDependentRunner` are authenticators if their dependency is an ``HTTPToken``. A
/// custom authenticator that uses a runner should return the runner's ``sessionRepository``, so that a
/// sign-out removes the cached values of the clients with this authenticator.
public protocol HTTPAuthenticator: Sendable {
    /// The repository of the tokens' session; `nil`, the default, for tokens without a session.
    ///
    /// The repository is the default for a client's multiplexers and for its ``CachingTransport``. If the
    /// authenticator has a session, or is a `DependencyRunner`, a stored response is used without a token.
    /// Any other authenticator may have a different token for each call, so each call gets its token before
    /// the lookup in the cache.
    var sessionRepository: MuxRepository? { get }

    /// Runs `send` with a token, and again with a new token if `send` reports a bad token.
    ///
    /// - Parameter send: Sends a request with the token's headers.
    /// - Returns: The result of `send`.
    /// - Throws: The error of `send`, or the failure to get a token.
    nonisolated(nonsending) func authorized<Output: Sendable>(
        _ send: (any HTTPToken) async throws -> RunResult<Output>
    ) async throws -> Output
}

extension HTTPAuthenticator {
    /// `nil`: the tokens belong to no session.
    public var sessionRepository: MuxRepository? { nil }
}

extension HTTPAuthenticator where Self: DependencyRunner {
    /// `nil`: the tokens belong to no session, unless the runner has another implementation.
    public var sessionRepository: MuxRepository? { nil }
}

extension HTTPAuthenticator where Self: DependencyRunner, Dependency: HTTPToken {
    /// Runs `send` with the runner's dependency.
    ///
    /// - Parameter send: Sends a request with the token's headers.
    /// - Returns: The result of `send`.
    /// - Throws: The error of `send` or of the runner.
    public nonisolated(nonsending) func authorized<Output: Sendable>(
        _ send: (any HTTPToken) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.run { try await send($0) }
    }
}

extension DependentRunner: HTTPAuthenticator where Dependency: HTTPToken {}

extension OAuthDependentRunner: HTTPAuthenticator where AccessToken: HTTPToken {}

/// Credentials that authorize a request.
///
/// `String`, ``HTTPCredentials`` and ``JSONWebToken`` are tokens; a `String` is sent as a bearer token. A
/// custom token returns its header fields:
///
/// ```swift
/// struct Key: HTTPToken {
///     var key: String
///     var headers: HTTPHeaders { ["X-Api-Key": self.key] }
/// }
/// ```
public protocol HTTPToken: ExpiringDependency {
    /// The header fields of the token; removed on a redirection to another scheme, host or port.
    var headers: HTTPHeaders { get }

    /// The time of expiry, before which a runner renews the token; `nil`, the default, if unknown.
    var expiry: Date? { get }
}

extension HTTPToken {
    /// `nil`: unknown.
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
