/// What a vault knows of the session and of the store; pure.
package struct OAuthSessionState: Sendable {
    /// The repository's session epoch, as it was when the runner's present session first needed it.
    package var repositoryEpoch: UInt64?
    /// The runner's session whose tokens were stored last.
    package var storedSession: UInt64?
    /// Whether stored tokens may be taken up: not after a sign-out in this process.
    package private(set) var mayRestore = true
    /// Counts the runner's sessions.
    package private(set) var sessionID: UInt64 = 0
    /// Counts the lines of tokens: a sign-out, and tokens that are set, each begin a new one.
    package var tokenFamily: UInt64 = 0
    /// The epoch of the grant that the server refused last.
    package var refusedEpoch: UInt64?
    /// The greatest number of a stored record that was met.
    package var serial: UInt64 = 0
    /// The number of the record whose interrupted exchange was told of last.
    private var interruption: UInt64?
    /// Whether the session is about to end: nothing of it is stored any more.
    package private(set) var isEnding = false
    /// Sessions of the repository before this one are over, by a sign-out that is under way.
    package var endedBefore: UInt64?
    /// Whether whoever is storing tokens now has to remove them again.
    package var owesRemoval = false
    /// The revision of the grant whose access token came too late for those who wanted it.
    package var unclaimed: UInt64?
    /// The greatest number of a session that was met in the store, or that a sign-out began.
    package private(set) var greatestSession: UInt64 = 0
    /// What went wrong and was told; it is told again only after it has worked in between.
    private var told: Set<OAuthProblem> = []

    package init() {}

    /// The repository's session epoch was looked up, which began in `sessionID`.
    package mutating func found(epoch: UInt64, in sessionID: UInt64) {
        // A sign-out may have come in between: then this is the epoch of the session before.
        guard sessionID == self.sessionID, self.repositoryEpoch == nil else { return }
        self.repositoryEpoch = epoch
    }

    /// Something went wrong that stops nothing.
    ///
    /// - Returns: Whether it is to be told: it was not yet.
    package mutating func failed(_ problem: OAuthProblem) -> Bool { self.told.insert(problem).inserted }

    /// It works again.
    package mutating func worked(_ problem: OAuthProblem) { self.told.remove(problem) }

    /// A session's number was met in the store.
    package mutating func met(session: UInt64) { self.greatestSession = max(self.greatestSession, session) }

    /// A record was met in the store.
    ///
    /// - Parameters:
    ///   - serial: The record's number.
    ///   - isInterrupted: Whether it says that somebody else was about to send its refresh token, and nobody else can be doing
    ///     that now.
    /// - Returns: Whether that is to be told: it was not yet.
    package mutating func met(_ serial: UInt64, isInterrupted: Bool) -> Bool {
        self.serial = max(self.serial, serial)
        guard isInterrupted, self.interruption != serial else { return false }
        self.interruption = serial
        return true
    }

    /// A sign-out has begun, after which the repository's sessions before `epoch` are over.
    package mutating func ends(before epoch: UInt64) {
        self.isEnding = true
        self.endedBefore = epoch
        self.met(session: epoch)
    }

    /// The session is over: what it left in the store is not taken up again.
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
        next.told = self.told
        self = next
    }
}

/// What a runner can do without, and says once that it has to.
package enum OAuthProblem: Sendable, Hashable {
    /// The number of the session cannot be read from the repository's folder.
    case session
    /// Tokens cannot be stored.
    case storing
    /// The lease cannot be had.
    case lease

    /// What it means, for a person.
    package var sentence: String {
        switch self {
        case .session: "The repository's folder cannot be used. Tokens are used nevertheless."
        case .storing: "Tokens cannot be stored. They are kept in memory, and may be lost when the process ends."
        case .lease:
            "The folder of the tokens cannot be written to. Where that is safe, they are renewed without a lease."
        }
    }
}
