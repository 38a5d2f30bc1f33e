/// What a token manager knows of the session and of the store; pure.
package struct OAuthSessionState: Sendable {
    /// The repository's session epoch when the runner's present session first needed it.
    package var repositoryEpoch: UInt64?
    /// The runner's session whose tokens were stored last.
    package var storedSession: UInt64?
    /// Whether stored tokens may be used: not after a sign-out in this process.
    package private(set) var mayRestore = true
    /// Counts the runner's sessions.
    package private(set) var sessionID: UInt64 = 0
    /// Identifies a refresh token and its successors: raised by a sign-out and by tokens that are set.
    package var tokenFamily: UInt64 = 0
    /// The epoch of the grant that the server refused last.
    package var refusedEpoch: UInt64?
    /// Whether the store has the note that the server has refused the tokens.
    package var findsRefusal = false
    /// The greatest record number met in the store.
    package var serial: UInt64 = 0
    /// The number of the record whose interrupted exchange was reported last.
    private var interruption: UInt64?
    /// Whether a sign-out has begun: nothing of the session is stored any more.
    package private(set) var isEnding = false
    /// The epoch before which a running sign-out ends the repository's sessions.
    package var endedBefore: UInt64?
    /// Whether the running operation of the store has to remove the tokens at its end.
    package var owesRemoval = false
    /// The revision of the grant whose access token came after its callers had timed out.
    package var unclaimed: UInt64?
    /// The greatest session epoch met in the store, or begun by a sign-out.
    package private(set) var greatestSession: UInt64 = 0
    /// Problems that were reported, and have not been solved since.
    private var reported: Set<OAuthProblem> = []

    package init() {}

    /// The repository's session epoch was read; the reading began in `sessionID`.
    package mutating func found(epoch: UInt64, in sessionID: UInt64) {
        // After a sign-out in between, this is the epoch of the former session.
        guard sessionID == self.sessionID, self.repositoryEpoch == nil else { return }
        self.repositoryEpoch = epoch
    }

    /// A problem occurred that stops nothing.
    ///
    /// - Returns: Whether to report it.
    package mutating func failed(_ problem: OAuthProblem) -> Bool { self.reported.insert(problem).inserted }

    /// The problem is solved.
    package mutating func worked(_ problem: OAuthProblem) { self.reported.remove(problem) }

    /// A session epoch was met in the store.
    package mutating func met(session: UInt64) { self.greatestSession = max(self.greatestSession, session) }

    /// A record was met in the store.
    ///
    /// - Parameters:
    ///   - serial: The record's number.
    ///   - isInterrupted: Whether its refresh token was about to be sent by a process that is not doing that now.
    /// - Returns: Whether to report the interruption.
    package mutating func met(_ serial: UInt64, isInterrupted: Bool) -> Bool {
        self.serial = max(self.serial, serial)
        guard isInterrupted, self.interruption != serial else { return false }
        self.interruption = serial
        return true
    }

    /// A sign-out has begun, which ends the repository's sessions before `epoch`.
    package mutating func ends(before epoch: UInt64) {
        self.isEnding = true
        self.endedBefore = epoch
        self.met(session: epoch)
    }

    /// The session is over: its stored tokens are not used again.
    package mutating func ended() {
        var next = OAuthSessionState()
        next.storedSession = self.storedSession
        next.mayRestore = false
        next.sessionID = self.sessionID &+ 1
        next.tokenFamily = self.tokenFamily &+ 1
        next.serial = self.serial
        next.interruption = self.interruption
        next.endedBefore = self.endedBefore
        next.greatestSession = self.greatestSession
        next.reported = self.reported
        self = next
    }
}

/// A problem that a runner reports once and works around.
package enum OAuthProblem: Sendable, Hashable {
    /// The session epoch cannot be read from the repository's folder.
    case session
    /// Tokens cannot be stored.
    case storing
    /// The lease cannot be taken.
    case lease
    /// The store has data that are no tokens.
    case damaged

    /// What it means, for a log.
    package var sentence: String {
        switch self {
        case .session: "The repository's folder cannot be used. Tokens are used nevertheless."
        case .storing: "Tokens cannot be stored. They are kept in memory, and may be lost when the process ends."
        case .lease:
            "The folder of the tokens cannot be written to. Where that is safe, they are renewed without a lease."
        case .damaged: "The stored tokens are damaged and cannot be used. A sign-in takes their place."
        }
    }
}
