import MuxKit

extension AsyncMedia {
    /// The progress of a download.
    public struct Progress: Sendable, Hashable {
        /// The number of bytes on disk.
        public var received: Int64

        /// The number of bytes of the whole file; `nil` while that is unknown.
        public var total: Int64?

        /// Whether the file is complete.
        public var isComplete: Bool

        /// Makes a state.
        public init(received: Int64 = 0, total: Int64? = nil, isComplete: Bool = false) {
            self.received = received
            self.total = total
            self.isComplete = isComplete
        }

        /// From 0 to 1; `nil` while ``total`` is unknown.
        public var fraction: Double? {
            if self.isComplete { return 1 }
            guard let total, total > 0 else { return nil }
            return min(1, Double(self.received) / Double(total))
        }

        /// Whether this is a step forward from `former`.
        func isBeyond(_ former: AsyncMedia.Progress) -> Bool {
            if former.isComplete { return false }
            if self.isComplete { return true }
            guard let before = former.fraction else { return self.fraction != nil || self.received > former.received }
            return self.fraction.map { $0 > before } ?? false
        }
    }
}

extension AsyncMedia {
    /// The progress of one file over time: the present state, then every step forward, until it is complete.
    ///
    /// ```swift
    /// for try await progress in AsyncMedia.shared.progress(of: photo) { bar.value = progress.fraction ?? 0 }
    /// ```
    ///
    /// Watching fetches nothing. The progress never goes back: after a restart from zero, the next element is the first state beyond
    /// the last one. A slow consumer skips to the newest.
    ///
    /// **After a failure.** The sequence throws the error of a download that fails meanwhile. A download that stops because it has no
    /// callers left is no failure: the sequence goes on with the next one.
    ///
    /// **Cancellation.** The sequence ends when the consumer's task is cancelled.
    ///
    /// **Lifetime.** The sequence does not keep the ``AsyncMedia`` alive, and ends when it is deallocated.
    public struct ProgressSequence: AsyncSequence, Sendable {
        /// The state of the download.
        public typealias Element = AsyncMedia.Progress
        /// Why a download failed.
        public typealias Failure = any Error

        let changes: @Sendable () -> AsyncThrowingStream<AsyncMedia.Progress, any Error>
        let present: @Sendable () async -> AsyncMedia.Progress

        /// Begins to watch.
        ///
        /// - Returns: An iterator of its own.
        public func makeAsyncIterator() -> Iterator {
            Iterator(changes: self.changes().makeAsyncIterator(), present: self.present)
        }

        /// Iterates over the states.
        public struct Iterator: AsyncIteratorProtocol {
            /// The state of the download.
            public typealias Element = AsyncMedia.Progress
            /// Why a download failed.
            public typealias Failure = any Error

            private var changes: AsyncThrowingStream<AsyncMedia.Progress, any Error>.Iterator
            private let present: @Sendable () async -> AsyncMedia.Progress
            private var last: AsyncMedia.Progress?

            init(
                changes: AsyncThrowingStream<AsyncMedia.Progress, any Error>.Iterator,
                present: @escaping @Sendable () async -> AsyncMedia.Progress
            ) {
                self.changes = changes
                self.present = present
            }

            /// Suspends until there is a step forward.
            ///
            /// - Parameter actor: The consumer's isolation.
            /// - Returns: The state; `nil` after the file was complete, or if the task is cancelled.
            /// - Throws: Why the download failed.
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> AsyncMedia.Progress? {
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

            /// Suspends until there is a step forward.
            ///
            /// - Returns: The state; `nil` after the file was complete, or if the task is cancelled.
            /// - Throws: Why the download failed.
            public mutating func next() async throws -> AsyncMedia.Progress? {
                try await self.next(isolation: #isolation)
            }
        }
    }
}

@available(*, unavailable)
extension AsyncMedia.ProgressSequence.Iterator: Sendable {}

/// Sends the progress of downloads, and their failures, to those that watch the file.
final class MediaWatchers: Sendable {
    private let steps = Broadcast<MediaName, Result<AsyncMedia.Progress, any Error>>()

    /// The steps of a download from now on, of which the newest is buffered.
    func changes(of name: MediaName) -> AsyncThrowingStream<AsyncMedia.Progress, any Error> {
        let (stream, continuation) = AsyncThrowingStream.makeStream(
            of: AsyncMedia.Progress.self,
            throwing: (any Error).self,
            bufferingPolicy: .bufferingNewest(1)
        )
        let receive: @Sendable (Result<AsyncMedia.Progress, any Error>) -> Void = { step in
            switch step {
            case .success(let progress):
                continuation.yield(progress)
                if progress.isComplete { continuation.finish() }
            case .failure(let error): continuation.finish(throwing: error)
            }
        }
        let remove = self.steps.add(to: name, finish: { continuation.finish() }, receive)
        continuation.onTermination = { _ in remove() }
        return stream
    }

    func tell(_ progress: AsyncMedia.Progress, of name: MediaName) { self.steps.send(.success(progress), to: name) }

    /// Ends the streams of `name`.
    func fail(_ name: MediaName, _ error: any Error) { self.steps.send(.failure(error), to: name) }

    /// - Returns: Ends the streams of `names` that exist now.
    func failure(of names: [MediaName], _ error: any Error) -> @Sendable () -> Void {
        let receivers = names.flatMap { self.steps.receivers(of: $0) }
        return { for receive in receivers { receive(.failure(error)) } }
    }

    /// The number of streams.
    var count: Int { self.steps.count }
}
