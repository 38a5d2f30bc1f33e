public import Foundation
public import MuxKit

/// Provides the tokens of an ``HTTPClient``'s requests, and renews a refused one once for all of them.
///
/// `DependentRunner` and `OAuthDependentRunner` are authenticators if their dependency is an ``HTTPToken``. One of your own that uses
/// a runner returns the runner's ``sessionRepository``, so that a sign-out reaches what its clients keep.
public protocol HTTPAuthenticator: Sendable {
    /// The repository whose session the tokens belong to; `nil`, the default, if they belong to none.
    ///
    /// It is the default repository of a client's multiplexers and of its ``CachingTransport``.
    var sessionRepository: MuxRepository? { get }

    /// Runs `send` with a token, and again with a new one if it reports the token as bad.
    ///
    /// - Parameter send: Sends a request with the token's headers.
    /// - Returns: What `send` returned.
    /// - Throws: Why there is no token.
    nonisolated(nonsending) func authorized<Output: Sendable>(
        _ send: (any HTTPToken) async throws -> RunResult<Output>
    ) async throws -> Output
}

extension HTTPAuthenticator {
    /// The tokens belong to no session.
    public var sessionRepository: MuxRepository? { nil }
}

extension HTTPAuthenticator where Self: DependencyRunner {
    /// The tokens belong to no session, unless the runner says otherwise.
    public var sessionRepository: MuxRepository? { nil }
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

/// Credentials that authorize a request.
///
/// `String` is one, sent as a bearer token; so are ``HTTPCredentials`` and ``JSONWebToken``. A type of your own returns its
/// header fields:
///
/// ```swift
/// struct Key: HTTPToken {
///     var key: String
///     var headers: HTTPHeaders { ["X-Api-Key": self.key] }
/// }
/// ```
public protocol HTTPToken: PerishableDependency {
    /// Its header fields, which are not sent on when a redirection leads to another scheme, host or port.
    var headers: HTTPHeaders { get }

    /// When it expires; `nil`, the default, if that is unknown. A runner renews it before.
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
