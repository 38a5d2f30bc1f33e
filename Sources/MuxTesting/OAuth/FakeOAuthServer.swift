import Foundation
import MuxKit

/// A test double: an authorisation server in memory, with rotation and reuse detection as RFC 9700 recommends.
///
/// ```swift
/// let server = FakeOAuthServer(users: ["alice": "secret"], clock: clock)
/// let tokens = try await server.signIn(user: "alice", password: "secret")
/// let user = server.authorize(tokens.access)          // "alice"
/// ```
///
/// A sign-in begins a family of tokens. A refresh spends the refresh token and hands out the next of its family; if a
/// spent one comes again, somebody has stolen it or the client is wrong, and the whole family is revoked.
/// ``LoopbackBackend`` puts it on the network.
public final class FakeOAuthServer: Sendable {
    private typealias FamilyID = UInt64

    private struct Access: Sendable {
        var family: FamilyID
        var expiry: Moment
    }

    private struct Refresh: Sendable {
        var family: FamilyID
        var expiry: Moment
        var isSpent = false
        /// What it was exchanged for.
        var successor: String?
    }

    private struct Family: Sendable {
        var user: String
        var isRevoked = false
    }

    private struct State: Sendable {
        var families: [FamilyID: Family] = [:]
        var access: [String: Access] = [:]
        var refresh: [String: Refresh] = [:]
        var failures: [FakeOAuthError] = []
        var statistics = FakeOAuthStatistics()

        mutating func revoke(_ id: FamilyID) {
            guard self.families[id]?.isRevoked == false else { return }
            self.families[id]?.isRevoked = true
            self.statistics.revocations += 1
        }

        func user(of id: FamilyID) -> String? {
            guard let family = self.families[id], !family.isRevoked else { return nil }
            return family.user
        }

        /// A new access token with the refresh token `kept`, or with a new one.
        mutating func grant(_ id: FamilyID, keeping kept: String?, at now: Moment, _ options: FakeOAuthOptions)
            -> FakeTokens
        {
            if options.newAccessTokenKillsPrevious {
                let user = self.families[id]?.user
                self.access = self.access.filter { self.families[$0.value.family]?.user != user }
            }
            let tokens = FakeTokens(
                access: "access-\(UUID().uuidString)",
                refresh: kept ?? "refresh-\(UUID().uuidString)",
                expiresIn: options.accessLifetime
            )
            self.access[tokens.access] = Access(family: id, expiry: now.advanced(by: options.accessLifetime))
            if kept == nil {
                let expiry = options.refreshLifetime.map { now.advanced(by: $0) } ?? .distantFuture
                self.refresh[tokens.refresh] = Refresh(family: id, expiry: expiry)
            }
            return tokens
        }
    }

    private let users: [String: String]
    private let options: FakeOAuthOptions
    private let time: TimeSource
    private let state = Locked(State())

    /// A server that knows some users.
    ///
    /// - Parameters:
    ///   - users: Passwords by the users' names.
    ///   - options: The rules.
    ///   - clock: What life times and latency are measured with.
    public init(
        users: [String: String],
        options: FakeOAuthOptions = .init(),
        clock: any Clock<Duration> = ContinuousClock()
    ) {
        self.users = users
        self.options = options
        self.time = TimeSource(clock)
    }

    /// What the server counted so far.
    public var statistics: FakeOAuthStatistics { self.state.withLock { $0.statistics } }

    /// Signs a user in: the beginning of a new family of tokens.
    ///
    /// - Returns: The first tokens of the family.
    /// - Throws: ``FakeOAuthError/invalidCredentials``, or `CancellationError` during the latency.
    public func signIn(user: String, password: String) async throws -> FakeTokens {
        try await self.pause(self.options.latency)
        let now = self.time.now
        let result = self.state.withLock { state -> Result<FakeTokens, FakeOAuthError> in
            guard self.users[user] == password else {
                state.statistics.refusedSignIns += 1
                return .failure(.invalidCredentials)
            }
            state.statistics.signIns += 1
            let id = FamilyID(state.families.count)
            state.families[id] = Family(user: user)
            return .success(state.grant(id, keeping: nil, at: now, self.options))
        }
        try await self.pause(self.options.replyLatency)
        return try result.get()
    }

    /// Exchanges a refresh token for new tokens.
    ///
    /// - Returns: The new tokens; the same refresh token if the server does not rotate.
    /// - Throws: ``FakeOAuthError``, or `CancellationError` during the latency.
    public func refresh(_ token: String) async throws -> FakeTokens {
        try await self.pause(self.options.latency)
        let now = self.time.now
        let result = self.state.withLock { state -> Result<FakeTokens, FakeOAuthError> in
            state.statistics.refreshRequests += 1
            guard state.failures.isEmpty else { return .failure(state.failures.removeFirst()) }
            guard let refresh = state.refresh[token], state.user(of: refresh.family) != nil else {
                return .failure(.invalidGrant)
            }
            if refresh.isSpent, self.options.forgivesLostReplies, let successor = refresh.successor,
                state.refresh[successor]?.isSpent == false
            {
                state.refresh[successor] = nil
            } else if refresh.isSpent {
                state.statistics.reusesDetected += 1
                state.revoke(refresh.family)
                return .failure(.invalidGrant)
            }
            guard now < refresh.expiry else { return .failure(.invalidGrant) }
            state.statistics.refreshes += 1
            state.refresh[token]?.isSpent = self.options.rotatesRefreshTokens
            let kept = self.options.rotatesRefreshTokens ? nil : token
            let tokens = state.grant(refresh.family, keeping: kept, at: now, self.options)
            if kept == nil { state.refresh[token]?.successor = tokens.refresh }
            return .success(tokens)
        }
        try await self.pause(self.options.replyLatency)
        return try result.get()
    }

    /// Whose resources an access token opens; `nil` if it is not valid, or no longer.
    public func authorize(_ accessToken: String) -> String? {
        let now = self.time.now
        return self.state.withLock { state in
            let access = state.access[accessToken]
            guard let access, now < access.expiry, let user = state.user(of: access.family) else {
                state.statistics.refusals += 1
                return nil
            }
            state.statistics.resourceHits += 1
            return user
        }
    }

    /// Ends the life of every access token; refresh tokens stay good.
    public func expireAllAccessTokens() {
        self.state.withLock { $0.access = [:] }
    }

    /// Revokes every family, access tokens included: everybody has to sign in again.
    public func revokeAllRefreshTokens() {
        self.state.withLock { state in
            for id in state.families.keys { state.revoke(id) }
        }
    }

    /// Lets the next refreshes fail without looking at their tokens, which are not spent by that.
    public func failNextRefreshes(_ count: Int = 1, with error: FakeOAuthError) {
        self.state.withLock { $0.failures += Array(repeating: error, count: max(0, count)) }
    }

    private func pause(_ duration: Duration) async throws {
        if duration > .zero { try await self.time.sleep(for: duration) }
    }
}
