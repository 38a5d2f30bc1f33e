/// Fetches values by key, shares each with every caller, and keeps them.
///
/// ```swift
/// let users = MultiplexerMap<String, User>(cacheKey: "Users") { id in try await Backend.user(id) }.register()
///
/// let alice = try await users.request(key: "alice")
/// ```
///
/// Each key is fetched, ages, and is refreshed, cleared and saved by itself; see ``Multiplexer`` for what holds for each.
///
/// **Concurrent calls.** Between two fences of a key at most one fetch of it runs; different keys do not wait for each other.
///
/// **Cancellation.** A caller whose task is cancelled leaves at once with `CancellationError`; the others notice nothing. A fetch
/// may begin on its first caller's thread: what it does before it first suspends, that caller waits for in any case.
///
/// **After a failure.** The value of before is kept. It answers for the failed fetch if the policy permits it, and is still
/// stale then. Other keys are not concerned.
///
/// **In memory.** There are at most ``MuxPolicy/maximumCount`` values, which cost at most ``MuxPolicy/maximumCost``; those
/// that are not asked for go first.
///
/// **On disk.** With a `cacheKey` values can be kept on disk. Keys may be any text of any length: nothing is named by them.
public final actor MultiplexerMap<Key: Hashable & Sendable, Value: Sendable> {
    @usableFromInline package nonisolated let core: MultiplexerCore<SlotTable<Key, Value>>

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
                maximumCount: policy.maximumCount,
                maximumCost: policy.maximumCost,
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
    }

    // MARK: - Reading

    /// Returns the value of `key`, fetching it when there is no fresh one.
    ///
    /// Callers that arrive while a fetch of the key runs share its outcome. A caller whose task is cancelled leaves at
    /// once; the others notice nothing.
    ///
    /// - Parameter key: Any key that is equal to itself.
    /// - Returns: A fresh value, or a stale one where the policy permits it.
    /// - Throws: ``MuxError``, `CancellationError`, or what the fetch threw.
    /// - Complexity: O(1), and no suspension and no allocation, for a fresh value in memory.
    /// - Note: Runs on the caller's executor; the fetch runs in a task of its own. If the caller has no isolation, that task begins
    ///   on the caller's thread, and goes on elsewhere when it first suspends.
    @inlinable
    public nonisolated(nonsending) func request(key: Key) async throws -> Value {
        let key = ExactKey(key)
        if let value = self.core.hit(key) { return value }
        return try await self.core.request(key)
    }

    /// Returns the value of `key`, fetching it when there is none that is good enough for this request.
    ///
    /// - Parameters:
    ///   - key: Any key that is equal to itself.
    ///   - options: What counts as good enough.
    /// - Returns: A fresh value, or a stale one where the policy or the options permit it.
    /// - Throws: What ``request(key:)`` throws.
    @inlinable
    public nonisolated(nonsending) func request(key: Key, _ options: RequestOptions) async throws -> Value {
        let key = ExactKey(key)
        if let value = self.core.hit(key, options) { return value }
        return try await self.core.request(key, options).value
    }

    /// Returns what ``request(key:_:)`` does, with its age, where it came from, and why a stale value was served.
    ///
    /// - Parameters:
    ///   - key: Any key that is equal to itself.
    ///   - options: What counts as good enough for this request.
    /// - Returns: The entry.
    /// - Throws: What ``request(key:_:)`` throws.
    @inlinable
    public nonisolated(nonsending) func requestEntry(
        key: Key,
        _ options: RequestOptions = .init()
    ) async throws -> MuxEntry<Value> {
        try await self.core.request(ExactKey(key), options)
    }

    /// The value of `key` in memory, however old; `nil` if there is none.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The value.
    public nonisolated func cachedValue(key: Key) -> Value? { self.cachedEntry(key: key)?.value }

    /// The value of `key` in memory, however old, with its age; `nil` if there is none.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The entry.
    public nonisolated func cachedEntry(key: Key) -> MuxEntry<Value>? { self.core.cachedEntry(ExactKey(key)) }

    /// The entry of `key` in memory now, then every change; `nil` where there is none.
    ///
    /// - Parameter key: Any key that is equal to itself.
    /// - Returns: A sequence for any number of consumers.
    public nonisolated func values(key: Key) -> MuxValues<Value> { self.core.values(ExactKey(key)) }

    /// Returns the value of `key` in memory or else on disk, however old, without a fetch.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The value; `nil` if there is none, or none that can be read.
    public nonisolated(nonsending) func loadCachedValue(key: Key) async -> Value? {
        await self.core.loadCachedEntry(ExactKey(key))?.value
    }

    /// What this map counted since it was made, over all keys.
    public nonisolated var statistics: MuxRepository.Statistics { self.core.engine.withState { $0.statistics } }

    // MARK: - Changing

    /// Makes the value of `key` stale: the next request fetches, and has the old value to fall back to.
    ///
    /// A request that is made afterwards never gets a value whose fetch began before, even if one is running.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The map, to go on with ``request(key:_:)``.
    @discardableResult
    public nonisolated func refresh(key: Key) -> Self {
        self.core.refresh(ExactKey(key))
        return self
    }

    /// Makes all values stale, also those that are on disk only.
    ///
    /// The next save writes that down, so that they are stale after a relaunch, too.
    ///
    /// - Returns: The map, to go on with ``request(key:_:)``.
    /// - Complexity: O(*n*) in the number of fetches that are running, whatever is in memory.
    @discardableResult
    public nonisolated func refresh() -> Self {
        self.core.refreshAll()
        return self
    }

    /// Puts `value` in place of the cached one of `key`, as if it had just been fetched.
    ///
    /// A fetch that is running cannot overwrite it. ``save()`` writes it to disk.
    ///
    /// - Parameters:
    ///   - value: The new value.
    ///   - key: Any key that is equal to itself; for another one, nothing is stored.
    public nonisolated func store(_ value: Value, key: Key) {
        self.core.store(Fetched(value), ExactKey(key), ifRevision: nil)
    }

    /// Puts `value` in place of `entry`, if that is still what is cached: for an optimistic update, or to take one back.
    ///
    /// - Parameters:
    ///   - value: The new value.
    ///   - key: The key of `entry`.
    ///   - entry: What was read before, with ``requestEntry(key:_:)`` or ``cachedEntry(key:)``.
    /// - Returns: Whether the value was stored. If not, nothing has changed.
    @discardableResult
    public nonisolated func store(_ value: Value, key: Key, ifUnchangedSince entry: MuxEntry<Value>) -> Bool {
        self.core.store(Fetched(value), ExactKey(key), ifRevision: entry.revision)
    }

    /// Forgets the value of `key`, in memory and on disk; the next request fetches, and throws if that fails.
    ///
    /// Requests that wait get what their fetch brings, which is not kept. If the value belongs to someone who must not be
    /// served any more, such as one user of a server that signs out, end them: then no one gets a value whose fetch began before
    /// this returned.
    ///
    /// - Parameters:
    ///   - key: Any key.
    ///   - endingRequests: Whether requests that wait throw ``MuxError/cleared`` at once, and their fetch is cancelled.
    /// - Returns: What could not be removed from disk. Ignoring it is fine: this process does not read what
    ///   is left, and the next save tries again.
    @discardableResult
    public func clear(key: Key, endingRequests: Bool = false) async -> MuxRepository.ClearReport {
        await self.core.clear(ExactKey(key), endsRequests: endingRequests)
    }

    /// Forgets all values, in memory and on disk, also those that are on disk only.
    ///
    /// - Parameter endingRequests: Whether requests that wait throw ``MuxError/cleared`` at once, and their fetches are
    ///   cancelled; otherwise they get what their fetch brings, which is not kept.
    /// - Returns: What could not be removed from disk. Ignoring it is fine: this process does not read what
    ///   is left, and the next save tries again.
    @discardableResult
    public func clear(endingRequests: Bool = false) async -> MuxRepository.ClearReport {
        await self.core.clearAll(endsRequests: endingRequests)
    }

    /// Removes all values from memory, except unsaved ones.
    ///
    /// Nothing else changes: fetches run on, and the next request reads the disk before it fetches. The system's memory
    /// warning does this for all of a repository, see ``MuxRepository/clearMemory()``.
    public nonisolated func clearMemory() { self.core.clearMemory() }

    /// Writes to disk what changed since the last time; without a `cacheKey`, does nothing.
    ///
    /// - Returns: What was saved, and what was not and why.
    @discardableResult
    public func save() async -> MuxRepository.SaveReport {
        await self.core.repository.save([self.core])
    }

    /// Writes the value of `key` to disk if it changed since the last time; without a `cacheKey`, does nothing.
    ///
    /// - Parameter key: Any key.
    /// - Returns: What was saved, or why not.
    @discardableResult
    public func save(key: Key) async -> MuxRepository.SaveReport {
        await self.core.repository.save([self.core], only: self.core.persistence?.name(of: ExactKey(key)))
    }

    /// The fresh value of `key` in memory, which counts as requested; `nil` if there is none.
    package nonisolated func hit(key: Key) -> Value? { self.core.hit(ExactKey(key)) }

    /// The value of `key` in memory, however old, which counts as requested; `nil` if there is none.
    @inlinable
    package nonisolated func requestedValue(key: Key) -> Value? {
        self.core.engineState.withLock { state in
            // Without a lifetime if something outside has changed since: see ``Persistence/changedAt``.
            guard let entry = state.state.slots.requestedSlot(of: ExactKey(key))?.entry, entry.timeToLive > .zero else {
                return nil
            }
            return entry.value
        }
    }

    /// Returns the entry of `key` in memory or else on disk, however old, without a fetch.
    package nonisolated(nonsending) func loadCachedEntry(key: Key) async -> MuxEntry<Value>? {
        await self.core.loadCachedEntry(ExactKey(key))
    }

    /// The keys of the values in memory.
    package nonisolated func keysInMemory() -> [Key] { self.core.keysInMemory().map(\.key) }

    /// The number of waiting callers with options of their own: zero at rest.
    package nonisolated var waiterOptionsCount: Int { self.core.engine.withState { $0.waiterOptions.count } }

    /// The numbers of waiting callers, running tasks and keys with a flight: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    /// See ``Locked/acquisitionCount``.
    package nonisolated var lockCount: Int? { self.core.engineState.acquisitionCount }

    /// Whether the value is in memory, or about to be.
    package nonisolated func isKnown(key: Key) -> Bool {
        // In this order: a flight that lands between the two questions has left its value.
        self.core.engine.isInFlight(ExactKey(key)) || self.core.cachedEntry(ExactKey(key)) != nil
    }

    /// How many absent values are marked as refreshed, or have a removal pending.
    package nonisolated var markCount: Int { self.core.engine.withState { $0.slots.markCount } }

    /// The number of keys about which something is noted for a shared store.
    package nonisolated var sharedFactCount: Int { self.core.engine.withState { $0.shared.count } }

    /// The number of remembered failures of keys without an entry.
    package nonisolated var failureCount: Int { self.core.engine.withState { $0.slots.failureCount } }

    // MARK: - Repository

    /// Makes the repository keep this map alive, until ``unregister()``.
    ///
    /// Nothing else depends on it: sign-outs, saves, ``MuxRepository/clearMemory()`` and statistics of the repository reach every map
    /// from its initialiser to its deallocation. A second call changes nothing.
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
