/// Fetches the value of each key once for all callers, and caches the values.
///
/// ```swift
/// let users = MultiplexerMap<String, User>(cacheKey: "Users") { id in try await Backend.user(id) }.register()
///
/// let alice = try await users.request(key: "alice")
/// ```
///
/// Each key can be fetched, refreshed, cleared and saved separately, as the value of a ``Multiplexer``.
///
/// **Concurrent calls.** At most one fetch of a key runs between two fences of the key; for fences and one
/// exception, see ``Multiplexer``. Without batches (``MuxPolicy/Batching``), different keys do not wait for
/// each other.
///
/// **Cancellation.** A cancelled caller that waits for a fetch gets `CancellationError` at once; other
/// callers are not affected. If the fetch begins on the thread of its first caller, this caller always waits
/// for the part of the fetch before the first suspension.
///
/// **After a failure.** The previous value of the key is kept. If the policy permits, callers get this stale
/// value instead of the error. Other keys are not affected.
///
/// **In memory.** At most ``MuxPolicy/maximumCount`` values are in memory, with a total cost of at most
/// ``MuxPolicy/maximumCost``. Above a limit, values are evicted, usually the least used values. Unsaved
/// values may exceed the limits.
///
/// **On disk.** With a `cacheKey`, saves write the values to disk; a repository with a shared store puts the
/// values in this store instead. The text of a key may have any characters and up to about 170 KB; no file is
/// named after a key.
public final actor MultiplexerMap<Key: Hashable & Sendable, Value: Sendable> {
    @usableFromInline package nonisolated let core: MultiplexerCore<SlotTable<Key, Value>>
    nonisolated let prefetchesAtOnce: Int
    nonisolated let prefetchCancellations = Broadcast<SoleKey, Set<ExactKey<Key>>>()

    @usableFromInline
    package init(
        policy: MuxPolicy,
        repository: MuxRepository,
        persistence: Persistence<ExactKey<Key>, Value>?,
        selection: EntrySelection<ExactKey<Key>>? = nil,
        users: UsersOfKeys<ExactKey<Key>>? = nil,
        handsOutTokens: Bool = false,
        largestBatch: Int = 1,
        fetch: FetchFunction<ExactKey<Key>, Value>
    ) {
        let describe: @Sendable (ExactKey<Key>) -> String? = { String(describing: $0.key) }
        self.core = MultiplexerCore(
            slots: SlotTable(
                policy: policy,
                isPersistent: persistence != nil && users == nil,
                users: users?.index
            ),
            policy: policy,
            repository: repository,
            persistence: persistence,
            selection: selection,
            users: users,
            handsOutTokens: handsOutTokens,
            flightsAtOnce: max(8_192, largestBatch),
            keyText: persistence?.text ?? describe,
            fetch: fetch
        )
        self.prefetchesAtOnce = max(6, largestBatch)
    }

    // MARK: - Reading

    /// Returns the cached value of `key` if the policy permits; otherwise fetches.
    ///
    /// Callers that arrive during a fetch of the key share the outcome.
    ///
    /// - Parameter key: Any key that is equal to itself.
    /// - Returns: The value; ``requestEntry(key:_:)`` also tells whether the value is stale, and the reason.
    /// - Throws: ``MuxError``, `CancellationError`, or the error of the fetch or of an earlier fetch
    ///   (``MuxPolicy/remembersFailure``).
    /// - Complexity: O(1) for a fresh value in memory, usually without a suspension or an allocation.
    /// - Note: Runs on the caller's executor; the fetch runs in a separate task. If the caller has no
    ///   isolation, this task may begin on the caller's thread; after its first suspension, the task
    ///   continues on another executor.
    @inlinable
    public nonisolated(nonsending) func request(key: Key) async throws -> Value {
        let key = ExactKey(key)
        if let value = self.core.hit(key) { return value }
        return try await self.core.request(key)
    }

    /// Returns the cached value of `key` if `options` permit; otherwise fetches.
    ///
    /// With ``RequestOptions/cacheOnly``, the request throws ``MuxError/notCached`` instead of a fetch.
    ///
    /// - Parameters:
    ///   - key: Any key that is equal to itself.
    ///   - options: Limits on the age, the source and the wait.
    /// - Returns: The value, fresh or stale.
    /// - Throws: The errors of ``request(key:)``.
    @inlinable
    public nonisolated(nonsending) func request(key: Key, _ options: RequestOptions) async throws -> Value {
        let key = ExactKey(key)
        if let value = self.core.hit(key, options) { return value }
        return try await self.core.request(key, options).value
    }

    /// As ``request(key:_:)``, but returns the value with its age, its source, and the reason for a stale
    /// value.
    ///
    /// - Parameters:
    ///   - key: Any key that is equal to itself.
    ///   - options: Limits on the age, the source and the wait.
    /// - Returns: The entry.
    /// - Throws: The errors of ``request(key:_:)``.
    @inlinable
    public nonisolated(nonsending) func requestEntry(
        key: Key,
        _ options: RequestOptions = .init()
    ) async throws -> MuxEntry<Value> {
        try await self.core.request(ExactKey(key), options)
    }

    /// The value of `key` in memory, fresh or stale; `nil` without a value.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The value.
    @inlinable
    public nonisolated func cachedValue(key: Key) -> Value? { self.cachedEntry(key: key)?.value }

    /// The entry of `key` in memory, fresh or stale; `nil` without an entry.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The entry.
    @inlinable
    public nonisolated func cachedEntry(key: Key) -> MuxEntry<Value>? { self.core.cachedEntry(ExactKey(key)) }

    /// A sequence of the current entry of `key` in memory and of its changes; an element is `nil` without an
    /// entry.
    ///
    /// - Parameter key: Any key that is equal to itself.
    /// - Returns: A sequence for any number of consumers.
    public nonisolated func values(key: Key) -> MuxValues<Value> { self.core.values(ExactKey(key)) }

    /// A sequence of the current state of `key` and of its changes, for a screen: the entry, a running fetch,
    /// and the last failure.
    ///
    /// - Parameter key: Any key that is equal to itself.
    /// - Returns: A sequence for any number of consumers.
    public nonisolated func states(key: Key) -> MuxStates<Value> { self.core.states(ExactKey(key)) }

    /// Returns the value of `key` in memory, or otherwise on disk or in a shared store, without a fetch.
    ///
    /// The value may be stale.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The value; `nil` without a readable value.
    public nonisolated(nonsending) func loadCachedValue(key: Key) async -> Value? {
        await self.core.loadCachedEntry(ExactKey(key))?.value
    }

    /// The counters of this map since its initialisation, over all keys.
    public nonisolated var statistics: MuxRepository.Statistics { self.core.engine.withState { $0.statistics } }

    // MARK: - Changing

    /// Makes the value of `key` stale: the next request fetches.
    ///
    /// If this fetch fails, the request gets the stale value if the policy permits.
    ///
    /// The value of a running fetch is not cached, and later requests do not join this fetch.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The map, for a chained call of ``request(key:_:)``.
    @discardableResult
    public nonisolated func refresh(key: Key) -> Self {
        self.core.refresh(ExactKey(key))
        return self
    }

    /// Makes all values stale, including values that are only on disk.
    ///
    /// The next save records the refresh, so the values are stale after a relaunch, too.
    ///
    /// - Returns: The map, for a chained call of ``request(key:_:)``.
    /// - Complexity: O(*n* log *n*) in the number of running fetches, of consumers of ``values(key:)`` and
    ///   ``states(key:)``, of remembered failures, and of unsaved refreshes of values that are only on disk.
    @discardableResult
    public nonisolated func refresh() -> Self {
        self.core.refreshAll()
        return self
    }

    /// Makes the value of `key` stale, and fetches; the fetch continues even if its callers leave.
    ///
    /// For a pull to refresh.
    ///
    /// SwiftUI can cancel the task of the gesture during the fetch. The fetch then continues and replaces the
    /// value; with ``refresh(key:)`` and ``request(key:)``, ``MuxPolicy/whenAbandoned`` decides. After a
    /// later fence, the value of the fetch is not cached, and the fetch is cancelled if no caller waits.
    ///
    /// - Parameter key: Any key that is equal to itself.
    /// - Returns: The new value; after a failure, the previous value if the policy permits; during a change,
    ///   the changed value in the cache, if any.
    /// - Throws: The errors of ``request(key:)``.
    @discardableResult
    public nonisolated(nonsending) func reload(key: Key) async throws -> Value {
        try await self.core.reload(ExactKey(key))
    }

    /// Replaces the cached value of `key`, as if `value` had just been fetched.
    ///
    /// A running fetch cannot overwrite `value`. With a `cacheKey`, ``save()`` writes `value` to disk.
    ///
    /// - Parameters:
    ///   - value: The new value.
    ///   - key: Any key that is equal to itself; the value of any other key is not stored.
    @inlinable
    public nonisolated func store(_ value: Value, key: Key) {
        self.core.store(Fetched(value), ExactKey(key), ifRevision: nil)
    }

    /// Replaces the cached value if the cache still has `entry`, as for an optimistic update or its reversal.
    ///
    /// While the value has changes (``change(key:_:)``), `entry` must be from before the changes; otherwise
    /// the result is `false`.
    ///
    /// - Parameters:
    ///   - value: The new value.
    ///   - key: The key of `entry`.
    ///   - entry: An entry from ``requestEntry(key:_:)`` or ``cachedEntry(key:)``.
    /// - Returns: Whether `value` was stored. If not, the cache is unchanged.
    @inlinable
    @discardableResult
    public nonisolated func store(_ value: Value, key: Key, ifUnchangedSince entry: MuxEntry<Value>) -> Bool {
        self.core.store(Fetched(value), ExactKey(key), ifRevision: entry.revision)
    }

    /// Removes the value of `key` from memory, and from disk or a shared store.
    ///
    /// The next request fetches, and throws if the fetch fails.
    ///
    /// By default, waiting requests get the value of their fetch, and this value is not cached. If the value
    /// belongs to a user who signs out, pass `true`: after this call has returned, no caller gets the value
    /// of a fetch that began before the call.
    ///
    /// - Parameters:
    ///   - key: Any key.
    ///   - endingRequests: Whether waiting requests throw ``MuxError/cleared`` at once, and their fetch is
    ///     cancelled.
    /// - Returns: The failures on disk or in a shared store. Failures on disk can be ignored: this process
    ///   does not read the remaining entries, and the next save repeats the removal.
    @discardableResult
    public func clear(key: Key, endingRequests: Bool = false) async -> MuxRepository.ClearReport {
        await self.core.clear(ExactKey(key), endsRequests: endingRequests)
    }

    /// Removes all values from memory, and from disk or a shared store, including values that are not in
    /// memory.
    ///
    /// - Parameter endingRequests: Whether waiting requests throw ``MuxError/cleared`` at once, and their
    ///   fetches are cancelled; otherwise waiting requests get the values of their fetches, and these values
    ///   are not cached.
    /// - Returns: The failures on disk or in a shared store. Failures on disk can be ignored: this process
    ///   does not read the remaining entries, and the next save repeats the removal.
    @discardableResult
    public func clear(endingRequests: Bool = false) async -> MuxRepository.ClearReport {
        await self.core.clearAll(endsRequests: endingRequests)
    }

    /// Removes all values from memory, except unsaved values.
    ///
    /// Running fetches continue. The next request of a key reads a saved value from disk. On Apple platforms,
    /// a memory warning of the system calls ``MuxRepository/clearMemory()``, which has this effect on all
    /// multiplexers of a repository.
    public nonisolated func clearMemory() { self.core.clearMemory() }

    /// Writes all unsaved values to disk; without a `cacheKey`, no value is saved.
    ///
    /// - Returns: The number of saved entries, and the failures.
    @discardableResult
    public func save() async -> MuxRepository.SaveReport {
        await self.core.repository.save([self.core])
    }

    /// Writes the value of `key` to disk if the value is unsaved; without a `cacheKey`, no value is saved.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The number of saved entries, and the failures.
    @discardableResult
    public func save(key: Key) async -> MuxRepository.SaveReport {
        await self.core.repository.save([self.core], only: self.core.backing.persistence?.name(of: ExactKey(key)))
    }

    /// The value of `key` in memory, if a hit; see ``SlotStorage/hit(_:at:youngerThan:)``.
    package nonisolated func hit(key: Key) -> Value? { self.core.hit(ExactKey(key)) }

    /// The value of `key` in memory, fresh or stale; see ``SlotTable/requestedValue(of:)``.
    @inlinable
    package nonisolated func requestedValue(key: Key) -> Value? {
        self.core.engineState.withLock { $0.state.slots.requestedValue(of: ExactKey(key)) }
    }

    /// Returns the entry of `key` in memory, or otherwise in the backing, fresh or stale, without a fetch.
    package nonisolated(nonsending) func loadCachedEntry(key: Key) async -> MuxEntry<Value>? {
        await self.core.loadCachedEntry(ExactKey(key))
    }

    /// The keys with a value or a failure in memory.
    package nonisolated func keysInMemory() -> [Key] { self.core.memory.keys.map(\.key) }

    /// The numbers of waiting callers, running tasks and keys with a flight: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    /// Whether memory has a value of `key`, or `key` has a running flight.
    package nonisolated func isKnown(key: Key) -> Bool {
        // In this order: if a flight ends between the two checks, the second check finds its value.
        self.core.engine.isInFlight(ExactKey(key)) || self.core.cachedEntry(ExactKey(key)) != nil
    }

    /// The repository.
    package nonisolated var repository: MuxRepository { self.core.repository }

    // MARK: - Repository

    /// Makes the repository retain this map until ``unregister()``.
    ///
    /// Sign-outs, saves, ``MuxRepository/clearMemory()`` and statistics of the repository include every
    /// living map, registered or not. Repeated calls have the effect of one call.
    ///
    /// - Returns: The map.
    @discardableResult
    public nonisolated func register() -> Self {
        self.core.repository.retain(self, self.core)
        return self
    }

    /// Undoes ``register()``.
    public nonisolated func unregister() {
        self.core.repository.release(self.core)
    }
}
