/// One repository's use of its ``MuxSharedStore``: a budget for each request, a circuit breaker, and pending invalidations.
///
/// **After a failure of the connection.** The breaker opens: for a while nothing is asked, and flights go on without the store. An error
/// that concerns one entry leaves the breaker as it is.
///
/// **Concurrent calls.** Any member may be called from any thread.
package final class SharedStoreClient: Sendable {
    private struct State: Sendable {
        var breaker: CircuitBreaker
        var pending = PendingInvalidations()
        var isResending = false
        /// Why the store is unavailable; `nil` if it is available.
        var outage: MuxEvent.Reason?
        var listener: Task<Void, Never>?
    }

    let policy: MuxShared.Policy
    private let store: any MuxSharedStore
    private let time: TimeSource
    private let random: @Sendable () -> Double
    private let spawn: TaskLauncher
    private let observer: (any MuxObserver)?
    private let state: Locked<State>
    /// Serialises resending of pending invalidations.
    private let settling = AsyncMutex()
    /// Sent when a claim of the name may have ended; whether it is known to have ended without an entry.
    private let claimEnds = Broadcast<MuxStoreKey, Bool>()

    init(
        _ store: any MuxSharedStore,
        _ policy: MuxShared.Policy,
        time: TimeSource,
        random: @escaping @Sendable () -> Double,
        spawn: TaskLauncher,
        observer: (any MuxObserver)?
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
        self.observer = observer
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
        let store = self.store
        // A wrong password is reported before the first request.
        self.background("mux.shared-check") { [weak self] in
            do {
                _ = try await store.load([])
            } catch {
                if Self.isOutage(error) { self?.report(Self.reason(of: error)) }
            }
        }
    }

    /// Sends the pending invalidations, because the store is reachable again.
    private func resendInvalidations() {
        let isPending = self.state.withLock { state in
            state.breaker.answered()
            return state.pending.count > 0
        }
        self.report(nil)
        if isPending { self.background("mux.invalidate") { [weak self] in try? await self?.settle([]) } }
    }

    func wait(for name: MuxStoreKey) -> ClaimWait { ClaimWait(name, self.claimEnds) }

    // MARK: - Availability

    /// The number of invalidations that the store has not confirmed.
    var pendingCount: Int { self.state.withLock { $0.pending.count } }

    /// Why the store is unavailable; `nil` if it is available.
    ///
    /// Asks the store, for one budget at most and as often as the breaker permits: a service without requests reports an outage, too.
    func outage() async -> MuxEvent.Reason? {
        let budget = self.policy.budget
        guard self.state.withLock({ $0.outage }) == nil else {
            // The store has to reply before the breaker closes.
            let name = MuxShared.Name(MuxStoreKey(domain: "mux.check"))
            _ = try? await self.call(within: budget) { try await $0.load([name]) }
            return self.state.withLock { $0.outage }
        }
        let store = self.store
        do {
            let isDone: Void? = try await waiting(for: budget, by: self.time, self.spawn) {
                _ = try await store.load([])
            } late: { _ in
            }
            return isDone == nil ? .timeOut : nil
        } catch {
            guard Self.isOutage(error) else { return nil }
            self.report(Self.reason(of: error))
            return Self.reason(of: error)
        }
    }

    /// Notes whether the store is available, and tells the observer of a change.
    private func report(_ outage: MuxEvent.Reason?) {
        let isNews = self.state.withLock { state in
            defer { state.outage = outage }
            return state.outage != outage
        }
        guard isNews else { return }
        self.observer?.tell(MuxEvent(outage == nil ? .sharedStoreAvailable : .sharedStoreUnavailable, reason: outage))
    }

    /// Whether an error says that the store cannot be asked, rather than that it refused one entry.
    private static func isOutage(_ error: any Error) -> Bool {
        if SilenceableError.isSilenceable(error) { return true }
        return [.timeOut, .connection].contains(MuxEvent.Reason(of: error))
    }

    private static func reason(of error: any Error) -> MuxEvent.Reason {
        (error as? any MuxShared.Failure).map { .other($0.reason) } ?? MuxEvent.Reason(of: error)
    }

    /// The number of flights that may wait for another machine: zero at rest.
    package var waitCount: Int { self.claimEnds.count }

    // MARK: - Calls

    /// Claims an entry.
    ///
    /// - Parameters:
    ///   - name: The name of the entry.
    ///   - maximumAge: See ``MuxSharedStore/claim(_:maximumAge:digest:for:)``.
    ///   - digest: The digest of the payload in memory.
    ///   - duration: The longest duration of the claim.
    ///   - limit: How long to wait for the store.
    ///   - refused: Receives the reason if the store refuses the entry.
    /// - Returns: The entry if it is good enough, or who fetches it; `nil` if the store is not available within `limit`, or refuses the entry.
    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration,
        within limit: Duration,
        refused: (MuxEvent.Reason) -> Void
    ) async -> MuxShared.Claim? {
        let start = self.time.now
        // What this machine has invalidated must not answer it.
        guard (try? await self.settle(name, within: limit)) != nil else { return nil }
        let left = limit - self.time.now.duration(since: start)
        guard left > .zero else { return nil }
        do {
            // A claim that is cancelled on its way might be granted, and no task would give it up.
            return try await shieldedFromCancellation {
                try await self.call(within: left) {
                    try await $0.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
                } late: { client, claim in
                    if case .granted(let ticket, _) = claim { client.giveUp(ticket) }
                }
            }
        } catch {
            if !Self.isOutage(error) { refused(Self.reason(of: error)) }
            return nil
        }
    }

    /// The outcome of a put.
    enum PutOutcome: Sendable {
        case stored
        /// The claim had ended.
        case claimLost
        /// The store refused the entry, for this reason.
        case refused(MuxEvent.Reason)
        /// The store was unavailable: the entry may be stored.
        case unknown
    }

    /// Puts an entry.
    ///
    /// The claim ends in any case.
    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket, within limit: Duration) async -> PutOutcome {
        do {
            // What was fetched for a caller that has left is as good for the others.
            let isStored = try await shieldedFromCancellation {
                guard limit > .zero else { throw MuxError.sharedStoreUnavailable }
                return try await self.call(within: limit) { try await $0.put(entry, with: ticket) }
            }
            return isStored ? .stored : .claimLost
        } catch {
            self.giveUp(ticket)
            return Self.isOutage(error) ? .unknown : .refused(Self.reason(of: error))
        }
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

    /// The entries with those names; `nil` if the store is not available within `limit`, by default the budget.
    func load(_ names: [MuxShared.Name], within limit: Duration? = nil) async -> [MuxShared.Entry?]? {
        let (start, budget) = (self.time.now, limit ?? self.policy.budget)
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
                return !state.breaker.isHealthy || state.outage != nil
            }
            if wasAway { self.resendInvalidations() }
            return result
        } catch {
            let now = self.time.now
            let isOutage = !Task.isCancelled && Self.isOutage(error)
            self.state.withLock { state in
                if isOutage { state.breaker.failed(ticket, at: now) } else { state.breaker.abandoned(ticket, at: now) }
            }
            if isOutage {
                let isLate = error as? MuxError == .sharedStoreUnavailable
                self.report(isLate ? .timeOut : Self.reason(of: error))
            }
            throw error
        }
    }

    // MARK: - Invalidations

    /// Notes invalidations; the store does them before this machine asks for an entry that they concern.
    func owe(_ scopes: [MuxShared.Scope]) {
        self.state.withLock { $0.pending.add(scopes, isOutage: !$0.breaker.isHealthy) }
    }

    /// Has the store do the pending invalidations that concern a name.
    ///
    /// - Parameters:
    ///   - name: The name.
    ///   - limit: How long to wait.
    /// - Throws: The failure; the invalidations are still pending then, and are sent again.
    private func settle(_ name: MuxShared.Name, within limit: Duration) async throws {
        let scopes = [.entry(name.key)] + name.scopes
        guard self.state.withLock({ $0.pending.contains(scopes) }) else { return }
        do {
            let isDone: Void? = try await waiting(for: limit, by: self.time, self.spawn) {
                try await self.sendPending(first: scopes)
            } late: { _ in
            }
            guard isDone != nil else { throw MuxError.sharedStoreUnavailable }
        } catch {
            self.settleLater()
            throw error
        }
    }

    /// Has the store do some pending invalidations, and all others that are pending by now.
    ///
    /// It takes one budget at most for each batch.
    ///
    /// - Throws: The failure; the invalidations are still pending then, and are sent again.
    func settle(_ scopes: [MuxShared.Scope]) async throws {
        guard self.pendingCount > 0 else { return }
        do {
            try await self.sendPending()
            guard !self.state.withLock({ $0.pending.isRefused(scopes) }) else { throw MuxError.sharedStoreUnavailable }
        } catch {
            self.settleLater()
            throw error
        }
    }

    /// Sends pending invalidations in batches: those by name that come first alone with the first batch, or all.
    ///
    /// One task at a time: an invalidation that is sent twice voids the claims in between.
    private func sendPending(first: [MuxShared.Scope]? = nil) async throws {
        try await self.settling.run {
            var refusalCount = 0
            for batch in self.state.withLock({ $0.pending.batches(first: first) }) {
                try await self.send(batch, &refusalCount)
            }
        }
        guard let first, self.state.withLock({ $0.pending.isRefused(first) }) else { return }
        throw MuxError.sharedStoreUnavailable
    }

    /// Sends a batch, and halves of a refused batch, so that a refused scope does not affect the others.
    private func send(_ batch: ArraySlice<PendingInvalidations.Request>, _ refusalCount: inout Int) async throws {
        do {
            let scopes = batch.map(\.scope)
            try await self.call { try await $0.invalidate(scopes) }
            self.state.withLock { $0.pending.confirmed(batch) }
        } catch {
            guard let first = batch.first, !Self.isOutage(error), !error.isCancellation else { throw error }
            guard batch.count > 1 else {
                let isNews = self.state.withLock { $0.pending.refused(first) }
                if isNews { self.tellRefused(first.scope, Self.reason(of: error)) }
                refusalCount += 1
                // A store that refuses all is not asked twice for each.
                guard refusalCount < 16 else { throw MuxError.sharedStoreUnavailable }
                return
            }
            let middle = batch.startIndex + batch.count / 2
            try await self.send(batch[..<middle], &refusalCount)
            try await self.send(batch[middle...], &refusalCount)
        }
    }

    private func tellRefused(_ scope: MuxShared.Scope, _ reason: MuxEvent.Reason) {
        var name: MuxStoreKey?
        if case .entry(let key) = scope { name = key }
        self.observer?.tell(MuxEvent(.notShared, cacheKey: name?.domain, key: name?.key, reason: reason))
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
            try await self.settle(scopes)
            return MuxRepository.ClearReport()
        } catch {
            return MuxRepository.ClearReport(failures: [error])
        }
    }

    /// Has the store do the pending invalidations, and repeats that until it does, in a task of its own.
    func settleLater() {
        let begins = self.state.withLock { state in
            defer { state.isResending = true }
            return !state.isResending
        }
        guard begins else { return }
        let loop = self.patientLoop(for: nil)
        self.background("mux.invalidate") { [weak self] in
            try? await loop.runPlainly { _ in
                while self?.keepsSending() ?? false {
                    // Any failure is worth another attempt.
                    guard (try? await self?.sendPending()) != nil, (try? await self?.retryRefused()) != nil else {
                        throw MuxError.sharedStoreUnavailable
                    }
                }
            }
        }
    }

    /// Sends one refused invalidation; if the store accepts it, the others are no longer treated as refused.
    private func retryRefused() async throws {
        try await self.settling.run {
            guard let request = self.state.withLock({ $0.pending.refusedRequest() }) else { return }
            var refusalCount = 0
            try await self.send([request], &refusalCount)
            guard self.state.withLock({ $0.pending.isRefused([request.scope]) }) else { return }
            throw MuxError.sharedStoreUnavailable
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

    /// Whether invalidations are pending; if not, the task that sends them ends.
    private func keepsSending() -> Bool {
        self.state.withLock { state in
            state.isResending = state.pending.count > 0
            return state.isResending
        }
    }
}
