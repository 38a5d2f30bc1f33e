extension MultiplexerCore: SessionParticipant {
    package var domain: String? { self.backing.persistence?.domain }

    package var detachesItself: Bool { true }

    package var isMemoryOnly: Bool { self.domain == nil && self.users == nil && !self.handsOutTokens }

    package var statistics: MuxRepository.Statistics { self.engine.withState { $0.statistics } }

    package var gauges: MuxRepository.Gauges {
        var gauges = MuxRepository.Gauges(self.engine)
        gauges.entries = self.engine.withState { $0.slots.entryCount }
        gauges.unsaved = self.backing.disk?.unsavedCount ?? 0
        return gauges
    }

    // MARK: - Sign-out

    package func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void {
        let (former, resumeWaiters) = self.engine.dismissCallers(cancelling: true) { state in
            state.session &+= 1
            state.discardCount &+= 1
            let former = state.disk.sessionEnded()
            for key in Array(state.layers.keys) { state.dropLayers(of: key) }
            return (.failure(MuxError.sessionEnded), (state.removeAll(), former))
        }
        withExtendedLifetime(former) {}
        return {
            resumeWaiters()
            self.watchers.sendToAll(.entry)
            if sendsEvent { self.memory.tell(.sessionEnded) }
        }
    }

    package func signOutCompleted() {
        // A caller that was resumed at the end of the session may have signed in again, and its new token
        // must stay.
        if !self.handsOutTokens { self.forgetAll() }
    }

    /// Ends the session of `user` in memory.
    ///
    /// - Returns: A closure that resumes the user's waiting callers and notifies watchers, to be called once;
    ///   `nil` if the keys do not belong to users of the user's group.
    /// - Complexity: O(*n* log *n*) in the number of the user's entries, and of all running fetches, followed
    ///   keys and changed keys.
    package func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)? {
        guard let users, users.are(of: user.group) else { return nil }
        let ((keys, former, work), resumeWaiters) = self.engine.dismissCallers(cancelling: true) {
            users.key($0, isOf: user)
        } _: { state in
            let layered = state.layers.keys.filter { users.key($0, isOf: user) }
            let keys = Set(users.keys(of: user, in: state.slots.users)).union(layered)
            // A followed key may have a failure without a slot.
            let followed = state.followed.keys.filter { users.key($0, isOf: user) }
            for key in followed { state.recordOutcome(of: key, error: nil) }
            state.discardCount &+= 1
            let former = keys.compactMap { key in
                defer { state.dropSharedFact(about: key) }
                state.dropLayers(of: key)
                return state.withSlot(of: key) { $0.clear(alsoOnDisk: false) }
            }
            let changed = keys.union(followed)
            return (.failure(MuxError.sessionEnded), (changed, former, state.takePendingWork()))
        }
        withExtendedLifetime(former) {}  // released outside the lock
        self.memory.release(work)
        return {
            resumeWaiters()
            for key in keys { self.watchers.send(.entry, to: key) }
        }
    }

    package func user(of group: UserGroup, withText text: String) -> EndedUser? {
        guard let users, users.are(of: group) else { return nil }
        return users.user(of: self.engine.keysInFlight, withText: text)
            ?? users.user(of: self.engine.withState { Array($0.layers.keys) }, withText: text)
            ?? users.user(of: self.memory.keys, withText: text)
    }

    // MARK: - Saving

    package func repairDisk() async -> DiskRepair { await self.backing.disk?.repairDisk() ?? DiskRepair() }

    package func unsaved() -> UnsavedEntries { self.backing.disk?.unsaved() ?? UnsavedEntries() }

    package func takeLosses() -> Int { self.engine.withState { $0.disk.takeLosses() } }

    package func markUnsaved() { self.backing.disk?.markUnsaved() }

    // MARK: - Clearing

    /// Removes the entry of `key`, in memory and in the backing.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - endsRequests: Whether waiting callers get ``MuxError/cleared`` instead of the outcome of their
    ///     fetch.
    /// - Returns: The failures of the removal in the backing.
    func clear(_ key: Key, endsRequests: Bool) async -> MuxRepository.ClearReport {
        guard key == key else { return MuxRepository.ClearReport() }
        let text = self.backing.text(of: key)
        return await self.backing.clear(key) {
            if let domain = self.domain {
                let cleared = ClearedEntries(domain: domain, keys: [text], endsRequests: endsRequests)
                self.repository.tellOthers(cleared, but: self)
            }
            self.forget(key, alsoOnDisk: self.isOnDisk, endsRequests: endsRequests)
        }
    }

    /// Removes all entries, in memory and in the backing; see ``clear(_:endsRequests:)``.
    func clearAll(endsRequests: Bool) async -> MuxRepository.ClearReport {
        await self.backing.clear(nil) {
            if let domain = self.domain {
                self.repository.tellOthers(ClearedEntries(domain: domain, endsRequests: endsRequests), but: self)
            }
            self.forgetAll(answering: endsRequests ? MuxError.cleared : nil, onDisk: self.isOnDisk)
        }
    }

    /// Removes the entry of `key` from memory, and fences the flights of `key`.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - alsoOnDisk: Whether a removal on disk follows.
    ///   - endsRequests: See ``clear(_:endsRequests:)``.
    ///   - keepsChanges: Whether all uncommitted changes stay; otherwise, only uncommitted changes of an
    ///     outbox stay.
    func forget(_ key: Key, alsoOnDisk: Bool, endsRequests: Bool, keepsChanges: Bool = false) {
        let former = self.engine.fence(key, answering: endsRequests ? MuxError.cleared : nil) { state in
            state.discardCount &+= 1
            state.recordOutcome(of: key, error: nil)
            defer { state.dropSharedFact(about: key) }
            state.loseBase(of: key, keepsChanges: keepsChanges)
            return state.withSlot(of: key) { $0.clear(alsoOnDisk: alsoOnDisk) }
        }
        withExtendedLifetime(former) {}
        self.watchers.send(.entry, to: key)
        self.memory.releaseEvicted()
    }

    /// Removes all entries from memory, and fences all flights.
    ///
    /// - Parameters:
    ///   - error: The error for waiting callers; `nil` if the callers wait for the outcome of their fetch.
    ///   - isRemovalPending: Whether a removal of all entries on disk follows.
    ///   - keepsChanges: See ``forget(_:alsoOnDisk:endsRequests:keepsChanges:)``.
    func forgetAll(
        answering error: (any Error)? = nil,
        onDisk isRemovalPending: Bool = false,
        keepsChanges: Bool = false
    ) {
        let former = self.engine.fenceAll(answering: error) { state in
            if isRemovalPending { state.disk.isDomainRemovalPending = true }
            state.discardCount &+= 1
            for key in Array(state.layers.keys) { state.loseBase(of: key, keepsChanges: keepsChanges) }
            return state.removeAll()
        }
        withExtendedLifetime(former) {}
        self.watchers.sendToAll(.entry)
    }

    /// Removes all entries without unsaved changes from memory; running flights continue.
    package func clearMemory() {
        let size = SlotMemory<Slots>.portion
        let former = self.memory.withSlots { state -> (any Sendable)? in
            state.keepConditions()
            guard let slots = state.slots.removeAllClean(ifUnsavedAtMost: size) else { return nil }
            for key in Array(state.layers.keys) { state.dropEvictedLayers(of: key) }
            return (slots, state.shared.dropAllFacts())
        }
        guard former == nil else { return withExtendedLifetime(former) {} }  // released outside the lock
        var place: Int?
        repeat {
            let (gone, next) = self.memory.withSlots { state in
                var gone: [(Key, Slot<Value>)] = []
                let removed = { gone.append(($0, $1)) }
                let next = state.slots.removeClean(before: place, atMost: size, where: { _ in true }, removed: removed)
                state.noteRemovals(gone)
                for (key, _) in gone {
                    state.dropSharedFact(about: key)
                    state.dropEvictedLayers(of: key)
                }
                return (gone, next)
            }
            withExtendedLifetime(gone) {}
            place = next
        } while place != nil
    }

    // MARK: - Changes elsewhere

    package func cleared(_ cleared: ClearedEntries) {
        guard self.domain != nil else { return }
        guard let keys = cleared.keys else {
            return self.forgetAll(answering: cleared.endsRequests ? MuxError.cleared : nil)
        }
        // Because of the new number, a running read without a flight does not keep the entry that was read.
        self.engine.withState { $0.discardCount &+= 1 }
        let gone = Set(keys)
        // In this order: if a flight ends in the meantime, memory has its entry.
        let present = self.engine.keysInFlight + self.memory.keys
        let followed = self.engine.withState { Array($0.followed.keys) + Array($0.layers.keys) }
        let concerned = Set((present + followed).filter { gone.contains(self.backing.text(of: $0)) })
        for key in concerned { self.forget(key, alsoOnDisk: false, endsRequests: cleared.endsRequests) }
    }

    /// Makes followed entries that are no longer in memory stale, because their tags are unknown.
    private func markEvictedAsStale() {
        let keys = self.engine.withState { state in
            let keys = state.followed.keys.filter { state.slots.slot(of: $0)?.entry == nil }
            for key in keys { state.countRefresh(of: key) }
            return keys
        }
        for key in keys { self.watchers.send(.activity, to: key) }
    }

    package func tagsChanged(mayClear: Bool) { self.memory.tagsChanged(mayClear: mayClear) }

    package func applyTagChanges(toAll isToAll: Bool) async { await self.memory.applyTagChanges(toAll: isToAll) }

    package func sharedStoreChanged(_ change: MuxShared.Change) {
        // A sign-out of a user may be the cause, or may have been missed: the user's values must neither be
        // served after a failed fetch nor be put in the store again.
        if self.users != nil, [.unknown, .emptied, .invalidated(.everything)].contains(change) {
            // ``MuxSessions`` handles the same change, and removes the tokens.
            return self.handsOutTokens ? () : self.forgetAll()
        }
        guard let shared = self.backing.sharedStore else {
            // A change of tags may have been missed.
            return [.unknown, .emptied].contains(change) && self.memory.usesTags ? self.refreshAll() : ()
        }
        switch change {
        case .invalidated(let scope):
            // The cause of an invalidation of a tag or of everything may be a clear, a sign-out or a refresh
            // by tags. In each case, only uncommitted changes of an outbox stay. After any other
            // invalidation, all uncommitted changes stay.
            let keepsChanges = if case .tag = scope { false } else { scope != .everything }
            guard let keys = shared.keys(of: scope) else { return self.forgetAll(keepsChanges: keepsChanges) }
            for key in keys { self.forget(key, alsoOnDisk: false, endsRequests: false, keepsChanges: keepsChanges) }
            if case .tag = scope { self.markEvictedAsStale() }
        case .unknown: shared.markAllUnverified(isEmptied: false)
        case .emptied: shared.markAllUnverified(isEmptied: true)
        case .stored, .released: break
        }
    }
}
