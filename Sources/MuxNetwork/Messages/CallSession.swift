import MuxKit

/// The session for which a call is sent, for the caches on its way.
///
/// It goes with the call (``HTTPCall``), and with the task that sends the call: a transport that makes a new call loses the former, and one
/// that starts a detached task the latter.
struct CallSession: Sendable {
    /// The session of the calls that the current task sends; `nil` if no client has begun them, or one without an account.
    @TaskLocal static var current: CallSession?

    /// The repository of the account.
    let repository: MuxRepository
    /// Whether the calls may have the credentials of an account, so that its sign-out has to reach their responses.
    let isOfAccount: Bool
    private let counter: any SessionCounter
    private let number: UInt64

    init(_ repository: MuxRepository, isOfAccount: Bool, _ counter: any SessionCounter, number: UInt64? = nil) {
        self.repository = repository
        self.isOfAccount = isOfAccount
        self.counter = counter
        self.number = number ?? counter.session
    }

    /// Whether the session goes on.
    var isCurrent: Bool { self.counter.session == self.number }

    /// The session of a call; `nil` if it is sent for none, or its client has noted the session in ``ValidatedCall/session``.
    static func of(_ call: ValidatedCall) -> CallSession? {
        call.call.account ?? (call.session == nil ? self.current : nil)
    }
}

/// Counts the sessions of a repository that have ended.
protocol SessionCounter: AnyObject, Sendable {
    var session: UInt64 { get }
}
