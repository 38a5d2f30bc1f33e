import MuxKit
import Synchronization

/// Numbers the sessions of the repository of an ``HTTPClient`` or ``AsyncMedia``.
///
/// The end of one session increases the number several times.
final class SessionWatch: SessionCounter {
    private let repository: MuxRepository
    private let isOfAccount: Bool
    private let ended = Atomic(0)

    /// Makes a watch; `nil` without a transport, or if `transport` is the system transport, directly or below
    /// caches (``CachingTransport/endsInSystemTransport(_:)``).
    ///
    /// Only a custom transport can contain a further cache, which needs the session.
    init?(_ repository: MuxRepository, isOfAccount: Bool, for transport: (any HTTPTransport)?) {
        guard let transport, !CachingTransport.endsInSystemTransport(transport) else { return nil }
        self.repository = repository
        self.isOfAccount = isOfAccount
        repository.attach(self)
    }

    var session: UInt64 { UInt64(self.ended.load(ordering: .acquiring)) }

    /// The session of a call that begins now.
    ///
    /// Callers read the session before the call gets its token. Otherwise the session could end in between,
    /// and the response to a token of the ended session would count as a response of the next session.
    var current: CallSession { CallSession(self.repository, isOfAccount: self.isOfAccount, self) }
}

extension SessionWatch: SessionParticipant {
    func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void {
        self.signOutCompleted()
        return {}
    }

    /// Counts again: a call that began during the end of the session may have credentials of the ended
    /// session.
    func signOutCompleted() { self.ended.wrappingAdd(1, ordering: .releasing) }
}
