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
