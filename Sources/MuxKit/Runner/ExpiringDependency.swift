public import Foundation

/// A dependency that knows when it turns bad.
///
/// A runner renews it a little before that: see ``RunnerPolicy/leeway``.
public protocol ExpiringDependency: Sendable {
    /// When it ends, by the time of day.
    var expiry: Date { get }
}
