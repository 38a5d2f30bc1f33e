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
/// **Concurrent calls.** At most one fetch runs between two fences, apart from a cancelled fetch that has
/// passed ``MuxPolicy/fetchTimeout``. A *fence* is an event that makes a running fetch outdated, such as
/// ``refresh()``, ``reload()``, ``store(_:)``, ``clear(endingRequests:)``, the start or the end of a change
/// (``change(_:)``), a sign-out, or an invalidation by another machine. The value of a fetch that began
/// before the fence is not cached, and a later request does not join this fetch. The callers of this fetch
/// still get the value, with two exceptions: a sign-out ends waiting requests, as ``clear(endingRequests:)``
/// can, and callers of a value with changes of the app get the cached value with the changes.
///
/// **Cancellation.** A cancelled caller that waits for a fetch gets `CancellationError` at once; other
/// callers are not affected. If the fetch begins on the thread of its first caller, this caller always waits
/// for the part of the fetch before the first suspension. After the last caller that waits for a fetch has
/// left, ``MuxPolicy/whenAbandoned`` determines whether the fetch continues. The policy does not apply to the
/// fetch of a ``reload()`` or of a renewal in the background.
///
/// **After a failure.** The previous value is kept. If the policy permits, callers get this stale value
/// instead of the error.
///
/// **On disk.** With a `cacheKey`, ``save()`` writes the value, and a request without a value in memory reads
/// the disk. A repository with a shared store puts the value in this store instead. The age of a value
/// includes the time between launches.
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

    /// Returns the cached value if the policy permits; otherwise fetches.
    ///
    /// Callers that arrive during a fetch share the outcome.
    ///
    /// - Returns: The value; ``requestEntry(_:)`` also tells whether the value is stale, and the reason.
    /// - Throws: ``MuxError``, `CancellationError`, or the error of the fetch or of an earlier fetch
    ///   (``MuxPolicy/remembersFailure``).
    /// - Complexity: O(1) for a fresh value in memory, usually without a suspension or an allocation.
    /// - Note: Runs on the caller's executor; the fetch runs in a separate task. If the caller has no
    ///   isolation, this task may begin on the caller's thread; after its first suspension, the task
    ///   continues on another executor.
    @inlinable
    public nonisolated(nonsending) func request() async throws -> Value {
        if let value = self.core.hit(.sole) { return value }
        return try await self.core.request(.sole)
    }

    /// Returns the cached value if `options` permit; otherwise fetches.
    ///
    /// With ``RequestOptions/cacheOnly``, the request throws ``MuxError/notCached`` instead of a fetch.
    ///
    /// - Parameter options: Limits on the age, the source and the wait.
    /// - Returns: The value, fresh or stale.
    /// - Throws: The errors of ``request()``.
    @inlinable
    public nonisolated(nonsending) func request(_ options: RequestOptions) async throws -> Value {
        if let value = self.core.hit(.sole, options) { return value }
        return try await self.core.request(.sole, options).value
    }

    /// As ``request(_:)``, but returns the value with its age, its source, and the reason for a stale value.
    ///
    /// - Parameter options: Limits on the age, the source and the wait.
    /// - Returns: The entry.
    /// - Throws: The errors of ``request(_:)``.
    @inlinable
    public nonisolated(nonsending) func requestEntry(_ options: RequestOptions = .init()) async throws -> MuxEntry<
        Value
    > {
        try await self.core.request(.sole, options)
    }

    /// The value in memory, fresh or stale; `nil` without a value.
    @inlinable
    public nonisolated var cachedValue: Value? { self.cachedEntry?.value }

    /// The entry in memory, fresh or stale; `nil` without an entry.
    @inlinable
    public nonisolated var cachedEntry: MuxEntry<Value>? { self.core.cachedEntry(.sole) }

    /// A sequence of the current entry in memory and of its changes; an element is `nil` without an entry.
    public nonisolated var values: MuxValues<Value> { self.core.values(.sole) }

    /// A sequence of the current state and of its changes, for a screen: the entry, a running fetch, and the
    /// last failure.
    public nonisolated var states: MuxStates<Value> { self.core.states(.sole) }

    /// Returns the value in memory, or otherwise on disk or in a shared store, fresh or stale, without a
    /// fetch.
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
    /// If this fetch fails, the request gets the stale value if the policy permits.
    ///
    /// The value of a running fetch is not cached, and later requests do not join this fetch.
    ///
    /// - Returns: The multiplexer, for a chained call of ``request(_:)``.
    @discardableResult
    public nonisolated func refresh() -> Self {
        self.core.refresh(.sole)
        return self
    }

    /// Makes the value stale, and fetches; the fetch continues even if its callers leave.
    ///
    /// For a pull to refresh:
    ///
    /// ```swift
    /// .refreshable { try? await profile.reload() }
    /// ```
    ///
    /// SwiftUI can cancel the task of the gesture during the fetch. The fetch then continues and replaces the
    /// value; with ``refresh()`` and ``request()``, ``MuxPolicy/whenAbandoned`` decides. After a later fence,
    /// the value of the fetch is not cached, and the fetch is cancelled if no caller waits.
    ///
    /// - Returns: The new value; after a failure, the previous value if the policy permits; during a change,
    ///   the changed value in the cache, if any.
    /// - Throws: The errors of ``request()``.
    @discardableResult
    public nonisolated(nonsending) func reload() async throws -> Value { try await self.core.reload(.sole) }

    /// Replaces the cached value, as if `value` had just been fetched.
    ///
    /// A running fetch cannot overwrite `value`. With a `cacheKey`, ``save()`` writes `value` to disk.
    public nonisolated func store(_ value: Value) {
        self.core.store(Fetched(value), .sole, ifRevision: nil)
    }

    /// Replaces the cached value if the cache still has `entry`, as for an optimistic update or its reversal.
    ///
    /// While the value has changes (``change(_:)``), `entry` must be from before the changes; otherwise the
    /// result is `false`.
    ///
    /// - Parameters:
    ///   - value: The new value.
    ///   - entry: An entry from ``requestEntry(_:)`` or ``cachedEntry``.
    /// - Returns: Whether `value` was stored. If not, the cache is unchanged.
    @discardableResult
    public nonisolated func store(_ value: Value, ifUnchangedSince entry: MuxEntry<Value>) -> Bool {
        self.core.store(Fetched(value), .sole, ifRevision: entry.revision)
    }

    /// Removes the value from memory, and from disk or a shared store.
    ///
    /// The next request fetches, and throws if the fetch fails.
    ///
    /// By default, waiting requests get the value of their fetch, and this value is not cached. If the value
    /// belongs to a user who signs out, pass `true`: after this call has returned, no caller gets the value
    /// of a fetch that began before the call.
    ///
    /// - Parameter endingRequests: Whether waiting requests throw ``MuxError/cleared`` at once, and their
    ///   fetch is cancelled.
    /// - Returns: The failures on disk or in a shared store. Failures on disk can be ignored: this process
    ///   does not read the remaining entries, and the next save repeats the removal.
    @discardableResult
    public func clear(endingRequests: Bool = false) async -> MuxRepository.ClearReport {
        await self.core.clear(.sole, endsRequests: endingRequests)
    }

    /// Removes the value from memory, unless the value is unsaved.
    ///
    /// A running fetch continues. The next request reads a saved value from disk. On Apple platforms, a
    /// memory warning of the system calls ``MuxRepository/clearMemory()``, which has this effect on all
    /// multiplexers of a repository.
    public nonisolated func clearMemory() { self.core.clearMemory() }

    /// Writes the value to disk if the value is unsaved; without a `cacheKey`, no value is saved.
    ///
    /// - Returns: The number of saved entries, and the failures.
    @discardableResult
    public func save() async -> MuxRepository.SaveReport {
        await self.core.repository.save([self.core])
    }

    /// The repository.
    package nonisolated var repository: MuxRepository { self.core.repository }

    /// The numbers of waiting callers, running tasks and keys with a flight: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    // MARK: - Repository

    /// Makes the repository retain this multiplexer until ``unregister()``.
    ///
    /// Sign-outs, saves, ``MuxRepository/clearMemory()`` and statistics of the repository include every
    /// living multiplexer, registered or not. Repeated calls have the effect of one call.
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
