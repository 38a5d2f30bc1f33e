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
