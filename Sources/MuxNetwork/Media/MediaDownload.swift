import Foundation
import MuxKit

/// The download of one flight of ``AsyncMedia``: sends requests for one file until the file is complete.
struct MediaDownload: Sendable {
    /// Performs one exchange, with credentials if the app provides credentials.
    typealias Exchange = @Sendable @concurrent (HTTPCall, MediaSink) async throws -> Void

    /// Returns the newest URL of the file: earlier signed URLs may have expired.
    let url: @Sendable () -> URL
    let name: MediaName
    let folder: MediaFolder
    let accepts: [HTTPMediaType]?
    let exchange: Exchange
    let retryLoop: RetryLoop
    /// Records the progress, if any; returns whether the flight is current.
    let updateProgress: @Sendable (DownloadStateMachine.Partial?) -> Bool
    /// Returns the digests that requests of the flight expect, including cancelled requests.
    let digests: @Sendable () -> Set<String>

    /// Receives the digest of the verified file.
    let recordDigest: @Sendable (String) -> Void

    /// The minimum number of new bytes on disk for another attempt without a pause after an interruption.
    ///
    /// Without a minimum, a server that sends few bytes and closes each connection would get many requests. A
    /// complete response with a part of the file is no interruption: the next request follows at once.
    private static let minimumGain: Int64 = 4096

    /// Downloads the file, with retries.
    func run() async throws -> URL {
        var machine = DownloadStateMachine(limit: self.folder.limits.maximumFileBytes)
        do {
            return try await self.retryLoop.run { _ in .output(try await self.performAttempts(&machine)) }
        } catch {
            let failure = (error as? RetryError)?.lastError ?? error
            // Before the first attempt, nothing is known about the part on disk.
            if machine.hasBegun { await self.removeUselessPart(after: failure, machine.partial) }
            throw (failure as? HTTPError)?.naming(Self.request(self.url())) ?? failure
        }
    }

    /// The method, the host and the path, for error texts.
    static func request(_ url: URL) -> String { Self.call(url).summary }

    /// A request for the file; error texts contain the path, without the query, which may hold a signature.
    private static func call(_ url: URL) -> HTTPCall {
        var call = HTTPCall(url: url, headers: [.acceptEncoding: "identity"])
        call.pathTemplate = url.path()
        return call
    }

    /// Performs attempts until the file is complete.
    ///
    /// After an interruption, the next attempt starts at once if the last attempt gained at least
    /// ``minimumGain`` bytes.
    private func performAttempts(_ machine: inout DownloadStateMachine) async throws -> URL {
        while true {
            do {
                if let file = try await self.attempt(&machine) { return file }
            } catch HTTPError.transport(let error, let request) {
                guard machine.gained >= Self.minimumGain else { throw HTTPError.transport(error, request: request) }
            }
        }
    }

    /// Performs one exchange for the file, or for the remaining bytes of the file.
    ///
    /// - Returns: The complete file; `nil` if another request is needed.
    /// - Throws: The error of the attempt; this method does not remove the received part.
    private func attempt(_ machine: inout DownloadStateMachine) async throws -> URL? {
        if let file = try await BlockingWork.run({ try self.folder.find(self.name) }) { return file }
        let (file, partial) = try await BlockingWork.run { try self.folder.openPartial(self.name, self.isCurrent) }
        let result = await Result<_, any Error> { try await self.attempt(&machine, file, partial) }
            // A `CancellationError` without a cancellation of this task is a failure of the transport.
            .mapError { Task.isCancelled ? $0 : $0.ofUncancelledWork }
        // Unlocks explicitly. Otherwise the lock would end with the last reference to `file`, which another
        // thread may release only after the next attempt has tried to lock the file.
        await BlockingWork.run { self.folder.unlock(file) }
        return try result.get()
    }

    /// Performs one exchange for the remaining bytes of an open file.
    private func attempt(
        _ machine: inout DownloadStateMachine,
        _ file: OpenFile,
        _ partial: DownloadStateMachine.Partial
    ) async throws -> URL? {
        machine.beginAttempt(with: partial)
        guard self.updateProgress(machine.partial) else { throw MediaFolder.Fenced() }
        let url = self.url()
        var call = Self.call(url)
        call.timeout = self.folder.limits.silence
        switch machine.nextStep {
        case .finish: return try await self.complete(file)
        case .askForAll: break
        case .ask(let offset, let validator):
            call.headers[.range] = "bytes=\(offset)-"
            call.headers[.ifRange] = validator
        }
        let sink = MediaSink(machine, call, file, of: self)
        let result = await Result<_, any Error> { try await self.exchange(call, sink) }
        machine = await BlockingWork.run { sink.close() }
        do {
            try result.get()
        } catch MediaSink.EarlyEnd.finish {
            return try await self.complete(file)
        } catch MediaSink.EarlyEnd.askAgain {
            try await BlockingWork.run { try self.folder.restart(self.name, file, nil, self.isCurrent) }
            return nil
        } catch {
            // Some servers reset the connection after the last byte.
            guard case HTTPError.transport = error, machine.ended(inOrder: false) == .finish else { throw error }
            return try await self.complete(file)
        }
        switch machine.ended(inOrder: true) {
        case .finish: return try await self.complete(file)
        case .askForRest: return nil
        case .fail: throw MediaError.brokeOff
        }
    }

    /// Removes the growing file if no later download can resume the file, or if the server has no such file.
    private func removeUselessPart(after error: any Error, _ partial: DownloadStateMachine.Partial) async {
        let isWorthless =
            switch (error, (error as? MediaError)?.reason) {
            case (is MediaFolder.Fenced, _), (is MediaFolder.Removed, _), (_, .fetchedElsewhere): false
            case (_, .contradiction), (_, .tooLarge), (_, .wrongDigest): true
            // All bytes are on disk, and the file is too small. In other cases of `tooSmall`, the announced
            // length was too small, and an earlier part on disk may still be resumed.
            case (_, .tooSmall) where partial.offset == partial.total: true
            case (HTTPError.status(let error), _) where error.status == .notFound || error.status == .gone: true
            default: partial.offset == 0 || partial.validator == nil
            }
        guard isWorthless else { return }
        try? await BlockingWork.run { try self.folder.discard(self.name, self.isCurrent) }
    }

    private func complete(_ file: OpenFile) async throws -> URL {
        let wanted = self.digests()
        return try await BlockingWork.run {
            try self.folder.requireSize(of: file)
            if !wanted.isEmpty {
                let digest = try self.folder.digest(of: file)
                guard wanted.contains(digest) else { throw MediaError.wrongDigest }
                self.recordDigest(digest)
            }
            return try self.folder.complete(self.name, file, self.isCurrent)
        }
    }

    private func isCurrent() -> Bool { self.updateProgress(nil) }
}
