import Foundation
import Synchronization

/// The sessions of many users of a service: a token and cached values for each user.
///
/// ```swift
/// let sessions = MuxSessions<String, AccessToken> { user, _ in .updatedDependency(try await backend.token(of: user)) }
/// let profiles = sessions.makeMap(cacheKey: "Profiles") { user, token in try await backend.profile(of: user, token) }
/// let orders = sessions.makeMap(cacheKey: "Orders") { user, id, token in try await backend.order(id, token) }
///
/// let profile = try await profiles.request(key: "alice")
/// let order = try await orders.request(key: .init("alice", 7))
/// await sessions.signOut("alice")
/// ```
///
/// An app with one user per device needs a ``DependentRunner`` or an ``OAuthDependentRunner``, and a
/// ``MuxRepository``, for its session. A ``MuxSessions`` manages the sessions of all users: the tokens are
/// values of a map, and the keys of the map are the users.
///
/// **Concurrent calls.** All calls of a user without a usable token wait for the same update; users do not
/// wait for each other. If a token is set during an update, the update runs to its end, and a second update
/// may run at the same time.
///
/// **Cancellation.** A caller that is cancelled during the wait for a token throws `CancellationError` at
/// once. With the policy ``MuxPolicy/tokens`` the update continues. A sign-out cancels the user's update.
///
/// **After a failure.** If a renewal fails, the current token is used until its end. Without a usable token,
/// all calls that wait for the update throw the error of the update, and the next call starts another update,
/// unless ``MuxPolicy/remembersFailure`` remembers the error. A refused update
/// (``UpdateResult/updateFailed``) is remembered for one minute, or until a token is set or the user is
/// signed out. Until then, calls that need an update throw ``RunnerError/updateFailed(underlying:)``.
///
/// **In memory.** ``MuxPolicy/maximumCount`` limits the number of tokens, and the policy of a map limits its
/// values; tokens and values with few uses are evicted. So an update must be able to make a token without a
/// previous token.
///
/// **Sign-outs.** ``signOut(_:)`` ends the session of one user, and ``MuxRepository/clearAll()`` ends the
/// sessions of all users.
public final class MuxSessions<UserID: MuxKey, Token: Sendable>: Sendable {
    /// A token in memory.
    struct Grant: Sendable {
        let token: Token
        /// Distinguishes grants with equal tokens; 0 for a refused token.
        ///
        /// A refused token is kept as the argument of the next update.
        let number: UInt64
        /// The time until which a refusal does not replace the token.
        ///
        /// `.distantPast`, unless the token replaced a refused token and no task has accepted the new token
        /// yet.
        let unprovenUntil: Moment
    }

    /// The tokens in memory, by user; a fetch of this map is an update.
    let tokens: MultiplexerMap<UserID, Grant>
    package let repository: MuxRepository
    /// Connects the maps of this object for sign-outs of single users.
    let group = UserGroup()
    /// The running calls of each user.
    let calls = UserCalls<UserID>()
    let grants: GrantFactory

    /// Counts the grants; see ``Grant/number``.
    final class Numbers: Sendable {
        private let last = Atomic<UInt64>(0)

        func next() -> UInt64 { self.last.add(1, ordering: .relaxed).newValue }
    }

    /// Makes the grants and the policy of the token map from the policy of the sessions.
    struct GrantFactory: Sendable {
        let policy: MuxPolicy
        let repository: MuxRepository
        let numbers = Numbers()

        var name: String { self.policy.name ?? "\(Token.self)" }

        /// The longest time between the renewal and the end of a token with a known end.
        var leeway: Duration { self.policy.refreshAhead ?? .zero }

        /// The policy of the token map.
        ///
        /// A token with a known end is fresh until its renewal time, and then stale until its end.
        var mapPolicy: MuxPolicy {
            let policy = self.policy
            var own = policy
            own.name = self.name
            own.refreshAhead = nil
            own.staleWhileRevalidate = self.leeway
            own.staleIfError = self.leeway
            own.isSilenceable = { !$0.isRefusedUpdate }
            own.remembersFailure = { $0.isRefusedUpdate ? .seconds(60) : policy.remembersFailure($0) }
            own.maximumCost = policy.maximumCost.map { limit in
                MuxPolicy.CostLimit(limit.maximum) { (grant: Grant) in limit.cost(of: grant.token) }
            }
            return own
        }

        /// Makes the grant of a token, with the lifetime and the stale limits of the token.
        ///
        /// - Parameters:
        ///   - token: The token.
        ///   - isNew: Whether the token is the result of an update; `false` for a token that the app set.
        ///   - replacesRefused: Whether a task has refused the previous token.
        /// - Returns: The grant, for the token map.
        func makeGrant(_ token: Token, isNew: Bool, replacesRefused: Bool = false) -> Fetched<Grant> {
            let now = self.repository.time.now
            let grant = Grant(
                token: token,
                number: self.numbers.next(),
                // The age of a token is no reason for a refusal in the first 30 seconds; see
                // ``handleRefusal(of:by:_:)``.
                unprovenUntil: replacesRefused ? now.advanced(by: .seconds(30)) : .distantPast
            )
            let lifetime = Duration(lifetimeOf: token, at: self.repository.wallTime())
            let renewal = EarlyRenewal(lifetime: lifetime, isNew: isNew, leeway: self.leeway, at: now)
            guard let lifetime, let renewal else {
                // The end of the token is unknown: after the time to live, the token must not be used. With
                // an unlimited time to live, no stale limits are necessary; stale limits would take memory.
                guard self.policy.timeToLive < .longest else { return Fetched(grant) }
                return Fetched(grant, staleWhileRevalidate: .zero, staleIfError: .zero)
            }
            let start = max(renewal.start, now)
            let rest = renewal.end.duration(since: start)
            let timeToLive = start.duration(since: now)
            // The policy of the map has the same stale limits; stale limits of the grant would take memory.
            guard rest != self.leeway else { return Fetched(grant, timeToLive: timeToLive) }
            return Fetched(
                grant,
                timeToLive: timeToLive,
                // A token that seems to have ended is renewed first, and used if the renewal fails without a
                // refusal: the wall clock may be wrong.
                staleWhileRevalidate: lifetime > .zero ? rest : .zero,
                staleIfError: rest
            )
        }
    }

    /// Makes sessions.
    ///
    /// - Parameters:
    ///   - policy: The policy of token fetches, and the maximum number of tokens; start from
    ///     ``MuxPolicy/tokens``.
    ///     - A token with a known end (``ExpiringDependency``) is used until its end. A call in the last
    ///       ``MuxPolicy/refreshAhead`` before the end starts a renewal in the background; for a new token,
    ///       not before half its lifetime has passed.
    ///     - A token without a known end, or a new token that seems to have ended because the clocks
    ///       disagree, is used for ``MuxPolicy/timeToLive``.
    ///     - The policy's limits for stale values and ``MuxPolicy/isSilenceable`` have no effect.
    ///     - Two ``MuxSessions`` with the same repository or the same shared store need different names
    ///       (``MuxPolicy/name``); the default name is the type of the token.
    ///   - repository: The repository whose sign-outs end the sessions. With a ``MuxSharedStore``, values of
    ///     maps with a `cacheKey` are shared with other machines; tokens are not shared. No token and no
    ///     value is written to disk.
    ///   - update: Makes a token for a user. The second argument is the token to replace; `nil` without a
    ///     token in memory.
    public init(
        policy: MuxPolicy = .tokens,
        repository: MuxRepository = .shared,
        update: @escaping @Sendable @concurrent (UserID, Token?) async throws -> UpdateResult<Token>
    ) {
        self.repository = repository
        let grants = GrantFactory(policy: policy, repository: repository)
        self.grants = grants
        self.tokens = MultiplexerMap(
            policy: grants.mapPolicy,
            repository: repository,
            persistence: nil,
            users: UsersOfKeys(of: self.group),
            handsOutTokens: true,
            fetch: .fetched { user, before in
                let former = before?.value
                let token = try await Self.makeToken(user.key, former?.token, update)
                return grants.makeGrant(token, isNew: true, replacesRefused: former?.number == 0)
            }
        )
        // After the map of tokens: the order of registration is the order of
        // ``MuxRepository/endSession(of:)``.
        repository.attach(self)
    }

    /// Makes a token.
    ///
    /// - Throws: The error of `update`; ``RunnerError/updateFailed(underlying:)`` for a refusal.
    @concurrent
    private static func makeToken(
        _ user: UserID,
        _ former: Token?,
        _ update: @Sendable @concurrent (UserID, Token?) async throws -> UpdateResult<Token>
    ) async throws -> Token {
        do {
            if case .updatedDependency(let token) = try await update(user, former) { return token }
        } catch  where error.saysBadDependency {
            throw RunnerError.updateFailed(underlying: error)
        }
        throw RunnerError.updateFailed(underlying: nil)
    }

    // MARK: - Tokens

    /// Runs `task` with the user's token; after a refusal, runs `task` again with a new token.
    ///
    /// The task runs at most twice, or at most 11 times if other calls also replace the token.
    ///
    /// - Parameters:
    ///   - user: The user.
    ///   - task: Does the work, on the caller's executor. A thrown error that reports a bad dependency
    ///     (``BadDependencyError``) is a refusal, too.
    /// - Returns: The output of the task, even if the user's session has ended in the meantime.
    /// - Throws: One of these errors:
    ///   - The error of the task or of the update.
    ///   - ``RunnerError/updateFailed(underlying:)`` if the update was refused.
    ///   - ``RunnerError/tooManyUpdates(count:elapsed:underlying:)`` if the task refuses the new token as
    ///     well, or 11 tokens. One refusal is enough if the token replaced a refused token in the last 30
    ///     seconds, and no task has accepted the token yet.
    ///   - ``MuxError/sessionEnded`` if the user's session ended while the call waited, or before the task
    ///     refused the token.
    ///   - ``MuxError/unusableKey`` if `user` is not equal to itself.
    ///   - Another ``MuxError`` of a request, such as ``MuxError/timedOut(after:)``, or `CancellationError`.
    /// - Complexity: O(1), without an additional suspension, if a fresh token is in memory.
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ user: UserID,
        _ task: (Token) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.run(ExactKey(user), endsWithSession: false, task)
    }

    /// Runs `task` as ``run(_:_:)`` does.
    ///
    /// With `endsWithSession`, the function throws ``MuxError/sessionEnded`` instead of returning an output
    /// after the end of the session.
    private nonisolated(nonsending) func run<Output: Sendable>(
        _ user: ExactKey<UserID>,
        endsWithSession: Bool,
        _ task: (Token) async throws -> RunResult<Output>
    ) async throws -> Output {
        let session = try self.calls.beginCall(of: user)
        defer { self.calls.endCall(of: user, session) }
        var call = Call(start: self.repository.time.now)
        while true {
            let grant = try await self.grant(of: user, session)
            do {
                if case .output(let output) = try await task(grant.token) {
                    if grant.unprovenUntil > .distantPast { self.markAccepted(grant, user) }
                    if endsWithSession { try session.check() }
                    return output
                }
                call.lastError = nil
            } catch  where error.saysBadDependency {
                call.lastError = error
            }
            try session.check()
            try self.handleRefusal(of: grant, by: user, &call)
        }
    }

    /// The state of one call.
    private struct Call {
        let start: Moment
        /// The number of tokens that the task refused.
        var refusals = 0
        /// The number of updates that the refusals of this call requested.
        var updates = 0
        /// The error of the last refusal; `nil` for a refusal without an error.
        var lastError: (any Error)?
    }

    /// Returns the user's grant; if necessary, starts an update or waits for the running update.
    ///
    /// - Throws: The error of the update, ``MuxError/sessionEnded``, or `CancellationError`.
    private nonisolated(nonsending) func grant(
        of user: ExactKey<UserID>,
        _ session: UserCalls<UserID>.Session
    ) async throws -> Grant {
        while true {
            try Task.checkCancellation()
            try session.check()
            if let grant = self.tokens.core.hit(user) { return grant }
            let before = self.tokens.core.cachedEntry(user)?.value.number
            do {
                let grant = try await self.tokens.request(key: user.key)
                try session.check()
                return grant
            } catch {
                try session.check()
                // A token that was set while the call waited for an update replaces the error.
                let present = self.tokens.core.cachedEntry(user)?.value.number
                guard let present, present != before, present != 0 else { throw error }
            }
        }
    }

    /// Handles the refusal of a token by a task.
    ///
    /// Unless another token has replaced the refused token, the next request starts an update. A running
    /// update continues, because the update makes a newer token.
    ///
    /// - Throws: ``RunnerError/tooManyUpdates(count:elapsed:underlying:)`` if the call must not try again.
    private func handleRefusal(of grant: Grant, by user: ExactKey<UserID>, _ call: inout Call) throws {
        let now = self.repository.time.now
        let present = self.tokens.core.cachedEntry(user)?.value
        let isReplaced = present.map { $0.number != 0 && $0.number != grant.number } ?? false
        // If the present token has just replaced a refused token, its age is not the reason of the refusal,
        // so another update would not help.
        let mayBeReplaced = call.updates == 0 && now >= present?.unprovenUntil ?? .distantPast
        guard call.refusals < Self.maximumRefusalsPerCall, isReplaced || mayBeReplaced else {
            let elapsed = now.duration(since: call.start)
            throw RunnerError.tooManyUpdates(count: call.updates, elapsed: elapsed, underlying: call.lastError)
        }
        call.refusals += 1
        guard !isReplaced else { return }
        let isRefused = self.tokens.core.memory.amend(user) { entry in
            guard entry.value.number == grant.number else { return false }
            entry.value = Grant(token: grant.token, number: 0, unprovenUntil: .distantPast)
            // Negative: a hit reads a coarse clock, which may lag, and must not return the entry.
            entry.timeToLive = .seconds(-1)
            entry.stale = StaleLimits(whileRevalidate: .zero, ifError: .zero)
            return true
        }
        if isRefused || present == nil { call.updates += 1 }
    }

    /// The limit ends a call whose task refuses each token while other calls replace the token repeatedly.
    private static var maximumRefusalsPerCall: Int { 10 }

    /// Records that a task has accepted a token that replaced a refused token.
    private func markAccepted(_ grant: Grant, _ user: ExactKey<UserID>) {
        _ = self.tokens.core.memory.amend(user) { entry in
            guard entry.value.number == grant.number else { return false }
            entry.value = Grant(token: grant.token, number: grant.number, unprovenUntil: .distantPast)
            return true
        }
    }

    /// The user's token in memory, even after its end; `nil` without a token, or if a task has refused the
    /// token.
    ///
    /// - Parameter user: The user.
    /// - Returns: The token.
    public func token(of user: UserID) -> Token? {
        self.tokens.cachedValue(key: user).flatMap { $0.number == 0 ? nil : $0.token }
    }

    /// Replaces the user's token on this machine, such as after a sign-in.
    ///
    /// A running update cannot overwrite the token. Calls that wait for the running update use the update's
    /// token, or `token` if the update fails. A token that seems to have ended is renewed first, and used if
    /// the renewal fails without a refusal, because the wall clock may be wrong. Other machines do not get
    /// the token: if another machine may have a token of an earlier session, sign out first.
    ///
    /// - Parameters:
    ///   - token: The token.
    ///   - user: The user.
    public func set(_ token: Token, for user: UserID) {
        self.tokens.core.store(self.grants.makeGrant(token, isNew: false), ExactKey(user), ifRevision: nil)
    }

    /// The number of users with a token in memory, usable or not.
    public var count: Int { self.tokens.core.engine.withState { $0.slots.entryCount } }

    /// The numbers of calls waiting for a token, of running updates, and of users with an update: zero at
    /// rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.tokens.occupancy }

    /// The number of users with a call: zero at rest.
    package var callingUserCount: Int { self.calls.userCount }

    // MARK: - Values

    /// Makes a map with one value for each user, fetched with the user's token.
    ///
    /// If the server refuses the token, `onFetch` must throw a ``BadDependencyError``; then `onFetch` runs
    /// again, with a new token.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the values in a store that several machines share; `nil`, the default, for
    ///     values in memory only. No value is written to disk.
    ///   - policy: The lifetime of a value, and the rules for fetches, failures and memory.
    ///   - onFetch: Fetches the value of a user.
    /// - Returns: The map; its keys are the users.
    public func makeMap<Value: Sendable>(
        cacheKey: MultiplexerMap<UserID, Value>.CacheKey? = nil,
        policy: MuxPolicy = .init(),
        onFetch: @escaping @Sendable @concurrent (UserID, Token) async throws -> Value
    ) -> MultiplexerMap<UserID, Value> {
        MultiplexerMap(
            policy: policy,
            repository: self.repository,
            persistence: self.tagged(cacheKey?.persistence) { $0.key },
            users: UsersOfKeys(of: self.group),
            fetch: .value { key in
                try await self.run(key, endsWithSession: true) { .output(try await onFetch(key.key, $0)) }
            }
        )
    }

    /// Makes a map with many values for each user, fetched with the user's token.
    ///
    /// If the server refuses the token, `onFetch` must throw a ``BadDependencyError``; then `onFetch` runs
    /// again, with a new token.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the values in a store that several machines share; `nil`, the default, for
    ///     values in memory only. No value is written to disk.
    ///   - policy: The lifetime of a value, and the rules for fetches, failures and memory.
    ///   - onFetch: Fetches the value of a key of a user.
    /// - Returns: The map; each key consists of a user and a key.
    public func makeMap<Key: MuxKey, Value: Sendable>(
        cacheKey: MultiplexerMap<UserKey<UserID, Key>, Value>.CacheKey? = nil,
        policy: MuxPolicy = .init(),
        onFetch: @escaping @Sendable @concurrent (UserID, Key, Token) async throws -> Value
    ) -> MultiplexerMap<UserKey<UserID, Key>, Value> {
        MultiplexerMap(
            policy: policy,
            repository: self.repository,
            persistence: self.tagged(cacheKey?.persistence) { $0.key.user },
            users: UsersOfKeys(of: self.group) { $0.key.exactUser },
            fetch: .value { key in
                let user = key.key.exactUser
                return try await self.run(user, endsWithSession: true) {
                    .output(try await onFetch(user.key, key.key.key, $0))
                }
            }
        )
    }

    /// Adds the user's tag to the tags of a value.
    ///
    /// One invalidation of the tag removes all values of the user on all machines.
    private func tagged<Key, Value>(
        _ persistence: Persistence<Key, Value>?,
        _ user: @escaping @Sendable (Key) -> UserID
    ) -> Persistence<Key, Value>? {
        guard var persistence else { return nil }
        let tag = self.tag
        let others = persistence.tags
        persistence.tags = { (others?($0) ?? []) + [tag(user($0))] }
        return persistence
    }
}

extension MuxPolicy {
    /// The policy of token fetches of a ``MuxSessions``.
    ///
    /// - A token without a known end is used until a task refuses the token.
    /// - A call in the last 30 seconds before the known end of a token starts a renewal. A new token is not
    ///   renewed before half of the lifetime has passed.
    /// - An update continues after the cancellation of all its callers.
    /// - At most 100,000 tokens are in memory.
    public static let tokens = MuxPolicy(
        timeToLive: .longest,
        refreshAhead: .seconds(30),
        whenAbandoned: .finish,
        maximumCount: 100_000
    )
}

extension Error {
    /// Whether the error is a refused update, which another attempt would not change.
    fileprivate var isRefusedUpdate: Bool {
        if case .updateFailed? = self as? RunnerError { return true }
        return false
    }
}
