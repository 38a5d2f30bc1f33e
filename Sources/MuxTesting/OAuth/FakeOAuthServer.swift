public import Foundation
import MuxKit

/// An authorization server in memory, with refresh token rotation and reuse detection according to RFC 9700.
///
/// ```swift
/// let server = FakeOAuthServer(users: ["alice": "secret"], clock: clock)
/// let tokens = try await server.signIn(user: "alice", password: "secret")
/// let user = server.authorize(tokens.access)          // "alice"
/// ```
///
/// A sign-in starts a family of tokens. By default, a refresh spends the refresh token and issues the next
/// refresh token of the family. The reuse of a spent refresh token revokes the whole family.
/// ``LoopbackBackend`` serves the authorization server over HTTP.
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
        /// The refresh token last issued in exchange for this token; `nil` before the first exchange.
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

        /// Revokes a family once; the count of revocations does not include a repetition.
        mutating func revoke(_ id: FamilyID) {
            guard self.families[id]?.isRevoked == false else { return }
            self.families[id]?.isRevoked = true
            self.statistics.revocations += 1
        }

        /// The user of a family; `nil` for a revoked family.
        func user(of id: FamilyID) -> String? {
            guard let family = self.families[id], !family.isRevoked else { return nil }
            return family.user
        }

        /// Issues a new access token, together with the refresh token `kept`, or with a new refresh token if
        /// `kept` is `nil`.
        mutating func grant(_ id: FamilyID, keeping kept: String?, at now: Moment, _ configuration: Configuration)
            -> Tokens
        {
            if configuration.newAccessTokenKillsPrevious {
                let user = self.families[id]?.user
                self.access = self.access.filter { self.families[$0.value.family]?.user != user }
            }
            let tokens = Tokens(
                access: "access-\(UUID().uuidString)",
                refresh: kept ?? "refresh-\(UUID().uuidString)",
                expiresIn: configuration.accessLifetime
            )
            self.access[tokens.access] = Access(family: id, expiry: now.advanced(by: configuration.accessLifetime))
            if kept == nil {
                let expiry = configuration.refreshLifetime.map { now.advanced(by: $0) } ?? .distantFuture
                self.refresh[tokens.refresh] = Refresh(family: id, expiry: expiry)
            }
            return tokens
        }
    }

    private let users: [String: String]
    private let configuration: Configuration
    private let time: TimeSource
    private let state = Locked(State())

    /// Makes a server with users and rules.
    ///
    /// - Parameters:
    ///   - users: Passwords by user name.
    ///   - configuration: The rules.
    ///   - clock: Measures lifetimes and latencies.
    public init(
        users: [String: String],
        configuration: Configuration = .init(),
        clock: any Clock<Duration> = ContinuousClock()
    ) {
        self.users = users
        self.configuration = configuration
        self.time = TimeSource(clock)
    }

    /// The counts so far.
    public var statistics: Statistics { self.state.withLock { $0.statistics } }

    /// Signs a user in and starts a family of tokens.
    ///
    /// - Returns: The first tokens of the family.
    /// - Throws: ``Failure/invalidCredentials``, or `CancellationError` during a delay.
    public func signIn(user: String, password: String) async throws -> Tokens {
        try await self.pause(self.configuration.latency)
        let now = self.time.now
        let result = self.state.withLock { state -> Result<Tokens, Failure> in
            guard self.users[user] == password else {
                state.statistics.refusedSignIns += 1
                return .failure(.invalidCredentials)
            }
            state.statistics.signIns += 1
            let id = FamilyID(state.families.count)
            state.families[id] = Family(user: user)
            return .success(state.grant(id, keeping: nil, at: now, self.configuration))
        }
        try await self.pause(self.configuration.replyLatency)
        return try result.get()
    }

    /// Exchanges a refresh token for new tokens.
    ///
    /// - Returns: The new access token, with a new refresh token; without rotation, with the same refresh
    ///   token.
    /// - Throws: ``Failure``, or `CancellationError` during a delay.
    public func refresh(_ token: String) async throws -> Tokens {
        try await self.pause(self.configuration.latency)
        let now = self.time.now
        let result = self.state.withLock { state -> Result<Tokens, Failure> in
            state.statistics.refreshRequests += 1
            guard state.failures.isEmpty else { return .failure(state.failures.removeFirst()) }
            guard let refresh = state.refresh[token], state.user(of: refresh.family) != nil, now < refresh.expiry else {
                return .failure(.invalidGrant)
            }
            if refresh.isSpent, self.configuration.forgivesLostReplies, let successor = refresh.successor,
                state.refresh[successor]?.isSpent == false
            {
                // The client may have lost the response with the successor: a new successor replaces the lost
                // successor.
                state.refresh[successor] = nil
            } else if refresh.isSpent {
                state.statistics.reusesDetected += 1
                state.revoke(refresh.family)
                return .failure(.invalidGrant)
            }
            state.statistics.refreshes += 1
            state.refresh[token]?.isSpent = self.configuration.rotatesRefreshTokens
            let kept = self.configuration.rotatesRefreshTokens ? nil : token
            let tokens = state.grant(refresh.family, keeping: kept, at: now, self.configuration)
            if kept == nil { state.refresh[token]?.successor = tokens.refresh }
            return .success(tokens)
        }
        try await self.pause(self.configuration.replyLatency)
        return try result.get()
    }

    /// The user of an access token; `nil` for an invalid token.
    ///
    /// Counts the outcome in ``statistics``.
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

    /// Expires every present access token; refresh tokens stay as before.
    public func expireAllAccessTokens() {
        self.state.withLock { $0.access = [:] }
    }

    /// Revokes every present family: its refresh tokens and access tokens become invalid.
    public func revokeAllRefreshTokens() {
        self.state.withLock { state in
            for id in state.families.keys { state.revoke(id) }
        }
    }

    /// Makes `count` refreshes throw `error`, after the failures of earlier calls of this method.
    ///
    /// The server neither checks nor spends the tokens of these refreshes. A negative count counts as zero.
    public func failNextRefreshes(_ count: Int = 1, with error: Failure) {
        self.state.withLock { $0.failures += Array(repeating: error, count: max(0, count)) }
    }

    private func pause(_ duration: Duration) async throws {
        if duration > .zero { try await self.time.sleep(for: duration) }
    }
}

extension FakeOAuthServer {
    /// An access token with its refresh token.
    public struct Tokens: Sendable, Hashable {
        /// The access token.
        public var access: String

        /// The refresh token.
        public var refresh: String

        /// The lifetime of the access token.
        public var expiresIn: Duration

        /// Makes a pair of tokens.
        public init(access: String, refresh: String, expiresIn: Duration) {
            self.access = access
            self.refresh = refresh
            self.expiresIn = expiresIn
        }
    }

    /// Lifetimes, rotation and latency.
    public struct Configuration: Sendable, Hashable {
        /// The lifetime of an access token.
        public var accessLifetime: Duration

        /// The lifetime of a refresh token; `nil` for no limit.
        public var refreshLifetime: Duration?

        /// Whether a refresh issues a new refresh token and spends the previous refresh token.
        public var rotatesRefreshTokens: Bool

        /// Whether the server accepts a spent refresh token again until the use of its successor, because the
        /// client may have lost the response.
        ///
        /// Each repetition replaces the successor.
        public var forgivesLostReplies: Bool

        /// Whether every new access token invalidates the user's earlier access tokens.
        public var newAccessTokenKillsPrevious: Bool

        /// The delay of a sign-in or refresh before the decision of the server; a cancellation during the
        /// delay leaves the server unchanged.
        public var latency: Duration

        /// The delay of a sign-in or refresh after the decision of the server; a cancellation during the
        /// delay loses the tokens.
        public var replyLatency: Duration

        /// Makes a configuration; each parameter sets the property of the same name.
        public init(
            accessLifetime: Duration = .seconds(300),
            refreshLifetime: Duration? = nil,
            rotatesRefreshTokens: Bool = true,
            forgivesLostReplies: Bool = false,
            newAccessTokenKillsPrevious: Bool = false,
            latency: Duration = .zero,
            replyLatency: Duration = .zero
        ) {
            self.accessLifetime = accessLifetime
            self.refreshLifetime = refreshLifetime
            self.rotatesRefreshTokens = rotatesRefreshTokens
            self.forgivesLostReplies = forgivesLostReplies
            self.newAccessTokenKillsPrevious = newAccessTokenKillsPrevious
            self.latency = latency
            self.replyLatency = replyLatency
        }
    }

    /// Counts of requests and their outcomes.
    public struct Statistics: Sendable, Hashable {
        /// Granted sign-ins.
        public var signIns = 0

        /// Refused sign-ins.
        public var refusedSignIns = 0

        /// Refreshes with a decision of the server, including refused and failed refreshes.
        public var refreshRequests = 0

        /// Granted refreshes.
        public var refreshes = 0

        /// Refused reuses of spent refresh tokens, each of which revoked a family.
        public var reusesDetected = 0

        /// Revoked families of tokens, after a reuse or by ``FakeOAuthServer/revokeAllRefreshTokens()``.
        public var revocations = 0

        /// Accepted access tokens.
        public var resourceHits = 0

        /// Refused access tokens (status 401).
        public var refusals = 0

        /// Makes zero counts.
        public init() {}
    }

    /// The reason for a response without tokens.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Failure: Error, Sendable, Hashable, LocalizedError, CustomStringConvertible {
        /// Unknown user or wrong password.
        case invalidCredentials

        /// The refresh token is unknown, spent, expired or revoked (RFC 6749, section 5.2: `invalid_grant`).
        case invalidGrant

        /// A transient failure, like status 503.
        case unavailable

        /// A text for the test's log.
        public var errorDescription: String? { self.description }

        /// A text for the test's log.
        public var description: String {
            switch self {
            case .invalidCredentials: "The fake server has no user with this name and password."
            case .invalidGrant: "The fake server refused the refresh token."
            case .unavailable: "The fake server is unavailable."
            }
        }
    }
}
