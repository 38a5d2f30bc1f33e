import Foundation
import MuxKit
import MuxNetwork
import Observation

// The sample's app without the views, compiled and tested on Linux too. Fetched types are `nonisolated`, because
// the types of a new app belong to the main actor by default, and values are decoded on other executors.

/// An article in the format of the sample's server.
nonisolated struct Article: Codable, Equatable, Sendable, Identifiable {
    var id: Int
    var title: String
    var image: URL?
}

private nonisolated struct GetArticles: HTTPRequest {
    var endpoint: HTTPEndpoint { .init(path: "/articles") }
    var method: HTTPMethod { .get }
    typealias Output = [Article]
}

/// Asks the user for name and password when a request needs a sign-in.
@MainActor @Observable
final class SignInPrompt {
    nonisolated struct Credentials: Sendable { var name, password: String }
    nonisolated struct Declined: LocalizedError { var errorDescription: String? { "Sign in to read." } }

    private var waiting: CheckedContinuation<Credentials, any Error>?

    /// Whether a sign-in waits for credentials and the form is visible.
    var isAsking: Bool { self.waiting != nil }

    /// Shows the form and waits for the credentials.
    func ask() async throws -> Credentials {
        self.end(.failure(Declined()))
        return try await withCheckedThrowingContinuation { self.waiting = $0 }
    }

    func end(_ answer: Result<Credentials, any Error>) {
        self.waiting.take()?.resume(with: answer)
    }
}

/// The app's values: cached, saved, and removed at a sign-out.
@MainActor
final class ArticlesBackend {
    let prompt = SignInPrompt()
    let articles: Multiplexer<[Article]>
    private let oauth: OAuthDependentRunner<OAuthTokens.AccessToken, String>

    init(server: URL, folder: URL? = nil) {
        func endpoint(_ path: String) -> OAuthTokenEndpoint {
            OAuthTokenEndpoint(url: server.appending(path: path), client: .init(id: "articles"))
        }
        let signIn = endpoint("sign-in")
        self.oauth = OAuthDependentRunner(
            endpoint: endpoint("token"),
            store: .protectedFile(named: "session", directory: folder),
            // Saves when the app enters the background.
            repository: MuxRepository(directory: folder, savePolicy: .enteringBackground)
        ) { [prompt] in
            let user = try await prompt.ask()
            return try await signIn.tokens(
                grantType: "password",
                parameters: ["user": user.name, "password": user.password]
            )
        }
        let client = HTTPClient(baseURL: server)
        self.articles = Multiplexer(
            cacheKey: "Articles",
            dependency: self.oauth,
            policy: .init(timeToLive: .seconds(300))
        ) { token in
            try await client.output(of: GetArticles(), token: token.value)
        }
    }

    /// Signs out, and removes all data of the user from memory and disk.
    func signOut() async {
        await self.oauth.signOut()
        self.prompt.end(.failure(SignInPrompt.Declined()))
    }
}
