import Foundation

/// The stored tokens of an OAuth session, and the state of their storage.
final class OAuthTokenStorage<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    typealias Grant = OAuthGrant<AccessToken, RefreshToken>
    typealias Tokens = StoredTokens<AccessToken, RefreshToken>

    let sessionState = Locked(OAuthSessionState())
    let tokens: Tokens
    let repository: MuxRepository
    /// The name of this runner in stored records and in the lease.
    let owner = UUID().uuidString
    /// Whether other processes may use the store: the runner has a lease.
    let isShared: Bool
    private let mutex = ReentrantAsyncMutex(refusal: RunnerError.wouldDeadlock)

    init(_ store: any TokenStore, repository: MuxRepository, isShared: Bool) {
        self.tokens = Tokens(store: store)
        self.repository = repository
        self.isShared = isShared
        repository.collectProblems(of: store)
    }

    // MARK: - Exclusive access

    /// Whether the current task may wait for the store: `false` inside ``runExclusively(_:)``.
    var mayWait: Bool { self.mutex.isOutside }

    /// Runs `operation` after the end of all earlier operations.
    ///
    /// - Throws: The error of `operation`; ``RunnerError/wouldDeadlock`` if the wait would not end, such as
    ///   inside an operation.
    func runExclusively<Success: Sendable>(_ operation: () async throws -> Success) async throws -> Success {
        try await self.mutex.run(admitsNested: false, operation)
    }

    /// Runs `operation`, which may store tokens, after the end of all earlier operations; then removes the
    /// tokens of an ended session if a sign-out left the removal pending.
    ///
    /// A sign-out inside `operation` cannot wait for the store, and leaves the removal pending.
    func runStoringTokens<Success: Sendable>(_ operation: () async throws -> Success) async throws -> Success {
        try await self.runExclusively {
            let result = await Result<_, any Error> { try await operation() }
            let owesRemoval = self.sessionState.withLock { sessionState in
                defer { sessionState.owesRemoval = false }
                // The tokens of the next session, if already stored, must stay.
                return sessionState.owesRemoval && sessionState.storedSession != sessionState.sessionID
            }
            if owesRemoval, (try? await self.tokens.store.remove()) == nil {
                self.sessionState.withLock { $0.owesRemoval = true }
            }
            return try result.get()
        }
    }

    // MARK: - Tolerated problems

    /// Reports a problem to the observer, and damaged tokens also to the log, unless the problem was reported
    /// since the last ``clearProblem(_:)``.
    func reportProblem(_ problem: OAuthProblem, because error: (any Error)? = nil) {
        guard self.sessionState.withLock({ $0.recordProblem(problem) }) else { return }
        let cause = error.map { " \($0.sentence)" } ?? ""
        self.repository.observer?.tell(MuxEvent(.storageFailed, problem: problem.sentence + cause))
        if problem == .damaged { self.repository.misuseLog?.write(.damagedTokens(problem.sentence)) }
    }

    /// Records the end of a problem, so that the next occurrence is reported.
    func clearProblem(_ problem: OAuthProblem) { self.sessionState.withLock { $0.clearProblem(problem) } }

    // MARK: - Reading

    /// The repository's session epoch, and whether the epoch is certain.
    ///
    /// If the repository's folder cannot be used, the epoch is uncertain: the greatest epoch that this runner
    /// has found in the token store, or has begun by a sign-out. If the tokens are in memory only
    /// (``isPrivate``), the folder is not read, and the epoch in memory is certain.
    func repositoryEpoch() async -> (epoch: UInt64, isCertain: Bool) {
        let (knownEpoch, sessionID) = self.sessionState.withLock { ($0.repositoryEpoch, $0.sessionID) }
        if let knownEpoch { return (knownEpoch, true) }
        if self.isPrivate {
            return (self.repository.registry.withLock { $0.sessionEpoch } ?? 0, true)
        }
        do {
            let epoch = try await self.repository.currentEpoch()
            self.sessionState.withLock { sessionState in
                sessionState.recordRepositoryEpoch(epoch, readIn: sessionID)
                sessionState.clearProblem(.session)
            }
            return (epoch, true)
        } catch {
            self.reportProblem(.session, because: error)
            return (self.sessionState.withLock { $0.greatestSession }, false)
        }
    }

    /// The grant in the store, if the grant is newer than `refused`.
    ///
    /// - Parameters:
    ///   - refused: The grant that the server refused; `nil` if no grant was refused.
    ///   - isAlone: Whether no other process can be renewing or storing tokens; permits the removal of an
    ///     ended session's tokens, and the report of an interrupted exchange.
    /// - Returns: The grant; `nil` without a usable grant.
    /// - Throws: ``RunnerError/tokensUnreadable(underlying:)`` if the store cannot be read now, or the
    ///   repository cannot end a session; ``RunnerError/signedOut`` if another process has ended the session
    ///   of `refused`; ``RunnerError/wouldDeadlock`` if a removal would have to wait inside an operation of
    ///   the store.
    func loadGrant(insteadOf refused: Grant?, isAlone: Bool) async throws -> Grant? {
        let mayRestore = self.sessionState.withLock { $0.mayRestore }
        // After a sign-out in this process, only tokens that another process has stored since may be used.
        guard mayRestore || self.isShared else { return nil }
        let (epoch, isCertain) = await self.repositoryEpoch()
        // With an uncertain epoch, the tokens of an ended session could count as valid.
        guard mayRestore || isCertain else { return nil }
        let found = try await self.tokens.load(session: epoch)
        self.sessionState.withLock { sessionState in
            if case .refused = found { sessionState.foundRefusal = true } else { sessionState.foundRefusal = false }
        }
        switch found {
        case .nothing:
            return nil
        case .nonsense:
            self.reportProblem(.damaged)
            return nil
        case .record(let record), .refused(let record):
            self.clearProblem(.damaged)
            if let refused, (record.serial ?? 0) <= refused.serial { return nil }
            self.sessionState.withLock { $0.noteSession(record.session) }
            // The repository's epoch never decreases, but may have been lost with the caches folder.
            if isCertain, record.session > epoch, (try? await self.repository.raiseEpoch(to: record.session)) != nil {
                self.sessionState.withLock { if $0.repositoryEpoch == epoch { $0.repositoryEpoch = record.session } }
            }
            return self.makeGrant(record, isAlone: isAlone)
        case .ended(let end):
            self.sessionState.withLock { $0.noteSession(end) }
            if end > epoch, isCertain {
                // A sign-out of an earlier launch was interrupted, or another process has signed out. Without
                // a grant, this runner has no session to end.
                try await self.endRepositorySessions(before: end, sparingSelf: refused == nil)
                guard refused == nil else { throw RunnerError.signedOut }
                self.sessionState.withLock { if $0.repositoryEpoch == epoch { $0.repositoryEpoch = nil } }
            }
            guard isAlone, isCertain else { return nil }
            try await self.runStoringTokens {
                guard self.sessionState.withLock({ $0.storedSession }) == nil else { return }
                try? await self.tokens.store.remove()
            }
            return nil
        }
    }

    /// The grant of a record; `nil` for a record without a refresh token.
    ///
    /// If `isAlone` is `true`, the function reports an exchange of the refresh token that another runner
    /// began and did not finish, once for each record.
    func makeGrant(_ record: Tokens.Record, isAlone: Bool) -> Grant? {
        let isInterrupted = isAlone && record.attempt.map { $0.owner != self.owner } ?? false
        if self.sessionState.withLock({ $0.noteSerial(record.serial ?? 0, isInterrupted: isInterrupted) }) {
            self.repository.observer?.tell(MuxEvent(.updateInterrupted))
        }
        return Grant(record, now: self.repository.time.now, wallTime: self.repository.wallTime())
    }

    /// Replaces the stored tokens with a mark of the server's refusal; called inside
    /// ``runStoringTokens(_:)``.
    ///
    /// - Throws: ``RunnerError/tokensNotStored(underlying:)``.
    func saveRefusal(of grant: Grant, epoch: UInt64) async throws {
        let serial = max(self.sessionState.withLock { $0.serial }, grant.serial) &+ 1
        try await self.tokens.save(Tokens.Record(session: epoch, serial: serial, isRefused: true))
        self.sessionState.withLock { $0.serial = max($0.serial, serial) }
    }

    /// Ends the sessions before `epoch` in the repository, because the store shows that these sessions have
    /// ended.
    ///
    /// - Parameters:
    ///   - epoch: The first epoch that does not end.
    ///   - sparingSelf: Whether the session of this runner in memory continues.
    /// - Throws: ``RunnerError/tokensUnreadable(underlying:)``.
    func endRepositorySessions(before epoch: UInt64, sparingSelf: Bool = false) async throws {
        do {
            try await self.repository.endSession(before: epoch, sparing: sparingSelf ? ObjectIdentifier(self) : nil)
        } catch {
            throw RunnerError.tokensUnreadable(underlying: error)
        }
    }

    // MARK: - Status

    /// Whether a session exists, given the grant in memory.
    ///
    /// Ends the session in memory if the store shows that another process has ended the session.
    ///
    /// - Parameters:
    ///   - grant: The grant in memory; `nil` without a grant.
    ///   - isRefused: Whether the server has refused `grant`.
    ///   - sessionID: The number of the runner's session when `grant` was read.
    /// - Returns: The status; `nil` if the session ended during the read of the store.
    func status(of grant: Grant?, isRefused: Bool, in sessionID: UInt64) async -> OAuthStatus? {
        let inMemory = grant.map { _ in isRefused ? OAuthStatus.signedOut : .signedIn }
        // No other process knows the grant, so the store contains no other state of the grant.
        if let inMemory, !self.isShared || grant?.wasStored == false { return inMemory }
        let mayRestore = self.sessionState.withLock { $0.mayRestore }
        guard grant != nil || mayRestore || self.isShared else { return .signedOut }
        guard self.mayWait else { return inMemory ?? .unknown }
        let (epoch, isCertain) = await self.repositoryEpoch()
        guard grant != nil || mayRestore || isCertain else { return .signedOut }
        guard let found = try? await self.tokens.load(session: epoch) else { return inMemory ?? .unknown }
        guard self.sessionState.withLock({ $0.sessionID == sessionID }) else { return nil }
        switch found {
        case .nothing:
            guard let grant, grant.isStored else { return inMemory ?? .signedOut }
            try? await self.endRepositorySessions(before: epoch &+ 1)
            return .signedOut
        case .ended(let end):
            if grant != nil { try? await self.endRepositorySessions(before: max(end, epoch &+ 1)) }
            return .signedOut
        case .nonsense:
            return inMemory ?? .signedOut
        case .record(let record):
            if grant != nil, record.session > epoch { try? await self.endRepositorySessions(before: record.session) }
            guard let grant, isRefused, (record.serial ?? 0) <= grant.serial else { return .signedIn }
            return .signedOut
        case .refused(let record):
            guard let grant, (record.serial ?? 0) <= grant.serial else { return .signedOut }
            return inMemory ?? .signedOut
        }
    }

    /// Whether the tokens are in memory only, and no other process can change the tokens.
    var isPrivate: Bool { !self.isShared && self.tokens.store is InMemoryTokenStore }

    /// Starts ``TokenStore/watch(_:)``; the cancellation of the returned task ends the watch.
    func watch(_ onChange: @escaping @Sendable () -> Void) -> Task<Void, Never> {
        let store = self.tokens.store
        // The task may outlive a store operation that starts the watch, and must not count as a part of the
        // operation.
        return ReentrantAsyncMutex.outside {
            self.repository.spawn(name: "mux.tokens") { await store.watch(onChange) }
        }
    }

    // MARK: - Writing

    /// Saves a grant; called inside ``runStoringTokens(_:)``.
    ///
    /// - Parameters:
    ///   - grant: The grant.
    ///   - session: The number of the runner's session to which the grant belongs.
    ///   - epoch: The repository's session epoch.
    ///   - attempt: The exchange of the refresh token that is about to be sent; `nil` without an exchange.
    /// - Returns: The stored grant, with a serial number greater than all known numbers.
    /// - Throws: ``RunnerError/tokensNotStored(underlying:)``.
    func save(_ grant: Grant, of session: UInt64, epoch: UInt64, attempt: Tokens.Attempt? = nil) async throws -> Grant {
        let serial = max(self.sessionState.withLock { $0.serial }, grant.serial) &+ 1
        let record = Tokens.Record(
            session: epoch,
            refresh: grant.refresh,
            access: grant.access,
            accessExpiry: grant.accessEnd?.date,
            rotates: grant.rotates ? true : nil,
            serial: serial,
            attempt: attempt
        )
        do {
            try await self.tokens.save(record)
        } catch let error as RunnerError {
            self.reportProblem(.storing, because: error.underlying ?? error)
            throw error
        }
        self.sessionState.withLock { sessionState in
            sessionState.serial = max(sessionState.serial, serial)
            sessionState.storedSession = session
            sessionState.clearProblem(.storing)
            sessionState.clearProblem(.damaged)
        }
        var grant = grant
        (grant.serial, grant.isStored, grant.wasStored) = (serial, true, true)
        return grant
    }
}
