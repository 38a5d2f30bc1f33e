import Foundation
import MuxKit
import MuxNetwork

/// The backend as the app sees it: what can be asked of it, by names of the app's own.
struct API: Sendable {
    private let client = HTTPClient()
    private let base: HTTPEndPoint

    init(_ url: URL) throws { self.base = try HTTPEndPoint(url) }

    func fetchUserInfo(_ token: String) async throws -> App.Profile {
        try await self.client.output(of: GetUserInfo(endPoint: self.base.appending("/me")), token: token)
    }

    func fetchPlace(_ id: Int, _ token: String) async throws -> Place {
        try await self.client.output(of: GetPlaces(endPoint: self.base.appending("/places/\(id)")), token: token)
    }

    func fetchPlaces(_ ids: [Int], _ token: String) async throws -> [Place] {
        let list = ids.map(String.init).joined(separator: ",")
        return try await self.client.output(
            of: GetPlaces(endPoint: self.base.appending("/batch/\(list)")),
            token: token
        )
    }

    func signIn(_ user: (name: String, password: String)) async throws -> OAuthSignIn<String, String> {
        let fields: HTTPQuery = ["user": user.name, "password": user.password]
        let request = PostForTokens(endPoint: self.base.appending("/sign-in"), fields: fields)
        let tokens = try await self.client.output(of: request)
        return OAuthSignIn(refresh: tokens.refresh, access: tokens.access)
    }

    func refresh(_ token: String) async throws -> OAuthRenewal<String, String> {
        let fields: HTTPQuery = ["grant_type": "refresh_token", "refresh_token": token]
        do {
            let request = PostForTokens(endPoint: self.base.appending("/token"), fields: fields)
            let tokens = try await self.client.output(of: request)
            return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
        } catch let error as HTTPError where error.serverError(as: Problem.self)?.error == "invalid_grant" {
            // RFC 6749, section 5.2: of all refusals, this is the one that only a person can help.
            throw BadDependency()
        }
    }
}
