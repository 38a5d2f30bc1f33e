import Foundation
import MuxKit
import MuxNetwork

/// The backend's requests, as the app sees them.
struct API: Sendable {
    private struct Tokens: Decodable, Sendable {
        enum CodingKeys: String, CodingKey {
            case access = "access_token"
            case refresh = "refresh_token"
        }

        var access: String
        var refresh: String
    }

    private struct Problem: Decodable, Sendable {
        var error: String
    }

    private let client: HTTPClient

    init(_ url: URL) { self.client = HTTPClient(baseURL: url) }

    func signIn(_ user: (name: String, password: String)) async throws -> OAuthSignIn<String, String> {
        let fields = ["user": user.name, "password": user.password]
        let tokens: Tokens = try await self.client.post("sign-in", json: fields)
        return OAuthSignIn(refresh: tokens.refresh, access: tokens.access)
    }

    func refresh(_ token: String) async throws -> OAuthRenewal<String, String> {
        let fields = ["grant_type": "refresh_token", "refresh_token": token]
        do {
            let tokens: Tokens = try await self.client.post("token", json: fields)
            return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
        } catch HTTPError.status(let failure) where failure.status == .badRequest {
            // RFC 6749, section 5.2: of all refusals, this is the one that only a person can help.
            let problem = try? JSONDecoder().decode(Problem.self, from: failure.response.body)
            guard problem?.error == "invalid_grant" else { throw HTTPError.status(failure) }
            throw BadDependency()
        }
    }

    func me(_ token: String) async throws -> App.Profile { try await self.client.get("me", bearer: token) }

    func places(_ ids: [Int], _ token: String) async throws -> [Place] {
        try await self.client.get("batch/\(ids.map(String.init).joined(separator: ","))", bearer: token)
    }

    func place(_ id: Int, _ token: String) async throws -> Place {
        try await self.client.get("places/\(id)", bearer: token)
    }
}
