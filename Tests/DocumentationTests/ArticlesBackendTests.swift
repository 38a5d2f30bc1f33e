import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import MuxUI
import Testing

/// The SwiftUI sample without its views; a link makes its backend part of this folder.
@MainActor @Suite(.standard(endsAtRest: false))
struct ArticlesBackendTests {
    private let folder = FileManager.default.temporaryDirectory.appending(component: "Articles-\(UUID().uuidString)")
    private let oauth = FakeOAuthServer(users: ["alice": "a secret", "bob": "another"])
    private let server: LoopbackBackend
    private let articles = Locked([Article(id: 1, title: "One")])

    init() throws {
        self.server = try LoopbackBackend(oauth: self.oauth, places: [Article]()) { [oauth, articles] request in
            guard request.path == "/articles" else { return nil }
            guard oauth.authorize(request.bearerToken ?? "") != nil else {
                return .json(["error": "invalid_token"], status: 401, headers: ["WWW-Authenticate": "Bearer"])
            }
            return .json(articles.withLock { $0 })
        }
    }

    private func until(_ condition: () -> Bool) async { while !condition(), !Task.isCancelled { await Task.yield() } }

    @Test func `SC-11 the SwiftUI sample shows and refreshes a list, signs in and signs out`() async throws {
        let url = try self.server.goOnline()
        let backend = ArticlesBackend(server: url, folder: self.folder)
        let articles = backend.articles.observed(activity: AppActivity())
        let view = Task { await articles.follow() }
        await self.until { backend.prompt.isAsking }
        backend.prompt.end(.success(.init(name: "alice", password: "a secret")))
        await self.until { articles.value?.map(\.title) == ["One"] }
        #expect(!articles.isStale && articles.problem == nil && !backend.prompt.isAsking)

        self.articles.withLock { $0.append(Article(id: 2, title: "Two")) }
        self.oauth.expireAllAccessTokens()
        await articles.reload()
        #expect(articles.value?.map(\.title) == ["One", "Two"])
        #expect(self.oauth.statistics.signIns == 1 && self.oauth.statistics.refreshes == 1)

        await self.server.goOffline()
        await articles.reload()
        #expect(articles.value?.count == 2 && articles.isStale, "the old list stays")
        #expect(articles.problem != nil)

        await backend.signOut()
        #expect(articles.value == nil && !articles.isStale)
        try self.server.goOnline()
        let pull = Task { await articles.reload() }
        await self.until { backend.prompt.isAsking }
        backend.prompt.end(.failure(SignInPrompt.Declined()))
        await pull.value
        #expect(articles.problem?.localizedDescription.contains("Sign in to read.") == true && articles.value == nil)

        view.cancel()
        await view.value
        await self.server.goOffline()
        try? FileManager.default.removeItem(at: self.folder)
    }
}

// A sample of the article about SwiftUI apps, with the prompt of the sample app.
@MainActor
func sessionOfTheApp(_ note: Note, _ text: String) async throws {
    let prompt = SignInPrompt()
    let session = OAuthDependentRunner<String, String>(
        store: .standard(named: "session"),
        refreshAccess: { refresh in
            // Throws `BadDependency` if the server refuses the refresh token; `signIn` is then called.
            let tokens = try await NotesAPI.refresh(refresh)
            return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
        },
        signIn: {
            let user = try await prompt.ask()
            let tokens = try await NotesAPI.signIn(user.name, user.password)
            return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
        }
    )
    let users = MultiplexerMap<String, User>(cacheKey: "Users", dependency: session) { id, token in
        try await NotesAPI.user(id, token)
    }
    _ = users
    try await session.run { token in .output(try await NotesAPI.rename(note.id, text, token)) }
}
