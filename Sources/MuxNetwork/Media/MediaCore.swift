import Foundation
import MuxKit

/// The implementation of ``AsyncMedia``: flights, the folder, the limit of downloads, progress streams.
final class MediaCore: Sendable {
    typealias Engine = FlightEngine<MediaName, URL, State>

    /// The state under the engine's lock.
    struct State: Sendable {
        var statistics = MuxRepository.Statistics()
        /// The progress of running downloads.
        var progress: [MediaName: AsyncMedia.Progress] = [:]
        /// Files whose flight has had a request that is not a prefetch.
        var urgent: Set<MediaName> = []
        /// The newest URLs of files with a flight, if the app defines cache keys.
        var urls: [MediaName: URL] = [:]
        /// The digests that requests of the current flight expect, including cancelled requests.
        var digests: [MediaName: Set<String>] = [:]
        /// The digests of verified files, by the name of the file.
        ///
        /// Above 10,000 digests, all are dropped: without its digest, a file is only read again.
        var verified: [String: String] = [:] {
            didSet { if self.verified.count > 10_000 { self.verified = [:] } }
        }
        /// The files with consumers of states.
        var followed: [MediaName: FollowedFile] = [:]
        /// The number of the folder's opening; incremented at the end of a session.
        var opening: UInt64 = 1
        /// Whether the folder was opened with the number ``opening``.
        var isOpen = false
    }

    let engine: Engine
    private let choice: RepositoryChoice
    let folder: MediaFolder
    /// Returns the key of a URL; `nil` if the URL is the key.
    let key: (@Sendable (URL) -> String)?
    private let accepts: [HTTPMediaType]?
    /// Sends the progress and the failures of downloads to the streams of each file.
    let progressResults = Broadcast<MediaName, Result<AsyncMedia.Progress, any Error>>()
    /// Signals changes of the states of a file.
    let stateSignals = Broadcast<MediaName, Void>()
    /// Cancels prefetches of a file.
    let cancellations = Broadcast<MediaName, Void>()
    /// Limits the number of downloads that run at the same time.
    let semaphore: PrioritySemaphore<MediaName>
    private let exchange: MediaDownload.Exchange
    private let retry: RetryPolicy
    private let budget: RetryBudget?

    init(
        folder: MediaFolder,
        accepts: [HTTPMediaType]? = nil,
        key: (@Sendable (URL) -> String)? = nil,
        choice: RepositoryChoice,
        retry: RetryPolicy,
        budget: RetryBudget?,
        exchange: @escaping MediaDownload.Exchange
    ) {
        self.folder = folder
        self.accepts = accepts
        self.key = key
        self.choice = choice
        self.exchange = exchange
        self.retry = retry
        self.budget = budget
        self.semaphore = PrioritySemaphore(limit: folder.limits.parallelDownloads)
        // A download without callers stops; the received part is kept.
        let options = Engine.Options(name: "mux.media", linger: .zero, wouldDeadlock: MuxError.wouldDeadlock)
        self.engine = Engine(State(), options, time: choice.repository.time, spawn: choice.repository.spawn)
        self.engine.setWork { [weak self] name, flight in await self?.fly(name, flight) }
        choice.repository.attach(self)
    }

    var repository: MuxRepository { self.choice.repository }

    /// The names of the files of `url`.
    func name(of url: URL) -> MediaName { MediaName(url, key: self.key?(url)) }

    // MARK: - Requests

    /// The local file of `url`, fetched if absent.
    nonisolated(nonsending) func request(_ url: URL, sha256: String? = nil, isUrgent: Bool = true) async throws -> URL {
        guard !url.isFileURL else { return url }
        do {
            guard HTTPOrigin(url) != nil else { throw MediaError.unsupportedURL }
            try self.choice.check(nil, name: "AsyncMedia")
            let digest = sha256?.lowercased()
            guard digest.map(Self.isDigest) ?? true else { throw MediaError.wrongDigest }
            let name = self.name(of: url)
            for _ in 0..<Self.maximumAttempts {
                let file = try await self.request(name, digest, isUrgent)
                guard let digest, try await !self.verify(name, digest) else { return file }
            }
            throw MediaError.removed
        } catch let error as MediaError {
            throw error.naming(url)
        }
    }

    /// The maximum number of attempts of one request or flight if another program removes files.
    private static let maximumAttempts = 3

    private nonisolated(nonsending) func request(
        _ name: MediaName,
        _ digest: String?,
        _ isUrgent: Bool
    ) async throws -> URL {
        var eventKind: MuxEvent.Kind?
        let landing = try await self.engine.enter(
            name,
            decide: { _ in .fly },
            joined: { state, isRunning in
                if isRunning { state.statistics.joins += 1 } else { state.statistics.misses += 1 }
                if isUrgent { state.urgent.insert(name) }
                if self.key != nil { state.urls[name] = name.url }
                if let digest { state.digests[name, default: []].insert(digest) }
                eventKind = isRunning ? .joined : .missed
            },
            left: { state in
                state.statistics.misses += 1
                eventKind = .missed
            },
            arrived: {
                if isUrgent { self.semaphore.raise(name) }
                if let eventKind { self.tell(eventKind) }
            }
        )
        guard case .output(let file) = landing else { throw CancellationError() }
        return file
    }

    private static func isDigest(_ text: String) -> Bool {
        text.utf8.count == 64 && text.utf8.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
    }

    /// Verifies the digest of a file after its flight, and removes a damaged file.
    ///
    /// The flight may not have checked `digest`: the request may have joined after the flight read the
    /// expected digests, or the requests of the flight may expect different digests. A file with a digest
    /// that another request has verified is kept.
    ///
    /// - Returns: `false` if the file does not exist any more.
    /// - Throws: ``MediaError/wrongDigest``, another ``MediaError``, or an error of ``remove(_:)``.
    private nonisolated(nonsending) func verify(_ name: MediaName, _ digest: String) async throws -> Bool {
        guard self.engine.withState({ $0.verified[name.file] }) != digest else { return true }
        let folder = self.folder
        let found = try await BlockingWork.run { try folder.digest(of: name) }
        guard let found else { return false }
        if found == digest {
            self.engine.withState { $0.verified[name.file] = digest }
            return true
        }
        // A file with the digest that another request expects is not damaged: this request's digest is wrong.
        guard self.engine.withState({ $0.verified[name.file] }) != found else { throw MediaError.wrongDigest }
        try await self.remove(name)
        throw MediaError.wrongDigest
    }

    // MARK: - Flights

    private func fly(_ name: MediaName, _ flight: FlightID) async {
        // A cancelled flight may end without an outcome; its entries are removed here.
        defer { self.engine.withState(unlessInFlight: name) { $0.removeEntries(of: name) } }
        var hasStarted = false
        var removals = 0
        while true {
            do {
                // After another program removed files, the folder must be opened again.
                try await self.open(anew: removals > 0)
                let (file, isFetched) = try await self.obtain(name, flight, &hasStarted)
                let status = try MediaError.mapping { () throws(MuxStoreError) in
                    try self.folder.fileSystem.status(at: file.path)
                }
                guard let size = status?.size else { throw MediaFolder.Removed() }
                return self.completeFlight(file, size, isFetched, name, flight)
            } catch is MediaFolder.Removed {
                removals += 1
                guard removals < Self.maximumAttempts else {
                    return self.failFlight(MediaError.removed, name, flight, hasStarted)
                }
            } catch is MediaFolder.Fenced {
                // After a removal, waiting callers get a file that is fetched after the removal. After a
                // sign-out, the flight has no callers, and `beginWork` returns `false`.
                guard self.engine.beginWork(flight, of: name, { _, _, _, _ in }) else { return }
                guard !Task.isCancelled else { return self.failFlight(CancellationError(), name, flight, hasStarted) }
            } catch {
                return self.failFlight(error, name, flight, hasStarted)
            }
        }
    }

    /// Returns the file on disk; if absent, fetches the file.
    private func obtain(
        _ name: MediaName,
        _ flight: FlightID,
        _ hasStarted: inout Bool
    ) async throws -> (URL, isFetched: Bool) {
        if let file = try await self.findOnDisk(name, flight) { return (file, false) }
        self.noteAbsence(of: name)
        try await self.semaphore.enter(
            name,
            isUrgent: { self.engine.withState { $0.urgent.contains(name) } },
            reportWait: { self.tell(.queued) }
        )
        defer { self.semaphore.leave() }
        self.folder.beginUse(name)
        defer { self.folder.endUse(name) }
        // A recorded digest would belong to a former file, which was removed or evicted.
        self.engine.withState { $0.verified[name.file] = nil }
        // A download that restarts in the same flight counts as the same fetch.
        if !hasStarted {
            self.engine.withState { $0.statistics.fetches += 1 }
            self.tell(.fetchStarted)
        }
        hasStarted = true
        let download = MediaDownload(
            url: { [weak self] in self?.engine.withState { $0.urls[name] } ?? name.url },
            name: name,
            folder: self.folder,
            accepts: self.accepts,
            exchange: self.exchange,
            retryLoop: RetryLoop(
                self.retry,
                host: self.budget.flatMap { budget in name.url.host().map { RetryPolicy.Host($0, budget: budget) } },
                time: self.repository.time
            ),
            updateProgress: { [weak self] partial in self?.recordProgress(partial, name, flight) ?? false },
            digests: { [weak self] in self?.engine.withState { $0.digests[name] } ?? [] },
            recordDigest: { [weak self] digest in
                self?.engine.report(from: flight, of: name) { $0.verified[name.file] = digest }
            }
        )
        return (try await download.run(), true)
    }

    /// The complete file; `nil` if absent.
    ///
    /// If the requests expect digests, a file with any other digest is removed.
    private func findOnDisk(_ name: MediaName, _ flight: FlightID) async throws -> URL? {
        let (wanted, verified) = self.engine.withState { ($0.digests[name] ?? [], $0.verified[name.file]) }
        let (engine, folder) = (self.engine, self.folder)
        return try await BlockingWork.run {
            guard let file = try folder.find(name) else { return nil }
            guard !wanted.isEmpty, !(verified.map(wanted.contains) ?? false) else { return file }
            guard let digest = try folder.digest(of: name) else { return nil }
            guard !wanted.contains(digest) else {
                engine.report(from: flight, of: name) { $0.verified[name.file] = digest }
                return file
            }
            try folder.remove(name)  // damaged: fetched once more
            return nil
        }
    }

    /// Records the progress of a download unless `partial` is `nil`; returns whether the flight is still
    /// current.
    private func recordProgress(_ partial: DownloadStateMachine.Partial?, _ name: MediaName, _ flight: FlightID) -> Bool
    {
        guard let partial else { return self.engine.report(from: flight, of: name) { _ in } }
        let progress = AsyncMedia.Progress(received: partial.offset, total: partial.total)
        let isCurrent = self.engine.report(from: flight, of: name) { $0.progress[name] = progress }
        if isCurrent { self.progressResults.send(.success(progress), to: name) }
        return isCurrent
    }

    private func completeFlight(_ file: URL, _ size: Int64, _ isFetched: Bool, _ name: MediaName, _ flight: FlightID) {
        var isKept = false
        self.engine.land(flight, of: name, failed: false) { state, mayKeep in
            isKept = mayKeep
            // After a fence, the file is removed or will be removed: the callers must not get its URL.
            guard mayKeep else { return .failure(MediaError.removed) }
            if !isFetched { state.statistics.diskHits += 1 }
            state.removeEntries(of: name)
            state.followed[name]?.recordFile(file)
            return .success(file)
        } always: { state in
            if isFetched, !isKept { state.statistics.fenceDrops += 1 }
        }
        if isFetched { self.tell(isKept ? .fetched : .fenceDropped) } else { self.tell(.loaded) }
        guard isKept else { return }
        let progress = AsyncMedia.Progress(received: size, total: size, isComplete: true)
        self.progressResults.send(.success(progress), to: name)
    }

    private func failFlight(_ error: any Error, _ name: MediaName, _ flight: FlightID, _ hasStarted: Bool) {
        // The remaining callers have not cancelled the download: a cancellation becomes `fetchCancelled`.
        let error = error.ofUncancelledWork
        var isKept = false
        self.engine.land(flight, of: name, failed: true) { state, mayKeep in
            isKept = mayKeep
            if mayKeep {
                state.removeEntries(of: name)
                state.followed[name]?.recordFailure(error)
            }
            return .failure(error)
        } always: { state in
            if hasStarted { state.statistics.failures += 1 }
        }
        if hasStarted { self.tell(.fetchFailed, because: error) }
        if isKept { self.progressResults.send(.failure(error), to: name) }
    }

    /// Opens the folder for the current session, unless the folder is open.
    ///
    /// - Parameter anew: Whether the folder is opened again, because another program removed a file or
    ///   folder.
    /// - Throws: ``MediaError``, ``MediaFolder/Fenced`` if the session ended in the meantime, or the error of
    ///   the repository.
    func open(anew: Bool = false) async throws {
        let (opening, isOpen) = self.engine.withState { ($0.opening, $0.isOpen) }
        guard !isOpen || anew else { return }
        let epoch = try await self.repository.currentEpoch()
        let session = MediaFolder.Session(epoch: epoch, store: try await self.repository.storeIdentity())
        let (engine, folder) = (self.engine, self.folder)
        try await BlockingWork.run {
            try folder.open(session, opening: opening, anew: anew) { engine.withState { $0.opening == opening } }
        }
        engine.withState { if $0.opening == opening { $0.isOpen = true } }
    }

    func tell(_ kind: MuxEvent.Kind, because error: (any Error)? = nil) {
        guard let observer = self.repository.observer else { return }
        observer.tell(MuxEvent(kind, name: "AsyncMedia", reason: error.map { MuxEvent.Reason(of: $0) }))
    }
}

extension MediaCore.State {
    /// Removes the entries of a file whose flight has ended.
    fileprivate mutating func removeEntries(of name: MediaName) {
        self.progress[name] = nil
        self.urgent.remove(name)
        self.urls[name] = nil
        self.digests[name] = nil
    }
}

extension MediaCore {
    // MARK: - Looking

    /// The complete file, if present and the folder is open.
    func cached(_ url: URL) -> URL? {
        if url.isFileURL { return url }
        guard !self.choice.isMismatch, self.engine.withState({ $0.isOpen }),
            let file = try? self.folder.find(self.name(of: url))
        else { return nil }
        // After a sign-out during the search, the file belongs to the ended session.
        return self.engine.withState { $0.isOpen } ? file : nil
    }

    /// The progress of the file of `url`: the current progress, then increases.
    func progress(_ url: URL) -> AsyncMedia.ProgressSequence {
        let name = self.name(of: url)
        return AsyncMedia.ProgressSequence(
            changes: { [weak self] in self?.progressResults.changes(of: name) ?? AsyncThrowingStream { nil } },
            present: { [weak self] in
                guard !url.isFileURL else { return AsyncMedia.Progress(isComplete: true) }
                guard let self else { return AsyncMedia.Progress() }
                if let progress = self.engine.withState({ $0.progress[name] }) { return progress }
                guard (try? await self.open()) != nil else { return AsyncMedia.Progress() }
                let folder = self.folder
                return await BlockingWork.run { folder.progress(of: name) }
            }
        )
    }

    // MARK: - Removing

    /// Removes a file, complete or not; a running download restarts.
    nonisolated(nonsending) func remove(_ name: MediaName) async throws {
        try await self.openForRemoval()
        self.engine.fence(name) { state in
            state.verified[name.file] = nil
            state.progress[name] = nil
            state.followed[name]?.recordRemoval()
        }
        self.stateSignals.send((), to: name)
        let folder = self.folder
        try await BlockingWork.run { try folder.remove(name) }
    }

    /// Opens the folder before a removal; throws `MuxError/sessionEnded` if the session ended in the
    /// meantime: the sign-out removes all files.
    private func openForRemoval() async throws {
        do {
            try await self.open()
        } catch is MediaFolder.Fenced {
            throw MuxError.sessionEnded
        }
    }

    /// Removes all files; running downloads restart.
    nonisolated(nonsending) func removeAll() async throws {
        try await self.openForRemoval()
        self.engine.fenceAll { state in
            state.verified = [:]
            state.progress = [:]
            for name in state.followed.keys { state.followed[name]?.recordRemoval() }
        }
        self.stateSignals.sendToAll(())
        let folder = self.folder
        try await BlockingWork.run { try folder.removeAll() }
    }
}

extension MediaCore: SessionParticipant {
    var statistics: MuxRepository.Statistics { self.engine.withState { $0.statistics } }

    var gauges: MuxRepository.Gauges { MuxRepository.Gauges(self.engine) }

    func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void {
        // A download that waits for a download slot has no progress yet, so the names of all flights are
        // recorded. No flight begins before the dismissal, because the engine's lock is held.
        var inFlight: Set<MediaName> = []
        let (inProgress, resumeWaiters) = self.engine.dismissCallers(cancelling: true) { name in
            inFlight.insert(name)
            return true
        } _: { state in
            let inProgress = Set(state.progress.keys)
            var next = State()
            next.statistics = state.statistics
            next.followed = state.followed
            for name in next.followed.keys { next.followed[name]?.recordRemoval() }
            next.opening = state.opening &+ 1
            state = next
            return (.failure(MuxError.sessionEnded), inProgress)
        }
        let receivers = inProgress.union(inFlight).flatMap { self.progressResults.receivers(of: $0) }
        return {
            resumeWaiters()
            for receive in receivers { receive(.failure(MuxError.sessionEnded)) }
            self.stateSignals.sendToAll(())
        }
    }

    func removeTraces() async throws {
        let opening = self.engine.withState { $0.opening }
        let folder = self.folder
        try await BlockingWork.run { try folder.removeEndedSession(opening: opening) }
    }
}

extension MediaCore.State: SelfChecking {
    func leftover() -> String? {
        let counts = [self.progress.count, self.urgent.count, self.urls.count, self.digests.count]
        return counts.allSatisfy { $0 == 0 } ? nil : "ended downloads have left entries: \(counts)"
    }
}
