public import Foundation
public import MuxKit

/// The token endpoint of an authorization server: RFC 6749, section 3.2.
///
/// ```swift
/// let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "app"))
/// let tokens = try await endpoint.exchange(code: code, redirectURI: redirect, pkce: pkce)
/// let renewed = try await endpoint.refresh(tokens.refresh ?? "")
/// ```
///
/// An `OAuthDependentRunner` with an endpoint calls ``refresh(_:scopes:)`` if necessary.
///
/// The endpoint understands responses according to RFC 6749, and the deviations of large providers. If a
/// server reports a refused refresh token in another format, pass a closure:
///
/// ```swift
/// let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "app")) { reply in
///     guard reply.status == 400, let error = try? JSONDecoder().decode(GraphError.self, from: reply.body),
///         error.code == 190
///     else { return nil }
///     throw OAuthError.refused(OAuthError.Refusal(.invalidGrant, status: reply.status))
/// }
/// ```
///
/// **After a failure.** The endpoint repeats no request: a server can treat a repeated refresh token or code
/// as stolen. See ``OAuthError`` for the errors that end a session.
///
/// **Cancellation.** The transport ends the request, and the call throws `CancellationError`; the server may
/// have issued tokens.
public struct OAuthTokenEndpoint: Sendable {
    /// The endpoint's address.
    public let url: URL

    /// The app.
    public let client: OAuthClient

    /// The result of ``OAuthAddress/isSafeEndpoint(_:)`` for ``url``.
    private let isSafe: Bool
    private let transport: any HTTPTransport
    private let interpretReply: @Sendable (HTTPResponse) throws -> OAuthTokens?
    package var wallTime: @Sendable () -> Date = { Date() }

    /// Makes an endpoint; sends nothing.
    ///
    /// - Parameters:
    ///   - url: The address: an `https` URL, or an `http` URL on this machine, without a fragment. With any
    ///     other URL, every call throws ``OAuthError/insecureEndpoint`` and sends no request.
    ///   - client: The app.
    ///   - transport: Sends the requests.
    ///   - interpretReply: Interprets a response of any status before the endpoint interprets the response;
    ///     not called for a body of more than 1 MiB. Returns the tokens, or `nil` to pass the response to the
    ///     endpoint. Throws ``OAuthError/refused(_:)`` with ``OAuthError/Code/invalidGrant`` for a refused
    ///     refresh token. Errors other than ``OAuthError/refused(_:)`` reach the caller unchanged.
    public init(
        url: URL,
        client: OAuthClient,
        transport: any HTTPTransport = .system,
        interpretReply: @escaping @Sendable (_ reply: HTTPResponse) throws -> OAuthTokens? = { _ in nil }
    ) {
        self.url = url
        self.client = client
        self.isSafe = OAuthAddress.isSafeEndpoint(url)
        self.transport = transport
        self.interpretReply = interpretReply
    }

    // MARK: - Grants

    /// Exchanges the code of a redirection for tokens: RFC 6749, section 4.1.3.
    ///
    /// - Parameters:
    ///   - code: The code; a code is valid for one use.
    ///   - redirectURI: The redirection URI of the authorization, if any.
    ///   - pkce: The secret of the authorization (RFC 7636, section 4.5).
    /// - Returns: The tokens.
    /// - Throws: ``OAuthError``, `CancellationError`, or an error of the closure `interpretReply`.
    public func exchange(code: String, redirectURI: String? = nil, pkce: PKCE? = nil) async throws -> OAuthTokens {
        var parameters = [("code", code)]
        if let redirectURI { parameters.append(("redirect_uri", redirectURI)) }
        if let pkce { parameters.append(("code_verifier", pkce.verifier)) }
        return try await self.tokens(grantType: "authorization_code", parameters)
    }

    /// Exchanges a refresh token for tokens: RFC 6749, section 6.
    ///
    /// - Parameters:
    ///   - refresh: The refresh token.
    ///   - scopes: The scopes of the new access token, each of them a granted scope; an empty array for the
    ///     granted scopes.
    /// - Returns: The tokens. A new refresh token replaces the previous refresh token; without a new refresh
    ///   token, the previous refresh token stays in use.
    /// - Throws: ``OAuthError``, `CancellationError`, or an error of the closure `interpretReply`.
    public func refresh(_ refresh: String, scopes: [String] = []) async throws -> OAuthTokens {
        try await self.tokens(grantType: "refresh_token", [("refresh_token", refresh)] + Self.scope(scopes))
    }

    /// Gets a token with the app's own credentials: RFC 6749, section 4.4.
    ///
    /// - Parameter scopes: The requested scopes; an empty array for the server's default.
    /// - Returns: The token.
    /// - Throws: ``OAuthError``, `CancellationError`, or an error of the closure `interpretReply`.
    public func clientCredentials(scopes: [String] = []) async throws -> OAuthTokens.AccessToken {
        try await self.tokens(grantType: "client_credentials", Self.scope(scopes)).access
    }

    /// Gets tokens for another grant type: RFC 6749, section 4.5.
    ///
    /// - Parameters:
    ///   - grantType: The name of the type.
    ///   - parameters: The other parameters of the request, without `grant_type` and without the parameters
    ///     for the authentication of the client.
    /// - Returns: The tokens.
    /// - Throws: ``OAuthError``, `CancellationError`, or an error of the closure `interpretReply`.
    public func tokens(grantType: String, parameters: [String: String]) async throws -> OAuthTokens {
        try await self.tokens(grantType: grantType, parameters.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
    }

    private static func scope(_ scopes: [String]) -> [(String, String)] {
        scopes.isEmpty ? [] : [("scope", scopes.joined(separator: " "))]
    }

    private func tokens(grantType: String, _ parameters: [(String, String)]) async throws -> OAuthTokens {
        let call = try self.makeCall([("grant_type", grantType)] + parameters)
        let sentAt = self.wallTime()
        let reply: HTTPReply
        do {
            reply = try await self.transport.exchange(call)
        } catch let error as CancellationError {
            throw error
        } catch {
            throw OAuthError.transport(error)
        }
        do {
            if reply.body.count <= OAuthReply.maximumSize,
                let tokens = try self.interpretReply(HTTPResponse(request: call, reply: reply))
            {
                return tokens
            }
            return try OAuthReply.tokens(reply, sentAt: sentAt, now: self.wallTime())
        } catch OAuthError.refused(var refusal) {
            // A server may quote the refresh token or the code in a text.
            if self.quotes(refusal.explanation, parameters) { refusal.isExplanationPrivate = true }
            if self.quotes(refusal.code.rawValue, parameters) {
                refusal.code = refusal.refusesGrant ? .invalidGrant : .invalidRequest
            }
            throw OAuthError.refused(refusal)
        }
    }

    /// Whether a server's text quotes a sent value that may be secret; such a text must not be shown.
    ///
    /// The client's identifier, the scope, and values of fewer than 4 bytes do not count as secrets: such
    /// values are public, or occur in many texts.
    private func quotes(_ text: String?, _ sent: [(name: String, value: String)]) -> Bool {
        guard let text else { return false }
        let all = sent + self.client.parameters.map { (name: $0.0, value: $0.1) }
        var secrets = all.filter { !["client_id", "scope"].contains($0.name) }.map(\.value)
        if let credentials = self.client.credentials { secrets.append(credentials.value) }
        if case .header(let secret) = self.client.authentication { secrets.append(secret) }
        return secrets.contains { secret in
            secret.utf8.count >= 4 && (text.contains(secret) || text.contains(PercentEncoding.encode(secret)))
        }
    }

    /// The remaining lifetime of a token; `nil` if unknown.
    func lifetime(of token: OAuthTokens.AccessToken) -> Duration? {
        token.expiresAt.map { .saturating(seconds: $0.timeIntervalSince(self.wallTime())) }
    }

    // MARK: - The request

    private func makeCall(_ parameters: [(String, String)]) throws(OAuthError) -> HTTPCall {
        guard self.isSafe else { throw .insecureEndpoint }
        let all = parameters + self.client.parameters
        var names: Set<String> = []
        for (name, _) in all where !names.insert(name).inserted { throw .invalidParameter(name: name) }
        var headers: HTTPHeaders = [
            .accept: "application/json", .contentType: "application/x-www-form-urlencoded",
        ]
        if let credentials = self.client.credentials { headers[.authorization] = credentials.headerValue }
        let body = all.map { "\(PercentEncoding.encode($0))=\(PercentEncoding.encode($1))" }.joined(separator: "&")
        guard let url = OAuthAddress.removing(names, from: self.url) else { throw .insecureEndpoint }
        return HTTPCall(method: "POST", url: url, headers: headers, body: .data(Data(body.utf8)))
    }
}

extension OAuthTokenEndpoint: RedactedDescription {
    /// The host and the app.
    public var description: String { "OAuthTokenEndpoint(\(self.url.host() ?? ""), \(self.client))" }
}

extension OAuthDependentRunner where AccessToken == OAuthTokens.AccessToken, RefreshToken == String {
    /// Makes a runner that renews access tokens at a token endpoint.
    ///
    /// A failed refresh leads to a new sign-in only if the server has refused the refresh token
    /// (``OAuthError/Refusal/refusesGrant``). Without a network, or while the server is unavailable, callers
    /// that need a new token get the error. A later call tries again, after a pause in case of continued
    /// failures.
    ///
    /// - Parameters:
    ///   - endpoint: Issues the tokens.
    ///   - store: Stores the tokens between launches.
    ///   - repository: The repository of the tokens' session.
    ///   - policy: The limits for renewals of the access token, and for sign-ins; by default one of each per
    ///     call.
    ///   - signIn: Asks the user to sign in, and returns the tokens of a new session, including a refresh
    ///     token. `signIn` receives the reason for the sign-in.
    public init(
        endpoint: OAuthTokenEndpoint,
        store: any TokenStore = .inMemory,
        repository: MuxRepository = .shared,
        policy: RunnerPolicy = .onePerCall,
        signIn: @escaping @Sendable @concurrent (_ reason: OAuthStatus.SignInReason) async throws -> OAuthTokens
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
            signIn: { reason in
                let tokens = try await signIn(reason)
                guard let refresh = tokens.refresh else { throw OAuthError.noRefreshToken }
                return OAuthSignIn(
                    access: tokens.access,
                    refresh: refresh,
                    accessLifetime: endpoint.lifetime(of: tokens.access)
                )
            }
        )
    }

    /// Makes a runner that renews access tokens at a token endpoint; the sign-in gets no reason.
    ///
    /// - Parameters:
    ///   - endpoint: Issues the tokens.
    ///   - store: Stores the tokens between launches.
    ///   - repository: The repository of the tokens' session.
    ///   - policy: The limits for renewals of the access token, and for sign-ins; by default one of each per
    ///     call.
    ///   - signIn: Asks the user to sign in, and returns the tokens of a new session, including a refresh
    ///     token.
    public init(
        endpoint: OAuthTokenEndpoint,
        store: any TokenStore = .inMemory,
        repository: MuxRepository = .shared,
        policy: RunnerPolicy = .onePerCall,
        signIn: @escaping @Sendable @concurrent () async throws -> OAuthTokens
    ) {
        self.init(endpoint: endpoint, store: store, repository: repository, policy: policy) { _ in try await signIn() }
    }
}
