/// What a task tells the runner that gave it a dependency.
public enum RunResult<Output: Sendable>: Sendable {
    /// The task succeeded; a success is not taken back, whatever happens to others.
    case output(Output)

    /// The dependency is no good any more: renew it and run the task again.
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

    /// The result of what comes next, if there is an output.
    ///
    /// - Parameter transform: Does what comes next, which may find the dependency bad.
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
/// A thrown error is transient: whoever waits gets it, nothing sticks, and the next call tries again.
public enum UpdateResult<Dependency: Sendable>: Sendable {
    /// There is a new dependency.
    case updatedDependency(Dependency)

    /// The update was refused, and would be again.
    ///
    /// The dependency that was to be replaced is no good any more, and calls fail at once from now on, until a value is set or the runner is reset. Throwing a ``BadDependencyError`` that
    /// says so means the same.
    case updateFailed
}

extension UpdateResult: Equatable where Dependency: Equatable {}

/// An error that can tell whether the dependency was to blame.
///
/// Thrown from a task of a ``DependencyRunner``, it counts as ``RunResult/badDependency`` if it says so.
public protocol BadDependencyError: Error {
    /// Whether a new dependency could help, as a new access token helps against the HTTP status 401.
    var isBadDependency: Bool { get }
}

/// Says that the dependency was to blame, and nothing more.
public struct BadDependency: BadDependencyError {
    /// Always `true`.
    public var isBadDependency: Bool { true }

    /// Makes the error.
    public init() {}
}

/// Says that no call of a runner can succeed any more, such as when an account was closed.
///
/// Thrown from a task or an update, it ends every call that waits and every later one with
/// ``RunnerError/critical(underlying:isOriginator:)``, until the runner is reset or a value is set.
public struct CriticalError: Error {
    /// What happened.
    public let underlying: any Error

    /// Makes the error.
    ///
    /// - Parameter underlying: What happened.
    public init(_ underlying: any Error) { self.underlying = underlying }
}

/// A critical error on its way to all callers, one of which originated it.
@usableFromInline
package struct RaisedCritical: Error {
    private let underlying: any Error
    private let isClaimed = Locked(false)

    package init(_ underlying: any Error) { self.underlying = underlying }

    /// What the next caller gets: the first one is the originator.
    func claimed() -> RunnerError {
        let isFirst = self.isClaimed.withLock { isClaimed in
            defer { isClaimed = true }
            return !isClaimed
        }
        return .critical(underlying: self.underlying, isOriginator: isFirst)
    }
}

extension Error {
    /// The cause of a critical error, of this runner or of one that it depends on; `nil` if it is none.
    var criticalCause: (any Error)? {
        if let error = self as? CriticalError { return error.underlying }
        if case .critical(let underlying, _)? = self as? RunnerError { return underlying }
        return nil
    }
}

/// What one call of a runner has met so far.
public struct RunContext: Sendable {
    /// How many updates the call has asked for because its task refused the dependency; nobody else's count.
    public let updates: Int

    /// How long the call has been under way.
    public let elapsed: Duration

    /// What the task threw when it refused the dependency last, if it threw.
    public let lastError: (any Error)?

    init<Dependency: Sendable>(_ call: DependencyStateMachine<Dependency>.Call, at now: Moment) {
        self.updates = call.updates
        self.elapsed = now.duration(since: call.startedAt)
        self.lastError = call.lastError
    }
}
