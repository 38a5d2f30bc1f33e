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
/// An `OAuthDependentRunner` that is made with an endpoint calls these by itself.
///
/// The replies of large providers are understood, where they deviate from RFC 6749 as well. A server that says in words of its own that a
/// refresh token is refused takes a closure that translates them:
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
/// **After a failure.** Nothing is sent again: to the server, a refresh token or a code that is sent twice looks stolen. See
/// ``OAuthError`` for the errors that end a session.
///
/// **Cancellation.** A cancelled call leaves at once with `CancellationError`; the server may have issued tokens.
public struct OAuthTokenEndpoint: Sendable {
    /// The endpoint's address.
    public let url: URL

    /// The app.
    public let client: OAuthClient

    /// Whether the address is safe for tokens.
    private let isSafe: Bool
    private let transport: any HTTPTransport
    private let interpretReply: @Sendable (HTTPResponse) throws -> OAuthTokens?
    private let wallTime: @Sendable () -> Date

    /// Makes an endpoint; sends nothing.
    ///
    /// - Parameters:
    ///   - url: The address: of `https`, or of `http` on this machine. With any other, every call throws
    ///     ``OAuthError/insecureEndpoint``, and nothing is sent.
    ///   - client: The app.
    ///   - transport: Sends the requests.
    ///   - interpretReply: Reads replies of the server that the endpoint does not understand, before the endpoint does. Returns the
    ///     tokens, or `nil` to leave the reply to the endpoint. Throws ``OAuthError/refused(_:)`` with
    ///     ``OAuthError/Code/invalidGrant`` if the server refuses the refresh token; any other error goes to the caller as it is.
    public init(
        url: URL,
        client: OAuthClient,
        transport: any HTTPTransport = .system,
        interpretReply: @escaping @Sendable (_ reply: HTTPResponse) throws -> OAuthTokens? = { _ in nil }
    ) {
        self.init(
            url: url,
            client: client,
            transport: transport,
            interpretReply: interpretReply,
            wallTime: { Date() }
        )
    }

    package init(
        url: URL,
        client: OAuthClient,
        transport: any HTTPTransport,
        interpretReply: @escaping @Sendable (HTTPResponse) throws -> OAuthTokens? = { _ in nil },
        wallTime: @escaping @Sendable () -> Date
    ) {
        self.url = url
        self.client = client
        self.isSafe = OAuthAddress.isSafeEndpoint(url)
        self.transport = transport
        self.interpretReply = interpretReply
        self.wallTime = wallTime
    }

    // MARK: - Grants

    /// Exchanges the code of a redirection for tokens: RFC 6749, section 4.1.3.
    ///
    /// - Parameters:
    ///   - code: The code, good for one use.
    ///   - redirectURI: The address of the redirection, if the authorization named one.
    ///   - pkce: The secret of the authorization (RFC 7636, section 4.5).
    /// - Returns: The tokens.
    /// - Throws: ``OAuthError``, or `CancellationError`.
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
    ///   - scopes: The scopes of the access token, no more than before; none for the same.
    /// - Returns: The tokens. A new refresh token replaces the old one.
    /// - Throws: ``OAuthError``, or `CancellationError`.
    public func refresh(_ refresh: String, scopes: [String] = []) async throws -> OAuthTokens {
        try await self.tokens(grantType: "refresh_token", [("refresh_token", refresh)] + Self.scope(scopes))
    }

    /// Gets a token for the app itself: RFC 6749, section 4.4.
    ///
    /// - Parameter scopes: The requested scopes; none for the server's default.
    /// - Returns: The token.
    /// - Throws: ``OAuthError``, or `CancellationError`.
    public func clientCredentials(scopes: [String] = []) async throws -> OAuthTokens.AccessToken {
        try await self.tokens(grantType: "client_credentials", Self.scope(scopes)).access
    }

    /// Gets tokens for a grant of any other type: RFC 6749, section 4.5.
    ///
    /// - Parameters:
    ///   - grantType: The name of the type.
    ///   - parameters: The type's parameters; each name once (section 3.2).
    /// - Returns: The tokens.
    /// - Throws: ``OAuthError``, or `CancellationError`.
    public func tokens(grantType: String, parameters: [String: String]) async throws -> OAuthTokens {
        try await self.tokens(grantType: grantType, parameters.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
    }

    private static func scope(_ scopes: [String]) -> [(String, String)] {
        scopes.isEmpty ? [] : [("scope", scopes.joined(separator: " "))]
    }

    private func tokens(grantType: String, _ parameters: [(String, String)]) async throws -> OAuthTokens {
        let call = try self.call([("grant_type", grantType)] + parameters)
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
            if self.quotes(refusal.explanation, parameters) { refusal.isExplanationPrivate = true }
            if self.quotes(refusal.code.rawValue, parameters) {
                refusal.code = refusal.refusesGrant ? .invalidGrant : .invalidRequest
            }
            throw OAuthError.refused(refusal)
        }
    }

    /// Whether a server's text quotes what was sent to it: it may be shown otherwise.
    private func quotes(_ text: String?, _ sent: [(name: String, value: String)]) -> Bool {
        guard let text else { return false }
        let all = sent + self.client.parameters.map { (name: $0.0, value: $0.1) }
        var secrets = all.filter { !["client_id", "scope"].contains($0.name) }.map(\.value)
        if let credentials = self.client.credentials {
            secrets += credentials.headerValue.split(separator: " ").map(String.init)
        }
        if case .header(let secret) = self.client.authentication { secrets.append(secret) }
        return secrets.contains { secret in
            secret.utf8.count >= 4 && (text.contains(secret) || text.contains(PercentEncoding.encode(secret)))
        }
    }

    /// The remaining lifetime of a token, if the server sent it.
    func lifetime(of token: OAuthTokens.AccessToken) -> Duration? {
        token.expiresAt.map { .saturating(seconds: $0.timeIntervalSince(self.wallTime())) }
    }

    // MARK: - The request

    private func call(_ parameters: [(String, String)]) throws(OAuthError) -> HTTPCall {
        guard self.isSafe else { throw .insecureEndpoint }
        let all = parameters + self.client.parameters
        var names: Set<String> = []
        for (name, _) in all where !names.insert(name).inserted { throw .invalidParameter(name: name) }
        var headers: HTTPHeaders = [
            .accept: "application/json", .contentType: "application/x-www-form-urlencoded",
        ]
        if case .header = self.client.authentication {
            guard let credentials = self.client.credentials else { throw .invalidParameter(name: "client_id") }
            headers[.authorization] = credentials.headerValue
        }
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
    /// Only a refresh token that the server refuses (``OAuthError/Refusal/refusesGrant``) leads to a sign-in. Without a network, or while
    /// the server is unavailable, callers get the error, and a later call tries again, after a pause if the failures go on.
    ///
    /// - Parameters:
    ///   - endpoint: Issues the tokens.
    ///   - store: Keeps the tokens between launches.
    ///   - repository: The repository of the tokens' session.
    ///   - policy: Bounds the work for one call.
    ///   - signIn: Asks the person, and returns the tokens of a new session, a refresh token included. It receives the reason.
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
                    refresh: refresh,
                    access: tokens.access,
                    accessLifetime: endpoint.lifetime(of: tokens.access)
                )
            }
        )
    }

    /// Makes a runner that renews access tokens at a token endpoint, and whose sign-in does not depend on the reason.
    ///
    /// - Parameters:
    ///   - endpoint: Issues the tokens.
    ///   - store: Keeps the tokens between launches.
    ///   - repository: The repository of the tokens' session.
    ///   - policy: Bounds the work for one call.
    ///   - signIn: Asks the person, and returns the tokens of a new session, a refresh token included.
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
