import Foundation
import MuxKit

extension OutboxCore: SessionParticipant {
    /// The refusal of a sign-out while the outbox has changes, if the policy requires the refusal.
    func refusalOfSignOut() async -> (any Error)? {
        guard self.policy.signOut == .isRefused else { return nil }
        let count = await self.finish { $0.machine.count }
        return count > 0 ? MuxOutboxError.changesPending(count) : nil
    }

    /// Drops the changes, in memory and durably on disk: before the repository raises its session, so that no
    /// later start of the app finds a change of the ended session.
    func sessionWillEnd(before epoch: UInt64) async throws {
        try await self.finish { log in
            Result { () throws(MuxStoreError) in try log.beginSession(max(epoch, log.machine.session &+ 1)) }
        }.get()
    }

    /// Cancels the running attempts.
    func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        self.cancelSenders()
        return {}
    }

    /// Rewrites the log, so that no byte of a dropped change stays on disk.
    func removeTraces() async throws {
        try await self.finish { log in Result { () throws(MuxStoreError) in try log.rewrite() } }.get()
    }

    func takeDroppedChanges() -> Int {
        self.state.withLock { state in
            defer { state.dropped = 0 }
            return state.dropped
        }
    }
}
