public import Foundation

/// An error that may be a refusal of the dependency.
///
/// If a task of a ``DependencyRunner`` throws this error and ``isBadDependency`` is `true`, the error counts
/// as ``RunResult/badDependency``. A wrapped error counts, too (``WrappingError``).
public protocol BadDependencyError: Error {
    /// Whether a new dependency may prevent the error, such as a new access token after the HTTP status 401.
    ///
    /// Default: `true`.
    var isBadDependency: Bool { get }
}

extension BadDependencyError {
    /// `true`, unless the type implements the property.
    public var isBadDependency: Bool { true }
}

/// A refusal of the dependency, without a cause.
public struct BadDependency: BadDependencyError {
    /// Makes the error.
    public init() {}
}

extension BadDependency: LocalizedError, CustomStringConvertible {
    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// A sentence for a person.
    public var errorDescription: String? { "The dependency was refused." }
}

extension Error {
    /// Whether the error is a refusal of the dependency, or wraps a refusal.
    ///
    /// Of nested errors, the outermost ``BadDependencyError`` decides.
    package var saysBadDependency: Bool {
        self.firstDecision { ($0 as? any BadDependencyError)?.isBadDependency } ?? false
    }

    /// Whether the error is a refusal of the dependency, regardless of wrapped errors.
    package var isRefusal: Bool { (self as? any BadDependencyError)?.isBadDependency ?? false }
}
