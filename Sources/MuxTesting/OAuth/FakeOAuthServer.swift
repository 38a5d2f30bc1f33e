public import Foundation
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
        var failures: [Failure] = []
        var statistics = Statistics()

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
        mutating func grant(_ id: FamilyID, keeping kept: String?, at now: Moment, _ options: Options)
            -> Tokens
        {
            if options.newAccessTokenKillsPrevious {
                let user = self.families[id]?.user
                self.access = self.access.filter { self.families[$0.value.family]?.user != user }
            }
            let tokens = Tokens(
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
    private let options: Options
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
        options: Options = .init(),
        clock: any Clock<Duration> = ContinuousClock()
    ) {
        self.users = users
        self.options = options
        self.time = TimeSource(clock)
    }

    /// What the server counted so far.
    public var statistics: Statistics { self.state.withLock { $0.statistics } }

    /// Signs a user in: the beginning of a new family of tokens.
    ///
    /// - Returns: The first tokens of the family.
    /// - Throws: ``Failure/invalidCredentials``, or `CancellationError` during the latency.
    public func signIn(user: String, password: String) async throws -> Tokens {
        try await self.pause(self.options.latency)
        let now = self.time.now
        let result = self.state.withLock { state -> Result<Tokens, Failure> in
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
    /// - Throws: ``Failure``, or `CancellationError` during the latency.
    public func refresh(_ token: String) async throws -> Tokens {
        try await self.pause(self.options.latency)
        let now = self.time.now
        let result = self.state.withLock { state -> Result<Tokens, Failure> in
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
    public func failNextRefreshes(_ count: Int = 1, with error: Failure) {
        self.state.withLock { $0.failures += Array(repeating: error, count: max(0, count)) }
    }

    private func pause(_ duration: Duration) async throws {
        if duration > .zero { try await self.time.sleep(for: duration) }
    }
}

extension FakeOAuthServer {
    /// A pair of tokens as ``FakeOAuthServer`` hands them out.
    public struct Tokens: Sendable, Hashable {
        /// The access token.
        public var access: String

        /// The refresh token.
        public var refresh: String

        /// How long the access token lives.
        public var expiresIn: Duration

        /// A pair of tokens.
        public init(access: String, refresh: String, expiresIn: Duration) {
            self.access = access
            self.refresh = refresh
            self.expiresIn = expiresIn
        }
    }

    /// The rules of a ``FakeOAuthServer``.
    public struct Options: Sendable, Hashable {
        /// How long an access token lives.
        public var accessLifetime: Duration = .seconds(300)

        /// How long a refresh token lives; `nil` for ever.
        public var refreshLifetime: Duration?

        /// Whether a refresh hands out a new refresh token and spends the old one.
        public var rotatesRefreshTokens = true

        /// Whether a spent refresh token is exchanged again as long as nobody has used the one that it was exchanged for: the
        /// reply may have been lost.
        public var forgivesLostReplies = false

        /// Whether every new access token ends the user's earlier ones: the trouble of Alice and Bob.
        public var newAccessTokenKillsPrevious = false

        /// How long a sign-in or refresh takes before the server decides; a caller cancelled by then changed nothing.
        public var latency: Duration = .zero

        /// How long the answer takes after the server has decided; a caller cancelled by then has lost its tokens.
        public var replyLatency: Duration = .zero

        /// The defaults.
        public init() {}
    }

    /// What a ``FakeOAuthServer`` counted.
    public struct Statistics: Sendable, Hashable {
        /// Sign-ins that were granted.
        public var signIns = 0

        /// Sign-ins that were refused.
        public var refusedSignIns = 0

        /// Refreshes that reached the server, whatever their outcome.
        public var refreshRequests = 0

        /// Refreshes that were granted.
        public var refreshes = 0

        /// Refresh tokens that came again after they were spent.
        public var reusesDetected = 0

        /// Families of tokens that were revoked, by reuse or on demand.
        public var revocations = 0

        /// Access tokens that were accepted.
        public var resourceHits = 0

        /// Access tokens that were refused: what a client sees as status 401.
        public var refusals = 0

        /// Nothing counted.
        public init() {}
    }

    /// Why ``FakeOAuthServer`` hands out no tokens.
    @nonexhaustive
    public enum Failure: Error, Sendable, Hashable, LocalizedError {
        /// User and password do not belong together.
        case invalidCredentials

        /// The refresh token is unknown, spent, expired or revoked: a refusal (RFC 6749, section 5.2).
        case invalidGrant

        /// The server cannot answer now: transient, as if with status 503.
        case unavailable

        /// A text for the test's log.
        public var errorDescription: String? {
            switch self {
            case .invalidCredentials: "The fake server does not know this user with this password."
            case .invalidGrant: "The fake server refused the refresh token."
            case .unavailable: "The fake server is unavailable."
            }
        }
    }
}
