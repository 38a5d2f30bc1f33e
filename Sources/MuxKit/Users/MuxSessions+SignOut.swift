import Foundation

extension MuxSessions {
    /// Ends the session of one user.
    ///
    /// The token and all values of the user are removed, and earlier work cannot restore the token or a
    /// value. The updates and fetches of the user are cancelled. Calls that wait for the user's token, and
    /// requests that wait for a value of the user, throw ``MuxError/sessionEnded`` at once. Other users keep
    /// their sessions.
    ///
    /// Other machines that share the store end the session when the store's message arrives. If the user
    /// signs in again on such a machine before the arrival, the message ends the new session on the machine.
    /// See <doc:SeveralMachines>.
    ///
    /// - Parameter user: The user.
    /// - Returns: The failure of the shared store. This machine always ends the session, and repeats the call
    ///   to the store until the store has confirmed the sign-out.
    /// - Complexity: O(*n*) in the sum of the user's values in memory, all running fetches, all keys whose
    ///   states are observed, and all keys with changes of the app (``MuxRepository/Change``); O(1) in the
    ///   store. Another machine that cannot make
    ///   the `UserID` from a text (as a `LosslessStringConvertible` or `UUID`) searches all keys in memory.
    @discardableResult
    public func signOut(_ user: UserID) async -> MuxRepository.ClearReport {
        guard let sharedStore = self.repository.sharedStore else {
            self.end(ExactKey(user))
            return MuxRepository.ClearReport()
        }
        let failures = await sharedStore.invalidate([.tag(self.tag(user))]) { self.end(ExactKey(user)) }
        return MuxRepository.ClearReport(failures: failures)
    }

    private func end(_ user: ExactKey<UserID>) { self.repository.endSession(of: EndedUser(user, of: self.group)) }

    /// The prefix of all tags of this object; tags of a ``MuxSessions`` with another name never have this
    /// prefix.
    private var tagPrefix: String {
        let name = self.grants.name
        return "mux.user.\(name.utf8.count):\(name)/"
    }

    /// The tag of a user in the shared store.
    var tag: @Sendable (UserID) -> String { { [prefix = self.tagPrefix] in prefix + $0.keyText } }

    /// The text of the user with this tag; `nil` for a tag without the ``tagPrefix``.
    private func userText(ofTag tag: String) -> String? {
        let prefix = self.tagPrefix.utf8
        return tag.utf8.starts(with: prefix) ? String(tag.utf8.dropFirst(prefix.count)) : nil
    }
}

/// Ends the sessions of the running calls; the maps of tokens and values are separate participants.
extension MuxSessions: SessionParticipant {
    package var handsOutTokens: Bool { true }

    package func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void {
        self.calls.endAllSessions()
        return {}
    }

    package func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)? {
        guard let user: ExactKey<UserID> = user.user(of: self.group) else { return nil }
        self.calls.endSession(of: user)
        return nil
    }

    package func user(of group: UserGroup, withText text: String) -> EndedUser? {
        guard group === self.group else { return nil }
        return self.calls.users.first { $0.hasText(text) }.map { EndedUser($0, of: group) }
    }

    package func sharedStoreChanged(_ change: MuxShared.Change) {
        switch change {
        case .invalidated(.tag(let tag)):
            if let user = self.userText(ofTag: tag).flatMap(self.user) { self.repository.endSession(of: user) }
        case .invalidated(.everything):
            // The tokens are removed first: a call that begins in between must not get a token of the ended
            // session.
            let resumeWaiters = self.tokens.core.sessionEnded(sendsEvent: false)
            self.calls.endAllSessions()
            resumeWaiters()
        // The machine may have missed sign-outs: the tokens are removed, and running calls continue.
        case .unknown, .emptied: self.tokens.core.forgetAll()
        case .invalidated, .stored, .released: break
        }
    }

    /// The user with this text; `nil` if no such user is found.
    ///
    /// If a `UserID` cannot be made from a text, the function only finds users with data on this machine.
    private func user(withText text: String) -> EndedUser? {
        // The initialiser of `Character` stops the process if the text is not exactly one character.
        guard UserID.self != Character.self || text.count == 1 else { return nil }
        let read = (UserID.self as? any LosslessStringConvertible.Type)?.init(text) as? UserID
        if let user = (read ?? UUID(uuidString: text) as? UserID).map(ExactKey.init), user.hasText(text) {
            return EndedUser(user, of: self.group)
        }
        return self.repository.concernedParticipants.lazy.compactMap { $0.user(of: self.group, withText: text) }.first
    }
}
