import Synchronization

/// The running calls of each user of a ``MuxSessions``; the calls detect the end of the user's session.
///
/// **Concurrent calls.** Any member may be called from any thread.
final class UserCalls<UserID: MuxKey>: Sendable {
    /// The object that tells the running calls of one user whether the user's session has ended.
    ///
    /// All running calls of one session share the object. The object is removed with the last call, or at the
    /// end of the session.
    final class Session: Sendable {
        private let hasEnded = Atomic(false)

        fileprivate func end() { self.hasEnded.store(true, ordering: .releasing) }

        /// Checks that the session continues.
        ///
        /// - Throws: ``MuxError/sessionEnded`` if the session has ended.
        func check() throws {
            if self.hasEnded.load(ordering: .acquiring) { throw MuxError.sessionEnded }
        }
    }

    private struct Calls: Sendable {
        let session: Session
        var count: Int
    }

    private let calls = Locked<[ExactKey<UserID>: Calls]>([:])

    var userCount: Int { self.calls.withLock { $0.count } }

    var users: Set<ExactKey<UserID>> { self.calls.withLock { Set($0.keys) } }

    /// Begins a call in the user's session; the caller must call ``endCall(of:_:)`` with the returned
    /// session.
    ///
    /// - Throws: ``MuxError/unusableKey`` if the user is not equal to itself.
    func beginCall(of user: ExactKey<UserID>) throws -> Session {
        guard user == user else { throw MuxError.unusableKey }
        return self.calls.withLock { calls in
            if let place = calls.index(forKey: user) {
                calls.values[place].count += 1
                return calls.values[place].session
            }
            let session = Session()
            calls[user] = Calls(session: session, count: 1)
            return session
        }
    }

    /// Ends a call; no effect if the session has ended, because the end has removed all calls of the session.
    func endCall(of user: ExactKey<UserID>, _ session: Session) {
        let removed = self.calls.withLock { calls -> (ExactKey<UserID>, Calls)? in
            guard let place = calls.index(forKey: user), calls.values[place].session === session else { return nil }
            calls.values[place].count -= 1
            return calls.values[place].count == 0 ? calls.remove(at: place) : nil
        }
        _ = removed  // released outside the lock: the deinit of a key may make calls
    }

    /// Ends the session of a user; later calls belong to the next session.
    func endSession(of user: ExactKey<UserID>) {
        let removed = self.calls.withLock { calls in calls.index(forKey: user).map { calls.remove(at: $0) } }
        removed?.value.session.end()
    }

    func endAllSessions() {
        let former = self.calls.withLock { calls in
            defer { calls = [:] }
            return calls
        }
        for calls in former.values { calls.session.end() }
    }
}
