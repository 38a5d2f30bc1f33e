public import MuxKit

extension OAuthDependentRunner where AccessToken == OAuthAccessToken, RefreshToken == String {
    /// Makes a runner that renews access tokens at a token endpoint.
    ///
    /// A refresh token that the server refuses (`invalid_grant`) leads to a sign-in, and nothing else does: without a network,
    /// or while the server is busy or broken, callers get the error, and the next call tries again.
    ///
    /// - Parameters:
    ///   - endpoint: Where the server hands out tokens.
    ///   - store: Keeps the tokens between launches.
    ///   - repository: Whose session the tokens belong to.
    ///   - policy: Bounds on what is done for one call.
    ///   - signIn: Asks the person, and returns the tokens of a new session; they have to include a refresh token.
    public init(
        endpoint: OAuthTokenEndpoint,
        store: any TokenStore = .inMemory,
        repository: MuxRepository = .shared,
        policy: RunnerPolicy = .onePerCall,
        signIn: @escaping @Sendable @concurrent () async throws -> OAuthTokens
    ) {
        self.init(
            store: store,
            repository: repository,
            policy: policy,
            refreshAccess: { refresh in
                let tokens = try await endpoint.refresh(refresh)
                return OAuthRenewal(
                    access: tokens.access,
                    refresh: tokens.refresh,
                    accessLifetime: endpoint.lifetime(of: tokens.access)
                )
            },
            signIn: {
                let tokens = try await signIn()
                guard let refresh = tokens.refresh else { throw OAuthError.noRefreshToken }
                return OAuthSignIn(
                    refresh: refresh,
                    access: tokens.access,
                    accessLifetime: endpoint.lifetime(of: tokens.access)
                )
            }
        )
    }
}
