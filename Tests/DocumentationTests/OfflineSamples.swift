import Foundation
import MuxKit
import MuxNetwork
import MuxOutbox
import MuxTesting

// The article about offline writes.

nonisolated enum PostChange: Codable, Sendable {
    case like(post: Int)
    case comment(id: UUID, post: Int, text: String)
    case edit(comment: UUID, post: Int, text: String)

    var post: Int {
        switch self {
        case .like(let post), .comment(_, let post, _), .edit(_, let post, _): post
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
    _ postsByID: MultiplexerMap<Int, ListedPost>
) async throws {
    // swift-format-ignore: OnlyOneTrailingClosureArgument
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
    // swift-format-ignore: OnlyOneTrailingClosureArgument
    outbox.overlay(postsByID, key: { $0.post }) { change, post in post.apply(change) }
    outbox.blocked { later, failed in
        if case .comment(let id, _, _) = failed, case .edit(id, _, _) = later { true } else { false }
    }
    outbox.start()
    try await outbox.add(.like(post: 7))
    let failed = await outbox.pending.filter(\.hasFailed)
    for await changes in outbox.states {
        print("\(changes.count) changes are not confirmed, at first \(failed.count) failed.")
    }
}

nonisolated struct TextTooLong: RetryableError {
    var retryAdvice: RetryAdvice { .permanent }
}

func describe(_ pending: MuxOutbox<PostChange>.PendingChange) -> String {
    let text: String
    switch pending.change {
    case .comment(_, _, let comment), .edit(_, _, let comment): text = comment
    case .like(let post): text = "Like of post \(post)"
    case nil: text = "Change from \(pending.addedAt)"
    }
    switch pending.state {
    case .waiting, .sending: return "\(text): is being sent"
    case .refused(let message): return "\(text): \(message)"
    case .expired: return "\(text): was too old to be sent"
    case .unknown: return "\(text): the server may have this change"
    case .unreadable: return "\(text): cannot be read by this version of the app"
    @unknown default: return text
    }
}

func sendChange(_ client: HTTPClient, _ change: PostChange, _ attempt: MuxOutbox<PostChange>.Attempt, _ token: String)
    async throws
{
    try await client.execute(ApplyChange(change: change, idempotencyKey: attempt.idempotencyKey), token: token)
}

func userAgrees(toLose count: Int) async -> Bool { count == 0 }

func signOutWithChanges(
    _ session: OAuthDependentRunner<String, String>,
    _ outbox: MuxOutbox<PostChange>
) async throws {
    let report = await session.signOut()
    if case MuxOutboxError.changesPending(let count)? = report.failures.first, await userAgrees(toLose: count) {
        for change in await outbox.pending { try await outbox.discard(change.id) }
        await session.signOut()
    }
}

func testOfAnOutbox(_ folder: URL) async throws {
    let server = FakeChangeServer()
    server.react(.loseResponse)
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
