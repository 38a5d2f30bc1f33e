/// The current entry of a multiplexer, or of one key of a map, in memory, and its changes over time.
///
/// ```swift
/// for await entry in profile.values {
///     label.text = entry?.value.name ?? "…"
/// }
/// ```
///
/// `nil` means no entry in memory: before the first fetch, after a clear, after a sign-out. An eviction alone
/// adds no element. The sequence starts no fetch and retains no value.
///
/// **Concurrent calls.** Any number of consumers may iterate. A slow consumer skips to the newest entry.
///
/// **Cancellation.** The sequence of a consumer ends when the consumer's task is cancelled; other consumers
/// are not affected.
///
/// **Lifetime.** The sequence does not retain the multiplexer, and ends when the multiplexer is deallocated.
///
/// **After a failure** of a fetch, consumers get no element.
///
/// **On disk.** The sequence does not read the disk; an entry that a request loads from disk is a change.
public struct MuxValues<Value: Sendable>: AsyncSequence, Sendable {
    /// The elements: an entry, or `nil`.
    public typealias Element = MuxEntry<Value>?
    /// The sequence does not throw.
    public typealias Failure = Never

    /// The entry, or an inner `nil` without an entry; an outer `nil` if the multiplexer was deallocated.
    let current: @Sendable () -> MuxEntry<Value>??
    let changes: @Sendable () -> AsyncStream<Void>

    /// Makes an iterator, which observes changes from this call on.
    ///
    /// - Returns: An iterator for one consumer.
    public func makeAsyncIterator() -> Iterator {
        Iterator(changes: self.changes().makeAsyncIterator(), current: self.current)
    }

    /// Iterates over the changes.
    public struct Iterator: AsyncIteratorProtocol {
        /// The elements: an entry, or `nil`.
        public typealias Element = MuxEntry<Value>?
        /// The sequence does not throw.
        public typealias Failure = Never

        private var changes: AsyncStream<Void>.Iterator
        private let current: @Sendable () -> MuxEntry<Value>??
        /// The revision of the last element's entry.
        ///
        /// Inner `nil`: the last element had no entry. Outer `nil`: no element yet.
        private var last: UInt64??

        init(changes: AsyncStream<Void>.Iterator, current: @escaping @Sendable () -> MuxEntry<Value>??) {
            self.changes = changes
            self.current = current
        }

        /// Suspends until the entry differs from the last element; the first call returns at once.
        ///
        /// - Parameter actor: The isolation of the consumer.
        /// - Returns: The entry. Inner `nil`: no entry. Outer `nil`: the task was cancelled, or the
        ///   multiplexer was deallocated.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> Element? {
            while true {
                if self.last != nil { guard await self.changes.next(isolation: actor) != nil else { return nil } }
                guard let entry = self.current() else { return nil }
                guard self.last != .some(entry?.revision) else { continue }
                self.last = .some(entry?.revision)
                return .some(entry)
            }
        }

        /// Suspends until the entry differs from the last element; the first call returns at once.
        ///
        /// - Returns: The entry. Inner `nil`: no entry. Outer `nil`: the task was cancelled, or the
        ///   multiplexer was deallocated.
        public mutating func next() async -> Element? { await self.next(isolation: #isolation) }
    }
}

@available(*, unavailable)
extension MuxValues.Iterator: Sendable {}
