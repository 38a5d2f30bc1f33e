import MuxKit

/// Counts the ended sessions of the repository for which a client or media send calls.
final class SessionWatch: SessionCounter {
    private let repository: MuxRepository
    private let isOfAccount: Bool
    private let ended = Locked<UInt64>(0)

    /// Makes a watch; `nil` if no cache that would ask is on the way of `transport`.
    init?(_ repository: MuxRepository, isOfAccount: Bool, for transport: (any HTTPTransport)?) {
        guard let transport, !CachingTransport.isKnown(transport) else { return nil }
        self.repository = repository
        self.isOfAccount = isOfAccount
        repository.attach(self)
    }

    var session: UInt64 { self.ended.withLock(\.self) }

    /// The session of a call that begins now: before it has a token, which belongs to that session.
    var current: CallSession { CallSession(self.repository, isOfAccount: self.isOfAccount, self) }
}

extension SessionWatch: SessionParticipant {
    func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        self.signOutCompleted()
        return {}
    }

    /// A call that began while the session ended may have the credentials of the former one.
    func signOutCompleted() { self.ended.withLock { $0 &+= 1 } }
}
