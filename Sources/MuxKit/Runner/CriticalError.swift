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
