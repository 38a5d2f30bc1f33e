public import Foundation

/// Why a runner could not run a task with a dependency that the task accepts.
///
/// Where several reasons hold at once, the gravest is given: a critical error, then the end of the session, then a refused
/// update, then cancellation or a time-out. Descriptions never contain the text of an underlying error, which might quote a
/// token.
@nonexhaustive public enum RunnerError: Error, Sendable {
    /// The update was refused, for this and every later call until a value is set, or the runner is reset.
    case updateFailed(underlying: (any Error)?)

    /// The task refused one dependency after the other, with no success in between; `underlying` is what it threw last, if it threw.
    case tooManyUpdates(count: Int, elapsed: Duration, underlying: (any Error)?)

    /// Tasks refused one new dependency after the other, with no success in between; there is no update until one accepts the
    /// present dependency, or some time has passed.
    case tooManyUpdatesInWindow(count: Int, window: Duration, underlying: (any Error)?)

    /// The update brought what had been refused.
    case sameDependency

    /// The call took longer than its time-out; an update that it waited for goes on.
    case timedOut(after: Duration)

    /// The update took longer than ``RunnerPolicy/updateTimeout``; the next call tries again, and what the update brings late is
    /// kept.
    case updateTimedOut(after: Duration)

    /// A task or an update threw a ``CriticalError``; of all the callers who get this, one is its originator.
    case critical(underlying: any Error, isOriginator: Bool)

    /// The runner was reset while the call was under way.
    case reset

    /// The session ended (sign-out) while the call was under way.
    case signedOut

    /// The call came from within an update that it would have to wait for, directly or through others.
    case wouldDeadlock

    /// There is no dependency, and the runner was given no way of making one.
    case noUpdate

    /// The sign-in was refused, as with a wrong password. The next call asks again.
    case signInFailed(underlying: any Error)

    /// Stored tokens are there, but cannot be read now, perhaps because the device is locked. Not a reason to sign in.
    case tokensUnreadable(underlying: any Error)

    /// New tokens could not be made durable, and the store has others which they replace at the server. They are kept in memory, and
    /// the next call tries to store them again.
    case tokensNotStored(underlying: any Error)

    /// It is not known whether another process renews the stored tokens now, so this one does not. The next call tries again.
    case leaseUnavailable(underlying: any Error)
}

extension RunnerError {
    /// A ``RunnerError`` without what belongs to the occasion: can be compared, counted and logged.
    @nonexhaustive public enum Code: String, Sendable, Hashable, CaseIterable {
        /// ``RunnerError/updateFailed(underlying:)``.
        case updateFailed
        /// ``RunnerError/tooManyUpdates(count:elapsed:underlying:)``.
        case tooManyUpdates
        /// ``RunnerError/tooManyUpdatesInWindow(count:window:underlying:)``.
        case tooManyUpdatesInWindow
        /// ``RunnerError/sameDependency``.
        case sameDependency
        /// ``RunnerError/timedOut(after:)``.
        case timedOut
        /// ``RunnerError/updateTimedOut(after:)``.
        case updateTimedOut
        /// ``RunnerError/critical(underlying:isOriginator:)``.
        case critical
        /// ``RunnerError/reset``.
        case reset
        /// ``RunnerError/signedOut``.
        case signedOut
        /// ``RunnerError/wouldDeadlock``.
        case wouldDeadlock
        /// ``RunnerError/noUpdate``.
        case noUpdate
        /// ``RunnerError/signInFailed(underlying:)``.
        case signInFailed
        /// ``RunnerError/tokensUnreadable(underlying:)``.
        case tokensUnreadable
        /// ``RunnerError/tokensNotStored(underlying:)``.
        case tokensNotStored
        /// ``RunnerError/leaseUnavailable(underlying:)``.
        case leaseUnavailable
    }

    /// Which error it is.
    public var code: Code {
        switch self {
        case .updateFailed: .updateFailed
        case .tooManyUpdates: .tooManyUpdates
        case .tooManyUpdatesInWindow: .tooManyUpdatesInWindow
        case .sameDependency: .sameDependency
        case .timedOut: .timedOut
        case .updateTimedOut: .updateTimedOut
        case .critical: .critical
        case .reset: .reset
        case .signedOut: .signedOut
        case .wouldDeadlock: .wouldDeadlock
        case .noUpdate: .noUpdate
        case .signInFailed: .signInFailed
        case .tokensUnreadable: .tokensUnreadable
        case .tokensNotStored: .tokensNotStored
        case .leaseUnavailable: .leaseUnavailable
        }
    }
}

extension RunnerError: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// A sentence for a person.
    public var errorDescription: String? { self.description }

    /// A sentence for a person.
    public var description: String {
        switch self {
        case .updateFailed: "The dependency could not be renewed: the update was refused."
        case .tooManyUpdates(let count, let elapsed, _):
            "The task refused the dependency again after \(count) updates in \(elapsed)."
        case .tooManyUpdatesInWindow(let count, let window, _):
            "The dependency was refused again after \(count) updates within \(window)."
        case .sameDependency: "The update brought the dependency that had been refused."
        case .timedOut(let duration): "There was no result within \(duration)."
        case .updateTimedOut(let duration): "The dependency could not be renewed within \(duration)."
        case .critical: "A critical error ended all calls."
        case .reset: "The runner was reset."
        case .signedOut: "The session ended."
        case .wouldDeadlock: "The update waits for itself."
        case .noUpdate: "There is no dependency, and no way of making one."
        case .signInFailed: "The sign-in was refused."
        case .tokensUnreadable: "The stored tokens cannot be read now."
        case .tokensNotStored: "The new tokens could not be stored."
        case .leaseUnavailable: "It is not known whether another process renews the tokens now."
        }
    }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// What was thrown to the runner, where something was.
    public var underlying: (any Error)? {
        switch self {
        case .updateFailed(let error), .tooManyUpdates(_, _, let error), .tooManyUpdatesInWindow(_, _, let error): error
        case .signInFailed(let error), .tokensUnreadable(let error), .tokensNotStored(let error): error
        case .critical(let error, _), .leaseUnavailable(let error): error
        case .sameDependency, .timedOut, .updateTimedOut, .reset, .signedOut, .wouldDeadlock, .noUpdate: nil
        }
    }
}

extension Error {
    /// Whether the error says that nothing can be written where it was tried, by this process or another like it.
    var saysUnwritable: Bool {
        guard case .fileSystem(_, let code)? = self as? MuxStoreError else { return false }
        return POSIXFileSystem.isUnwritable(code)
    }
}
