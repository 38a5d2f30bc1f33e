public import Foundation

/// Why a runner could not run a task with a dependency that the task accepts.
///
/// Where several reasons hold at once, the gravest is given: a critical error, then the end of the session, then a refused
/// update, then cancellation or a time-out. Descriptions contain what an underlying error says to people: its `errorDescription`, or else its
/// type, since its other texts might quote a token.
@nonexhaustive public enum RunnerError: Error, Sendable {
    /// The update was refused, for this and every later call until a value is set, or the runner is reset.
    case updateFailed(underlying: (any Error)?)

    /// The task refused one dependency after the other, with no acceptance in between; `underlying` is its last error, if any.
    case tooManyUpdates(count: Int, elapsed: Duration, underlying: (any Error)?)

    /// Tasks refused one new dependency after the other, with no acceptance in between. There is no update until one accepts
    /// the present dependency, or replacements leave the window.
    case tooManyUpdatesInWindow(count: Int, window: Duration, underlying: (any Error)?)

    /// The update made a dependency equal to the refused one.
    case sameDependency

    /// The call took longer than its time-out; an update that it waited for goes on.
    case timedOut(after: Duration)

    /// The update took longer than ``RunnerPolicy/updateTimeout``; the next call tries again, and a late dependency is kept.
    case updateTimedOut(after: Duration)

    /// A task or an update threw a ``CriticalError``; exactly one of the callers that get this is its originator.
    case critical(underlying: any Error, isOriginator: Bool)

    /// The runner was reset while the call was under way.
    case reset

    /// The session ended (sign-out) while the call was under way.
    case signedOut

    /// The call came from within an update that it would have to wait for, directly or through other flights.
    case wouldDeadlock

    /// There is no dependency, and no update that makes one.
    case noUpdate

    /// The sign-in failed, as with a wrong password or a person who cancelled it; `underlying` is what `signIn` threw. The next call asks
    /// again.
    case signInFailed(underlying: any Error)

    /// The stored tokens cannot be read now, such as on a locked device; there is no sign-in.
    case tokensUnreadable(underlying: any Error)

    /// New tokens could not be stored, and those in the store are void at the server. The new ones are kept in memory, and the
    /// next call tries to store them again.
    case tokensNotStored(underlying: any Error)

    /// The lease could not be taken, so another process may be renewing the stored tokens. The next call tries again.
    case leaseUnavailable(underlying: any Error)
}

extension RunnerError {
    /// The kind of a ``RunnerError``: can be compared, counted and logged.
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

    /// The kind of the error.
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
    /// A sentence for users and logs.
    public var errorDescription: String? { self.description }

    /// A sentence for users and logs.
    public var description: String {
        // A cancellation is no refusal, and its own text would repeat this one.
        if case .signInFailed(is CancellationError) = self { return "The sign-in was cancelled." }
        return self.summary + (self.underlying.map { " " + $0.sentence } ?? "")
    }

    private var summary: String {
        switch self {
        case .updateFailed: "The dependency could not be renewed: the update was refused."
        case .tooManyUpdates(let count, let elapsed, _):
            "The task refused the dependency again after \(ErrorText.count(count, "update")) in \(ErrorText.time(elapsed))."
        case .tooManyUpdatesInWindow(let count, let window, _):
            "The dependency was refused again after \(ErrorText.count(count, "update")) within \(ErrorText.time(window))."
        case .sameDependency: "The update brought the dependency that had been refused; it has to make a new one."
        case .timedOut(let duration): "There was no result within \(ErrorText.time(duration))."
        case .updateTimedOut(let duration):
            "The dependency could not be renewed within \(ErrorText.time(duration))."
        case .critical: "A critical error ended all calls."
        case .reset: "The runner was reset."
        case .signedOut: "The session ended."
        case .wouldDeadlock: "The update waits for itself: it must not use its own runner."
        case .noUpdate: "There is no dependency, and no way of making one: set a value, or give the runner an update."
        case .signInFailed: "The sign-in failed."
        case .tokensUnreadable: "The stored tokens cannot be read now."
        case .tokensNotStored: "The new tokens could not be stored."
        case .leaseUnavailable: "It is not known whether another process renews the tokens now."
        }
    }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// The error that a closure of the runner, the store or the lease threw; `nil` if none did.
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
    /// Whether the folder cannot be written to, by this process or another one of the same user.
    var saysUnwritable: Bool {
        guard case .fileSystem(_, let code)? = self as? MuxStoreError else { return false }
        return POSIXFileSystem.isUnwritable(code)
    }
}

extension RunnerError: RetryableError {
    /// The advice of the underlying error, if there is one; transient for a time-out, otherwise permanent.
    ///
    /// A sign-in that failed is permanent, so that a person is not asked again, unless `underlying` says that it is transient: a
    /// ``RetryableError``, or a connectivity failure.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .timedOut, .updateTimedOut: .transient
        case .critical: .permanent
        case .signInFailed(let error) where !(error is any RetryableError || SilenceableError.isSilenceable(error)):
            .permanent
        default: self.underlying.map { RetryAdvice.of($0) } ?? .permanent
        }
    }
}

extension RunnerError: ConnectivityError {
    /// Whether the underlying error is a connectivity failure.
    public var isConnectivityFailure: Bool {
        if case .critical = self { return false }
        return self.underlying.map(SilenceableError.isSilenceable) ?? false
    }
}

extension RunnerError: ClassifiedError {
    package var classification: ErrorClassification? {
        switch self {
        case .timedOut, .updateTimedOut: .reason(.timeOut)
        case .updateFailed(underlying: nil), .sameDependency: .reason(.refused)
        default: self.underlying.map { .sameAs($0) } ?? .reason(.other("RunnerError.\(self.code.rawValue)"))
        }
    }
}
