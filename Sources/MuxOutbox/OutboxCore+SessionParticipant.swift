import Foundation
import MuxKit

extension OutboxCore: SessionParticipant {
    func lastSession() async -> UInt64 { await self.updateEvenWithoutFile { $0.machine.session } }

    /// The refusal of a sign-out, if the policy requires a refusal, and the outbox has changes or cannot read
    /// the file.
    func refusalOfSignOut() async -> (any Error)? {
        guard self.policy.signOut == .isRefused else { return nil }
        let (count, _) = await self.update { log throws(MuxStoreError) in
            try log.checkVersion()
            return log.machine.count
        }
        switch count {
        case .success(0): return nil
        case .success(let count): return MuxOutboxError.changesPending(count)
        case .failure(let error): return MuxOutboxError.notStored(underlying: error)
        }
    }

    /// Drops the changes, in memory and durably on disk.
    ///
    /// The repository raises its session afterwards, so that no later start of the app finds a change of the
    /// ended session.
    func sessionWillEnd(before epoch: UInt64) async throws {
        // The report of this sign-out must not contain changes that were dropped earlier.
        _ = self.takeDroppedChanges()
        try await self.updateEvenWithoutFile { log in
            Result { () throws(MuxStoreError) in try log.beginSession(epoch) }
        }.get()
    }

    /// Cancels the running attempts.
    func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void {
        self.cancelSenders()
        return {}
    }

    /// Removes the dropped changes from the file, if ``sessionWillEnd(before:)`` did not remove the changes.
    func removeTraces() async throws {
        try await self.updateEvenWithoutFile { log in
            Result { () throws(MuxStoreError) in try log.saveSession() }
        }.get()
    }

    func takeDroppedChanges() -> Int {
        self.state.withLock { state in
            defer { state.dropped = 0 }
            return state.dropped
        }
    }
}

extension OutboxCore: Inspectable {
    func faults() async -> [String] {
        await self.updateEvenWithoutFile { log in
            [log.machine.violation, log.machine.senderCount > 0 && self.waitCount == 0 ? "a lane is left" : nil]
        }.compactMap(\.self)
    }
}
