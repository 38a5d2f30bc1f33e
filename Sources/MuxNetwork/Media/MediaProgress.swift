import MuxKit

/// How far a download is.
public struct MediaProgress: Sendable, Hashable {
    /// How many bytes are on disk.
    public var received: Int64

    /// How many there will be; `nil` while the server has not said.
    public var total: Int64?

    /// Whether the file is complete.
    public var isComplete: Bool

    /// Describes a state.
    public init(received: Int64 = 0, total: Int64? = nil, isComplete: Bool = false) {
        self.received = received
        self.total = total
        self.isComplete = isComplete
    }

    /// From 0 to 1; `nil` while nobody knows how much there will be.
    public var fraction: Double? {
        if self.isComplete { return 1 }
        guard let total, total > 0 else { return nil }
        return min(1, Double(self.received) / Double(total))
    }

    /// Whether somebody who saw `former` sees a step forward.
    func isBeyond(_ former: MediaProgress) -> Bool {
        if former.isComplete { return false }
        if self.isComplete { return true }
        guard let before = former.fraction else { return self.fraction != nil || self.received > former.received }
        return self.fraction.map { $0 > before } ?? false
    }
}

/// The progress of one file over time: how far it is now, then every step forward, until it is complete.
///
/// ```swift
/// for try await progress in AsyncMedia.shared.progress(of: photo) { bar.value = progress.fraction ?? 0 }
/// ```
///
/// Watching fetches nothing. What a watcher sees never goes back: when a download has to start from zero, it sees the next
/// state that is beyond the last one. A slow one skips to the newest.
///
/// **After a failure.** When a download fails that a watcher has been watching, the sequence throws that error. A download
/// that pauses, because nobody waits for it, is no failure: the sequence goes on with the next one.
///
/// **Cancellation.** The sequence ends when the consumer's task is cancelled.
public struct MediaProgressSequence: AsyncSequence, Sendable {
    /// What a consumer gets.
    public typealias Element = MediaProgress
    /// Why a download failed.
    public typealias Failure = any Error

    let changes: @Sendable () -> AsyncThrowingStream<MediaProgress, any Error>
    let present: @Sendable () async -> MediaProgress

    /// Begins to watch.
    ///
    /// - Returns: An iterator of its own.
    public func makeAsyncIterator() -> Iterator {
        Iterator(changes: self.changes().makeAsyncIterator(), present: self.present)
    }

    /// Goes from one state to the next.
    public struct Iterator: AsyncIteratorProtocol {
        /// What a consumer gets.
        public typealias Element = MediaProgress
        /// Why a download failed.
        public typealias Failure = any Error

        private var changes: AsyncThrowingStream<MediaProgress, any Error>.Iterator
        private let present: @Sendable () async -> MediaProgress
        private var last: MediaProgress?

        init(
            changes: AsyncThrowingStream<MediaProgress, any Error>.Iterator,
            present: @escaping @Sendable () async -> MediaProgress
        ) {
            self.changes = changes
            self.present = present
        }

        /// Suspends until the download is further than before.
        ///
        /// - Parameter actor: Where the consumer runs.
        /// - Returns: How far it is; `nil` after it was complete, or if the task is cancelled.
        /// - Throws: Why the download failed.
        public mutating func next(isolation actor: isolated (any Actor)?) async throws -> MediaProgress? {
            guard let former = self.last else {
                let present = await self.present()
                self.last = present
                return present
            }
            while !former.isComplete, let next = try await self.changes.next(isolation: actor) {
                guard next.isBeyond(former) else { continue }
                self.last = next
                return next
            }
            return nil
        }

        /// Suspends until the download is further than before.
        ///
        /// - Returns: How far it is; `nil` after it was complete, or if the task is cancelled.
        /// - Throws: Why the download failed.
        public mutating func next() async throws -> MediaProgress? { try await self.next(isolation: #isolation) }
    }
}

@available(*, unavailable)
extension MediaProgressSequence.Iterator: Sendable {}

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
