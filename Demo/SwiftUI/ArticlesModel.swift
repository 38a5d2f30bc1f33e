import Foundation
import MuxKit
import MuxNetwork
import Observation

// The sample's app without its views. It knows no view framework, so that it is compiled and tested on Linux, too. What is fetched and
// kept is `nonisolated`, for a new app's types belong to the main actor by default, and values are decoded elsewhere.

/// Something to read, as the sample's server describes it.
nonisolated struct Article: Codable, Sendable, Identifiable {
    var id: Int
    var title: String
    var image: URL?
}

/// The requests of the sample: two of them, in the words of its server.
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

/// Asks a person for name and password, when a sign-in is needed and not before.
@MainActor @Observable
final class SignInPrompt {
    /// What the person is asked for.
    nonisolated struct Credentials: Sendable {
        var name: String
        var password: String
    }

    /// The person did not want to.
    nonisolated struct Declined: Error {}

    private var waiting: CheckedContinuation<Credentials, any Error>?

    /// Whether somebody waits for an answer: what shows the form.
    var isAsking: Bool { self.waiting != nil }

    /// Shows the form and waits for the answer.
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

/// What the views show: a list that is cached, survives a relaunch, and belongs to whoever is signed in.
@MainActor @Observable
final class ArticlesModel {
    private(set) var articles: [Article] = []
    /// Whether the list is older than it should be, because there was no network.
    private(set) var isStale = false
    /// What to tell the person; `nil` if all is well.
    private(set) var problem: String?
    let prompt: SignInPrompt

    private let oauth: OAuthDependentRunner<String, String>
    private let list: Multiplexer<[Article]>

    /// Makes the app's one model.
    ///
    /// - Parameters:
    ///   - server: Where the articles are.
    ///   - folder: Where values and tokens are kept; `nil` for the standard places.
    /// - Throws: ``HTTPError/PreparationFailure`` if the server's address is none.
    init(server: URL, folder: URL? = nil) throws {
        let api = try ArticlesAPI(server)
        let prompt = SignInPrompt()
        // Entering the background saves what is not saved yet, and asks the system for the time that it takes.
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

    /// Follows every change of the list until the view goes.
    func follow() async {
        for await entry in self.list.values { self.show(entry) }
    }

    /// Shows the list: at once if it is cached and fresh, else as soon as it is fetched.
    func load() async {
        do {
            self.show(try await self.list.requestEntry())
            self.problem = nil
        } catch is CancellationError {
            // The view is gone.
        } catch RunnerError.signInFailed(let cause) where cause is SignInPrompt.Declined {
            self.problem = "Sign in to read."
        } catch MuxError.sessionEnded, RunnerError.signedOut {
            // Signed out meanwhile: there is nothing to show.
        } catch {
            self.problem = error.localizedDescription
        }
    }

    /// Fetches the list again; what is shown stays until the new one is there, and if there is no network.
    func reload() async {
        self.list.refresh()
        await self.load()
    }

    /// Signs out: nothing of the person is left, in memory or on disk.
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
