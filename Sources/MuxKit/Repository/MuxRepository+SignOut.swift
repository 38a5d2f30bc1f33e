extension MuxRepository {
    // MARK: - Entries of the session

    /// Reads an entry of the current session; `nil` without an entry.
    nonisolated func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        if let found = self.loadPromptly(name) { return found.entry }
        return try await self.load([name]).first ?? nil
    }

    /// Reads entries of the current session, in the order of `names`; `nil` for an absent entry.
    @usableFromInline
    nonisolated func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?] {
        let none: [MuxStoredEntry?] = Array(repeating: nil, count: names.count)
        guard !self.isSigningOut else { return none }
        // A store that requests the same entry during a load would recurse without end.
        let outer = Self.namesBeingLoaded
        guard outer.isDisjoint(with: names) else { throw MuxError.calledFromStore }
        let (entries, epoch) = try await Self.$namesBeingLoaded.withValue(outer.union(names)) {
            () -> ([MuxStoredEntry?], UInt64) in
            let entries = try await self.store.load(names)
            // If the last loaded entry belongs to this session, the session continues. Otherwise the store
            // must return its session epoch.
            let known = self.registry.withLock { $0.sessionEpoch }
            if let known, let last = entries.last ?? nil, last.sessionEpoch == known { return (entries, known) }
            return (entries, try await self.store.sessionEpoch())
        }
        guard await self.verifySession(epoch) else { return none }
        return entries.map { $0?.sessionEpoch == epoch ? $0 : nil }
    }

    /// Reads an entry on the caller's thread; `nil` if the store cannot read at once, or if the session may
    /// have ended.
    private nonisolated func loadPromptly(_ name: MuxStoreKey) -> PromptLoad? {
        guard let found = self.promptStore?.loadPromptly(name) else { return nil }
        let isCurrentSession = self.knownEpoch == found.sessionEpoch
        if isCurrentSession { self.watchSession() }
        return isCurrentSession && found.entry?.sessionEpoch ?? found.sessionEpoch == found.sessionEpoch ? found : nil
    }

    /// Ends the session in this process if another process has signed out.
    ///
    /// - Returns: Whether this call has ended the session.
    /// - Throws: The store's error; the session continues.
    @discardableResult
    @usableFromInline
    nonisolated func checkSession() async throws -> Bool {
        guard !self.isSigningOut else { return false }
        // A store that makes requests during this call would recurse without end.
        guard !Self.isCheckingSession else { return false }
        let epoch = try await Self.$isCheckingSession.withValue(true) { try await self.store.sessionEpoch() }
        return await self.compareSession(epoch).isLater
    }

    /// The names of the entries that the current task loads.
    @TaskLocal private static var namesBeingLoaded: Set<MuxStoreKey> = []

    /// Whether the current task is in ``checkSession()``.
    @TaskLocal private static var isCheckingSession = false

    // MARK: - The session

    /// Raises the session epoch to `epoch` without ending the session; no effect if the session epoch is not
    /// lower.
    ///
    /// For a lost session number; see ``adoptSession(_:sparing:)``.
    nonisolated func raiseEpoch(to epoch: UInt64) async throws {
        try await self.lane.run {
            guard try await self.settleEpoch() < epoch else { return }
            try await self.store.raiseSessionEpoch(to: epoch)
            self.registry.withLock { $0.sessionEpoch = epoch }
        }
    }

    /// The epoch of the current session; `nil` before the first read, and during the end of the session.
    package nonisolated var knownEpoch: UInt64? {
        self.registry.withLock { $0.owesSignOut || $0.isEnding ? nil : $0.sessionEpoch }
    }

    /// The epoch of the current session, for callers outside the lane.
    package nonisolated func currentEpoch() async throws -> UInt64 {
        if let known = self.knownEpoch { return known }
        return try await self.lane.run { try await self.settleEpoch() }
    }

    /// The identity of the store: sessions with equal epochs, but of other stores, are other sessions.
    ///
    /// `nil` for a custom store, which has no identity.
    package nonisolated func storeIdentity() async throws -> UInt64? {
        try await (self.store as? any IdentifiedStore)?.identity
    }

    /// Runs `operation` as an operation of ``lane``, to its end even if the caller's task is cancelled.
    ///
    /// - Parameters:
    ///   - admitsNested: Whether a call from inside the operation, such as a sign-out by the store, may run
    ///     at once.
    ///   - operation: The operation.
    /// - Returns: The result; `nil` if `operation` did not run, because the caller is inside an operation
    ///   that does not admit nested operations, or because the wait would deadlock.
    nonisolated(nonsending) func inLane<Success: Sendable>(
        admitsNested: Bool = true,
        _ operation: @escaping @Sendable @concurrent () async -> Success
    ) async -> Success? {
        try? await self.lane.finish(admitsNested: admitsNested, operation)
    }

    /// Reads the session epoch when a participant is added, if the store can return the epoch at once.
    ///
    /// A comparison of epochs detects a sign-out of another process. Without this read, a value that was kept
    /// before such a sign-out would count as a value of the later session.
    ///
    /// - Parameter isMemoryOnly: Whether the participant is in memory only, and does not repeat a failed
    ///   read.
    nonisolated func learnSession(isMemoryOnly: Bool) {
        guard self.registry.withLock({ $0.sessionEpoch == nil }) else { return }
        // Under the lock: the addition of another participant waits for the read.
        self.hasUnreadableSession.withLock { isUnreadable in
            // A participant that was added at the same time may have read the epoch.
            guard self.registry.withLock({ $0.sessionEpoch == nil }), !isUnreadable || !isMemoryOnly else { return }
            guard let epoch = self.store.peekSessionEpoch() else {
                isUnreadable = true
                return
            }
            self.registry.withLock { if $0.sessionEpoch == nil { $0.sessionEpoch = epoch } }
        }
    }

    /// Whether `epoch`, just read from the store, is the epoch of this process's session; ends the session if
    /// `epoch` is later.
    nonisolated func verifySession(_ epoch: UInt64) async -> Bool { await self.compareSession(epoch).isCurrent }

    /// As ``verifySession(_:)``; also returns whether `epoch` was later.
    private nonisolated func compareSession(_ epoch: UInt64) async -> (isCurrent: Bool, isLater: Bool) {
        let (isCurrentSession, isLater) = self.registry.withLock { registry in
            guard !registry.owesSignOut, !registry.isEnding else { return (false, false) }
            let known = registry.sessionEpoch ?? epoch
            registry.sessionEpoch = known
            registry.isEnding = epoch > known
            return (epoch == known, registry.isEnding)
        }
        if isLater, await self.inLane({ self.endedElsewhere(in: epoch) }) == nil {
            // A wait for the lane would not end: this call is inside a sign-out, or the lane waits for this
            // call.
            self.endedElsewhere(in: epoch)
        }
        if isCurrentSession { self.watchSession() }
        return (isCurrentSession, isLater)
    }

    /// Ends the session in this process, because the store is in session `epoch`.
    ///
    /// In the lane, unless the wait for the lane would deadlock; see ``verifySession(_:)``.
    private nonisolated func endedElsewhere(in epoch: UInt64) {
        // This process may have signed out during the wait for the lane.
        guard self.registry.withLock({ ($0.sessionEpoch ?? 0) < epoch }) else {
            return self.registry.withLock { $0.isEnding = false }
        }
        self.registry.withLock { $0.isEnding = true }
        self.endInMemory { registry in
            registry.sessionEpoch = max(registry.sessionEpoch ?? 0, epoch)
            registry.isEnding = false
        }
    }

    /// Watches for sign-outs of other processes, if the store can report such sign-outs.
    private nonisolated func watchSession() {
        guard let watch = self.store.sessionWatch else { return }
        self.sessionWatch.withLock { task in
            guard task == nil else { return }
            task = ReentrantAsyncMutex.outside {
                self.spawn(name: "mux.session") { [weak self] in
                    // While a sign-out is owed, `verifySession` does not raise the known epoch, so the watch
                    // would return at once again.
                    var seen: UInt64 = 0
                    while let known = self?.registry.withLock({ $0.sessionEpoch }),
                        let epoch = try? await watch(max(known, seen)), epoch > max(known, seen)
                    {
                        seen = epoch
                        // Waits for a running sign-out of this process, which may have raised the epoch.
                        _ = await self?.inLane {}
                        _ = await self?.verifySession(epoch)
                    }
                    // The next read from disk starts another watch.
                    self?.sessionWatch.withLock { $0 = nil }
                }
            }
        }
    }

    /// Settles the session, and returns the epoch of the current session; in the lane.
    ///
    /// Completes a sign-out that failed earlier. Then, if another process has signed out, ends the session in
    /// this process; otherwise repeats a failed removal of entries of ended sessions.
    ///
    /// - Parameter report: Receives the failure of the removal.
    /// - Returns: The epoch.
    /// - Throws: The error if the epoch cannot be read or raised.
    nonisolated func settleEpoch(reportingRemovalTo report: inout MuxRepository.SaveReport) async throws -> UInt64 {
        let settled = try await self.settleEpoch()
        let epoch = try await self.store.sessionEpoch()
        // The epoch must never decrease: an emptied folder gets the epoch again.
        if epoch < settled { try await self.store.raiseSessionEpoch(to: settled) }
        if epoch > settled {
            self.endedElsewhere(in: epoch)
        } else if self.registry.withLock({ $0.owesRemoval }), let failure = await self.removeEverything() {
            report.repairFailures.append(failure)
        }
        return max(settled, epoch)
    }

    /// Ends the session in memory; in the lane, with the exception in ``verifySession(_:)``.
    ///
    /// The order is: all participants are cleared, `publish` changes the registry, waiting callers are
    /// resumed. So a resumed caller finds no value of the session in any participant.
    ///
    /// Token providers are cleared before the other participants. Then all participants are cleared again in
    /// reverse order: a cleared participant may have fetched again through a participant that was not cleared
    /// yet. Participants that are added in the meantime are cleared, too: no value that was fetched before
    /// `publish` is kept.
    ///
    /// - Parameters:
    ///   - spared: A participant without values of the session, which is not cleared.
    ///   - publish: Called under the registry's lock.
    private nonisolated func endInMemory(sparing spared: ObjectIdentifier? = nil, _ publish: (inout Registry) -> Void) {
        func inOrder(_ participants: [any SessionParticipant]) -> [any SessionParticipant] {
            let concerned = participants.filter { $0.identity != spared }
            return concerned.filter(\.handsOutTokens) + concerned.filter { !$0.handsOutTokens }
        }
        var resumptions = inOrder(self.participants).map { $0.sessionEnded(sendsEvent: false) }
        let (again, order) = self.registry.withLock { ($0.participants.living(), $0.participants.lastOrder) }
        let others = inOrder(again).reversed().map { $0.sessionEnded(sendsEvent: true) }
        self.tagLog.sessionEnded()
        let late = self.registry.withLock { registry in
            publish(&registry)
            return registry.participants.living(after: order)
        }
        let lateResumptions = inOrder(late).map { $0.sessionEnded(sendsEvent: true) }
        // Other participants may have fetched with the help of a participant that was added late.
        if !late.isEmpty { for participant in inOrder(self.participants) { participant.signOutCompleted() } }
        // In each of the first two passes, the closures of token providers come last. So a fetch is cancelled
        // before a token provider resumes the call of the fetch.
        resumptions = resumptions.reversed() + others + lateResumptions
        for resumeWaiters in resumptions { resumeWaiters() }
    }

    /// Ends the session of one user in memory, as ``endInMemory(sparing:_:)`` ends the session of all users.
    ///
    /// The participants end the session in the order of registration: the map of tokens, the calls that may
    /// have the token, the maps of values. Work that begins in between belongs to the next session, or ends
    /// with this session.
    nonisolated func endSession(of user: EndedUser) {
        // Participants that are added in the meantime may have values already.
        let resumptions = self.growingParticipants.compactMap { $0.sessionEnded(of: user) }
        for resumeWaiters in resumptions { resumeWaiters() }
    }

    /// The participants that are not in memory only, including participants that are added during the
    /// iteration.
    private nonisolated var growingParticipants: some Sequence<any SessionParticipant> {
        sequence(state: UInt64(0)) { last -> [any SessionParticipant]? in
            let participants: [any SessionParticipant]
            (participants, last) = self.registry.withLock { [last] registry in
                (registry.participants.living(after: last, includingMemoryOnly: false), registry.participants.lastOrder)
            }
            return participants.isEmpty ? nil : participants
        }
        .joined()
    }

    /// Removes all entries from disk, after the end of their session; in the lane.
    ///
    /// - Returns: The failure; the next save then tries again.
    @discardableResult
    private nonisolated func removeEverything() async -> (any Error)? {
        do {
            try await self.store.removeEverything()
            self.registry.withLock { $0.owesRemoval = false }
            return nil
        } catch {
            self.registry.withLock { $0.owesRemoval = true }
            return error
        }
    }

    /// Completes a sign-out whose rise of the epoch failed earlier; in the lane.
    ///
    /// Reads the epoch from the store if this process does not know the epoch yet.
    ///
    /// - Returns: The epoch of the current session.
    /// - Throws: The error if the epoch cannot be read or raised.
    nonisolated func settleEpoch() async throws -> UInt64 {
        let (known, owes, owed) = self.registry.withLock { ($0.sessionEpoch, $0.owesSignOut, $0.owedEpoch) }
        if let known, !owes { return known }
        let found = try await self.store.sessionEpoch()
        var epoch = found
        if owes {
            // An outbox may have noted a later epoch, which the failed sign-out announced.
            var announced: UInt64 = 0
            for participant in self.growingParticipants { announced = max(announced, await participant.lastSession()) }
            epoch = max(found, known ?? 0, announced, try owed ?? Self.next(after: max(found, known ?? 0)))
        }
        // Otherwise the entries are of the present session, which another process has begun.
        if found < epoch {
            try await self.store.raiseSessionEpoch(to: epoch)
            // If the removal fails, the remaining entries are invalid already.
            await self.removeEverything()
        }
        let settled = epoch
        self.registry.withLock { registry in
            registry.sessionEpoch = settled
            registry.endOwedSignOut()
        }
        return settled
    }

    /// Signs out: removes all data of the session from memory and disk; earlier work cannot bring data back.
    ///
    /// The steps, in this order:
    ///
    /// 1. The stored tokens of runners, and the stored changes of outboxes, become invalid.
    /// 2. The session epoch is raised durably.
    /// 3. Memory is cleared. Waiting requests throw ``MuxError/sessionEnded``, fetches are cancelled, and
    ///    waiting callers of runners throw ``RunnerError/signedOut``.
    /// 4. All entries of the store are removed, including entries of multiplexers that this process does not
    ///    have.
    /// 5. The stored tokens of runners, and the files of media and caches, are removed.
    /// 6. Values that arrived during these steps are removed.
    /// 7. All entries of a shared store are invalidated on all machines.
    ///
    /// If the process ends after step 2, the next process reads no data of the old session from disk. Entries
    /// in a shared store stay valid until step 7.
    ///
    /// The sign-out includes every living multiplexer and runner of the repository, registered or not, and
    /// even if initialised or used during the sign-out. A sign-in that begins after step 3 belongs to the
    /// next session, and its tokens stay.
    ///
    /// An outbox of `MuxOutbox` drops its changes. If the policy of the outbox requires, the outbox instead
    /// refuses the sign-out before step 1: if any change is left, also a failed change, or if its file cannot
    /// be read.
    ///
    /// Another process with the same folder detects the sign-out at the latest at its next access to the
    /// disk. Such an access is a save, or a request without a value in memory. See <doc:SeveralProcesses>.
    ///
    /// - Returns: The failures. Apart from a refusal, the failures have no effect in this process, which does
    ///   not read the remaining entries. A later launch can read remaining entries and tokens only if the
    ///   epoch could not be raised. The next save completes a failed rise of the epoch, and a failed removal
    ///   of the entries; the client of the shared store repeats the invalidation. A save does not remove
    ///   tokens and files: remaining tokens stay at most until other tokens are stored. Remaining files stay
    ///   at most until their folder is opened in the next session.
    /// - Complexity: O(*n*) in the number of values in memory; a few file-system calls for the entries on
    ///   disk, in any number.
    @discardableResult
    public nonisolated func clearAll() async -> MuxRepository.ClearReport {
        let done = await self.inLane(admitsNested: false) {
            var report = MuxRepository.ClearReport()
            var raised: UInt64?
            for participant in self.growingParticipants {
                if let refusal = await participant.refusalOfSignOut() { report.refuse(because: refusal) }
            }
            guard !report.isRefused else { return report }
            // From now on, an outbox refuses changes of this session.
            let former = self.registry.withLock { registry in
                defer { (registry.owesSignOut, registry.owedEpoch) = (true, nil) }
                return (owes: registry.owesSignOut, epoch: registry.owedEpoch)
            }
            var last: UInt64 = 0
            // Again: a change may have been added before the flag was set.
            for participant in self.growingParticipants {
                if let refusal = await participant.refusalOfSignOut() { report.refuse(because: refusal) }
                last = max(last, await participant.lastSession())
            }
            guard !report.isRefused else {
                self.registry.withLock { ($0.owesSignOut, $0.owedEpoch) = (former.owes, former.epoch) }
                return report
            }
            do {
                let sessionEpoch = self.registry.withLock { $0.sessionEpoch }
                let known = max(last, sessionEpoch ?? 0, former.epoch ?? 0)
                let found: Result<UInt64, any Error>
                do { found = .success(try await self.store.sessionEpoch()) } catch { found = .failure(error) }
                let epoch = try Self.next(after: max(known, (try? found.get()) ?? 0))
                // If no epoch is known, the announced epoch may be too low: tokens of later sessions would
                // stay.
                if sessionEpoch == nil, known == 0 { _ = try found.get() }
                // First, because the system may empty the repository's folder, and remove the epoch; also
                // after a failed read, because the process may end before the rise. A failure is not
                // reported here: `removeTraces` below accesses the same state and reports.
                for participant in self.growingParticipants { try? await participant.sessionWillEnd(before: epoch) }
                _ = try found.get()
                try await self.store.raiseSessionEpoch(to: epoch)
                raised = epoch
            } catch {
                report.failures.append(error)
            }
            self.sharedStore?.addInvalidations(of: [.everything])
            self.endInMemory { registry in
                guard let raised else { return }
                registry.sessionEpoch = max(registry.sessionEpoch ?? 0, raised)
                registry.endOwedSignOut()
            }
            if let failure = await self.removeEverything() { report.failures.append(failure) }
            for participant in self.growingParticipants {
                do {
                    try await participant.removeTraces()
                } catch {
                    report.failures.append(error)
                }
            }
            for participant in self.participants {
                participant.signOutCompleted()
                report.droppedChanges += participant.takeDroppedChanges()
            }
            self.releaseSavedParticipants()
            // Again: a fetch that began before its multiplexer was cleared may have put its value in the
            // shared store.
            self.sharedStore?.addInvalidations(of: [.everything])
            do {
                try await self.sharedStore?.confirmInvalidations(of: [.everything])
            } catch {
                report.failures.append(error)
            }
            return report
        }
        if let done { return done }
        var report = MuxRepository.ClearReport()
        report.refuse(because: MuxError.calledFromStore)
        return report
    }

    /// Signs out: another name of ``clearAll()``.
    ///
    /// Tokens of the repository's runners are removed, too. ``OAuthDependentRunner/signOut()`` is the same
    /// call.
    ///
    /// - Returns: The result of ``clearAll()``.
    @discardableResult
    public nonisolated func signOut() async -> MuxRepository.ClearReport { await self.clearAll() }

    /// Ends the session in this process, because another process has ended all sessions before `epoch`.
    ///
    /// - Parameters:
    ///   - epoch: The epoch of the first session that has not ended.
    ///   - spared: A participant without values of an ended session, which is not cleared.
    /// - Throws: The store's error; the session has ended nevertheless. ``MuxError/calledFromStore`` if the
    ///   call is inside another sign-out, or would deadlock; the session has not ended.
    nonisolated func endSession(before epoch: UInt64, sparing spared: ObjectIdentifier? = nil) async throws {
        let result = await self.inLane(admitsNested: false) { () -> Result<Void, any Error> in
            guard self.registry.withLock({ ($0.sessionEpoch ?? 0) < epoch }) else { return .success(()) }
            self.registry.withLock { registry in
                // An owed sign-out of this process raises the epoch in any case.
                if !registry.owesSignOut || registry.owedEpoch != nil {
                    registry.owedEpoch = max(registry.owedEpoch ?? 0, epoch)
                }
                registry.owesSignOut = true
            }
            self.sharedStore?.addInvalidations(of: [.everything])
            defer { self.sharedStore?.sendInvalidationsLater() }
            let found: UInt64
            do {
                found = try await self.store.sessionEpoch()
                if found < epoch { try await self.store.raiseSessionEpoch(to: epoch) }
            } catch {
                self.endInMemory(sparing: spared) { _ in }
                return .failure(error)
            }
            self.endInMemory(sparing: spared) { registry in
                registry.sessionEpoch = max(found, epoch)
                registry.endOwedSignOut()
            }
            // The process that raised the epoch also removes the entries. A removal here could remove entries
            // of the next session.
            if found < epoch { await self.removeEverything() }
            return .success(())
        }
        guard let result else { throw MuxError.calledFromStore }
        try result.get()
    }

    /// Notifies the participants with the same `cacheKey`, except `one`, of cleared entries.
    nonisolated func tellOthers(_ cleared: ClearedEntries, but one: any SessionParticipant) {
        let others = self.registry.withLock { $0.participants.living(in: cleared.domain) }
        for participant in others where participant !== one { participant.cleared(cleared) }
    }

    /// The epoch after `epoch`.
    ///
    /// - Throws: ``MuxError/tooManySessions`` after the greatest epoch.
    private static func next(after epoch: UInt64) throws -> UInt64 {
        guard epoch < .max else { throw MuxError.tooManySessions }
        return epoch + 1
    }
}
