import MuxKit
import MuxTestSupport
import MuxTesting

/// A connection to a shared store with failures, delays and counts for each member.
final class FailingSharedStore: MuxSharedStore {
    enum Member: Sendable {
        case load, claim, put, giveUp, invalidate
    }

    private struct State: Sendable {
        var failing: Set<Member> = []
        var repliesAfter: [Member: Duration] = [:]
        var counts: [Member: Int] = [:]
        var lastScopes: [MuxShared.Scope] = []
        var changingClaims: (@Sendable (MuxShared.Claim) -> MuxShared.Claim)?
    }

    private let base: MemorySharedStore.Connection
    private let clock: VirtualClock
    private let onEnd: (@Sendable () -> Void)?
    private let state = Locked(State())

    /// - Parameters:
    ///   - base: The connection.
    ///   - clock: Measures the delays.
    ///   - onEnd: Called after the end of the listener to the changes. With `onEnd`, no change is delivered.
    init(_ base: MemorySharedStore.Connection, _ clock: VirtualClock, onEnd: (@Sendable () -> Void)? = nil) {
        self.base = base
        self.clock = clock
        self.onEnd = onEnd
    }

    /// Makes only calls of `members` throw.
    func fail(_ members: Member...) { self.state.withLock { $0.failing = Set(members) } }

    /// Delays the replies of a member.
    ///
    /// The effect of the call is not delayed.
    func delayReplies(of member: Member, by delay: Duration?) {
        self.state.withLock { $0.repliesAfter[member] = delay }
    }

    func changeClaims(_ change: @escaping @Sendable (MuxShared.Claim) -> MuxShared.Claim) {
        self.state.withLock { $0.changingClaims = change }
    }

    func count(of member: Member) -> Int { self.state.withLock { $0.counts[member] ?? 0 } }

    /// The scopes of the last invalidation.
    var lastScopes: [MuxShared.Scope] { self.state.withLock { $0.lastScopes } }

    private func call<Reply: Sendable>(
        _ member: Member,
        _ body: @Sendable () async throws -> Reply
    ) async throws -> Reply {
        let (fails, delay) = self.state.withLock { state in
            state.counts[member, default: 0] += 1
            return (state.failing.contains(member), state.repliesAfter[member])
        }
        if fails { throw MemorySharedStore.Away() }
        let reply = try await body()
        if let delay { try await self.clock.sleep(for: delay) }
        return reply
    }

    func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
        try await self.call(.load) { try await self.base.load(names) }
    }

    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration
    ) async throws -> MuxShared.Claim {
        let claim = try await self.call(.claim) {
            try await self.base.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
        }
        return self.state.withLock { $0.changingClaims }?(claim) ?? claim
    }

    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
        try await self.call(.put) { try await self.base.put(entry, with: ticket) }
    }

    func giveUp(_ ticket: MuxShared.Ticket) async throws {
        try await self.call(.giveUp) { try await self.base.giveUp(ticket) }
    }

    func invalidate(_ scopes: [MuxShared.Scope]) async throws {
        self.state.withLock { $0.lastScopes = scopes }
        try await self.call(.invalidate) { try await self.base.invalidate(scopes) }
    }

    func changes() -> AsyncStream<MuxShared.Change> {
        guard let onEnd else { return self.base.changes() }
        let (stream, continuation) = AsyncStream.makeStream(of: MuxShared.Change.self)
        continuation.onTermination = { _ in onEnd() }
        return stream
    }
}
