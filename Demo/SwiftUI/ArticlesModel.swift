import Foundation
import MuxKit
import MuxNetwork
import Observation

// The sample's app without the views. The file imports no view framework, and is therefore compiled and
// tested on Linux too. Fetched and stored types are `nonisolated`, because the types of a new app belong to
// the main actor by default, and values are decoded on other executors.

/// An article in the format of the sample's server.
nonisolated struct Article: Codable, Sendable, Identifiable {
    var id: Int
    var title: String
    var image: URL?
}

/// The client of the sample's server.
nonisolated struct ArticlesAPI: Sendable {
    private nonisolated struct GetArticles: HTTPRequest {
        var endpoint: HTTPEndpoint
        var method: HTTPMethod { .get }
        typealias Output = [Article]
    }

    private nonisolated struct PostForTokens: HTTPRequest {
        var endpoint: HTTPEndpoint
        var fields: HTTPQuery
        var method: HTTPMethod { .post }
        var body: HTTPBody? { .form(self.fields) }
        typealias Output = Tokens
        typealias ServerError = Problem
    }

    private nonisolated struct Tokens: Decodable, Sendable {
        enum CodingKeys: String, CodingKey {
            case access = "access_token"
            case refresh = "refresh_token"
        }

        var access: String
        var refresh: String
    }

    private nonisolated struct Problem: Decodable, Sendable {
        var error: String
    }

    private let client = HTTPClient()
    private let base: HTTPEndpoint

    init(_ server: URL) throws { self.base = try HTTPEndpoint(server) }

    func articles(token: String) async throws -> [Article] {
        try await self.client.output(of: GetArticles(endpoint: self.base.appending("/articles")), token: token)
    }

    func signIn(_ credentials: SignInPrompt.Credentials) async throws -> OAuthSignIn<String, String> {
        let fields: HTTPQuery = ["user": credentials.name, "password": credentials.password]
        let request = PostForTokens(endpoint: self.base.appending("/sign-in"), fields: fields)
        let tokens = try await self.client.output(of: request)
        return OAuthSignIn(refresh: tokens.refresh, access: tokens.access)
    }

    func refresh(_ token: String) async throws -> OAuthRenewal<String, String> {
        let fields: HTTPQuery = ["grant_type": "refresh_token", "refresh_token": token]
        do {
            let request = PostForTokens(endpoint: self.base.appending("/token"), fields: fields)
            let tokens = try await self.client.output(of: request)
            return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
        } catch let error as HTTPError where error.serverError(as: Problem.self)?.error == "invalid_grant" {
            throw BadDependency()
        }
    }
}

/// Asks the user for name and password when a request needs a sign-in.
@MainActor @Observable
final class SignInPrompt {
    nonisolated struct Credentials: Sendable {
        var name: String
        var password: String
    }

    /// The user has declined to sign in.
    nonisolated struct Declined: Error {}

    private var waiting: CheckedContinuation<Credentials, any Error>?

    /// Whether a sign-in waits for credentials and the form is visible.
    var isAsking: Bool { self.waiting != nil }

    /// Shows the form and waits for the credentials.
    func ask() async throws -> Credentials {
        self.decline()
        return try await withCheckedThrowingContinuation { self.waiting = $0 }
    }

    func answer(_ credentials: Credentials) { self.end(.success(credentials)) }

    func decline() { self.end(.failure(Declined())) }

    private func end(_ answer: Result<Credentials, any Error>) {
        let waiting = self.waiting
        self.waiting = nil
        waiting?.resume(with: answer)
    }
}

/// The state of the views: a list that is cached, survives a relaunch, and belongs to the signed-in user.
@MainActor @Observable
final class ArticlesModel {
    private(set) var articles: [Article] = []
    /// Whether the list is stale, for example because the network was unavailable.
    private(set) var isStale = false
    /// The message for the user; `nil` without a problem.
    private(set) var problem: String?
    let prompt: SignInPrompt

    private let oauth: OAuthDependentRunner<String, String>
    private let list: Multiplexer<[Article]>

    /// Creates the app's only model.
    ///
    /// - Parameters:
    ///   - server: The address of the server.
    ///   - folder: The folder of values and tokens; `nil` for the standard folders.
    /// - Throws: ``HTTPError/PreparationFailure`` if the address of the server is not valid.
    init(server: URL, folder: URL? = nil) throws {
        let api = try ArticlesAPI(server)
        let prompt = SignInPrompt()
        // On entering the background, the repository saves unsaved values and asks the system for the
        // necessary time.
        let repository = MuxRepository(directory: folder, savePolicy: .enteringBackground)
        let oauth = OAuthDependentRunner<String, String>(
            store: .protectedFile(named: "session", directory: folder),
            repository: repository,
            refreshAccess: { refresh in try await api.refresh(refresh) },
            signIn: { try await api.signIn(prompt.ask()) }
        )
        self.prompt = prompt
        self.oauth = oauth
        self.list = Multiplexer(
            cacheKey: "Articles",
            dependency: oauth,
            policy: .init(timeToLive: .seconds(300)),
            repository: repository
        ) { token in
            try await api.articles(token: token)
        }
    }

    /// Follows every change of the list until the view disappears.
    func follow() async {
        for await entry in self.list.values { self.show(entry) }
    }

    /// Shows the list: at once if cached and fresh, otherwise after the fetch.
    func load() async { await self.report { self.show(try await self.list.requestEntry()) } }

    /// Fetches the list again, even if SwiftUI cancels the task of the gesture; the old list stays visible until
    /// the new list arrives, and if the fetch fails.
    func reload() async {
        await self.report {
            try await self.list.reload()
            if let entry = self.list.cachedEntry { self.show(entry) }
        }
    }

    private func report(_ request: () async throws -> Void) async {
        do {
            try await request()
            self.problem = nil
        } catch is CancellationError {
            // The view has disappeared.
        } catch RunnerError.signInFailed(let cause) where cause is SignInPrompt.Declined {
            self.problem = "Sign in to read."
        } catch MuxError.sessionEnded, RunnerError.signedOut {
            // The user signed out during the request: no list to show.
        } catch {
            self.problem = error.localizedDescription
        }
    }

    /// Signs out, and removes all data of the user from memory and disk.
    func signOut() async {
        await self.oauth.signOut()
        self.prompt.decline()
        self.show(nil)
    }

    private func show(_ entry: MuxEntry<[Article]>?) {
        self.articles = entry?.value ?? []
        self.isStale = entry?.isStale ?? false
    }
}
