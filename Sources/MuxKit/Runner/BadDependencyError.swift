/// An error that can say whether what the failed task depended on was bad, such as an access token that has expired.
///
/// The runner treats a thrown error that says so like a task that reports a bad dependency: it updates the dependency
/// and runs the task again. Any other error passes through unchanged.
public protocol BadDependencyError: Error {
    /// Whether the dependency was at fault, so that the same task may succeed with a new one.
    var isBadDependency: Bool { get }
}
