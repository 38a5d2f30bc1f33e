import Foundation
import MuxKit

extension MediaCore {
    // MARK: - Looking

    /// The complete file, if the folder was opened and it is there.
    func cached(_ url: URL) -> URL? {
        if url.isFileURL { return url }
        guard self.engine.withState({ $0.isOpen }), let file = self.folder.find(MediaName(url)) else { return nil }
        return self.engine.withState { $0.isOpen } ? file : nil
    }

    /// How far the file of `url` is, from its beginning on disk to every step.
    func progress(_ url: URL) -> MediaProgressSequence {
        let name = MediaName(url)
        return MediaProgressSequence(
            changes: { self.watchers.changes(of: name) },
            present: {
                guard !url.isFileURL else { return MediaProgress(isComplete: true) }
                if let progress = self.engine.withState({ $0.progress[name] }) { return progress }
                guard (try? await self.open()) != nil else { return MediaProgress() }
                let folder = self.folder
                return await BlockingWork.run { folder.progress(of: name) }
            }
        )
    }

    // MARK: - Removing

    /// Removes what there is of a file; a download that runs starts again.
    nonisolated(nonsending) func remove(_ name: MediaName) async throws {
        try await self.openForRemoval()
        self.engine.fence(name) { state in
            state.verified[name.file] = nil
            state.progress[name] = nil
        }
        let folder = self.folder
        try await BlockingWork.run { Result { try folder.remove(name) } }.get()
    }

    /// Opens the folder; a session that ends meanwhile removes everything itself.
    private func openForRemoval() async throws {
        do {
            try await self.open()
        } catch is MediaFolder.Fenced {
            throw MuxError.sessionEnded
        }
    }

    /// Removes all files; downloads that run start again.
    nonisolated(nonsending) func removeAll() async throws {
        try await self.openForRemoval()
        self.engine.fenceAll { state in
            state.verified = [:]
            state.progress = [:]
        }
        let folder = self.folder
        try await BlockingWork.run { Result { try folder.removeAll() } }.get()
    }
}

extension MediaCore: SessionParticipant {
    var statistics: MuxStatistics { self.engine.withState { $0.statistics } }

    func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        let (running, answerWaiters) = self.engine.dismissed(cancelling: true) { state in
            let running = Array(state.progress.keys)
            let statistics = state.statistics
            let opening = state.opening
            state = State()
            state.statistics = statistics
            state.opening = opening &+ 1
            return (.failure(MuxError.sessionEnded), running)
        }
        let failure = self.watchers.failure(of: running, MuxError.sessionEnded)
        return {
            answerWaiters()
            failure()
        }
    }

    func removeTraces() async throws {
        let opening = self.engine.withState { $0.opening }
        let folder = self.folder
        try await BlockingWork.run { Result { try folder.end(opening: opening) } }.get()
    }
}
