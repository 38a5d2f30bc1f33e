public import Foundation

/// A web service on 127.0.0.1 with sign-in, tokens and resources.
///
/// Requests and responses:
/// - `POST /sign-in` with `user`, `password`: tokens, or 401 with `invalid_credentials`.
/// - `POST /token` with `grant_type=refresh_token`, `refresh_token`: tokens; 400 with `invalid_grant`,
///   `invalid_request` or `unsupported_grant_type` (RFC 6749); 503 with `temporarily_unavailable` for
///   ``FakeOAuthServer/Failure/unavailable``.
/// - `GET /me` with a bearer token: `{"user": …}`, or 401, with `invalid_token` unless the token is missing.
/// - `GET /places/{id}` with a bearer token: a place; 404 with `not_found`; or 401, as for `GET /me`.
/// - Other requests: 404 with `not_found`.
///
/// The bodies of requests are JSON or a URL-encoded form; the bodies of responses are JSON or empty. Tokens
/// are sent as `access_token`, `refresh_token`, `token_type` and `expires_in` (rounded down to whole
/// seconds).
public final class LoopbackBackend: Sendable {
    private struct TokenReply: Encodable, Sendable {
        enum CodingKeys: String, CodingKey {
            case access = "access_token"
            case refresh = "refresh_token"
            case type = "token_type"
            case lifetime = "expires_in"
        }

        var access: String
        var refresh: String
        var type = "Bearer"
        var lifetime: Int64
    }

    /// The authorization server, with counts of requests and configurable failures.
    public let oauth: FakeOAuthServer

    /// The HTTP server, with counts of requests by method and path.
    public let server: LoopbackServer

    /// Makes a service; the service does not listen yet.
    ///
    /// - Parameters:
    ///   - oauth: The authorization server.
    ///   - places: The places; of several places with the same ID, the service returns the last place.
    ///   - hook: Called first with every request; a returned response replaces the response of the service.
    /// - Throws: An error from encoding the places.
    public init<Place: Encodable & Identifiable & Sendable>(
        oauth: FakeOAuthServer,
        places: [Place],
        hook: @escaping @Sendable @concurrent (LoopbackServer.Request) async -> LoopbackServer.Response? = { _ in nil }
    ) throws where Place.ID: CustomStringConvertible {
        let bodies = try places.map { ($0.id.description, try JSONEncoder().encode($0)) }
        let places = Dictionary(bodies) { $1 }
        self.oauth = oauth
        self.server = LoopbackServer { request in
            if let response = await hook(request) { return response }
            return await Self.response(request, oauth, places)
        }
    }

    /// The service's URL, without a path.
    public var url: URL { self.server.url }

    /// Starts to listen, each time on the same port.
    ///
    /// - Returns: The service's URL.
    /// - Throws: ``LoopbackServer/Failure``.
    @discardableResult
    public func goOnline() throws(LoopbackServer.Failure) -> URL { try self.server.start() }

    /// Stops listening and ends every connection; returns when the listener and all connections are closed.
    public func goOffline() async { await self.server.stop() }

    private static func response(
        _ request: LoopbackServer.Request,
        _ oauth: FakeOAuthServer,
        _ places: [String: Data]
    ) async -> LoopbackServer.Response {
        let segments = request.segments
        switch (request.method, segments.first, segments.count) {
        case ("POST", "sign-in", 1):
            let fields = request.fields
            return await self.tokens {
                try await oauth.signIn(user: fields["user"] ?? "", password: fields["password"] ?? "")
            }
        case ("POST", "token", 1):
            let fields = request.fields
            // RFC 6749, section 5.2; a parameter without a value counts as omitted (section 3.2).
            guard let grant = fields["grant_type"], !grant.isEmpty else {
                return self.problem("invalid_request", status: 400)
            }
            guard grant == "refresh_token" else {
                return self.problem("unsupported_grant_type", status: 400)
            }
            guard let token = fields["refresh_token"], !token.isEmpty else {
                return self.problem("invalid_request", status: 400)
            }
            return await self.tokens { try await oauth.refresh(token) }
        case ("GET", "me", 1):
            guard let user = self.user(of: request, oauth) else { return self.unauthorized(request) }
            return .json(["user": user])
        case ("GET", "places", 2):
            guard self.user(of: request, oauth) != nil else { return self.unauthorized(request) }
            guard let place = places[segments[1]] else { return self.problem("not_found", status: 404) }
            return LoopbackServer.Response(headers: ["Content-Type": "application/json"], body: place)
        default:
            return self.problem("not_found", status: 404)
        }
    }

    private static func user(of request: LoopbackServer.Request, _ oauth: FakeOAuthServer) -> String? {
        oauth.authorize(request.bearerToken ?? "")
    }

    private static func tokens(_ grant: () async throws -> FakeOAuthServer.Tokens) async -> LoopbackServer.Response {
        do {
            let tokens = try await grant()
            return .json(
                TokenReply(
                    access: tokens.access,
                    refresh: tokens.refresh,
                    lifetime: tokens.expiresIn.components.seconds
                ),
                headers: ["Cache-Control": "no-store"]
            )
        } catch FakeOAuthServer.Failure.invalidCredentials {
            return self.problem("invalid_credentials", status: 401)
        } catch FakeOAuthServer.Failure.invalidGrant {
            return self.problem("invalid_grant", status: 400)
        } catch {
            return self.problem("temporarily_unavailable", status: 503)
        }
    }

    /// The response to an unauthorized request; a request without a token gets no error code (RFC 6750,
    /// section 3.1).
    private static func unauthorized(_ request: LoopbackServer.Request) -> LoopbackServer.Response {
        guard request.bearerToken != nil else {
            return LoopbackServer.Response(status: 401, headers: ["WWW-Authenticate": "Bearer"])
        }
        return .json(
            ["error": "invalid_token"],
            status: 401,
            headers: ["WWW-Authenticate": #"Bearer error="invalid_token""#]
        )
    }

    private static func problem(_ code: String, status: Int) -> LoopbackServer.Response {
        .json(["error": code], status: status)
    }
}
