import Foundation
import MuxKit
import MuxNetwork
import MuxOutbox
import MuxTesting

// The article about offline writes.

nonisolated enum PostChange: Codable, Sendable {
    case like(post: Int)
    case comment(id: UUID, post: Int, text: String)

    var post: Int {
        switch self {
        case .like(let post), .comment(_, let post, _): post
        }
    }
}

nonisolated struct ListedPost: Codable, Sendable {
    var id: Int
    var likes: Int

    mutating func apply(_ change: PostChange) { if case .like = change { self.likes += 1 } }
}

nonisolated struct ChangeAPI: Sendable {
    func apply(_ change: PostChange, idempotencyKey: String, token: String) async throws {}
}

nonisolated struct ApplyChange: HTTPCommand {
    var change: PostChange
    var idempotencyKey: String?

    var endpoint: HTTPEndpoint { HTTPEndpoint(path: "/changes") }
    var method: HTTPMethod { .post }
    var body: HTTPBody? { .json(self.change) }
}

func outboxOfPosts(
    _ session: OAuthDependentRunner<String, String>,
    _ api: ChangeAPI,
    _ topPosts: Multiplexer<[ListedPost]>,
    _ posts: MultiplexerMap<Int, ListedPost>
) async throws {
    let outbox = MuxOutbox<PostChange>(
        "Posts",
        dependency: session,
        order: { "\($0.post)" }
    ) { change, attempt, token in
        try await api.apply(change, idempotencyKey: attempt.idempotencyKey, token: token)
    }
    outbox.overlay(topPosts) { change, posts in
        guard let place = posts.firstIndex(where: { $0.id == change.post }) else { return }
        posts[place].apply(change)
    }
    outbox.overlay(posts, key: { $0.post }) { change, post in post.apply(change) }
    outbox.blocked { later, failed in
        if case .comment = failed { later.post == failed.post } else { false }
    }
    outbox.start()
    try await outbox.add(.like(post: 7))
    for change in await outbox.pending where change.hasFailed {
        switch change.state {
        case .refused(let message): print("The server refused the change: \(message)")
        case .expired: print("The change was not sent within 30 days.")
        default: print("The change needs the user's attention.")
        }
        try await outbox.discard(change.id)
    }
    for await changes in outbox.states { print("\(changes.count) changes are not sent yet.") }
}

func signOutWithChanges(_ repository: MuxRepository) async {
    let report = await repository.signOut()
    if case MuxOutboxError.changesPending(let count)? = report.failures.first {
        print("\(count) changes are not sent yet. Sign out anyway?")
    }
}

func testOfAnOutbox(_ folder: URL) async throws {
    let server = FakeChangeServer()
    server.react(.loseResponse, .refuse(status: 409, "The post was deleted."))
    let outbox = MuxOutbox<String>(
        "Changes",
        repository: MuxRepository(store: MemoryStore()),
        directory: folder
    ) { text, attempt in
        try await server.receive(text, key: attempt.idempotencyKey)
    }
    try await outbox.add("like 7")
    await server.waitForApplied(1)
}
