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
