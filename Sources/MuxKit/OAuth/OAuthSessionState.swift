/// The state of an ``OAuthTokenManager``: facts about the session and the token store, as a pure value.
package struct OAuthSessionState: Sendable {
    /// The known session epoch of the repository; `nil` if the epoch must be read from the repository.
    package var repositoryEpoch: UInt64?
    /// The number of the runner's session in which tokens were last stored; `nil` before the first save.
    package var storedSession: UInt64?
    /// Whether stored tokens may be used if no other process uses the store; `false` after the end of a
    /// session in this process.
    package private(set) var mayRestore = true
    /// The number of the runner's current session: equal to the session number of the upper layer, except
    /// during the end of a session.
    package private(set) var sessionID: UInt64 = 0
    /// Increased by a sign-out and by tokens from outside the runner, so that the tokens of a sign-in that
    /// began earlier are not stored.
    package var tokenFamily: UInt64 = 0
    /// The upper layer's epoch of the last refused grant in this session.
    package var refusedEpoch: UInt64?
    /// Whether the last read of a grant found the mark of a refusal by the server.
    package var foundRefusal = false
    /// The greatest known serial number: a new record gets a greater number.
    package var serial: UInt64 = 0
    /// The serial number of the record with the last reported interruption of an exchange.
    private var lastInterruption: UInt64?
    /// Whether a sign-out has begun, and the session has not ended yet: in this time, no tokens are stored.
    package private(set) var isEnding = false
    /// The epoch before which a running sign-out ends the repository's sessions; `nil` without a sign-out.
    package var endedBefore: UInt64?
    /// Whether the running or next operation that may store tokens must remove the tokens at the end of the
    /// operation.
    package var owesRemoval = false
    /// The revision of the grant with an access token that arrived after the time-out of the callers, and
    /// that no later call has examined yet.
    package var lateTokenRevision: UInt64?
    /// The greatest session epoch found in the token store, or begun by a sign-out of this runner.
    package private(set) var greatestSession: UInt64 = 0
    /// The reported problems without a solution yet, also from earlier sessions.
    private var reportedProblems: Set<OAuthProblem> = []

    package init() {}

    /// Records the repository's session epoch, from a read that began in session `sessionID`.
    package mutating func recordRepositoryEpoch(_ epoch: UInt64, readIn sessionID: UInt64) {
        // After a sign-out in between, `epoch` is the epoch of the previous session.
        guard sessionID == self.sessionID, self.repositoryEpoch == nil else { return }
        self.repositoryEpoch = epoch
    }

    /// Records a tolerated problem.
    ///
    /// - Returns: Whether to report the problem: `false` after a report, until the problem is solved.
    package mutating func recordProblem(_ problem: OAuthProblem) -> Bool {
        self.reportedProblems.insert(problem).inserted
    }

    /// Records that the problem is solved.
    package mutating func clearProblem(_ problem: OAuthProblem) { self.reportedProblems.remove(problem) }

    /// Records a session epoch from the store.
    package mutating func noteSession(_ session: UInt64) { self.greatestSession = max(self.greatestSession, session) }

    /// Records the serial number of a record from the store.
    ///
    /// - Parameters:
    ///   - serial: The record's number.
    ///   - isInterrupted: Whether another runner, such as in an ended process, was about to send the record's
    ///     refresh token, and is not sending the token now.
    /// - Returns: Whether to report the interruption.
    package mutating func noteSerial(_ serial: UInt64, isInterrupted: Bool) -> Bool {
        self.serial = max(self.serial, serial)
        guard isInterrupted, self.lastInterruption != serial else { return false }
        self.lastInterruption = serial
        return true
    }

    /// Begins a sign-out, which ends the repository's sessions before `epoch`.
    package mutating func beginSignOut(before epoch: UInt64) {
        self.isEnding = true
        self.endedBefore = epoch
        self.noteSession(epoch)
    }

    /// Ends the session: the stored tokens of the session are not used again.
    package mutating func endSession() {
        // All properties that are not copied return to their initial values.
        var next = OAuthSessionState()
        next.storedSession = self.storedSession
        next.mayRestore = false
        next.sessionID = self.sessionID &+ 1
        next.tokenFamily = self.tokenFamily &+ 1
        next.serial = self.serial
        next.lastInterruption = self.lastInterruption
        next.endedBefore = self.endedBefore
        next.greatestSession = self.greatestSession
        next.reportedProblems = self.reportedProblems
        self = next
    }
}

/// A problem that a runner tolerates, and reports once until the problem is solved.
package enum OAuthProblem: Sendable, Hashable {
    /// The session epoch cannot be read from the repository's folder.
    case session
    /// Tokens cannot be stored.
    case storing
    /// The lease cannot be taken.
    case lease
    /// The data in the store is not a record of tokens.
    case damaged

    /// A description of the problem and its effect, for a log.
    package var sentence: String {
        switch self {
        case .session: "The store of the repository cannot be used. Tokens are still used."
        case .storing: "Tokens cannot be stored. The tokens in memory may be lost at the end of the process."
        case .lease:
            "The lease of the tokens cannot be written. Tokens are renewed without a lease, unless the session could be lost."
        case .damaged: "The stored tokens are damaged and cannot be used. A sign-in replaces the tokens."
        }
    }
}
