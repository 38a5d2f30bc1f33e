/// Fetches one value, shares it with every caller, and keeps it.
///
/// Define one for each thing that your app fetches, as a global constant, and ask it from anywhere:
///
/// ```swift
/// let profile = Multiplexer<Profile>(cacheKey: "Profile") { try await Backend.myProfile() }.register()
///
/// let me = try await profile.request()                // one fetch, however many callers
/// let now = try await profile.refresh().request()     // fetches; the old value stays as a safety net
/// await profile.clear()                               // forgets it, in memory and on disk
/// ```
///
/// **Concurrent calls.** Between two fences at most one fetch runs. A fence is ``refresh()``, ``store(_:)``,
/// ``clear(endingRequests:)`` or a sign-out: nothing that began before it changes what is read after it. A fetch that a fence
/// has passed still answers its callers, while the next request starts another.
///
/// **Cancellation.** A caller whose task is cancelled leaves at once with `CancellationError`; the others notice nothing. A fetch
/// may begin on its first caller's thread: what it does before it first suspends, that caller waits for in any case.
/// When the last caller has left, ``MuxPolicy/whenAbandoned`` decides about the fetch.
///
/// **After a failure.** The value of before is kept. It answers for the failed fetch if the policy permits it, and is still
/// stale then.
///
/// **On disk.** With a `cacheKey` the value can be kept on disk: ``save()`` writes it, a request that finds nothing in
/// memory reads it, and its age goes on counting between launches.
public final actor Multiplexer<Value: Sendable> {
    @usableFromInline nonisolated let core: MultiplexerCore<SingleSlot<Value>>

    @usableFromInline
    package init(
        policy: MuxPolicy,
        repository: MuxRepository,
        persistence: Persistence<SoleKey, Value>?,
        selection: EntrySelection<SoleKey>? = nil,
        fetch: FetchFunction<SoleKey, Value>
    ) {
        self.core = MultiplexerCore(
            slots: SingleSlot(isPersistent: persistence != nil),
            policy: policy,
            repository: repository,
            persistence: persistence,
            selection: selection,
            keyText: { _ in nil },
            fetch: fetch
        )
    }

    // MARK: - Reading

    /// Returns the value, fetching it when there is no fresh one.
    ///
    /// Callers that arrive while a fetch runs share its outcome. A caller whose task is cancelled leaves at once; the
    /// others notice nothing.
    ///
    /// - Returns: A fresh value, or a stale one where the policy permits it.
    /// - Throws: ``MuxError``, `CancellationError`, or what the fetch threw.
    /// - Complexity: O(1), and no suspension and no allocation, for a fresh value in memory.
    /// - Note: Runs on the caller's executor; the fetch runs in a task of its own. If the caller has no isolation, that task begins
    ///   on the caller's thread, and goes on elsewhere when it first suspends.
    @inlinable
    public nonisolated(nonsending) func request() async throws -> Value {
        if let value = self.core.hit(.sole) { return value }
        return try await self.core.request(.sole)
    }

    /// Returns the value, fetching it when there is none that is good enough for this request.
    ///
    /// - Parameter options: What counts as good enough.
    /// - Returns: A fresh value, or a stale one where the policy or the options permit it.
    /// - Throws: What ``request()`` throws.
    @inlinable
    public nonisolated(nonsending) func request(_ options: RequestOptions) async throws -> Value {
        if let value = self.core.hit(.sole, options) { return value }
        return try await self.core.request(.sole, options).value
    }

    /// Returns what ``request(_:)`` does, with its age, where it came from, and why a stale value was served.
    ///
    /// - Parameter options: What counts as good enough for this request.
    /// - Returns: The entry.
    /// - Throws: What ``request(_:)`` throws.
    @inlinable
    public nonisolated(nonsending) func requestEntry(_ options: RequestOptions = .init()) async throws -> MuxEntry<
        Value
    > {
        try await self.core.request(.sole, options)
    }

    /// The value in memory, however old; `nil` if there is none.
    public nonisolated var cachedValue: Value? { self.cachedEntry?.value }

    /// The value in memory, however old, with its age; `nil` if there is none.
    public nonisolated var cachedEntry: MuxEntry<Value>? { self.core.cachedEntry(.sole) }

    /// The entry in memory now, then every change; `nil` where there is none.
    public nonisolated var values: MuxValues<Value> { self.core.values(.sole) }

    /// Returns the value in memory or else on disk, however old, without a fetch.
    ///
    /// - Returns: The value; `nil` if there is none, or none that can be read.
    public nonisolated(nonsending) func loadCachedValue() async -> Value? {
        await self.core.loadCachedEntry(.sole)?.value
    }

    /// What this multiplexer counted since it was made.
    public nonisolated var statistics: MuxRepository.Statistics { self.core.engine.withState { $0.statistics } }

    // MARK: - Changing

    /// Makes the value stale: the next request fetches, and has the old value to fall back to.
    ///
    /// A request that is made afterwards never gets a value whose fetch began before, even if one is running.
    ///
    /// - Returns: The multiplexer, to go on with ``request(_:)``.
    @discardableResult
    public nonisolated func refresh() -> Self {
        self.core.refresh(.sole)
        return self
    }

    /// Puts `value` in place of the cached one, as if it had just been fetched.
    ///
    /// A fetch that is running cannot overwrite it. ``save()`` writes it to disk.
    public nonisolated func store(_ value: Value) {
        self.core.store(Fetched(value), .sole, ifRevision: nil)
    }

    /// Puts `value` in place of `entry`, if that is still what is cached: for an optimistic update, or to take one back.
    ///
    /// - Parameters:
    ///   - value: The new value.
    ///   - entry: What was read before, with ``requestEntry(_:)`` or ``cachedEntry``.
    /// - Returns: Whether the value was stored. If not, nothing has changed.
    @discardableResult
    public nonisolated func store(_ value: Value, ifUnchangedSince entry: MuxEntry<Value>) -> Bool {
        self.core.store(Fetched(value), .sole, ifRevision: entry.revision)
    }

    /// Forgets the value, in memory and on disk; the next request fetches, and throws if that fails.
    ///
    /// Requests that wait get what their fetch brings, which is not kept. If the value belongs to someone who must not be
    /// served any more, such as a user that signs out, end them: then no one gets a value whose fetch began before
    /// this returned.
    ///
    /// - Parameter endingRequests: Whether requests that wait throw ``MuxError/cleared`` at once, and their fetch is cancelled.
    /// - Returns: What could not be removed from disk. Ignoring it is fine: this process does not read what
    ///   is left, and the next save tries again.
    @discardableResult
    public func clear(endingRequests: Bool = false) async -> MuxRepository.ClearReport {
        await self.core.clear(.sole, endsRequests: endingRequests)
    }

    /// Removes the value from memory, unless it is unsaved.
    ///
    /// Nothing else changes: fetches run on, and the next request reads the disk before it fetches. The system's memory
    /// warning does this for all of a repository, see ``MuxRepository/clearMemory()``.
    public nonisolated func clearMemory() { self.core.clearMemory() }

    /// Writes the value to disk if it changed since the last time; without a `cacheKey`, does nothing.
    ///
    /// - Returns: What was saved, or why not.
    @discardableResult
    public func save() async -> MuxRepository.SaveReport {
        await self.core.repository.save([self.core])
    }

    /// How many watch: zero at rest.
    package nonisolated var watcherCount: Int { self.core.watchers.count }

    /// The number of waiting callers with options of their own: zero at rest.
    package nonisolated var waiterOptionsCount: Int { self.core.engine.withState { $0.waiterOptions.count } }

    /// The numbers of waiting callers, running tasks and keys with a flight: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    /// See ``Locked/acquisitionCount``.
    package nonisolated var lockCount: Int? { self.core.engineState.acquisitionCount }

    // MARK: - Repository

    /// Makes the repository keep this multiplexer alive, until ``unregister()``.
    ///
    /// Nothing else depends on it: sign-outs, saves, ``MuxRepository/clearMemory()`` and statistics of the repository reach every multiplexer
    /// from its initialiser to its deallocation. A second call changes nothing.
    ///
    /// - Returns: The multiplexer.
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
