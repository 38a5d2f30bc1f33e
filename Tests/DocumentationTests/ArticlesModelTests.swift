import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Observation
import Testing

/// The model of the SwiftUI sample; a link makes the model part of this folder.
@MainActor @Suite(.standard(endsAtRest: false))
struct ArticlesModelTests {
    private let folder = FileManager.default.temporaryDirectory.appending(component: "Articles-\(UUID().uuidString)")
    private let oauth = FakeOAuthServer(users: ["alice": "a secret", "bob": "another"])
    private let backend: LoopbackBackend
    private let articles = Locked([Article(id: 1, title: "One")])

    init() throws {
        self.backend = try LoopbackBackend(oauth: self.oauth, places: [Article]()) { [oauth, articles] request in
            guard request.path == "/articles" else { return nil }
            guard oauth.authorize(request.bearerToken ?? "") != nil else {
                return .json(["error": "invalid_token"], status: 401, headers: ["WWW-Authenticate": "Bearer"])
            }
            return .json(articles.withLock { $0 })
        }
    }

    /// Suspends until the prompt asks for credentials.
    private func waitForPrompt(_ prompt: SignInPrompt) async {
        while !prompt.isAsking {
            await withCheckedContinuation { continuation in
                withObservationTracking {
                    _ = prompt.isAsking
                } onChange: {
                    continuation.resume()
                }
            }
            // The observed property changes after the notification, on this actor.
            await Task { @MainActor in }.value
        }
    }

    @Test func `P-03 the SwiftUI sample shows and refreshes a list, signs in and signs out`() async throws {
        let url = try self.backend.goOnline()
        let model = try ArticlesModel(server: url, folder: self.folder)

        let first = Task { await model.load() }
        await self.waitForPrompt(model.prompt)
        model.prompt.answer(.init(name: "alice", password: "a secret"))
        await first.value
        #expect(model.articles.map(\.title) == ["One"] && !model.isStale && model.problem == nil)
        #expect(!model.prompt.isAsking)

        self.articles.withLock { $0.append(Article(id: 2, title: "Two")) }
        self.oauth.expireAllAccessTokens()
        await model.reload()
        #expect(model.articles.map(\.title) == ["One", "Two"])
        #expect(self.oauth.statistics.signIns == 1 && self.oauth.statistics.refreshes == 1)

        await self.backend.goOffline()
        await model.reload()
        #expect(model.articles.count == 2 && model.isStale, "what is there is better than nothing")

        await model.signOut()
        #expect(model.articles.isEmpty && !model.isStale)
        try self.backend.goOnline()
        let second = Task { await model.load() }
        await self.waitForPrompt(model.prompt)
        model.prompt.decline()
        await second.value
        #expect(model.problem == "Sign in to read." && model.articles.isEmpty)

        await self.backend.goOffline()
        try? FileManager.default.removeItem(at: self.folder)
    }
}
