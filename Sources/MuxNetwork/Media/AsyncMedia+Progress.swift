import Foundation
import MuxKit

extension AsyncMedia {
    /// The progress of a download.
    public struct Progress: Sendable, Hashable {
        /// The number of received bytes on disk; 0 for a URL with the scheme `file`.
        public var received: Int64

        /// The size of the whole file in bytes; `nil` while unknown.
        public var total: Int64?

        /// Whether the file is complete.
        public var isComplete: Bool

        /// Makes a progress value.
        public init(received: Int64 = 0, total: Int64? = nil, isComplete: Bool = false) {
            self.received = received
            self.total = total
            self.isComplete = isComplete
        }

        /// The received fraction, from 0 to 1; 1 for a complete file; otherwise `nil` while ``total`` is
        /// unknown or 0.
        public var fraction: Double? {
            if self.isComplete { return 1 }
            guard let total, total > 0 else { return nil }
            return min(1, Double(self.received) / Double(total))
        }

        /// Whether this progress is greater than `former`.
        func isBeyond(_ former: AsyncMedia.Progress) -> Bool {
            if former.isComplete { return false }
            if self.isComplete { return true }
            guard let before = former.fraction else { return self.fraction != nil || self.received > former.received }
            return self.fraction.map { $0 > before } ?? false
        }
    }
}

extension AsyncMedia {
    /// The progress of one file over time: the current progress, then increases, until the file is complete.
    ///
    /// ```swift
    /// for try await progress in AsyncMedia.shared.progress(of: photo) { bar.value = progress.fraction ?? 0 }
    /// ```
    ///
    /// The sequence does not start a download. The fraction never decreases: after a restart from zero, the
    /// next element has a greater fraction. While the total size is unknown, the numbers of received bytes
    /// are compared instead. A slow consumer misses intermediate values.
    ///
    /// **After a failure.** If the download fails during the iteration, the iterator throws the error. After
    /// a sign-out during a download, the iterator throws `MuxError/sessionEnded`. A download that stops
    /// because all callers are cancelled does not count as a failure: the sequence continues with the next
    /// download.
    ///
    /// **Cancellation.** The sequence ends if the consumer's task is cancelled.
    ///
    /// **Lifetime.** The sequence does not retain the ``AsyncMedia``, and ends with its deallocation.
    public struct ProgressSequence: AsyncSequence, Sendable {
        /// The progress of the download.
        public typealias Element = AsyncMedia.Progress
        /// The error of a failed download.
        public typealias Failure = any Error

        let changes: @Sendable () -> AsyncThrowingStream<AsyncMedia.Progress, any Error>
        let present: @Sendable () async -> AsyncMedia.Progress

        /// Begins an iteration.
        ///
        /// - Returns: A separate iterator.
        public func makeAsyncIterator() -> Iterator {
            Iterator(changes: self.changes().makeAsyncIterator(), present: self.present)
        }

        /// Iterates over the progress of a download.
        public struct Iterator: AsyncIteratorProtocol {
            /// The progress of the download.
            public typealias Element = AsyncMedia.Progress
            /// The error of a failed download.
            public typealias Failure = any Error

            fileprivate var changes: AsyncThrowingStream<AsyncMedia.Progress, any Error>.Iterator
            fileprivate let present: @Sendable () async -> AsyncMedia.Progress
            fileprivate var last: AsyncMedia.Progress?

            /// Returns the current progress at the first call; later calls wait for an increase.
            ///
            /// - Parameter actor: The consumer's isolation.
            /// - Returns: The progress; `nil` after the file is complete, or if the task of a later call is
            ///   cancelled.
            /// - Throws: The error of the failed download.
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

            /// Returns the current progress at the first call; later calls wait for an increase.
            ///
            /// - Returns: The progress; `nil` after the file is complete, or if the task of a later call is
            ///   cancelled.
            /// - Throws: The error of the failed download.
            public mutating func next() async throws -> AsyncMedia.Progress? {
                try await self.next(isolation: #isolation)
            }
        }
    }
}

@available(*, unavailable)
extension AsyncMedia.ProgressSequence.Iterator: Sendable {}

extension Broadcast<MediaName, Result<AsyncMedia.Progress, any Error>> {
    /// A stream of the progress after this call; the buffer holds only the newest element.
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
        let remove = self.add(to: name, finish: { continuation.finish() }, receive)
        continuation.onTermination = { _ in remove() }
        return stream
    }
}

/// The facts about a file that consumers of `MuxStates` follow.
struct FollowedFile: Sendable {
    /// The number of consumers.
    var count = 0
    /// The complete file; `nil` if absent, or if the folder has not been opened.
    ///
    /// After an eviction, the URL stays here until ``MediaCore/noteAbsence(of:)``.
    private(set) var file: URL?
    /// The error of the last download; `nil` after a success or a removal.
    private(set) var failure: (any Error)?
    /// The number of failures and removals, so a search can detect a failure or a removal during the search.
    private(set) var revision: UInt64 = 0

    mutating func recordFile(_ file: URL) {
        (self.file, self.failure) = (file, nil)
    }

    mutating func recordFailure(_ error: any Error) {
        self.failure = error
        self.revision += 1
    }

    mutating func recordRemoval() {
        (self.file, self.failure) = (nil, nil)
        self.revision += 1
    }
}

extension MediaCore {
    /// The current state of the file of `url`, then each change.
    func states(of url: URL) -> MuxStates<URL> {
        let name = self.name(of: url)
        return MuxStates(
            in: self.repository,
            read: { [weak self] in
                if url.isFileURL { return (value: (url, 0), isLoading: false, failure: nil) }
                return self?.facts(of: name)
            },
            follow: { [weak self] changed, finish in self?.follow(name, url, changed, finish) ?? {} }
        )
    }

    /// Returns the complete file, if present, and records the file for the consumers of `MuxStates`.
    ///
    /// Nothing is recorded if the file is absent, or if a download has failed or the file was removed in the
    /// meantime.
    func findAndRecord(_ url: URL) -> URL? {
        let name = self.name(of: url)
        let before = self.engine.withState { $0.followed[name]?.revision }
        guard let file = self.cached(url) else { return nil }
        guard let before else { return file }
        self.engine.withState { if $0.followed[name]?.revision == before { $0.followed[name]?.recordFile(file) } }
        self.stateSignals.send((), to: name)
        return file
    }

    /// Tells the consumers of `MuxStates` that a file is absent, such as after its eviction.
    func noteAbsence(of name: MediaName) {
        let isFollowed = self.engine.withState { state in
            guard state.followed[name]?.file != nil else { return false }
            state.followed[name]?.recordRemoval()
            return true
        }
        if isFollowed { self.stateSignals.send((), to: name) }
    }

    private func facts(of name: MediaName) -> MuxStates<URL>.Facts {
        self.engine.read(name) { state, isFlying in
            let followed = state.followed[name] ?? FollowedFile()
            return (
                value: followed.file.map { ($0, followed.revision) },
                isLoading: isFlying,
                failure: followed.failure.map { ($0, followed.revision) }
            )
        }
    }

    /// Registers a consumer of `MuxStates`.
    ///
    /// - Returns: A closure that removes the consumer.
    private func follow(
        _ name: MediaName,
        _ url: URL,
        _ changed: @escaping @Sendable () -> Void,
        _ finish: @escaping @Sendable () -> Void
    ) -> @Sendable () -> Void {
        let remove = self.stateSignals.add(to: name, finish: finish) { changed() }
        self.engine.follow(name) { [weak signals = self.stateSignals] names in
            for name in names { signals?.send((), to: name) }
        } _: { state in
            state.followed[name, default: FollowedFile()].count += 1
        }
        _ = self.findAndRecord(url)
        return { [weak self] in
            remove()
            self?.engine.unfollow(name) { state in
                state.followed[name]?.count -= 1
                return state.followed[name]?.count == 0 ? state.followed.removeValue(forKey: name) : nil
            }
        }
    }
}
