import MuxKit

/// Who watches the progress of which file.
final class MediaWatchers: Sendable {
    private typealias Watcher = AsyncThrowingStream<MediaProgress, any Error>.Continuation

    private struct State: Sendable {
        var watchers: [MediaName: [UInt64: Watcher]] = [:]
        var lastID: UInt64 = 0
    }

    private let state = Locked(State())

    /// The steps of a download from now on; one who is slow gets the newest.
    func changes(of name: MediaName) -> AsyncThrowingStream<MediaProgress, any Error> {
        let (stream, continuation) = AsyncThrowingStream.makeStream(
            of: MediaProgress.self,
            throwing: (any Error).self,
            bufferingPolicy: .bufferingNewest(1)
        )
        let id = self.state.withLock { state in
            state.lastID &+= 1
            state.watchers[name, default: [:]][state.lastID] = continuation
            return state.lastID
        }
        continuation.onTermination = { [weak self] _ in self?.remove(id, of: name) }
        return stream
    }

    private func remove(_ id: UInt64, of name: MediaName) {
        let removed = self.state.withLock { state in
            let removed = state.watchers[name]?.removeValue(forKey: id)
            if state.watchers[name]?.isEmpty ?? false { state.watchers[name] = nil }
            return removed
        }
        withExtendedLifetime(removed) {}
    }

    /// Tells those who watch `name` how far it is.
    func tell(_ progress: MediaProgress, of name: MediaName) {
        for watcher in self.watchers(of: name) {
            watcher.yield(progress)
            if progress.isComplete { watcher.finish() }
        }
    }

    /// Tells those who watch `name` that the download failed.
    func fail(_ name: MediaName, _ error: any Error) {
        for watcher in self.watchers(of: name) { watcher.finish(throwing: error) }
    }

    /// Takes note of those who watch now.
    ///
    /// - Returns: What tells them that the downloads failed.
    func failure(of names: [MediaName], _ error: any Error) -> @Sendable () -> Void {
        let watchers = names.flatMap { self.watchers(of: $0) }
        return { for watcher in watchers { watcher.finish(throwing: error) } }
    }

    private func watchers(of name: MediaName) -> [Watcher] {
        self.state.withLock { $0.watchers[name].map { Array($0.values) } ?? [] }
    }

    /// How many watch.
    var count: Int { self.state.withLock { state in state.watchers.values.reduce(0) { $0 + $1.count } } }
}
