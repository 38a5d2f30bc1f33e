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
