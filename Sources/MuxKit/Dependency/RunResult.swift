public import Foundation

/// The result of a task with a dependency.
public enum RunResult<Output: Sendable>: Sendable {
    /// The task succeeded. The caller of `run` gets the output, even if the session ends during the task.
    case output(Output)

    /// The task refused the dependency: the runner runs the task again with another dependency.
    ///
    /// An update makes the other dependency, unless an update has done so already. ``RunnerPolicy`` limits
    /// the updates.
    case badDependency
}

extension RunResult {
    /// Transforms the output.
    ///
    /// - Parameter transform: Makes the new output.
    /// - Returns: The transformed output, or ``badDependency`` unchanged.
    /// - Throws: The error of `transform`.
    public func map<Other: Sendable, Failure: Error>(
        _ transform: (Output) throws(Failure) -> Other
    ) throws(Failure) -> RunResult<Other> {
        try self.flatMap { output throws(Failure) in .output(try transform(output)) }
    }

    /// Passes the output to another step, and returns the result of that step.
    ///
    /// - Parameter transform: The other step, which may refuse the dependency.
    /// - Returns: The result of `transform`, or ``badDependency`` unchanged.
    /// - Throws: The error of `transform`.
    public func flatMap<Other: Sendable, Failure: Error>(
        _ transform: (Output) throws(Failure) -> RunResult<Other>
    ) throws(Failure) -> RunResult<Other> {
        switch self {
        case .output(let output): try transform(output)
        case .badDependency: .badDependency
        }
    }
}

extension RunResult: Equatable where Output: Equatable {}

/// The result of an update of a dependency.
///
/// An update may also throw. A ``BadDependencyError`` has the effect of ``updateFailed``, and a
/// ``CriticalError`` ends all calls. After any other error, a later call can start another update.
public enum UpdateResult<Dependency: Sendable>: Sendable {
    /// The update made a new dependency.
    case updatedDependency(Dependency)

    /// The update was refused; a repetition would fail, too.
    ///
    /// A runner drops the current dependency, and calls throw ``RunnerError/updateFailed(underlying:)`` at
    /// once until a value is set or the runner is reset. After a time-out of the update, the runner ignores
    /// the refusal. The stored update of a runner with a parent runner instead refuses the parent's
    /// dependency.
    ///
    /// ``MuxSessions`` remembers the refusal for one minute, or until a token is set or the user is signed
    /// out: calls that need an update of the user's token throw the error.
    case updateFailed
}

extension UpdateResult: Equatable where Dependency: Equatable {}

/// Reports to a runner that no further call can succeed, for example because the account was closed.
///
/// If a task or an update throws this error, all waiting and later calls fail with
/// ``RunnerError/critical(underlying:isOriginator:)``. After a reset, a sign-out or a call of `set`, calls
/// run again.
public struct CriticalError: Error {
    /// The cause.
    public let underlying: any Error

    /// Makes the error.
    ///
    /// - Parameter underlying: The cause.
    public init(_ underlying: any Error) { self.underlying = underlying }
}

extension CriticalError: RetryableError {
    /// Permanent.
    public var retryAdvice: RetryAdvice { .permanent }
}

extension CriticalError: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// A text for users and logs.
    public var errorDescription: String? { self.description }

    /// A text for users and logs.
    public var description: String { ErrorText.joined("No further call can succeed.", self.underlying) }

    /// Contains only the ``description``.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

/// A critical error for all callers; the first caller that gets the error is the originator.
@usableFromInline
package struct RaisedCritical: Error {
    private let underlying: any Error
    private let isClaimed = Locked(false)

    package init(_ underlying: any Error) { self.underlying = underlying }

    /// The error for the next caller; the first caller is the originator.
    func claimError() -> RunnerError {
        let isFirst = self.isClaimed.withLock { isClaimed in
            defer { isClaimed = true }
            return !isClaimed
        }
        return .critical(underlying: self.underlying, isOriginator: isFirst)
    }
}

extension Error {
    /// The cause of a ``CriticalError`` or of the critical error of another runner; `nil` for any other
    /// error.
    var criticalCause: (any Error)? {
        if let error = self as? CriticalError { return error.underlying }
        if case .critical(let underlying, _)? = self as? RunnerError { return underlying }
        return nil
    }
}
