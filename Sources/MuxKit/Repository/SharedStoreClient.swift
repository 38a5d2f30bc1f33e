/// One repository's use of its ``MuxSharedStore``: a budget for each request, a circuit breaker, and what is still to be invalidated.
///
/// **After a failure.** The breaker opens: for a while nothing is asked, and flights go on without the store.
///
/// **Concurrent calls.** Any member may be called from any thread.
package final class SharedStoreClient: Sendable {
    private struct State: Sendable {
        var breaker: CircuitBreaker
        /// What the store has not confirmed yet, with the number of the call that asked for it last.
        var owed: [MuxShared.Scope: UInt64] = [:]
        var lastCall: UInt64 = 0
        var isResending = false
        var listener: Task<Void, Never>?
    }

    /// The most invalidations that are owed one by one; more become those of whole domains, or of everything.
    private static let owedLimit = 10_000

    let policy: MuxShared.Policy
    private let store: any MuxSharedStore
    private let time: TimeSource
    private let random: @Sendable () -> Double
    private let spawn: TaskLauncher
    private let state: Locked<State>
    /// Has those who find the same owed send it once.
    private let settling = AsyncMutex()
    /// Sent when a claim of the name may have ended; whether it is known to have ended without an entry.
    private let claimEnds = Broadcast<MuxStoreKey, Bool>()

    init(
        _ store: any MuxSharedStore,
        _ policy: MuxShared.Policy,
        time: TimeSource,
        random: @escaping @Sendable () -> Double,
        spawn: TaskLauncher
    ) {
        var policy = policy
        policy.budget = max(policy.budget, .milliseconds(1))
        policy.pause = max(policy.pause, .milliseconds(10))
        policy.maximumPause = max(policy.maximumPause, policy.pause)
        self.store = store
        self.policy = policy
        self.time = time
        self.random = random
        self.spawn = spawn
        var options = RetryBudget.Options()
        options.failuresToOpen = 1
        // Machines that lose the store at the same time ask it again at different times.
        options.pause = .saturating(seconds: policy.pause.secondsValue * (0.5 + random() / 2))
        options.maximumPause = policy.maximumPause
        options.probeLimit = .sum(policy.budget, policy.budget)
        self.state = Locked(State(breaker: CircuitBreaker(options, at: time.now)))
    }

    deinit { self.state.withLock { $0.listener }?.cancel() }

    /// Starts work that belongs to no caller.
    @discardableResult
    private func background(
        _ name: String,
        _ operation: @escaping @Sendable @concurrent () async -> Void
    ) -> Task<Void, Never> {
        ReentrantAsyncMutex.outside { self.spawn(name: name, operation) }
    }

    // MARK: - Changes

    /// Tells of changes from now on, in their order; to be called once, before the first claim.
    func listen(_ tell: @escaping @Sendable (MuxShared.Change) -> Void) {
        let changes = self.store.changes()
        let claimEnds = self.claimEnds
        let listener = self.background("mux.shared") { [weak self] in
            for await change in changes {
                switch change {
                case .stored(let name): claimEnds.send(false, to: name)
                case .released(let name): claimEnds.send(true, to: name)
                case .invalidated(let scope):
                    tell(change)
                    if case .entry(let name) = scope {
                        claimEnds.send(false, to: name)
                    } else {
                        claimEnds.sendToAll(false)
                    }
                case .unknown, .emptied:
                    tell(change)
                    self?.resendInvalidations()
                    claimEnds.sendToAll(false)
                }
            }
        }
        self.state.withLock { $0.listener = listener }
    }

    /// Sends the pending invalidations, because the store is reachable again.
    private func resendInvalidations() {
        let owes = self.state.withLock { state in
            state.breaker.answered()
            return !state.owed.isEmpty
        }
        if owes { self.background("mux.invalidate") { [weak self] in try? await self?.settle() } }
    }

    /// Hears of the ends of other machines' claims of one name, from when it is made.
    final class ClaimWait: Sendable {
        private struct State: Sendable {
            var failureCount = 0
            var next = FirstAnswer<Void>()
        }

        private let state = Locked(State())
        private let stopHearing = Locked<(@Sendable () -> Void)?>(nil)

        /// How many claims have ended without an entry.
        var failureCount: Int { self.state.withLock { $0.failureCount } }

        fileprivate init(_ name: MuxStoreKey, _ ends: Broadcast<MuxStoreKey, Bool>) {
            let stop = ends.add(to: name) { [weak self] failed in self?.ended(failed) }
            self.stopHearing.withLock { $0 = stop }
        }

        deinit { self.stopHearing.withLock { $0 }?() }

        private func ended(_ failed: Bool) {
            let next = self.state.withLock { state in
                if failed { state.failureCount += 1 }
                return state.next
            }
            next.give(())
        }

        /// The claim is about to be asked for: what happened before, its answer will say.
        func begins() { self.state.withLock { $0.next = FirstAnswer() } }

        /// Waits until something has happened since the last call of ``begins()``.
        func next(within limit: Duration, _ time: TimeSource, _ spawn: TaskLauncher) async {
            let next = self.state.withLock { $0.next }
            let timer = spawn(name: "mux.wait-limit") {
                try? await time.sleep(for: limit)
                next.give(())
            }
            await withTaskCancellationHandler {
                await next.wait()
            } onCancel: {
                next.give(())
            }
            timer.cancel()
        }
    }

    func wait(for name: MuxStoreKey) -> ClaimWait { ClaimWait(name, self.claimEnds) }

    // MARK: - Calls

    /// The entry if it is good enough, or who fetches it; `nil` if the store is not available within `limit`.
    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration,
        within limit: Duration
    ) async -> MuxShared.Claim? {
        let start = self.time.now
        // What this machine has invalidated must not answer it.
        guard (try? await self.settle(name, within: limit)) != nil else { return nil }
        let left = limit - self.time.now.duration(since: start)
        guard left > .zero else { return nil }
        // A claim that is cancelled on its way might be granted, and no task would give it up.
        return try? await shieldedFromCancellation {
            try await self.call(within: left) {
                try await $0.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
            } late: { client, claim in
                if case .granted(let ticket, _) = claim { client.giveUp(ticket) }
            }
        }
    }

    /// Whether an entry was put; `nil` if that is not known within `limit`.
    ///
    /// Then the claim ends in any case.
    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket, within limit: Duration) async -> Bool? {
        // What was fetched for a caller that has left is as good for the others.
        let isStored = try? await shieldedFromCancellation {
            guard limit > .zero else { throw MuxError.sharedStoreUnavailable }
            return try await self.call(within: limit) { try await $0.put(entry, with: ticket) }
        }
        if let isStored { return isStored }
        self.giveUp(ticket)
        return nil
    }

    /// Ends a claim without an entry, in a task of its own.
    ///
    /// The store is asked though the breaker may be open, and again for a while: others wait for the claim.
    func giveUp(_ ticket: MuxShared.Ticket) {
        let loop = self.patientLoop(for: .seconds(60))
        let (store, time, spawn, budget) = (self.store, self.time, self.spawn, self.policy.budget)
        self.background("mux.give-up") {
            try? await loop.runPlainly { _ in
                let isDone: Void? = try? await waiting(for: budget, by: time, spawn) {
                    try await store.giveUp(ticket)
                } late: { _ in
                }
                guard isDone != nil else { throw MuxError.sharedStoreUnavailable }
            }
        }
    }

    /// The entries with those names; `nil` if the store is not available.
    func load(_ names: [MuxShared.Name]) async -> [MuxShared.Entry?]? {
        let (start, budget) = (self.time.now, self.policy.budget)
        for name in names {
            let left = budget - self.time.now.duration(since: start)
            guard (try? await self.settle(name, within: left)) != nil else { return nil }
        }
        let left = budget - self.time.now.duration(since: start)
        guard left > .zero, let found = try? await self.call(within: left, { try await $0.load(names) }),
            found.count == names.count
        else { return nil }
        return found
    }

    /// Calls the store, unless the breaker is open.
    ///
    /// - Parameters:
    ///   - limit: How long the call may take; the budget if `nil`.
    ///   - call: The call.
    ///   - late: Receives a result that came after that.
    /// - Returns: The result of the call.
    /// - Throws: ``MuxError/sharedStoreUnavailable`` if it was not asked or took too long, or its error.
    private func call<R: Sendable>(
        within limit: Duration? = nil,
        _ call: @escaping @Sendable @concurrent (any MuxSharedStore) async throws -> R,
        late: @escaping @Sendable (SharedStoreClient, R) -> Void = { _, _ in }
    ) async throws -> R {
        let start = self.time.now
        guard case .ask(let ticket) = self.state.withLock({ $0.breaker.wanted(isRetry: false, at: start) }) else {
            throw MuxError.sharedStoreUnavailable
        }
        let store = self.store
        do {
            let result = try await waiting(for: limit ?? self.policy.budget, by: self.time, self.spawn) {
                try await call(store)
            } late: { result in
                if case .success(let result) = result { late(self, result) }
            }
            guard let result else { throw MuxError.sharedStoreUnavailable }
            let wasAway = self.state.withLock { state in
                defer { state.breaker.answered() }
                return !state.breaker.isHealthy
            }
            if wasAway { self.resendInvalidations() }
            return result
        } catch {
            let now = self.time.now
            self.state.withLock { state in
                if Task.isCancelled {
                    state.breaker.abandoned(ticket, at: now)
                } else {
                    state.breaker.failed(ticket, at: now)
                }
            }
            throw error
        }
    }

    // MARK: - Invalidations

    /// Notes what is to be invalidated; the store does it before this machine asks for what that concerns.
    func owe(_ scopes: [MuxShared.Scope]) {
        self.state.withLock { state in
            state.lastCall += 1
            for scope in scopes { state.owed[scope] = state.lastCall }
            guard state.owed.count > Self.owedLimit else { return }
            var fewer: Set<MuxShared.Scope> = []
            for scope in state.owed.keys {
                if case .entry(let name) = scope { fewer.insert(.domain(name.domain)) } else { fewer.insert(scope) }
            }
            if fewer.count > Self.owedLimit { fewer = [.everything] }
            state.owed = Dictionary(fewer.map { ($0, state.lastCall) }) { number, _ in number }
        }
    }

    /// Whether something is owed, or something that concerns a name.
    private func owes(_ name: MuxShared.Name?) -> Bool {
        self.state.withLock { state in
            guard let name, !state.owed.isEmpty else { return !state.owed.isEmpty }
            return state.owed[.entry(name.key)] != nil || name.scopes.contains { state.owed[$0] != nil }
        }
    }

    /// Has the store invalidate what is owed, if something is that concerns `name`.
    ///
    /// - Parameters:
    ///   - name: The name, or `nil` for whatever is owed.
    ///   - limit: How long to wait for that; two budgets if `nil`: one for what is sent before.
    /// - Throws: The failure; it is still owed then, and is tried again by itself.
    func settle(_ name: MuxShared.Name? = nil, within limit: Duration? = nil) async throws {
        guard self.owes(name) else { return }
        do {
            let limit = limit ?? .sum(self.policy.budget, self.policy.budget)
            let isDone: Void? = try await waiting(for: limit, by: self.time, self.spawn) {
                try await self.invalidateOwed(ifConcerning: name)
            } late: { _ in
            }
            guard isDone != nil else { throw MuxError.sharedStoreUnavailable }
        } catch {
            self.settleLater()
            throw error
        }
    }

    /// One after another: an invalidation that is sent twice voids what was claimed in between.
    private func invalidateOwed(ifConcerning name: MuxShared.Name? = nil) async throws {
        try await self.settling.run {
            guard self.owes(name) else { return }
            // All of it: the next in line has nothing to wait for then.
            let owed = self.state.withLock { $0.owed }
            let scopes = Array(owed.keys)
            try await self.call { try await $0.invalidate(scopes) }
            // What was asked for again in the meantime has to be sent again.
            self.state.withLock { state in
                for (scope, number) in owed where state.owed[scope] == number { state.owed[scope] = nil }
            }
        }
    }

    /// Forgets something here and in the store.
    ///
    /// - Parameters:
    ///   - scopes: What is invalidated in the store.
    ///   - forget: Forgets it here.
    /// - Returns: The failure; the store is asked again then until it has done it.
    func invalidate(
        _ scopes: [MuxShared.Scope],
        after forget: @Sendable () -> Void
    ) async -> MuxRepository.ClearReport {
        self.owe(scopes)
        forget()
        // Again: a fetch that began in between must not put what it gets.
        self.owe(scopes)
        do {
            try await self.settle()
            return MuxRepository.ClearReport()
        } catch {
            return MuxRepository.ClearReport(failures: [error])
        }
    }

    /// Has the store invalidate what is owed, and repeats that until it does, in a task of its own.
    func settleLater() {
        let begins = self.state.withLock { state in
            defer { state.isResending = true }
            return !state.isResending
        }
        guard begins else { return }
        let loop = self.patientLoop(for: nil)
        self.background("mux.invalidate") { [weak self] in
            try? await loop.runPlainly { _ in
                while self?.owesMore() ?? false {
                    guard (try? await self?.invalidateOwed()) != nil else { throw MuxError.sharedStoreUnavailable }
                }
            }
        }
    }

    private func patientLoop(for duration: Duration?) -> RetryLoop {
        let policy = RetryPolicy(
            maxAttempts: .max,
            backoff: .exponential(base: self.policy.pause),
            jitter: .equal,
            maximumDelay: self.policy.maximumPause,
            maximumDuration: duration
        )
        return RetryLoop(policy, time: self.time, random: self.random, spawn: self.spawn)
    }

    /// Whether something is owed; if not, the task that sends it ends.
    private func owesMore() -> Bool {
        self.state.withLock { state in
            state.isResending = !state.owed.isEmpty
            return state.isResending
        }
    }
}
