import Foundation
import MuxKit
import MuxNetwork

// The article about signing in.

func signingIn(_ tokenURL: URL, _ authorizationURL: URL) async throws {
    let app = OAuthClient(id: "my-app")
    let tokenEndpoint = OAuthTokenEndpoint(url: tokenURL, client: app)

    @Sendable func signIn() async throws -> OAuthTokens {
        let authorization = OAuthAuthorization(
            endpoint: authorizationURL,
            issuer: "https://sign-in.example.com",
            client: app,
            redirectURI: "https://my-app.example.com/signed-in",
            scopes: ["profile"]
        )
        guard let authorization else { throw OAuthError.insecureEndpoint }
        let callback = try await browser.open(authorization.url)
        return try await tokenEndpoint.redeem(callback, of: authorization)
    }

    let oauth = OAuthDependentRunner(
        endpoint: tokenEndpoint,
        store: .protectedFile(named: "session"),
        signIn: signIn
    )
    let client = HTTPClient(authenticator: oauth)
    let me = try await client.output(of: GetProfile())
    _ = me
}

struct GraphError: Decodable {
    struct Content: Decodable {
        var code: Int
    }
    var error: Content
}

func anotherProvider(
    _ tokenURL: URL,
    _ app: OAuthClient,
    _ oauth: OAuthDependentRunner<OAuthTokens.AccessToken, String>
) async throws {
    let graph = OAuthTokenEndpoint(url: tokenURL, client: app) { reply in
        guard let body = try? JSONDecoder().decode(GraphError.self, from: reply.body), body.error.code == 190 else {
            return nil
        }
        throw OAuthError.refused(OAuthError.Refusal(.invalidGrant, status: reply.status))
    }
    let home = try await oauth.run { token in .output(token.fields["instance_url"]) }
    _ = (graph, home)
}

func cancelledSignIn(_ client: HTTPClient) async throws {
    do {
        show(try await client.output(of: GetProfile()).name)
    } catch HTTPError.authentication(RunnerError.signInFailed(let cause)) where cause is CancellationError {
        show("Sign in to see your profile.")
    }
}

func serviceWithoutPerson(_ url: URL, _ secret: String) {
    let service = OAuthClient(id: "worker", authentication: .header(secret: secret))
    let endpoint = OAuthTokenEndpoint(url: url, client: service)
    let runner = DependentRunner<OAuthTokens.AccessToken> { _ in
        .updatedDependency(try await endpoint.clientCredentials())
    }
    let client = HTTPClient(authenticator: runner)
    _ = client
}

func tokensOfAnotherKind() {
    let session = OAuthDependentRunner<JSONWebToken, String>(
        store: .protectedFile(named: "session"),
        refreshAccess: { refresh in try await server.renew(refresh) },
        signIn: { try await server.askForPassword() }
    )
    let client = HTTPClient(authenticator: session)
    _ = client
}

func tokensOfAMultiplexer(_ session: OAuthDependentRunner<JSONWebToken, String>, _ client: HTTPClient) {
    let profile = Multiplexer<Profile>(cacheKey: "Me", dependency: session) { token in
        try await client.output(of: GetProfile(), token: token)
    }
    _ = profile
}
