extension MuxRepository {
    // MARK: - Entries of the session

    /// Reads an entry of the present session; `nil` if there is none.
    nonisolated func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        let (known, owes) = self.registry.withLock { ($0.sessionEpoch, $0.owesSignOut) }
        guard !owes else { return nil }
        if known == nil {
            // Whatever is fetched from here on belongs to this session, even if another process ends it meanwhile.
            let epoch = try await self.store.sessionEpoch()
            self.registry.withLock { if $0.sessionEpoch == nil { $0.sessionEpoch = epoch } }
        }
        guard let entry = try await self.store.load(name) else { return nil }
        // A sign-out may have come while the store was reading.
        let isOfThisSession = self.registry.withLock { registry in
            !registry.owesSignOut && entry.sessionEpoch >= registry.sessionEpoch ?? 0
        }
        return isOfThisSession ? entry : nil
    }

    /// Removes entries from disk; in the lane.
    nonisolated func remove(_ names: [MuxStoreKey]) async throws {
        _ = try await self.settledEpoch()
        try await self.store.remove(names, durability: self.durability)
    }

    /// Removes all entries of a domain from disk; in the lane.
    nonisolated func removeAll(domain: String) async throws {
        _ = try await self.settledEpoch()
        try await self.store.removeAll(domain: domain, durability: self.durability)
    }

    // MARK: - The session

    /// Raises the number of the session, which goes on, to one that was found elsewhere.
    nonisolated func raiseEpoch(to epoch: UInt64) async throws {
        try await self.lane.run {
            guard try await self.settledEpoch() < epoch else { return }
            try await self.store.raiseSessionEpoch(to: epoch)
            self.registry.withLock { $0.sessionEpoch = epoch }
        }
    }

    /// The number of the present session, for those who are not in the lane.
    package nonisolated func currentEpoch() async throws -> UInt64 {
        let (known, owes) = self.registry.withLock { ($0.sessionEpoch, $0.owesSignOut) }
        if let known, !owes { return known }
        return try await self.lane.run { try await self.settledEpoch() }
    }

    /// Runs `operation` when all that came before have ended, and to its end, whatever becomes of the caller's task.
    nonisolated(nonsending) func inLane<Success: Sendable>(
        _ operation: @escaping @Sendable @concurrent () async -> Success
    ) async -> Success {
        await self.lane.run { await finishing(operation) }
    }

    /// The number of the present session, after a look at the disk; in the lane.
    ///
    /// Where another process has signed out, the session ends in this one, too.
    nonisolated func settledEpoch(raisedBySibling report: inout MuxSaveReport) async throws -> UInt64 {
        let known = self.registry.withLock { $0.sessionEpoch }
        let settled = try await self.settledEpoch()
        let epoch = try await self.store.sessionEpoch()
        guard let known, epoch > max(known, settled) else {
            try await self.removeOwed(into: &report)
            return settled
        }
        let farewell = Self.forget(self.participants)
        // Before: who hears of it may come back at once.
        self.registry.withLock { $0.sessionEpoch = epoch }
        farewell()
        return epoch
    }

    /// Ends the session in memory: first all forget it, then those who wait hear of it, and find nothing of it anywhere.
    ///
    /// - Returns: What tells those who wait.
    private static func forget(_ participants: [any SessionParticipant]) -> () -> Void {
        // Tokens first, and all of them there and back: who asks in between may have obtained, for the next session, something
        // that one had forgotten from another that had not.
        let inOrder = participants.filter(\.handsOutTokens) + participants.filter { !$0.handsOutTokens }
        let farewells = inOrder.map { $0.sessionEnded(isTold: false) }
        let others = inOrder.reversed().map { $0.sessionEnded(isTold: true) }
        // Fetches are called off before those hear of it who wait for a token inside them.
        return { for farewell in farewells.reversed() + others { farewell() } }
    }

    /// Removes what an earlier sign-out could not remove; in the lane.
    private nonisolated func removeOwed(into report: inout MuxSaveReport) async throws {
        guard self.registry.withLock({ $0.owesRemoval }) else { return }
        do {
            try await self.store.removeEverything()
            self.registry.withLock { $0.owesRemoval = false }
        } catch {
            report.repairFailures.append(error)
        }
    }

    /// The number of the present session; in the lane.
    ///
    /// - Throws: What the store threw, also while finishing a sign-out that failed earlier.
    nonisolated func settledEpoch() async throws -> UInt64 {
        let (known, owes) = self.registry.withLock { ($0.sessionEpoch, $0.owesSignOut) }
        if let known, !owes { return known }
        var epoch = try await self.store.sessionEpoch()
        if owes {
            epoch = try Self.next(after: epoch)
            try await self.store.raiseSessionEpoch(to: epoch)
            // What is left is void already.
            let isRemoved = (try? await self.store.removeEverything()) != nil
            self.registry.withLock { $0.owesRemoval = !isRemoved }
        }
        let settled = epoch
        self.registry.withLock { registry in
            registry.sessionEpoch = settled
            registry.owesSignOut = false
        }
        return settled
    }

    /// Signs out: no trace of the session is left, in memory or on disk, and nothing that began before can bring it back.
    ///
    /// In this order: runners note beside their tokens that these are void; the session epoch is raised, durably; memory is
    /// dropped; requests that wait throw ``MuxError/sessionEnded``, fetches are cancelled, callers of runners are signed out;
    /// everything in the repository's folder is removed, also of multiplexers that this process never touched; the tokens of
    /// runners are removed. If the process dies in between, the next one reads nothing of the old session and finishes the
    /// removal.
    ///
    /// - Returns: What could not be removed. Ignoring it is fine: this process does not read what is left, and the next save
    ///   tries again.
    /// - Complexity: The time of a few file-system calls, however many entries there are.
    @discardableResult
    public nonisolated func clearAll() async -> MuxClearReport {
        await self.inLane {
            var report = MuxClearReport()
            var raised: UInt64?
            let participants = self.participants
            self.registry.withLock { $0.owesSignOut = true }
            do {
                let epoch = try Self.next(after: await self.store.sessionEpoch())
                // First, because the system may empty the repository's folder, and the number with it. If it fails, the
                // removal below will, and reports it.
                for participant in participants { try? await participant.sessionWillEnd(before: epoch) }
                try await self.store.raiseSessionEpoch(to: epoch)
                raised = epoch
            } catch {
                report.failures.append(error)
            }
            Self.forget(participants)()
            // Not before: until then nobody outside the lane may learn the new session's number.
            if let raised {
                self.registry.withLock { registry in
                    registry.sessionEpoch = raised
                    registry.owesSignOut = false
                }
            }
            do {
                try await self.store.removeEverything()
                self.registry.withLock { $0.owesRemoval = false }
            } catch {
                self.registry.withLock { $0.owesRemoval = true }
                report.failures.append(error)
            }
            for participant in participants {
                do {
                    try await participant.removeTraces()
                } catch {
                    report.failures.append(error)
                }
            }
            return report
        }
    }

    /// Ends the session here, because it was found out that sessions before `epoch` were ended elsewhere.
    ///
    /// - Parameters:
    ///   - epoch: The number of the first session that has not ended.
    ///   - spared: The participant that has nothing of an ended session, and goes on; `nil` if there is none.
    /// - Throws: What the store threw; the session has ended nevertheless.
    nonisolated func endSession(before epoch: UInt64, sparing spared: ObjectIdentifier? = nil) async throws {
        let result: Result<Void, any Error> = await self.inLane {
            guard self.registry.withLock({ ($0.sessionEpoch ?? 0) < epoch }) else { return .success(()) }
            self.registry.withLock { $0.owesSignOut = true }
            let concerned = self.participants.filter { $0.identity != spared }
            let found: UInt64
            do {
                found = try await self.store.sessionEpoch()
                if found < epoch { try await self.store.raiseSessionEpoch(to: epoch) }
            } catch {
                Self.forget(concerned)()
                return .failure(error)
            }
            Self.forget(concerned)()
            self.registry.withLock { registry in
                registry.sessionEpoch = max(found, epoch)
                registry.owesSignOut = false
            }
            // Where it was raised by somebody else, they remove what is left, and may have begun the next session.
            guard found < epoch else { return .success(()) }
            let isRemoved = (try? await self.store.removeEverything()) != nil
            self.registry.withLock { $0.owesRemoval = !isRemoved }
            return .success(())
        }
        try result.get()
    }

    /// Tells all participants but one what was cleared; in the lane.
    nonisolated func tellOthers(_ cleared: ClearedEntries, but one: any SessionParticipant) {
        for participant in self.participants where participant !== one { participant.cleared(cleared) }
    }

    private static func next(after epoch: UInt64) throws -> UInt64 {
        let (next, overflow) = epoch.addingReportingOverflow(1)
        guard !overflow else { throw MuxError.tooManySessions }
        return next
    }
}
