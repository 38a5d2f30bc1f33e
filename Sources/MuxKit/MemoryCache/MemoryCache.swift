/// A cache of values in memory, with bounds of count and cost, such as for decoded images and parsed
/// documents.
///
/// ```swift
/// let images = MemoryCache<URL, Image>(maximumCount: 500, maximumCost: 64 << 20)
/// images.insert(image, for: url, cost: image.byteCount)
/// let image = images.value(for: url)
/// ```
///
/// As a rule, values with a single use are evicted before values with several uses (S3-FIFO): scrolling
/// through ten thousand images does not evict images that are used often. If images are scrolled back and
/// forth, ``init(maximumCount:maximumCost:evictsLeastRecentlyUsed:)`` with `evictsLeastRecentlyUsed: true`
/// misses fewer images.
///
/// **Concurrent calls.** Any member may be called from any thread. Each call takes effect at once, without
/// suspension and without errors. Keys and values are released after the call has taken effect, so their
/// `deinit` may use the cache. Equality and hash of a key are computed within a call, and must not use the
/// cache.
///
/// **On disk.** Nothing is kept on disk: an evicted value is lost.
///
/// **At a sign-out.** A cache belongs to no ``MuxRepository``: a sign-out does not clear the cache.
public final class MemoryCache<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// The counters of a cache since its creation.
    public struct Statistics: Sendable, Equatable {
        /// Lookups that found a value.
        public var hits = 0
        /// Lookups without a value.
        public var misses = 0
        /// Evicted values, including inserted values that alone exceed a bound.
        public var evictions = 0
    }

    @usableFromInline
    struct State: Sendable {
        @usableFromInline var table: BoundedTable<Key, Value>
        @usableFromInline var statistics = Statistics()
    }

    @usableFromInline let state: Locked<State>

    /// Makes an empty cache; a negative limit counts as zero.
    ///
    /// - Parameters:
    ///   - maximumCount: The maximum number of values; `nil` for no bound.
    ///   - maximumCost: The maximum total cost, in a unit of your choice; `nil` for no bound.
    ///   - evictsLeastRecentlyUsed: Whether the least recently used value is evicted, instead of a value with
    ///     few uses; see ``MuxPolicy/evictsLeastRecentlyUsed``.
    public init(maximumCount: Int? = 10_000, maximumCost: Int? = nil, evictsLeastRecentlyUsed: Bool = false) {
        let table = BoundedTable<Key, Value>(
            maximumCount: maximumCount,
            maximumCost: maximumCost,
            evictsLeastRecentlyUsed: evictsLeastRecentlyUsed
        )
        self.state = Locked(State(table: table))
    }

    /// The number of values.
    public var count: Int { self.state.withLock { $0.table.count } }

    /// The cost of all values; zero in a cache without a bound of cost.
    public var totalCost: Int { self.state.withLock { $0.table.totalCost } }

    /// The counters since creation.
    public var statistics: Statistics { self.state.withLock { $0.statistics } }

    /// Returns the value of `key`; counts as a use.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The value; `nil` if absent.
    /// - Complexity: O(1), without allocation.
    @inlinable
    public func value(for key: Key) -> Value? {
        self.state.withLock { state in
            let value = state.table.lookup(key)
            if value == nil { state.statistics.misses += 1 } else { state.statistics.hits += 1 }
            return value
        }
    }

    /// Inserts a value, or replaces the value of `key`, which counts as a use.
    ///
    /// - Parameters:
    ///   - value: The value. If the value alone exceeds a bound, neither this value nor the previous value is
    ///     kept.
    ///   - key: The key of the value. A value is not kept for a key that is not equal to itself, such as a
    ///     NaN.
    ///   - cost: The cost of the value; a negative cost counts as zero.
    /// - Complexity: Amortised O(1).
    @inlinable
    public func insert(_ value: Value, for key: Key, cost: Int = 0) {
        guard key == key else { return }
        // Evicted keys and values are released outside the lock, because their `deinit` may be the user's
        // code.
        let lost = self.state.withLock { state -> Few<(Key?, Value)> in
            let place = state.table.place(of: key)
            var lost = Few<(Key?, Value)>()
            if let former = state.table.element(at: place) { lost.append((nil, former)) }
            state.table.touch(place)
            var evictions = 0
            state.table.put(value, of: key, at: place, cost: cost, mayGo: { _ in true }) { key, value in
                lost.append((key, value))
                evictions += 1
            }
            state.statistics.evictions += evictions
            return lost
        }
        withExtendedLifetime(lost) {}
    }

    /// Removes the value of `key`.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The removed value; `nil` if absent.
    @discardableResult
    @inlinable
    public func remove(_ key: Key) -> Value? {
        // The table's copy of the key is released outside the lock.
        let removed = self.state.withLock { $0.table.remove(at: $0.table.place(of: key)) }
        return removed?.element
    }

    /// Removes all values, for example on a memory warning, which the cache does not observe.
    public func removeAll() {
        let former = self.state.withLock { state in
            let former = state.table
            state.table = former.emptied
            return former
        }
        withExtendedLifetime(former) {}  // released outside the lock
    }
}
