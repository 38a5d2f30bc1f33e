/// Keeps values in memory, no more than so many nor at more than such a cost: decoded images, parsed documents.
///
/// ```swift
/// let images = MemoryCache<URL, Image>(maximumCount: 500, maximumCost: 64 << 20)
/// images.insert(image, for: url, cost: image.byteCount)
/// let image = images.value(for: url)
/// ```
///
/// What was asked for again stays, what was not goes first (S3-FIFO): a walk through ten thousand images does not drive out
/// those that are always needed.
///
/// **Concurrent calls.** Any member may be called from anywhere; each takes effect at once, and none waits or throws.
///
/// **On disk** there is nothing: what had to go is gone.
public final class MemoryCache<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// What a cache counted since it was made.
    public struct Statistics: Sendable, Equatable {
        /// Values that were asked for and there.
        public var hits = 0
        /// Values that were asked for and not there.
        public var misses = 0
        /// Values that had to make room, those included that were too costly to be let in.
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
    ///   - maximumCount: How many values there may be; `nil` for any number.
    ///   - maximumCost: What they may cost together, in a unit of your choice; `nil` for any cost.
    public init(maximumCount: Int? = 10_000, maximumCost: Int? = nil) {
        self.state = Locked(State(table: BoundedTable(maximumCount: maximumCount, maximumCost: maximumCost)))
    }

    /// How many values there are.
    public var count: Int { self.state.withLock { $0.table.count } }

    /// What all values cost together; zero in a cache without a limit of cost.
    public var totalCost: Int { self.state.withLock { $0.table.totalCost } }

    /// What this cache counted since it was made.
    public var statistics: Statistics { self.state.withLock { $0.statistics } }

    /// The value of `key`, if it is there.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The value.
    /// - Complexity: O(1); nothing is moved or allocated.
    public func value(for key: Key) -> Value? {
        self.state.withLock { state in
            let value = state.table.lookup(key)
            if value == nil { state.statistics.misses += 1 } else { state.statistics.hits += 1 }
            return value
        }
    }

    /// Keeps a value, in place of the one that `key` has.
    ///
    /// - Parameters:
    ///   - value: The value. One that alone costs more than all may is not kept, nor is the one before it.
    ///   - key: Its key, which is equal to itself; for another one, nothing is kept.
    ///   - cost: What it costs; less than zero is zero.
    /// - Complexity: O(1), on average over many.
    public func insert(_ value: Value, for key: Key, cost: Int = 0) {
        guard key == key else { return }  // a not-a-number is never found again
        // What had to go is let go outside the lock: its deinitializer may be the user's.
        let lost = self.state.withLock { state -> [Value] in
            let place = state.table.place(of: key)
            var lost = state.table.element(at: place).map { [$0] } ?? []
            var evictions = 0
            state.table.put(value, of: key, at: place, cost: cost, mayGo: { _ in true }) { _, value in
                lost.append(value)
                evictions += 1
            }
            state.statistics.evictions += evictions
            return lost
        }
        _ = lost
    }

    /// Forgets the value of `key`.
    ///
    /// - Parameter key: Any key.
    /// - Returns: The value that was there.
    @discardableResult
    public func remove(_ key: Key) -> Value? { self.state.withLock { $0.table.remove(key) } }

    /// Forgets all values, as on a warning that memory is short.
    public func removeAll() {
        let former = self.state.withLock { state in
            let former = state.table
            state.table = BoundedTable(maximumCount: former.maximumCount, maximumCost: former.maximumCost)
            return former
        }
        _ = former  // let go outside the lock, too
    }
}
