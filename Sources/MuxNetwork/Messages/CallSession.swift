import MuxKit

/// The session of a repository in which a call began, for caches between the client and the transport.
///
/// The session is attached to the call (``HTTPCall``) and to the task that sends the call. If a transport
/// makes a new call, only the task has the session. If a transport passes the call to a detached task, only
/// the call has the session.
struct CallSession: Sendable {
    /// The session of the current task's calls; `nil` if no client, ``AsyncMedia`` or cache has set a
    /// session.
    @TaskLocal static var current: CallSession?

    /// The repository whose session this is.
    let repository: MuxRepository
    /// Whether calls may contain credentials of an account: the account's sign-out must then remove the
    /// responses.
    let isOfAccount: Bool
    private let counter: any SessionCounter
    private let number: UInt64

    init(_ repository: MuxRepository, isOfAccount: Bool, _ counter: any SessionCounter, number: UInt64? = nil) {
        self.repository = repository
        self.isOfAccount = isOfAccount
        self.counter = counter
        self.number = number ?? counter.session
    }

    /// Whether the session continues.
    var isCurrent: Bool { self.counter.session == self.number }

    /// The session of the call, otherwise the session of the current task; `nil` without either session.
    static func of(_ call: HTTPCall) -> CallSession? { call.callSession ?? self.current }
}

/// Provides a number that increases at the end of each session of a repository.
protocol SessionCounter: AnyObject, Sendable {
    var session: UInt64 { get }
}
