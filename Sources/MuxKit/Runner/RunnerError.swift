public import Foundation

/// Why a runner could not run a task with a dependency that the task accepts.
///
/// Descriptions never contain the text of an underlying error, which might quote a token.
@nonexhaustive public enum RunnerError: Error, Sendable {
    /// The update was refused, for this and every later call until a value is set, or the runner is reset.
    case updateFailed(underlying: (any Error)?)

    /// The task refused every dependency that it was given; `underlying` is what it threw last, if it threw.
    case tooManyUpdates(count: Int, elapsed: Duration, underlying: (any Error)?)

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

    /// A new refresh token could not be made durable. It is kept in memory, and the next call tries to store it again.
    case tokensNotStored(underlying: any Error)
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
        case .reset: "The runner was reset."
        case .signedOut: "The session ended."
        case .wouldDeadlock: "The update waits for itself."
        case .noUpdate: "There is no dependency, and no way of making one."
        case .signInFailed: "The sign-in was refused."
        case .tokensUnreadable: "The stored tokens cannot be read now."
        case .tokensNotStored: "The new tokens could not be stored."
        }
    }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// What was thrown to the runner, where something was.
    public var underlying: (any Error)? {
        switch self {
        case .updateFailed(let error), .tooManyUpdates(_, _, let error): error
        case .signInFailed(let error), .tokensUnreadable(let error), .tokensNotStored(let error): error
        case .reset, .signedOut, .wouldDeadlock, .noUpdate: nil
        }
    }
}
