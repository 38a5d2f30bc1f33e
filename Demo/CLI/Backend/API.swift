import Foundation
import MuxKit
import MuxNetwork

/// The app's client of the backend.
struct API: Sendable {
    private let client = HTTPClient()
    private let base: HTTPEndpoint

    init(_ url: URL) throws { self.base = try HTTPEndpoint(url) }

    func fetchUserInfo(_ token: String) async throws -> App.Profile {
        try await self.client.output(of: GetUserInfo(endpoint: self.base.appending("/me")), token: token)
    }

    func fetchPlace(_ id: Int, _ token: String) async throws -> Place {
        try await self.client.output(of: GetPlaces(endpoint: self.base.appending("/places/\(id)")), token: token)
    }

    func fetchPlaces(_ ids: [Int], _ token: String) async throws -> [Place] {
        let list = ids.map(String.init).joined(separator: ",")
        return try await self.client.output(
            of: GetPlaces(endpoint: self.base.appending("/batch/\(list)")),
            token: token
        )
    }

    func renamePlace(_ id: Int, _ name: String, _ token: String) async throws {
        let request = PutName(endpoint: self.base.appending("/places/\(id)"), name: name)
        try await self.client.execute(request, token: token)
    }

    func signIn(_ user: (name: String, password: String)) async throws -> OAuthSignIn<String, String> {
        let fields: HTTPQuery = ["user": user.name, "password": user.password]
        let request = PostForTokens(endpoint: self.base.appending("/sign-in"), fields: fields)
        let tokens = try await self.client.output(of: request)
        return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
    }

    func refresh(_ token: String) async throws -> OAuthRenewal<String, String> {
        let fields: HTTPQuery = ["grant_type": "refresh_token", "refresh_token": token]
        do {
            let request = PostForTokens(endpoint: self.base.appending("/token"), fields: fields)
            let tokens = try await self.client.output(of: request)
            return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
        } catch let error as HTTPError where (try? error.decode(Problem.self))?.error == "invalid_grant" {
            // RFC 6749, section 5.2: the only refusal that needs a new sign-in.
            throw BadDependency()
        }
    }
}

/// The body of an error response: RFC 6749, section 5.2.
struct Problem: Decodable, Sendable {
    var error: String
}

/// The body of a token response: RFC 6749, section 5.1.
struct Tokens: Decodable, Sendable {
    enum CodingKeys: String, CodingKey {
        case access = "access_token"
        case refresh = "refresh_token"
    }

    var access: String
    var refresh: String
}

/// The user of the token.
struct GetUserInfo: HTTPRequest {
    var endpoint: HTTPEndpoint
    var method: HTTPMethod { .get }
    typealias Output = App.Profile
}

/// One place, or several.
struct GetPlaces<Output: Decodable & Sendable>: HTTPRequest {
    var endpoint: HTTPEndpoint
    var method: HTTPMethod { .get }
}

/// A new name of a place.
struct PutName: HTTPCommand {
    var endpoint: HTTPEndpoint
    var name: String
    var method: HTTPMethod { .put }
    var body: HTTPBody? { .text(self.name) }
}

/// Tokens, or a ``Problem``.
struct PostForTokens: HTTPRequest {
    var endpoint: HTTPEndpoint
    var fields: HTTPQuery
    var method: HTTPMethod { .post }
    var body: HTTPBody? { .form(self.fields) }
    typealias Output = Tokens
    typealias ServerError = Problem
}
