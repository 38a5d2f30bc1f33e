extension MultiplexerMap {
    /// Fetches values in advance, with a lower priority than requests.
    ///
    /// ```swift
    /// .onAppear { Task { await Backend.users.prefetch(keys: nextPage.map(\.author)) } }
    /// ```
    ///
    /// Returns when all keys have a value, have failed or are cancelled, or after a sign-out of all users. A
    /// key with a fresh value in memory, on disk or in a shared store is not fetched. A call fetches at most
    /// six keys at a time, or one batch if a batch can have more than six keys. A request for a key joins the
    /// fetch of the key, and can raise the priority of the fetch.
    ///
    /// **Cancellation.** A cancellation of the task stops all prefetches of the call, and
    /// ``cancelPrefetch(keys:)`` stops prefetches of single keys. A request that has joined a fetch gets the
    /// outcome of the fetch. Without such a request, ``MuxPolicy/whenAbandoned`` determines whether the fetch
    /// continues.
    ///
    /// - Parameter keys: Any keys.
    public nonisolated func prefetch(keys: some Sequence<Key>) async {
        let core = self.core
        let session = core.engine.withState { $0.session }
        let call = PrefetchCall(keys.lazy.map { ExactKey($0) })
        // Registered before the first fetch, so that a cancellation of a key has an effect from now on.
        let remove = self.prefetchCancellations.add(to: .sole) { call.cancel($0) }
        defer { remove() }
        await withDiscardingTaskGroup { group in
            for _ in 0..<min(call.waitingCount, self.prefetchesAtOnce) {
                group.addTask(priority: .low) {
                    // A sign-out ends the prefetch: the keys may belong to the user of the ended session.
                    while !Task.isCancelled, session == core.engine.withState({ $0.session }),
                        let (key, untilCancelled) = call.next()
                    {
                        await withTaskGroup(of: Void.self) { race in
                            race.addTask { _ = try? await core.request(key, .prefetch) }
                            race.addTask { for await _ in untilCancelled {} }
                            await race.next()
                            race.cancelAll()
                        }
                        call.ended(key)
                    }
                }
            }
        }
    }

    /// Stops prefetches of `keys`, such as for cells that have scrolled away; requests continue.
    ///
    /// - Parameter keys: Any keys.
    public nonisolated func cancelPrefetch(keys: some Sequence<Key>) {
        self.prefetchCancellations.send(Set(keys.lazy.map { ExactKey($0) }), to: .sole)
    }
}

/// The keys of one call of ``MultiplexerMap/prefetch(keys:)``.
final class PrefetchCall<Key: Hashable & Sendable>: Sendable {
    private struct State: Sendable {
        /// The keys without a request, the next key last.
        var waiting: [Key]
        /// The keys with a request; the end of the stream cancels the request.
        var running: [Key: AsyncStream<Never>.Continuation] = [:]
    }

    private let state: Locked<State>

    init(_ keys: some Sequence<Key>) {
        var seen: Set<Key> = []
        self.state = Locked(State(waiting: keys.filter { seen.insert($0).inserted }.reversed()))
    }

    var waitingCount: Int { self.state.withLock { $0.waiting.count } }

    /// The next key, and a stream that ends when the prefetch of the key is cancelled; `nil` without a
    /// further key.
    func next() -> (Key, AsyncStream<Never>)? {
        let (stream, continuation) = AsyncStream<Never>.makeStream()
        return self.state.withLock { state in
            guard let key = state.waiting.popLast() else { return nil }
            state.running[key] = continuation
            return (key, stream)
        }
    }

    /// Removes `key` after the end of its request; a later cancellation of `key` has no effect.
    func ended(_ key: Key) { _ = self.state.withLock { $0.running.removeValue(forKey: key) } }

    func cancel(_ keys: Set<Key>) {
        let (released, running) = self.state.withLock { state in
            let waiting = state.waiting
            state.waiting.removeAll(where: keys.contains)
            return (waiting, keys.compactMap { state.running[$0] })
        }
        for continuation in running { continuation.finish() }
        withExtendedLifetime(released) {}  // released outside the lock
    }
}
