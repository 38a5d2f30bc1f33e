/// Fetches a value once for all callers, and caches the value.
///
/// Define a global constant for each value that your app fetches, and request the value from anywhere:
///
/// ```swift
/// let profile = Multiplexer<Profile>(cacheKey: "Profile") { try await Backend.myProfile() }.register()
///
/// let me = try await profile.request()                // one fetch, however many callers
/// let now = try await profile.refresh().request()     // fetches; the stale value remains for failures
/// await profile.clear()                               // removes the value from memory and disk
/// ```
///
/// **Concurrent calls.** At most one fetch runs between two fences. A fence is ``refresh()``, ``store(_:)``,
/// ``clear(endingRequests:)`` or a sign-out: no work that began before the fence changes later reads. A fetch
/// that began before a fence still returns to its callers; the next request starts a new fetch.
///
/// **Cancellation.** A cancelled caller gets `CancellationError` at once; other callers are not affected. A
/// fetch may begin on the thread of its first caller, who always waits for the part before the first
/// suspension. After the last caller has left, ``MuxPolicy/whenAbandoned`` decides about the fetch.
///
/// **After a failure.** The previous value is kept. If the policy permits, callers get this stale value
/// instead of the error.
///
/// **On disk.** With a `cacheKey`, ``save()`` writes the value, and a request without a value in memory reads
/// the disk. The age of a value includes the time between launches.
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

    /// Returns the cached value if it is fresh; otherwise fetches.
    ///
    /// Callers that arrive during a fetch share the outcome.
    ///
    /// - Returns: A fresh value, or a stale value if the policy permits.
    /// - Throws: ``MuxError``, `CancellationError`, or what the fetch threw.
    /// - Complexity: O(1), and no suspension and no allocation, for a fresh value in memory.
    /// - Note: Runs on the caller's executor; the fetch runs in a separate task. If the caller has no
    ///   isolation, the task begins on the caller's thread, and continues elsewhere after its first
    ///   suspension.
    @inlinable
    public nonisolated(nonsending) func request() async throws -> Value {
        if let value = self.core.hit(.sole) { return value }
        return try await self.core.request(.sole)
    }

    /// Returns the cached value if it is good enough for `options`; otherwise fetches.
    ///
    /// - Parameter options: Limits on the age, the source and the wait.
    /// - Returns: A fresh value, or a stale value if the policy or the options permit.
    /// - Throws: What ``request()`` throws.
    @inlinable
    public nonisolated(nonsending) func request(_ options: RequestOptions) async throws -> Value {
        if let value = self.core.hit(.sole, options) { return value }
        return try await self.core.request(.sole, options).value
    }

    /// Returns the value of ``request(_:)`` with its age, its source, and the reason for a stale value.
    ///
    /// - Parameter options: Limits on the age, the source and the wait.
    /// - Returns: The entry.
    /// - Throws: What ``request(_:)`` throws.
    @inlinable
    public nonisolated(nonsending) func requestEntry(_ options: RequestOptions = .init()) async throws -> MuxEntry<
        Value
    > {
        try await self.core.request(.sole, options)
    }

    /// The value in memory, fresh or stale; `nil` without a value.
    public nonisolated var cachedValue: Value? { self.cachedEntry?.value }

    /// The entry in memory, fresh or stale; `nil` without an entry.
    public nonisolated var cachedEntry: MuxEntry<Value>? { self.core.cachedEntry(.sole) }

    /// The present entry in memory, then every change; `nil` without an entry.
    public nonisolated var values: MuxValues<Value> { self.core.values(.sole) }

    /// Returns the value in memory, or otherwise on disk, fresh or stale, without a fetch.
    ///
    /// - Returns: The value; `nil` without a readable value.
    public nonisolated(nonsending) func loadCachedValue() async -> Value? {
        await self.core.loadCachedEntry(.sole)?.value
    }

    /// The counters of this multiplexer since its initialisation.
    public nonisolated var statistics: MuxRepository.Statistics { self.core.engine.withState { $0.statistics } }

    // MARK: - Changing

    /// Makes the value stale: the next request fetches.
    ///
    /// If the fetch fails, the policy may permit the stale value.
    ///
    /// Later requests never get the value of a fetch that began before this call.
    ///
    /// - Returns: The multiplexer, to go on with ``request(_:)``.
    @discardableResult
    public nonisolated func refresh() -> Self {
        self.core.refresh(.sole)
        return self
    }

    /// Replaces the cached value, as if `value` had just been fetched.
    ///
    /// A running fetch cannot overwrite `value`. ``save()`` writes `value` to disk.
    public nonisolated func store(_ value: Value) {
        self.core.store(Fetched(value), .sole, ifRevision: nil)
    }

    /// Replaces `entry` if the cache still holds `entry`: for an optimistic update, or to undo one.
    ///
    /// - Parameters:
    ///   - value: The new value.
    ///   - entry: An entry of ``requestEntry(_:)`` or ``cachedEntry``.
    /// - Returns: Whether `value` was stored. If not, the cache is unchanged.
    @discardableResult
    public nonisolated func store(_ value: Value, ifUnchangedSince entry: MuxEntry<Value>) -> Bool {
        self.core.store(Fetched(value), .sole, ifRevision: entry.revision)
    }

    /// Removes the value from memory and disk; the next request fetches, and throws if the fetch fails.
    ///
    /// Waiting requests get the value of their fetch, which is not kept. If the value belongs to a user who
    /// signs out, end the waiting requests: then no caller gets a value of a fetch that began before this
    /// call returned.
    ///
    /// - Parameter endingRequests: Whether waiting requests throw ``MuxError/cleared`` at once, and their
    ///   fetch is cancelled.
    /// - Returns: Failures on disk. They can be ignored: this process does not read the remaining files, and
    ///   the next save tries again.
    @discardableResult
    public func clear(endingRequests: Bool = false) async -> MuxRepository.ClearReport {
        await self.core.clear(.sole, endsRequests: endingRequests)
    }

    /// Removes the value from memory, unless it is unsaved.
    ///
    /// Running fetches continue, and the next request reads the disk before a fetch. A memory warning of the
    /// system calls ``MuxRepository/clearMemory()``, which does the same for all multiplexers of a
    /// repository.
    public nonisolated func clearMemory() { self.core.clearMemory() }

    /// Writes the value to disk if it changed since the last save; does nothing without a `cacheKey`.
    ///
    /// - Returns: The number of saved entries, and the failures.
    @discardableResult
    public func save() async -> MuxRepository.SaveReport {
        await self.core.repository.save([self.core])
    }

    /// The number of watchers: zero at rest.
    package nonisolated var watcherCount: Int { self.core.watchers.count }

    /// The number of waiting callers with options: zero at rest.
    package nonisolated var waiterOptionsCount: Int { self.core.engine.withState { $0.waiterOptions.count } }

    /// The numbers of waiting callers, running tasks and keys with a flight: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    /// See ``Locked/acquisitionCount``.
    package nonisolated var lockCount: Int? { self.core.engineState.acquisitionCount }

    // MARK: - Repository

    /// Makes the repository retain this multiplexer until ``unregister()``.
    ///
    /// Sign-outs, saves, ``MuxRepository/clearMemory()`` and statistics of the repository include every
    /// living multiplexer, registered or not. A second call has no effect.
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
