/// Who wants to hear of changes, by key.
///
/// Only the fact of a change is passed on; whoever hears of it looks for itself. So nobody sees values in the wrong order,
/// and one who is slow skips to the newest.
@usableFromInline
final class Watchers<Key: Hashable & Sendable>: Sendable {
    @usableFromInline
    struct State: Sendable {
        @usableFromInline var watchers: [Key: [UInt64: AsyncStream<Void>.Continuation]] = [:]
        var lastID: UInt64 = 0
    }

    @usableFromInline let state = Locked(State())

    /// A stream of changes of `key`; it ends when nobody listens to it any more.
    func changes(of key: Key) -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let id = self.state.withLock { state in
            state.lastID &+= 1
            state.watchers[key, default: [:]][state.lastID] = continuation
            return state.lastID
        }
        continuation.onTermination = { [weak self] _ in self?.remove(id, of: key) }
        return stream
    }

    private func remove(_ id: UInt64, of key: Key) {
        let removed = self.state.withLock { state in
            let removed = state.watchers[key]?.removeValue(forKey: id)
            if state.watchers[key]?.isEmpty ?? false { state.watchers[key] = nil }
            return removed
        }
        withExtendedLifetime(removed) {}
    }

    /// Tells those who watch `key`.
    @inlinable
    func changed(_ key: Key) {
        guard let watchers = self.state.withLock({ $0.watchers.isEmpty ? nil : $0.watchers[key] }) else { return }
        for watcher in watchers.values { watcher.yield() }
    }

    /// Tells everybody.
    func changedAll() {
        let watchers = self.state.withLock { state in state.watchers.values.flatMap(\.values) }
        for watcher in watchers { watcher.yield() }
    }

    /// How many watch.
    var count: Int { self.state.withLock { state in state.watchers.values.reduce(0) { $0 + $1.count } } }
}
