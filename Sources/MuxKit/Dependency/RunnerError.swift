public import Foundation

/// The reason why a runner could not run a task with an acceptable dependency.
///
/// If there are several reasons, the most serious reason determines the error: a critical error, then the end
/// of the session, then a refused update, then cancellation or a time-out.
///
/// A description can include a localized description of the underlying error. Other texts of the underlying
/// error are omitted, because these texts might quote a token.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum RunnerError: Error, Sendable {
    /// The update was refused: see ``UpdateResult/updateFailed``.
    case updateFailed(underlying: (any Error)?)

    /// The task refused too many dependencies: see ``RunnerPolicy/maximumUpdatesPerCall``.
    ///
    /// `count` is the number of updates that the refusals of the call requested. `elapsed` is the time since
    /// the call began. `underlying` is the error of the last refusal, if any.
    case tooManyUpdates(count: Int, elapsed: Duration, underlying: (any Error)?)

    /// Tasks refused too many new dependencies within `window`, without an acceptance in between.
    ///
    /// See ``RunnerPolicy/maximumUpdatesPerWindow``. `count` is the number of replaced dependencies.
    case tooManyUpdatesInWindow(count: Int, window: Duration, underlying: (any Error)?)

    /// The update made a dependency that equals the refused dependency: see
    /// ``RunnerPolicy/refusesSameDependency``.
    case sameDependency

    /// The call took longer than its time-out; a running update continues.
    case timedOut(after: Duration)

    /// The update took longer than ``RunnerPolicy/updateTimeout``; see there for later calls and a late
    /// dependency.
    case updateTimedOut(after: Duration)

    /// A task or an update threw a ``CriticalError``.
    ///
    /// `isOriginator` is `true` for the first caller of the runner that gets the error.
    case critical(underlying: any Error, isOriginator: Bool)

    /// The runner was reset during the call.
    case reset

    /// The session ended during the call, such as by a sign-out of this process or of another process.
    case signedOut

    /// The call would wait for work that waits for the call.
    ///
    /// For example, the call is part of an update or of a call of the token store. The wait can be direct, or
    /// through other flights.
    case wouldDeadlock

    /// The call needs an update, but neither the call nor the runner has an update closure.
    case noUpdate

    /// The sign-in failed, such as after a wrong password or a cancellation by the user.
    ///
    /// `underlying` is the error of `signIn`. After ``RunnerPolicy/coolDown``, the next call that needs a
    /// sign-in starts another sign-in.
    case signInFailed(underlying: any Error)

    /// The stored tokens cannot be used now; no sign-in starts.
    ///
    /// The tokens cannot be read, for example on a locked device. Or the tokens belong to another session,
    /// and the repository could not end the present session.
    case tokensUnreadable(underlying: any Error)

    /// The tokens could not be stored.
    ///
    /// ``OAuthDependentRunner/set(access:refresh:)`` throws this error after any failed save. Other calls
    /// throw this error only if the server is known to rotate refresh tokens and tokens of the session were
    /// stored before: the loss of a refresh token would end the session. The tokens are kept in memory. After
    /// ``RunnerPolicy/coolDown``, the next call that needs an update tries to store the tokens again.
    case tokensNotStored(underlying: any Error)

    /// The lease could not be taken: another process may be doing the same work, such as a renewal of tokens.
    ///
    /// After ``RunnerPolicy/coolDown``, the next call that needs the lease tries again.
    case leaseUnavailable(underlying: any Error)
}

extension RunnerError {
    /// The kind of a ``RunnerError``: can be compared, counted and logged.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Code: String, Sendable, Hashable, CaseIterable {
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
    /// A text for users and logs.
    public var errorDescription: String? { self.description }

    /// A text for users and logs.
    public var description: String {
        // The text of a `CancellationError` adds no information.
        if case .signInFailed(is CancellationError) = self { return "The sign-in was cancelled." }
        return self.underlying.map { ErrorText.joined(self.summary, $0) } ?? self.summary
    }

    private var summary: String {
        switch self {
        case .updateFailed: "The dependency could not be renewed: the update was refused."
        case .tooManyUpdates(let count, let elapsed, _):
            "The task refused the dependency again after \(ErrorText.count(count, "update")) in \(ErrorText.time(elapsed))."
        case .tooManyUpdatesInWindow(let count, let window, _):
            "The dependency was refused again after \(ErrorText.count(count, "update")) within \(ErrorText.time(window))."
        case .sameDependency: "The update returned the refused dependency. An update must return a new dependency."
        case .timedOut(let duration): "The call did not end within \(ErrorText.time(duration))."
        case .updateTimedOut(let duration):
            "The dependency could not be renewed within \(ErrorText.time(duration))."
        case .critical: "A critical error ended all calls."
        case .reset: "The runner was reset."
        case .signedOut: "The session ended."
        case .wouldDeadlock: "The call would wait for itself. An update or a token store must not wait for its runner."
        case .noUpdate: "The runner has no usable dependency and no update. Set a value, or give the runner an update."
        case .signInFailed: "The sign-in failed."
        case .tokensUnreadable: "The stored tokens cannot be read now."
        case .tokensNotStored: "The new tokens could not be stored."
        case .leaseUnavailable: "The lease could not be taken. Another process may be renewing the tokens."
        }
    }

    /// Contains only the ``description``.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// The associated error of the case, for example of a closure or of the store; `nil` without such an
    /// error.
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
    /// Whether the error means that processes of this user cannot write to the folder of a store or lease,
    /// for example because the disk is full.
    var saysUnwritable: Bool {
        guard case .fileSystem(_, let code)? = self as? MuxStoreError else { return false }
        return POSIXFileSystem.isUnwritable(code)
    }
}

extension RunnerError: RetryableError {
    /// The advice about another attempt.
    ///
    /// - A time-out is transient.
    /// - A critical error is permanent.
    /// - A failed sign-in is permanent, so that no retry asks the user again. The advice of the underlying
    ///   error applies only for a connectivity failure, and for a ``RetryableError``, also if wrapped.
    /// - Any other error has the advice of the underlying error, and is permanent without an underlying
    ///   error.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .timedOut, .updateTimedOut: .transient
        case .critical: .permanent
        case .signInFailed(let error)
        where !SilenceableError.isSilenceable(error) && error.firstDecision({ $0 as? any RetryableError }) == nil:
            .permanent
        default: self.underlying.map { RetryAdvice.of($0) } ?? .permanent
        }
    }
}

extension RunnerError: ConnectivityError {
    /// Whether the underlying error is a connectivity failure.
    ///
    /// `false` for a critical error, and without an underlying error.
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
