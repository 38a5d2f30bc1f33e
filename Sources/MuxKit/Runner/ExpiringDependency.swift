public import Foundation

/// A dependency that knows when it turns bad.
///
/// A runner renews it a little before that: see ``RunnerPolicy/leeway``.
public protocol ExpiringDependency: Sendable {
    /// When it ends, by the time of day.
    var expiry: Date { get }
}

/// A dependency that may know when it turns bad, as a token of a server that does not always say.
///
/// A runner renews it as it does an ``ExpiringDependency``.
public protocol PerishableDependency: Sendable {
    /// When it ends, by the time of day; `nil` if it does not say.
    var expiry: Date? { get }
}

extension Date {
    /// When `value` says that it ends; `nil` if it does not say.
    init?(expiryOf value: some Sendable) {
        let date = (value as? any ExpiringDependency)?.expiry ?? (value as? any PerishableDependency)?.expiry
        guard let date else { return nil }
        self = date
    }
}
