/// Calls the ``MuxSharedStore`` of a repository, with a time limit, a circuit breaker, and a list of pending
/// invalidations.
///
/// **After a failure of the connection.** A failed claim, load, put or invalidation opens the breaker for a
/// pause, and flights continue without the store. The refusal of an entry is a reply of the store, and closes
/// the breaker.
///
/// **Concurrent calls.** Any member may be called from any thread.
package final class SharedStoreClient: Sendable {
    private struct State: Sendable {
        var breaker: CircuitBreaker
        var pending = PendingInvalidations()
        /// Whether the task of ``sendInvalidationsLater()`` is running.
        var isResending = false
        /// Whether the additional task of ``sendInvalidationsLater()`` is running.
        var isSendingOthers = false
        /// Whether invalidations were added that the additional task has not begun to send.
        var hasOthers = false
        /// The reason of the current outage; `nil` without an outage.
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
    /// Serialises the sending of pending invalidations.
    private let sending = AsyncMutex()
    /// Broadcasts changes that may have ended a claim, by name; `true` if the store reports an end without an
    /// entry (``MuxShared/Change/released(_:)``).
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
        // With a budget of zero, each call would fail; with a pause of zero, an unavailable store would be
        // called without rest.
        policy.budget = max(policy.budget, .milliseconds(1))
        policy.pause = max(policy.pause, .milliseconds(10))
        policy.maximumPause = max(policy.maximumPause, policy.pause)
        self.store = store
        self.policy = policy
        self.time = time
        self.random = random
        self.spawn = spawn
        self.observer = observer
        var options = RetryBudget.Limits()
        options.failuresToOpen = 1
        // Machines that lose the store at the same time call the store again at different times.
        options.pause = .saturating(seconds: policy.pause.secondsValue * (0.5 + random() / 2))
        options.maximumPause = policy.maximumPause
        options.probeLimit = .sum(policy.budget, policy.budget)
        self.state = Locked(State(breaker: CircuitBreaker(options, at: time.now)))
    }

    deinit { self.state.withLock { $0.listener }?.cancel() }

    /// Starts a task that no caller waits for, and that is not inside an operation of a
    /// ``ReentrantAsyncMutex`` of the caller.
    @discardableResult
    private func background(
        _ name: String,
        _ operation: @escaping @Sendable @concurrent () async -> Void
    ) -> Task<Void, Never> {
        ReentrantAsyncMutex.outside { self.spawn(name: name, operation) }
    }

    // MARK: - Changes

    /// Listens to the store's changes, and checks the connection; to be called once, before the first claim.
    ///
    /// - Parameter tell: Receives the changes of the store in order, apart from `stored` and `released`,
    ///   which only end waits for claims.
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
                    self?.storeBecameReachable()
                    claimEnds.sendToAll(false)
                }
            }
        }
        self.state.withLock { $0.listener = listener }
        // Reports an unavailable store before the first request, such as after a refused password.
        self.background("mux.shared-check") { [weak self] in _ = await self?.outage() }
    }

    /// Closes the breaker, ends the outage, and starts to send the pending invalidations.
    private func storeBecameReachable() {
        self.state.withLock { $0.breaker.answered() }
        self.report(nil)
        if self.pendingCount > 0 {
            self.background("mux.invalidate") { [weak self] in try? await self?.confirmInvalidations(of: []) }
        }
    }

    func wait(for name: MuxStoreKey) -> ClaimWait { ClaimWait(name, self.claimEnds) }

    // MARK: - Availability

    var pendingCount: Int { self.state.withLock { $0.pending.count } }

    /// The reason of the current outage; `nil` without an outage.
    ///
    /// Calls the store within the budget, so a service without requests detects an outage, too. During an
    /// outage, calls the store only if the breaker permits the call.
    func outage() async -> MuxEvent.Reason? {
        let budget = self.policy.budget
        guard self.state.withLock({ $0.outage }) == nil else {
            // A reply to this call closes the breaker, and ends the outage.
            let name = MuxShared.Name(MuxStoreKey(domain: "mux.check"))
            _ = try? await self.call(within: budget) { try await $0.load([name]) }
            return self.state.withLock { $0.outage }
        }
        let store = self.store
        do {
            let isDone: Void? = try await waiting(for: budget, by: self.time, self.spawn) {
                _ = try await store.load([])
            }
            guard isDone == nil else { return nil }
            self.report(.timeOut)
            return .timeOut
        } catch {
            guard Self.isOutage(error) else { return nil }
            self.report(Self.reason(of: error))
            return Self.reason(of: error)
        }
    }

    /// Records the reason of an outage, or the end of an outage; reports a change to the observer.
    private func report(_ outage: MuxEvent.Reason?) {
        let isNews = self.state.withLock { state in
            defer { state.outage = outage }
            return state.outage != outage
        }
        guard isNews else { return }
        self.observer?.tell(MuxEvent(outage == nil ? .sharedStoreAvailable : .sharedStoreUnavailable, reason: outage))
    }

    /// Whether an error is a reply of the store, and neither a failure of the connection nor a cancellation.
    private static func isRefusal(_ error: any Error) -> Bool { !self.isOutage(error) && !error.isCancellation }

    /// Whether an error is a failure of the connection, and not the refusal of an entry.
    private static func isOutage(_ error: any Error) -> Bool {
        if SilenceableError.isSilenceable(error) { return true }
        return [.timeOut, .connection].contains(MuxEvent.Reason(of: error))
    }

    private static func reason(of error: any Error) -> MuxEvent.Reason {
        (error as? any MuxShared.Failure).map { .other($0.reason) } ?? MuxEvent.Reason(of: error)
    }

    /// The number of flights that claim an entry, or wait for another machine's claim: zero at rest.
    package var waitCount: Int { self.claimEnds.count }

    // MARK: - Calls

    /// Claims an entry.
    ///
    /// - Parameters:
    ///   - name: The name of the entry.
    ///   - maximumAge: See ``MuxSharedStore/claim(_:maximumAge:digest:for:)``.
    ///   - digest: The digest of the payload in memory.
    ///   - duration: The maximum duration of the claim.
    ///   - limit: The maximum wait for the store.
    ///   - refused: Receives the reason if the store refuses the claim.
    /// - Returns: The reply of the store to the claim; `nil` without such a reply, such as after a failure, a
    ///   refusal or the end of `limit`.
    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration,
        within limit: Duration,
        refused: (MuxEvent.Reason) -> Void
    ) async -> MuxShared.Claim? {
        guard let left = await self.confirmInvalidations(concerning: name, within: limit) else { return nil }
        do {
            // A cancelled call might leave a granted claim behind.
            return try await self.call(within: left, isShielded: true) {
                try await $0.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
            } late: { client, claim in
                if case .granted(let ticket, _) = claim { client.giveUp(ticket) }
            }
        } catch {
            if Self.isRefusal(error) { refused(Self.reason(of: error)) }
            return nil
        }
    }

    enum PutOutcome: Sendable {
        /// The entry is stored or, if the store was unavailable or the call was cancelled, may be stored.
        case stored
        /// The claim had ended.
        case claimLost
        /// The store refused the entry, for this reason.
        case refused(MuxEvent.Reason)
    }

    /// Puts an entry; after a failure or a refusal, gives up the claim.
    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket, within limit: Duration) async -> PutOutcome {
        do {
            guard limit > .zero else { throw MuxError.sharedStoreUnavailable }
            // Other machines can use the entry even if the caller is cancelled.
            let isStored = try await self.call(within: limit, isShielded: true) { store in
                try await store.put(entry, with: ticket)
            }
            return isStored ? .stored : .claimLost
        } catch {
            self.giveUp(ticket)
            return Self.isRefusal(error) ? .refused(Self.reason(of: error)) : .stored
        }
    }

    /// Ends a claim without an entry, in a separate task.
    ///
    /// Other machines may wait for the end of the claim. So the client sends the call even if the breaker is
    /// open, and repeats the call after errors for up to a minute.
    func giveUp(_ ticket: MuxShared.Ticket) {
        let loop = self.patientLoop(for: .seconds(60))
        let (store, time, spawn, budget) = (self.store, self.time, self.spawn, self.policy.budget)
        self.background("mux.give-up") {
            try? await loop.runPlainly { _ in
                let isDone: Void? = try? await waiting(for: budget, by: time, spawn) {
                    try await store.giveUp(ticket)
                }
                guard isDone != nil else { throw MuxError.sharedStoreUnavailable }
            }
        }
    }

    /// The entry with this name; `nil` without an entry, after a failure, and without a reply within `limit`.
    func load(_ name: MuxShared.Name, within limit: Duration) async -> MuxShared.Entry? {
        guard let left = await self.confirmInvalidations(concerning: name, within: limit),
            let found = try? await self.call(within: left, { try await $0.load([name]) }), found.count == 1
        else { return nil }
        return found[0]
    }

    /// Calls the store, unless the breaker is open.
    ///
    /// - Parameters:
    ///   - limit: The maximum wait for the call.
    ///   - isShielded: Whether the call continues after a cancellation of the caller.
    ///   - call: The call.
    ///   - late: Receives a result that arrives after the limit.
    /// - Returns: The result of the call.
    /// - Throws: ``MuxError/sharedStoreUnavailable`` if the breaker is open or the limit has passed, or the
    ///   error of the store.
    private func call<R: Sendable>(
        within limit: Duration,
        isShielded: Bool = false,
        _ call: @escaping @Sendable @concurrent (any MuxSharedStore) async throws -> R,
        late: @escaping @Sendable (SharedStoreClient, R) -> Void = { _, _ in }
    ) async throws -> R {
        let start = self.time.now
        guard let ticket = self.state.withLock({ $0.breaker.admitRequest(isRetry: false, at: start) }) else {
            throw MuxError.sharedStoreUnavailable
        }
        let store = self.store
        do {
            let result = try await waiting(for: limit, by: self.time, self.spawn, isShielded: isShielded) {
                try await call(store)
            } late: { result in
                if case .success(let result) = result { late(self, result) }
            }
            guard let result else { throw MuxError.sharedStoreUnavailable }
            self.replied()
            return result
        } catch {
            let now = self.time.now
            if (Task.isCancelled && !isShielded) || error.isCancellation {
                self.state.withLock { $0.breaker.abandoned(ticket, at: now) }
            } else if Self.isOutage(error) {
                self.state.withLock { $0.breaker.failed(ticket, at: now) }
                let isLate = error as? MuxError == .sharedStoreUnavailable
                self.report(isLate ? .timeOut : Self.reason(of: error))
            } else {
                self.replied()
            }
            throw error
        }
    }

    /// Closes the breaker after a reply; calls ``storeBecameReachable()`` if the store was unavailable.
    private func replied() {
        let wasAway = self.state.withLock { state in
            defer { state.breaker.answered() }
            return !state.breaker.isHealthy || state.outage != nil
        }
        if wasAway { self.storeBecameReachable() }
    }

    // MARK: - Invalidations

    /// Adds pending invalidations; this machine reads no entry of their scopes before the store has confirmed
    /// the invalidations.
    func addInvalidations(of scopes: [MuxShared.Scope]) {
        self.state.withLock { $0.pending.add(scopes, isOutage: !$0.breaker.isHealthy) }
    }

    /// Sends the pending invalidations that concern a name, before a call whose reply must not contain an
    /// invalidated entry.
    ///
    /// The function does not repeat a failed invalidation: the caller of ``addInvalidations(of:)`` also
    /// starts the task of ``sendInvalidationsLater()``, or waits for the confirmation.
    ///
    /// - Parameters:
    ///   - name: The name.
    ///   - limit: The maximum wait.
    /// - Returns: The rest of `limit`; `nil` without a rest, and after a failure.
    private func confirmInvalidations(concerning name: MuxShared.Name, within limit: Duration) async -> Duration? {
        let start = self.time.now
        let scopes = [.entry(name.key)] + name.scopes
        if self.state.withLock({ $0.pending.contains(scopes) }) {
            let isDone: Void? = try? await waiting(for: limit, by: self.time, self.spawn) {
                try await self.sendPending(first: scopes)
            }
            guard isDone != nil else { return nil }
        }
        let left = limit - self.time.now.duration(since: start)
        return left > .zero ? left : nil
    }

    /// Sends the pending invalidations, except invalidations that the store has refused; throws if the store
    /// has refused an invalidation of `scopes`.
    ///
    /// Each call of the store takes one budget at most.
    ///
    /// - Throws: The failure; the invalidations stay pending, and are sent again by
    ///   ``sendInvalidationsLater()``.
    func confirmInvalidations(of scopes: [MuxShared.Scope]) async throws {
        guard self.pendingCount > 0 else { return }
        do {
            try await self.sendPending()
            guard !self.state.withLock({ $0.pending.isRefused(scopes) }) else { throw MuxError.sharedStoreUnavailable }
        } catch {
            self.sendInvalidationsLater()
            throw error
        }
    }

    /// Sends the pending invalidations, except refused invalidations: one batch with the scopes of `first`,
    /// or all batches if `first` is `nil`.
    ///
    /// Only one task sends at a time: a scope that is sent twice would end claims that were granted in
    /// between.
    ///
    /// - Throws: The failure, or ``MuxError/sharedStoreUnavailable`` if the store has refused a scope of
    ///   `first`.
    private func sendPending(first: [MuxShared.Scope]? = nil) async throws {
        try await self.sending.run {
            var refusalCount = 0
            for batch in self.state.withLock({ $0.pending.batches(first: first) }) {
                try await self.send(batch, &refusalCount)
            }
        }
        guard let first, self.state.withLock({ $0.pending.isRefused(first) }) else { return }
        throw MuxError.sharedStoreUnavailable
    }

    /// Sends a batch; sends a refused batch again in halves, down to the refused scopes.
    ///
    /// - Throws: The failure, or ``MuxError/sharedStoreUnavailable`` after the 16th refused scope.
    private func send(_ batch: ArraySlice<PendingInvalidations.Request>, _ refusalCount: inout Int) async throws {
        do {
            let scopes = batch.map(\.scope)
            try await self.call(within: self.policy.budget) { try await $0.invalidate(scopes) }
            self.state.withLock { $0.pending.confirmed(batch) }
        } catch {
            guard let first = batch.first, Self.isRefusal(error) else { throw error }
            guard batch.count > 1 else {
                let isNews = self.state.withLock { $0.pending.refused(first) }
                if isNews { self.tellRefused(first.scope, Self.reason(of: error)) }
                refusalCount += 1
                // Limits the number of calls if the store permits no invalidation.
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

    /// Invalidates scopes in this process and in the store.
    ///
    /// - Parameters:
    ///   - scopes: The scopes.
    ///   - forget: Removes the entries of this process.
    /// - Returns: The failure, or an empty array; after a failure, the invalidations are repeated until the
    ///   store confirms the invalidations.
    func invalidate(_ scopes: [MuxShared.Scope], after forget: @Sendable () -> Void) async -> [any Error] {
        self.addInvalidations(of: scopes)
        forget()
        // Again: after the first invalidation was sent, and before `forget`, a fetch may have claimed an
        // entry. The second invalidation ends the claim, so the store refuses the value.
        self.addInvalidations(of: scopes)
        do {
            try await self.confirmInvalidations(of: scopes)
            return []
        } catch {
            return [error]
        }
    }

    /// Starts a task, unless the task runs, to send the pending invalidations until the store has confirmed
    /// all.
    func sendInvalidationsLater() {
        let (begins, sendsOthers) = self.state.withLock { state in
            guard state.isResending else {
                state.isResending = true
                return (true, false)
            }
            // The task may wait before it repeats a refused invalidation: the others must not wait.
            guard state.pending.hasRefused else { return (false, false) }
            state.hasOthers = true
            defer { state.isSendingOthers = true }
            return (false, !state.isSendingOthers)
        }
        if sendsOthers {
            self.background("mux.invalidate") { [weak self] in
                while self?.takeOthers() ?? false { try? await self?.sendPending() }
            }
        }
        guard begins else { return }
        let loop = self.patientLoop(for: nil)
        self.background("mux.invalidate") { [weak self] in
            try? await loop.runPlainly { _ in
                while self?.keepsSending() ?? false {
                    // The loop retries this error, whatever the failure was.
                    guard (try? await self?.sendPending()) != nil, (try? await self?.retryRefused()) != nil else {
                        throw MuxError.sharedStoreUnavailable
                    }
                }
            }
        }
    }

    /// Whether invalidations were added since the last call; if not, records the end of the additional task.
    private func takeOthers() -> Bool {
        self.state.withLock { state in
            defer { state.hasOthers = false }
            state.isSendingOthers = state.hasOthers
            return state.hasOthers
        }
    }

    /// Sends one refused invalidation again; after a success the next batch contains all refused
    /// invalidations.
    ///
    /// - Throws: The failure, or ``MuxError/sharedStoreUnavailable`` after another refusal.
    private func retryRefused() async throws {
        try await self.sending.run {
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

    /// Whether invalidations are pending; if not, records the end of the sending task.
    private func keepsSending() -> Bool {
        self.state.withLock { state in
            state.isResending = state.pending.count > 0
            return state.isResending
        }
    }
}
