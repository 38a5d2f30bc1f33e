extension MultiplexerCore {
    /// Ends the session of `user` in memory.
    ///
    /// - Returns: A closure that resumes the user's waiting callers, to be called once; `nil` if the keys do
    ///   not belong to users of the user's group.
    /// - Complexity: O(*n*) in the number of the user's entries and of all running fetches.
    package func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)? {
        guard let users, users.include(user) else { return nil }
        let ((keys, former, evictions), answerWaiters) = self.engine.dismissed(cancelling: true) {
            users.key($0, isOf: user)
        } _: { state in
            let keys = users.keys(of: user, in: state.slots.users)
            state.clears &+= 1
            let former = keys.compactMap { key in
                defer { state.lostShared(key) }
                return state.withSlot(of: key) { $0.cleared(alsoOnDisk: false) }
            }
            return (.failure(MuxError.sessionEnded), (keys, former, state.takeEvictions()))
        }
        withExtendedLifetime(former) {}  // released outside the lock
        self.release(evictions)
        return {
            answerWaiters()
            for key in keys { self.watchers.send((), to: key) }
        }
    }

    package func user(of group: UserGroup, withText text: String) -> EndedUser? {
        guard let users, users.are(of: group) else { return nil }
        if let user = users.user(of: self.engine.keysInFlight, withText: text) { return user }
        var place: Int?
        repeat {
            let (keys, next) = self.engine.withState { $0.slots.keys(before: place, atMost: Self.portion) }
            if let user = users.user(of: keys, withText: text) { return user }
            place = next
        } while place != nil
        return nil
    }

    /// Changes the entry of `key`; a remembered failure stays, and a running flight continues.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - change: Changes the entry under the lock; returns whether the entry has changed.
    /// - Returns: The result of `change`; `false` without an entry.
    func amend(_ key: Key, _ change: (inout Slot<Value>.Entry) -> Bool) -> Bool {
        let former = self.withSlots { state -> Value? in
            guard var entry = state.slots.slot(of: key)?.entry else { return nil }
            let former = entry.value
            guard change(&entry) else { return nil }
            state.withSlot(of: key) { $0.amended(entry) }
            return former
        }
        return former != nil  // released outside the lock
    }
}
