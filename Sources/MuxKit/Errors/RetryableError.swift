import Foundation

/// An error that knows what another attempt is worth.
///
/// An error that does not say is worth one, unless it is of a kind that no attempt mends: a cancellation, a value that cannot
/// be encoded or decoded, a ``BadDependencyError`` that blames the dependency, a ``ConnectivityError`` that is none.
public protocol RetryableError: Error {
    /// What another attempt is worth.
    var retryAdvice: RetryAdvice { get }
}

/// What an error says about another attempt; a ``RetryPolicy`` decides by it.
public struct RetryAdvice: Sendable, Hashable {
    /// Whether the trouble may pass, as a lost connection does and a malformed request does not.
    ///
    /// With a ``status``, the lists of the policy decide instead. In any case it counts against the host's health.
    public var isTransient: Bool

    /// Whether another run can do no harm: the work is idempotent, or it never arrived.
    public var isRepeatable: Bool

    /// The status code that the server answered with, if it did.
    public var status: Int?

    /// How long the server wants to be left alone, if it said so.
    public var retryAfter: Duration?

    /// Makes an advice of the given parts.
    public init(isTransient: Bool, isRepeatable: Bool = true, status: Int? = nil, retryAfter: Duration? = nil) {
        self.isTransient = isTransient
        self.isRepeatable = isRepeatable
        self.status = status
        self.retryAfter = retryAfter
    }

    /// The trouble may pass.
    public static let transient = RetryAdvice(isTransient: true)

    /// Another attempt would fail in the same way.
    public static let permanent = RetryAdvice(isTransient: false)

    /// What `error` says, or what its kind says in its place; `nil` stands for a result that is to be fetched again.
    package static func of(_ error: (any Error)?) -> RetryAdvice {
        guard let error else { return .transient }
        if let error = error as? any RetryableError { return error.retryAdvice }
        if error is CancellationError || error is DecodingError || error is EncodingError || error.saysBadDependency {
            return .permanent
        }
        if SilenceableError.isSilenceable(error) { return .transient }
        if error is any ConnectivityError { return .permanent }
        let code = error as NSError
        switch code.domain {
        // Linux reports a body that broke off as -1, "unknown".
        case "NSURLErrorDomain": return code.code == -1 ? .transient : .permanent
        default: return .transient
        }
    }
}
