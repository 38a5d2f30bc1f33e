/// Keeps values in memory, with bounds of count and cost: decoded images, parsed documents.
///
/// ```swift
/// let images = MemoryCache<URL, Image>(maximumCount: 500, maximumCost: 64 << 20)
/// images.insert(image, for: url, cost: image.byteCount)
/// let image = images.value(for: url)
/// ```
///
/// Values that are used once are evicted before those that are used again (S3-FIFO): scrolling through ten thousand images
/// does not evict the ones that are needed all the time.
///
/// **Concurrent calls.** Any member may be called from any thread; each takes effect at once, and none waits or throws. Keys and values are
/// released after the call has taken effect, so their deinit may use the cache. Equality and hash of a key are computed within a call, and
/// must not use the cache.
///
/// **On disk.** Nothing is kept on disk: an evicted value is lost.
///
/// **At a sign-out.** A cache belongs to no ``MuxRepository``: a sign-out does not clear it.
public final class MemoryCache<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// The counters of a cache since its creation.
    public struct Statistics: Sendable, Equatable {
        /// Lookups that found a value.
        public var hits = 0
        /// Lookups that found none.
        public var misses = 0
        /// Evicted values, including those that were too costly to be kept at all.
        public var evictions = 0
    }

    private struct State: Sendable {
        var table: BoundedTable<Key, Value>
        var statistics = Statistics()
    }

    private let state: Locked<State>

    /// Makes an empty cache; a limit below zero is zero.
    ///
    /// - Parameters:
    ///   - maximumCount: The most values; `nil` for no bound.
    ///   - maximumCost: Their greatest total cost, in a unit of your choice; `nil` for no bound.
    public init(maximumCount: Int? = 10_000, maximumCost: Int? = nil) {
        self.state = Locked(State(table: BoundedTable(maximumCount: maximumCount, maximumCost: maximumCost)))
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
    /// - Returns: The value; `nil` if there is none.
    /// - Complexity: O(1), without allocation.
    public func value(for key: Key) -> Value? {
        self.state.withLock { state in
            let value = state.table.lookup(key)
            if value == nil { state.statistics.misses += 1 } else { state.statistics.hits += 1 }
            return value
        }
    }

    /// Inserts a value, or replaces that of `key`.
    ///
    /// - Parameters:
    ///   - value: The value. One that alone exceeds the bound is not kept, and the former one is removed.
    ///   - key: Its key. Nothing is kept for a key that is not equal to itself, such as a NaN.
    ///   - cost: Its cost; less than zero is zero.
    /// - Complexity: O(1), on average over many.
    public func insert(_ value: Value, for key: Key, cost: Int = 0) {
        guard key == key else { return }
        // Evicted keys and values are released outside the lock: their deinit may be the user's.
        let lost = self.state.withLock { state -> [(Key?, Value)] in
            let place = state.table.place(of: key)
            var lost: [(Key?, Value)] = state.table.element(at: place).map { [(nil, $0)] } ?? []
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
    /// - Returns: The removed value; `nil` if there was none.
    @discardableResult
    public func remove(_ key: Key) -> Value? {
        // The key of the table is released outside the lock.
        let removed = self.state.withLock { $0.table.removeEntry(key) }
        return removed?.element
    }

    /// Removes all values, as on a memory warning.
    public func removeAll() {
        let former = self.state.withLock { state in
            let former = state.table
            state.table = BoundedTable(maximumCount: former.maximumCount, maximumCost: former.maximumCost)
            return former
        }
        withExtendedLifetime(former) {}  // released outside the lock
    }
}
