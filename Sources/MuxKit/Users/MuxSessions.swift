import Foundation
import Synchronization

/// The sessions of a service's many users: a token and cached values for each, in a few hundred bytes.
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
/// Where one person uses one device, a ``DependentRunner`` or an ``OAuthDependentRunner`` and a ``MuxRepository`` are the session. Here
/// one object has all of them: tokens are values of a map, whose keys are the users.
///
/// **Concurrent calls.** All calls that need a user's token wait for one update, and users do not wait for each other. An update that runs
/// while a token is set runs on to its end, and another one may begin beside it.
///
/// **Cancellation.** A cancelled caller leaves at once with `CancellationError`; the update goes on, as the policy ``MuxPolicy/tokens`` says.
/// A sign-out cancels the user's update.
///
/// **After a failure.** A token that has not ended is used for the rest of its life if its renewal fails. Where there is none, a thrown error
/// goes to all calls that wait for the update, and the next call tries again. A refusal (``UpdateResult/updateFailed``) is remembered for a
/// minute, in which calls that need an update fail with ``RunnerError/updateFailed(underlying:)``, unless a token is set or the user is
/// signed out.
///
/// **In memory.** There are at most ``MuxPolicy/maximumCount`` tokens, and as many values in a map as its policy says; those of idle users go
/// first. So an update has to be able to make a token from the user alone.
///
/// **Sign-outs.** ``signOut(_:)`` ends the session of one user, ``MuxRepository/clearAll()`` those of all.
public final class MuxSessions<UserID: MuxKey, Token: Sendable>: Sendable {
    /// A token in memory.
    private struct Grant: Sendable {
        let token: Token
        /// Distinguishes equal tokens; 0 for a refused one, which is kept for the update that replaces it.
        let number: UInt64
        /// Until when it is not replaced for a refusal, because it replaced a refused one and no task has accepted it yet.
        let unprovenUntil: Moment
    }

    private let tokens: MultiplexerMap<UserID, Grant>
    package let repository: MuxRepository
    private let group = UserGroup()
    private let calls = UserCalls<UserID>()
    private let grants: GrantFactory

    /// Counts grants.
    private final class Numbers: Sendable {
        private let last = Atomic<UInt64>(0)

        func next() -> UInt64 { self.last.add(1, ordering: .relaxed).newValue }
    }

    /// Makes grants.
    private struct GrantFactory: Sendable {
        let policy: MuxPolicy
        let repository: MuxRepository
        let numbers = Numbers()

        var name: String { self.policy.name ?? "\(Token.self)" }

        /// The renewal of tokens that say when they end, before that.
        var leeway: Duration { self.policy.refreshAhead ?? .zero }

        /// How the map keeps tokens: fresh until they are to be renewed, and from then on to their end as stale ones are.
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

        func fetched(_ token: Token, isNew: Bool, replacesRefused: Bool = false) -> Fetched<Grant> {
            let now = self.repository.time.now
            let grant = Grant(
                token: token,
                number: self.numbers.next(),
                unprovenUntil: replacesRefused ? now.advanced(by: .seconds(30)) : .distantPast
            )
            let lifetime = Duration(lifetimeOf: token, at: self.repository.wallTime())
            let renewal = EarlyRenewal(lifetime: lifetime, isNew: isNew, leeway: self.leeway, at: now)
            guard let lifetime, let renewal else {
                // The usual limits take no memory, and have no effect on what is always fresh.
                guard self.policy.timeToLive < .longest else { return Fetched(grant) }
                return Fetched(grant, staleWhileRevalidate: .zero, staleIfError: .zero)
            }
            let start = max(renewal.start, now)
            let rest = renewal.end.duration(since: start)
            let timeToLive = start.duration(since: now)
            guard rest != self.leeway else { return Fetched(grant, timeToLive: timeToLive) }
            return Fetched(
                grant,
                timeToLive: timeToLive,
                // One that seems to have ended is renewed first, and used if that fails: the time of day may be wrong.
                staleWhileRevalidate: lifetime > .zero ? rest : .zero,
                staleIfError: rest
            )
        }
    }

    /// Makes sessions.
    ///
    /// - Parameters:
    ///   - policy: How tokens are fetched, and how many are kept; start from ``MuxPolicy/tokens``. A token that says when it ends
    ///     (``ExpiringDependency``, ``PerishableDependency``) is good until then, and is renewed behind a call from ``MuxPolicy/refreshAhead``
    ///     before its end, at most half its life; others, and new ones that seem to have ended because the clocks disagree, are good for
    ///     ``MuxPolicy/timeToLive``. The policy's limits for stale values and ``MuxPolicy/isSilenceable`` have no effect. Two objects with one
    ///     repository or one shared store need a ``MuxPolicy/name`` each; that of the type of token if there is none.
    ///   - repository: Where tokens and values take part in sign-outs. With a ``MuxSharedStore`` values are shared with other machines;
    ///     tokens are not, and nothing is written to a disk.
    ///   - update: Makes a user's token; receives the one to replace, `nil` if there is none in memory.
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
                let token = try await Self.updated(user.key, former?.token, update)
                return grants.fetched(token, isNew: true, replacesRefused: former?.number == 0)
            }
        )
        repository.attach(self)
    }

    /// Makes a token.
    ///
    /// - Throws: What `update` threw; ``RunnerError/updateFailed(underlying:)`` for a refusal.
    @concurrent
    private static func updated(
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

    /// Runs `task` with the user's token, and once more with a new one if the task refuses it.
    ///
    /// - Parameters:
    ///   - user: The user.
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a refusal, too.
    /// - Returns: What the task returned, also if the session of the user has ended meanwhile.
    /// - Throws: What the task or the update threw; ``RunnerError/updateFailed(underlying:)`` if the update was refused;
    ///   ``RunnerError/tooManyUpdates(count:elapsed:underlying:)`` if the task refuses the new token as well, or one that has just replaced a
    ///   refused one and that no task has accepted yet; ``MuxError/sessionEnded`` if the session of the user ended while the call waited,
    ///   or before the task refused the token; ``MuxError/timedOut(after:)``, or `CancellationError`.
    /// - Complexity: O(1), and no suspension of its own, if there is a good token.
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ user: UserID,
        _ task: (Token) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.run(ExactKey(user), endsWithSession: false, task)
    }

    /// Does what ``run(_:_:)`` does; `endsWithSession` makes it throw ``MuxError/sessionEnded`` in place of an output that came too late.
    private nonisolated(nonsending) func run<Output: Sendable>(
        _ user: ExactKey<UserID>,
        endsWithSession: Bool,
        _ task: (Token) async throws -> RunResult<Output>
    ) async throws -> Output {
        let session = try self.calls.begins(of: user)
        defer { self.calls.ended(of: user, session) }
        var call = Call(start: self.repository.time.now)
        while true {
            let grant = try await self.grant(of: user, session)
            do {
                if case .output(let output) = try await task(grant.token) {
                    if grant.unprovenUntil > .distantPast { self.accepted(grant, user) }
                    if endsWithSession { try session.check() }
                    return output
                }
                call.lastError = nil
            } catch  where error.saysBadDependency {
                call.lastError = error
            }
            try session.check()
            try self.refused(grant, by: user, &call)
        }
    }

    /// What has happened to one call.
    private struct Call {
        let start: Moment
        var refusals = 0
        var updates = 0
        var lastError: (any Error)?
    }

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
                // A token that was set while the call waited for an update.
                let present = self.tokens.core.cachedEntry(user)?.value.number
                guard let present, present != before, present != 0 else { throw error }
            }
        }
    }

    /// A task has refused a token: the next request makes another one, unless there is another one already.
    ///
    /// A running update goes on: its token is newer than the refused one.
    ///
    /// - Throws: Why the call does not ask again.
    private func refused(_ grant: Grant, by user: ExactKey<UserID>, _ call: inout Call) throws {
        let now = self.repository.time.now
        let present = self.tokens.core.cachedEntry(user)?.value
        let isReplaced = present.map { $0.number != 0 && $0.number != grant.number } ?? false
        // A token that is refused right after its renewal is not refused for its age.
        let mayBeReplaced = call.updates == 0 && now >= present?.unprovenUntil ?? .distantPast
        guard call.refusals < Self.maximumRefusalsPerCall, isReplaced || mayBeReplaced else {
            let elapsed = now.duration(since: call.start)
            throw RunnerError.tooManyUpdates(count: call.updates, elapsed: elapsed, underlying: call.lastError)
        }
        call.refusals += 1
        guard !isReplaced else { return }
        let isRefused = self.tokens.core.amend(user) { entry in
            guard entry.value.number == grant.number else { return false }
            entry.value = Grant(token: grant.token, number: 0, unprovenUntil: .distantPast)
            // Less than zero, as the clock of hits may lag.
            entry.timeToLive = .seconds(-1)
            entry.stale = StaleLimits(whileRevalidate: .zero, ifError: .zero)
            return true
        }
        if isRefused || present == nil { call.updates += 1 }
    }

    /// For a task that refuses what others renew all the time.
    private static var maximumRefusalsPerCall: Int { 10 }

    /// A task has accepted a token that replaced a refused one.
    private func accepted(_ grant: Grant, _ user: ExactKey<UserID>) {
        _ = self.tokens.core.amend(user) { entry in
            guard entry.value.number == grant.number else { return false }
            entry.value = Grant(token: grant.token, number: grant.number, unprovenUntil: .distantPast)
            return true
        }
    }

    /// The user's token in memory, however old; `nil` if there is none, or if a task has refused it.
    ///
    /// - Parameter user: The user.
    /// - Returns: The token.
    public func token(of user: UserID) -> Token? {
        self.tokens.cachedValue(key: user).flatMap { $0.number == 0 ? nil : $0.token }
    }

    /// Replaces the user's token on this machine, as after a sign-in; a running update cannot overwrite it.
    ///
    /// Calls that wait for that update use what it brings, or this token if it fails. One that seems to have ended is renewed first, and used
    /// if that throws, as the time of day may be wrong. Other machines know nothing of it: where they may have one of a former session, sign out
    /// first.
    ///
    /// - Parameters:
    ///   - token: The token.
    ///   - user: The user.
    public func set(_ token: Token, for user: UserID) {
        self.tokens.core.store(self.grants.fetched(token, isNew: false), ExactKey(user), ifRevision: nil)
    }

    /// The number of users with a token in memory, good or not.
    public var count: Int { self.tokens.core.engine.withState { $0.slots.entryCount } }

    /// The numbers of calls that wait for a token, of running updates, and of users with one: zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.tokens.occupancy }

    /// The number of users with a call: zero at rest.
    package var callingUserCount: Int { self.calls.userCount }

    // MARK: - Values

    /// Makes a map with one value for each user, fetched with the user's token.
    ///
    /// The fetch reports a token that is no good by throwing a ``BadDependencyError``; it then runs once more, with a new one.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values in a store that several machines share; `nil`, the default, to keep them in memory. Nothing is
    ///     written to a disk.
    ///   - policy: How long a value stays good, and what happens around a fetch.
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
    /// The fetch reports a token that is no good by throwing a ``BadDependencyError``; it then runs once more, with a new one.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values in a store that several machines share; `nil`, the default, to keep them in memory. Nothing is
    ///     written to a disk.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - onFetch: Fetches the value of a key of a user.
    /// - Returns: The map; its keys are a user and a key each.
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

    /// Adds a tag of the user to what names the values, so that one invalidation concerns all of them on all machines.
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

    // MARK: - Sign-out

    /// Ends the session of one user: the token and all values of the user are forgotten, and nothing that began before brings them back.
    ///
    /// Calls that wait for a token of the user, and requests that wait for a value, throw ``MuxError/sessionEnded`` at once, in every map;
    /// their fetches are cancelled. Other users are not affected. Other machines that share the store do the same as soon as they are told;
    /// if that is after the user has signed in again, it ends the new session there. See <doc:SeveralMachines>.
    ///
    /// - Parameter user: The user.
    /// - Returns: The failure of the shared store. This machine has ended the session nevertheless, and the store is asked again until
    ///   it has been told.
    /// - Complexity: O(*n*) in the number of the user's own values in memory and of the fetches that are running, and O(1) in the store.
    ///   Another machine looks at all keys in memory if the identifier is neither a `LosslessStringConvertible` nor a `UUID`.
    @discardableResult
    public func signOut(_ user: UserID) async -> MuxRepository.ClearReport {
        guard let sharedStore = self.repository.sharedStore else {
            self.end(ExactKey(user))
            return MuxRepository.ClearReport()
        }
        return await sharedStore.invalidate([.tag(self.tag(user))]) { self.end(ExactKey(user)) }
    }

    private func end(_ user: ExactKey<UserID>) { self.repository.end(EndedUser(user, of: self.group)) }

    /// What the tags of these sessions begin with, and those of no others.
    private var tagPrefix: String {
        let name = self.grants.name
        return "mux.user.\(name.utf8.count):\(name)/"
    }

    /// The tag of a user in the shared store.
    private var tag: @Sendable (UserID) -> String { { [prefix = self.tagPrefix] in prefix + $0.keyText } }

    /// The text of the user whose tag this is, if it is one of these.
    private func userText(ofTag tag: String) -> String? {
        let prefix = self.tagPrefix.utf8
        return tag.utf8.starts(with: prefix) ? String(tag.utf8.dropFirst(prefix.count)) : nil
    }
}

/// The calls under way; tokens and values are participants themselves.
extension MuxSessions: SessionParticipant {
    package var handsOutTokens: Bool { true }

    package func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        self.calls.endAll()
        return {}
    }

    package func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)? {
        guard let user: ExactKey<UserID> = user.user(of: self.group) else { return nil }
        self.calls.end(of: user)
        return nil
    }

    package func user(of group: UserGroup, withText text: String) -> EndedUser? {
        guard group === self.group else { return nil }
        return self.calls.users.first { $0.hasText(text) }.map { EndedUser($0, of: group) }
    }

    package func sharedStoreChanged(_ change: MuxShared.Change) {
        switch change {
        case .invalidated(.tag(let tag)):
            if let user = self.userText(ofTag: tag).flatMap(self.user) { self.repository.end(user) }
        case .invalidated(.everything):
            let answerWaiters = self.tokens.core.sessionEnded(isTold: false)
            self.calls.endAll()
            answerWaiters()
        // Sign-outs may have been missed.
        case .unknown, .emptied: self.tokens.core.forgetAll()
        case .invalidated, .stored, .released: break
        }
    }

    /// The user with that text, if this machine may have anything of one.
    private func user(withText text: String) -> EndedUser? {
        // Its initialiser stops the process on other texts.
        guard UserID.self != Character.self || text.count == 1 else { return nil }
        let read = (UserID.self as? any LosslessStringConvertible.Type)?.init(text) as? UserID
        if let user = (read ?? UUID(uuidString: text) as? UserID).map(ExactKey.init), user.hasText(text) {
            return EndedUser(user, of: self.group)
        }
        return self.repository.concernedParticipants.lazy.compactMap { $0.user(of: self.group, withText: text) }.first
    }
}

extension MuxPolicy {
    /// How a ``MuxSessions`` fetches tokens: one that does not say when it ends is good until a task refuses it, others are renewed half a
    /// minute before their end, an update goes on without callers, and there are at most 100,000 tokens.
    public static let tokens = MuxPolicy(
        timeToLive: .longest,
        refreshAhead: .seconds(30),
        whenAbandoned: .finish,
        maximumCount: 100_000
    )
}

extension Error {
    /// Whether an update was refused, and would be again.
    fileprivate var isRefusedUpdate: Bool {
        if case .updateFailed? = self as? RunnerError { return true }
        return false
    }
}
