extension MuxRepository {
    // MARK: - Entries of the session

    /// Reads an entry of the current session; `nil` if there is none.
    nonisolated func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        if let found = self.loadPromptly(name) { return found.entry }
        return try await self.load([name]).first ?? nil
    }

    /// Reads entries of the current session, in the order of their names; `nil` for one that there is not.
    @usableFromInline
    nonisolated func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?] {
        let none: [MuxStoredEntry?] = Array(repeating: nil, count: names.count)
        guard !self.registry.withLock({ $0.owesSignOut || $0.isEnding }) else { return none }
        // A store that requests the entry that it is loading would recurse without end.
        let outer = Self.namesBeingLoaded
        guard outer.isDisjoint(with: names) else { throw MuxError.calledFromStore }
        let (entries, epoch) = try await Self.$namesBeingLoaded.withValue(outer.union(names)) {
            () -> ([MuxStoredEntry?], UInt64) in
            let entries = try await self.store.load(names)
            // An entry of this session proves that the store is still in it; otherwise ask the store.
            let known = self.registry.withLock { $0.sessionEpoch }
            if let known, let last = entries.last ?? nil, last.sessionEpoch == known { return (entries, known) }
            return (entries, try await self.store.sessionEpoch())
        }
        guard await self.isPresent(epoch) else { return none }
        return entries.map { $0?.sessionEpoch == epoch ? $0 : nil }
    }

    /// Reads an entry on the caller's thread; `nil` if that might take long, or if the session is in question.
    private nonisolated func loadPromptly(_ name: MuxStoreKey) -> PromptLoad? {
        guard let found = self.promptStore?.loadPromptly(name) else { return nil }
        let isPresent = self.registry.withLock { registry in
            !registry.owesSignOut && !registry.isEnding && registry.sessionEpoch == found.sessionEpoch
        }
        if isPresent { self.watchSession() }
        return isPresent && found.entry?.sessionEpoch ?? found.sessionEpoch == found.sessionEpoch ? found : nil
    }

    /// Ends the session here if another process has signed out.
    ///
    /// - Throws: The store's error; the session goes on.
    @usableFromInline
    nonisolated func checkSession() async throws {
        guard !self.registry.withLock({ $0.owesSignOut || $0.isEnding }) else { return }
        // A store that makes requests in reply would recurse without end.
        guard !Self.isCheckingSession else { return }
        let epoch = try await Self.$isCheckingSession.withValue(true) { try await self.store.sessionEpoch() }
        _ = await self.isPresent(epoch)
    }

    /// The names that the current task loads.
    @TaskLocal private static var namesBeingLoaded: Set<MuxStoreKey> = []

    /// Whether the current task is in ``checkSession()``.
    @TaskLocal private static var isCheckingSession = false

    // MARK: - The session

    /// Raises the epoch of the session, which goes on, to one that was found elsewhere.
    nonisolated func raiseEpoch(to epoch: UInt64) async throws {
        try await self.lane.run {
            guard try await self.settledEpoch() < epoch else { return }
            try await self.store.raiseSessionEpoch(to: epoch)
            self.registry.withLock { $0.sessionEpoch = epoch }
        }
    }

    /// The epoch of the current session, for callers outside the lane.
    package nonisolated func currentEpoch() async throws -> UInt64 {
        let known = self.registry.withLock { $0.owesSignOut || $0.isEnding ? nil : $0.sessionEpoch }
        if let known { return known }
        return try await self.lane.run { try await self.settledEpoch() }
    }

    /// Runs `operation` after all earlier ones, and to its end even if the caller's task is cancelled.
    ///
    /// - Parameters:
    ///   - admitsNested: Whether the store may sign out inside.
    ///   - operation: The operation.
    /// - Returns: Its result; `nil` if it did not run, because it was called inside one that admits none.
    nonisolated(nonsending) func inLane<Success: Sendable>(
        admitsNested: Bool = true,
        _ operation: @escaping @Sendable @concurrent () async -> Success
    ) async -> Success? {
        try? await self.lane.finish(admitsNested: admitsNested, operation)
    }

    /// Reads the session epoch before the first value is stored, if the store can return it at once.
    ///
    /// A sign-out of another process is noticed by comparing epochs. Without this one, values that were stored before the first
    /// read would count as values of the session that is found later.
    ///
    /// - Parameter isPlain: Whether the value is kept in memory only: a read that failed is not repeated for that.
    nonisolated func learnSession(isPlain: Bool) {
        // Under the lock: no other value may be stored before the epoch is known.
        self.sessionKnowledge.withLock { knowledge in
            switch knowledge {
            case .known: return
            case .unreadable where isPlain: return
            case .none, .unreadable: break
            }
            guard let epoch = self.store.peekSessionEpoch() else {
                knowledge = .unreadable
                return
            }
            knowledge = .known
            self.registry.withLock { if $0.sessionEpoch == nil { $0.sessionEpoch = epoch } }
        }
    }

    /// Whether `epoch`, just read from the store, is that of this process's session; ends the session if it is a later one.
    nonisolated func isPresent(_ epoch: UInt64) async -> Bool {
        let (isPresent, isLater) = self.registry.withLock { registry in
            guard !registry.owesSignOut, !registry.isEnding else { return (false, false) }
            let known = registry.sessionEpoch ?? epoch
            registry.sessionEpoch = known
            registry.isEnding = epoch > known
            return (epoch == known, registry.isEnding)
        }
        if isLater, await self.inLane({ self.endedElsewhere(in: epoch) }) == nil {
            // It cannot wait for the lane, which it is in, or which waits for it.
            self.endedElsewhere(in: epoch)
        }
        if isPresent { self.watchSession() }
        return isPresent
    }

    /// Ends the session here, because the store is in session `epoch`; in the lane.
    private nonisolated func endedElsewhere(in epoch: UInt64) {
        // This process may have signed out while this waited for the lane.
        guard self.registry.withLock({ ($0.sessionEpoch ?? 0) < epoch }) else {
            return self.registry.withLock { $0.isEnding = false }
        }
        self.registry.withLock { $0.isEnding = true }
        self.endInMemory { registry in
            registry.sessionEpoch = max(registry.sessionEpoch ?? 0, epoch)
            registry.isEnding = false
        }
    }

    /// Watches for sign-outs of other processes, if the store can report them.
    private nonisolated func watchSession() {
        guard let watch = self.store.sessionWatch else { return }
        self.sessionWatch.withLock { task in
            guard task == nil else { return }
            task = ReentrantAsyncMutex.outside {
                self.spawn(name: "mux.session") { [weak self] in
                    var seen: UInt64 = 0
                    while let known = self?.registry.withLock({ $0.sessionEpoch }),
                        let epoch = try? await watch(max(known, seen)), epoch > max(known, seen)
                    {
                        seen = epoch
                        // After a sign-out that is running here, which may explain the epoch.
                        _ = await self?.inLane {}
                        _ = await self?.isPresent(epoch)
                    }
                    // The next read from disk starts another watch.
                    self?.sessionWatch.withLock { $0 = nil }
                }
            }
        }
    }

    /// The epoch of the current session, which ends here if another process has signed out; in the lane.
    nonisolated func settledEpoch(raisedBySibling report: inout MuxRepository.SaveReport) async throws -> UInt64 {
        let settled = try await self.settledEpoch()
        let epoch = try await self.store.sessionEpoch()
        // The folder may have been emptied: the epoch does not go back.
        if epoch < settled { try await self.store.raiseSessionEpoch(to: settled) }
        if epoch > settled { self.endedElsewhere(in: epoch) } else { try await self.removeOwed(into: &report) }
        return max(settled, epoch)
    }

    /// Ends the session in memory; in the lane.
    ///
    /// First all participants are cleared, then `publish` changes the registry, then waiting callers are answered: a caller that
    /// is answered finds nothing of the session in any participant.
    ///
    /// Token providers are cleared first, then all are cleared again in reverse: between two participants, a cleared one may have
    /// refetched through one that was not cleared yet. Participants that are added meanwhile are cleared too: nothing that was
    /// fetched before `publish` is kept.
    ///
    /// - Parameters:
    ///   - spared: A participant that has nothing of the session, and is not cleared.
    ///   - publish: Called under the registry's lock.
    private nonisolated func endInMemory(sparing spared: ObjectIdentifier? = nil, _ publish: (inout Registry) -> Void) {
        func inOrder(_ participants: [any SessionParticipant]) -> [any SessionParticipant] {
            let concerned = participants.filter { $0.identity != spared }
            return concerned.filter(\.handsOutTokens) + concerned.filter { !$0.handsOutTokens }
        }
        var answers = inOrder(self.participants).map { $0.sessionEnded(isTold: false) }
        let (again, order) = self.registry.withLock { ($0.participants.living(), $0.participants.lastOrder) }
        let others = inOrder(again).reversed().map { $0.sessionEnded(isTold: true) }
        let late = self.registry.withLock { registry in
            publish(&registry)
            return registry.participants.living(after: order)
        }
        let lateAnswers = inOrder(late).map { $0.sessionEnded(isTold: true) }
        // A fetch may have begun through one that was added late.
        if !late.isEmpty { for participant in inOrder(self.participants) { participant.signOutCompleted() } }
        // Fetches are cancelled before the callers inside them that wait for a token are answered.
        answers = answers.reversed() + others + lateAnswers
        for answerWaiters in answers { answerWaiters() }
    }

    /// Ends the session of one user in memory, as ``endInMemory(sparing:_:)`` does that of all.
    ///
    /// In the order of their registration: first the token, then the calls that may have it, then the values that these have fetched. What
    /// begins in between is of the next session, or is ended with this one.
    nonisolated func end(_ user: EndedUser) {
        var answers: [@Sendable () -> Void] = []
        var last: UInt64 = 0
        // Those that are added meanwhile may have been fetched into already.
        while true {
            let (some, order) = self.registry.withLock { registry in
                (registry.participants.living(after: last, plain: false), registry.participants.lastOrder)
            }
            guard !some.isEmpty else { break }
            answers += some.compactMap { $0.sessionEnded(of: user) }
            last = order
        }
        for answerWaiters in answers { answerWaiters() }
    }

    /// Calls `body` for each participant that is not plain, including those added meanwhile.
    private nonisolated func forEachParticipant(_ body: (any SessionParticipant) async -> Void) async {
        var last: UInt64 = 0
        while true {
            let (participants, order) = self.registry.withLock { registry in
                (registry.participants.living(after: last, plain: false), registry.participants.lastOrder)
            }
            guard !participants.isEmpty else { return }
            last = order
            for participant in participants { await body(participant) }
        }
    }

    /// Completes the removal of an earlier sign-out; in the lane.
    private nonisolated func removeOwed(into report: inout MuxRepository.SaveReport) async throws {
        guard self.registry.withLock({ $0.owesRemoval }) else { return }
        do {
            try await self.store.removeEverything()
            self.registry.withLock { $0.owesRemoval = false }
        } catch {
            report.repairFailures.append(error)
        }
    }

    /// The epoch of the current session, after completing a sign-out that failed earlier; in the lane.
    nonisolated func settledEpoch() async throws -> UInt64 {
        let (known, owes) = self.registry.withLock { ($0.sessionEpoch, $0.owesSignOut) }
        if let known, !owes { return known }
        var epoch = try await self.store.sessionEpoch()
        if owes {
            epoch = try Self.next(after: epoch)
            try await self.store.raiseSessionEpoch(to: epoch)
            // If this fails, the rest is void already.
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
    /// runners are removed; values that came while all this happened are dropped, too. If the process dies in between, the
    /// next one reads nothing of the old session and finishes the removal.
    ///
    /// Every multiplexer and runner of the repository is signed out, from its initialiser to its deallocation: registered or not, with a
    /// `cacheKey` or without, and also if it is made or requested during the sign-out. A sign-in that begins after callers were told
    /// of the end belongs to the next session, and its tokens stay.
    ///
    /// Other processes that share the folder notice with their next look at the disk: the next request that memory does not
    /// answer, or the next save. See <doc:SeveralProcesses>.
    ///
    /// - Returns: What could not be removed. Ignoring it is fine: this process does not read what is left, and the next save
    ///   tries again.
    /// - Complexity: The time of a few file-system calls, however many entries there are.
    @discardableResult
    public nonisolated func clearAll() async -> MuxRepository.ClearReport {
        let done = await self.inLane(admitsNested: false) {
            var report = MuxRepository.ClearReport()
            var raised: UInt64?
            self.registry.withLock { $0.owesSignOut = true }
            do {
                let known = self.registry.withLock { $0.sessionEpoch ?? 0 }
                let epoch = try Self.next(after: max(known, await self.store.sessionEpoch()))
                // First, because the system may empty the repository's folder, and remove the epoch. If this fails, so does the
                // removal below, which reports it.
                await self.forEachParticipant { try? await $0.sessionWillEnd(before: epoch) }
                try await self.store.raiseSessionEpoch(to: epoch)
                raised = epoch
            } catch {
                report.failures.append(error)
            }
            self.sharedStore?.owe([.everything])
            self.endInMemory { registry in
                guard let raised else { return }
                registry.sessionEpoch = max(registry.sessionEpoch ?? 0, raised)
                registry.owesSignOut = false
            }
            do {
                try await self.store.removeEverything()
                self.registry.withLock { $0.owesRemoval = false }
            } catch {
                self.registry.withLock { $0.owesRemoval = true }
                report.failures.append(error)
            }
            await self.forEachParticipant { participant in
                do {
                    try await participant.removeTraces()
                } catch {
                    report.failures.append(error)
                }
            }
            for participant in self.participants { participant.signOutCompleted() }
            self.releaseWritten()
            // Again: a fetch that began before its multiplexer was cleared may have put what it got.
            self.sharedStore?.owe([.everything])
            do {
                try await self.sharedStore?.settle([.everything])
            } catch {
                report.failures.append(error)
            }
            return report
        }
        return done ?? MuxRepository.ClearReport(failures: [MuxError.calledFromStore])
    }

    /// Signs out: another name of ``clearAll()``.
    ///
    /// Tokens of the repository's runners are removed, too. ``OAuthDependentRunner/signOut()`` is the same call.
    ///
    /// - Returns: The result of ``clearAll()``.
    @discardableResult
    public nonisolated func signOut() async -> MuxRepository.ClearReport { await self.clearAll() }

    /// Forgets all values that have one of the tags, here and on all machines that share the store.
    ///
    /// Requests that wait get what their fetch brings, which is not kept. Tags are those of ``MultiplexerMap/CacheKey/init(_:tags:)``, in a
    /// repository with a ``MuxSharedStore``; without one nothing has tags.
    ///
    /// - Parameter tags: The tags.
    /// - Returns: The failure. This machine forgets in any case, and the store is asked again until it has done it.
    /// - Complexity: O(*n*) in the number of values in memory that have the tags, and O(1) in the store.
    @discardableResult
    public nonisolated func clear(tags: [String]) async -> MuxRepository.ClearReport {
        guard let sharedStore else { return MuxRepository.ClearReport() }
        return await sharedStore.invalidate(tags.map { .tag($0) }) {
            for participant in self.concernedParticipants {
                for tag in tags { participant.sharedStoreChanged(.invalidated(.tag(tag))) }
            }
        }
    }

    /// Ends the session here, because sessions before `epoch` were ended elsewhere.
    ///
    /// - Parameters:
    ///   - epoch: The epoch of the first session that has not ended.
    ///   - spared: A participant that has nothing of an ended session, and is not cleared.
    /// - Throws: The store's error; the session has ended nevertheless.
    nonisolated func endSession(before epoch: UInt64, sparing spared: ObjectIdentifier? = nil) async throws {
        let result = await self.inLane(admitsNested: false) { () -> Result<Void, any Error> in
            guard self.registry.withLock({ ($0.sessionEpoch ?? 0) < epoch }) else { return .success(()) }
            self.registry.withLock { $0.owesSignOut = true }
            self.sharedStore?.owe([.everything])
            defer { self.sharedStore?.settleLater() }
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
                registry.owesSignOut = false
            }
            // If another process has raised it, that one removes the rest, and may have begun the next session.
            guard found < epoch else { return .success(()) }
            let isRemoved = (try? await self.store.removeEverything()) != nil
            self.registry.withLock { $0.owesRemoval = !isRemoved }
            return .success(())
        }
        guard let result else { throw MuxError.calledFromStore }
        try result.get()
    }

    /// Notifies the participants with the same `cacheKey`, but one, of cleared entries; in the lane.
    nonisolated func tellOthers(_ cleared: ClearedEntries, but one: any SessionParticipant) {
        let others = self.registry.withLock { $0.participants.living(in: cleared.domain) }
        for participant in others where participant !== one { participant.cleared(cleared) }
    }

    private static func next(after epoch: UInt64) throws -> UInt64 {
        let (next, overflow) = epoch.addingReportingOverflow(1)
        guard !overflow else { throw MuxError.tooManySessions }
        return next
    }
}
