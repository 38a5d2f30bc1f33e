/// The entry of a multiplexer, or of one key of a map, over time: what is in memory now, then every change.
///
/// ```swift
/// for await entry in profile.values {
///     label.text = entry?.value.name ?? "…"
/// }
/// ```
///
/// `nil` means that memory has nothing: before the first fetch, after a clear, after a sign-out. Watching fetches nothing,
/// and keeps nothing: a value that only leaves memory to make room for others is not reported as gone.
///
/// **Concurrent calls.** Any number of consumers may iterate; each gets everything, and a slow one skips to the newest.
///
/// **Cancellation.** The sequence ends when the consumer's task is cancelled, or when the consumer stops; others notice
/// nothing.
///
/// **Lifetime.** The sequence does not keep the multiplexer alive, and ends when the multiplexer is deallocated.
///
/// **After a failure** of a fetch there is nothing new to tell: consumers keep what they have.
///
/// **On disk.** Watching reads nothing from disk; an entry that a request loads from there is a change like any other.
public struct MuxValues<Value: Sendable>: AsyncSequence, Sendable {
    /// What a consumer gets.
    public typealias Element = MuxEntry<Value>?
    /// Watching cannot fail.
    public typealias Failure = Never

    /// The entry; `nil` without, if the multiplexer was deallocated.
    let current: @Sendable () -> MuxEntry<Value>??
    let changes: @Sendable () -> AsyncStream<Void>

    /// Begins to watch.
    ///
    /// - Returns: An iterator of its own.
    public func makeAsyncIterator() -> Iterator {
        Iterator(changes: self.changes().makeAsyncIterator(), current: self.current)
    }

    /// Goes from one change to the next.
    public struct Iterator: AsyncIteratorProtocol {
        /// What a consumer gets.
        public typealias Element = MuxEntry<Value>?
        /// Watching cannot fail.
        public typealias Failure = Never

        private var changes: AsyncStream<Void>.Iterator
        private let current: @Sendable () -> MuxEntry<Value>??
        /// The revision that was given last: none yet, that of nothing, or that of an entry.
        private var last: UInt64??

        init(changes: AsyncStream<Void>.Iterator, current: @escaping @Sendable () -> MuxEntry<Value>??) {
            self.changes = changes
            self.current = current
        }

        /// Suspends until the entry is another one than the one that was given last.
        ///
        /// - Parameter actor: Where the consumer runs.
        /// - Returns: The entry, or `nil` within, if there is none; `nil` without, if the task is cancelled or the multiplexer deallocated.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> Element? {
            while true {
                if self.last != nil { guard await self.changes.next(isolation: actor) != nil else { return nil } }
                guard let entry = self.current() else { return nil }
                guard self.last != .some(entry?.revision) else { continue }
                self.last = .some(entry?.revision)
                return .some(entry)
            }
        }

        /// Suspends until the entry is another one than the one that was given last.
        ///
        /// - Returns: The entry, or `nil` within, if there is none; `nil` without, if the task is cancelled or the multiplexer deallocated.
        public mutating func next() async -> Element? { await self.next(isolation: #isolation) }
    }
}

@available(*, unavailable)
extension MuxValues.Iterator: Sendable {}
