public import Foundation

/// How a task with a dependency ended, if it did not throw.
public enum RunResult<Output: Sendable>: Sendable {
    /// The task succeeded; its caller gets the output, even if the session ends meanwhile.
    case output(Output)

    /// The task refused the dependency: renew it and run the task again.
    case badDependency
}

extension RunResult {
    /// The same result with another output.
    ///
    /// - Parameter transform: Makes the other output.
    /// - Returns: The transformed output, or ``badDependency`` as it was.
    /// - Throws: What `transform` threw.
    public func map<Other: Sendable, Failure: Error>(
        _ transform: (Output) throws(Failure) -> Other
    ) throws(Failure) -> RunResult<Other> {
        switch self {
        case .output(let output): .output(try transform(output))
        case .badDependency: .badDependency
        }
    }

    /// The result of a next step that needs the output.
    ///
    /// - Parameter transform: The next step, which may refuse the dependency.
    /// - Returns: What `transform` returned, or ``badDependency`` as it was.
    /// - Throws: What `transform` threw.
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

/// How an update of a dependency ended, if it did not throw.
///
/// A thrown error is transient: the callers that wait get it, and a later call tries again.
public enum UpdateResult<Dependency: Sendable>: Sendable {
    /// There is a new dependency.
    case updatedDependency(Dependency)

    /// The update was refused, and would be again.
    ///
    /// The present dependency is dropped, and calls fail at once until a value is set or the runner is reset. A thrown
    /// ``BadDependencyError`` means the same.
    case updateFailed
}

extension UpdateResult: Equatable where Dependency: Equatable {}

/// An error after which no call of a runner can succeed, such as when an account was closed.
///
/// Thrown from a task or an update, it ends every waiting call and every later one with
/// ``RunnerError/critical(underlying:isOriginator:)``, until the runner is reset or a value is set.
public struct CriticalError: Error {
    /// The cause.
    public let underlying: any Error

    /// Makes the error.
    ///
    /// - Parameter underlying: The cause.
    public init(_ underlying: any Error) { self.underlying = underlying }
}

extension CriticalError: LocalizedError, CustomStringConvertible, CustomReflectable {
    /// A sentence for a person.
    public var errorDescription: String? { self.description }

    /// A sentence for a person.
    public var description: String { "No further call can succeed. \(self.underlying.sentence)" }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

/// A critical error on its way to all callers, one of which originated it.
@usableFromInline
package struct RaisedCritical: Error {
    private let underlying: any Error
    private let isClaimed = Locked(false)

    package init(_ underlying: any Error) { self.underlying = underlying }

    /// The error for the next caller; the first one is the originator.
    func claimed() -> RunnerError {
        let isFirst = self.isClaimed.withLock { isClaimed in
            defer { isClaimed = true }
            return !isClaimed
        }
        return .critical(underlying: self.underlying, isOriginator: isFirst)
    }
}

extension Error {
    /// The cause of a critical error of this runner or of its parent; `nil` for any other error.
    var criticalCause: (any Error)? {
        if let error = self as? CriticalError { return error.underlying }
        if case .critical(let underlying, _)? = self as? RunnerError { return underlying }
        return nil
    }
}

/// The history of one call of a runner.
public struct RunContext: Sendable {
    /// How many updates the call has asked for because its own task refused the dependency.
    public let updates: Int

    /// The time since the call began.
    public let elapsed: Duration

    /// The error of the last refusal, if it was thrown.
    public let lastError: (any Error)?

    init<Dependency: Sendable>(_ call: DependencyStateMachine<Dependency>.Call, at now: Moment) {
        self.updates = call.updates
        self.elapsed = now.duration(since: call.startedAt)
        self.lastError = call.lastError
    }
}
