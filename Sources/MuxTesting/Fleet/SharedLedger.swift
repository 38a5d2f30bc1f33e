package import MuxKit

/// The books of a ``MuxSharedStore``: entries, claims and epochs, as a pure state machine.
///
/// Whatever can be invalidated in one step has an epoch, which that raises. A claim notes the epochs of what its name belongs to, and
/// what is put with it has those: so it does not exist if any was raised since the claim was granted.
package struct SharedLedger<Content: Hashable & Sendable>: Hashable, Sendable {
    package struct Held: Hashable, Sendable {
        package var content: Content
        /// When it was fetched.
        package var fetchedAt: Moment
        fileprivate var epochs: [MuxShared.Scope: UInt64]
    }

    private struct Standing: Hashable {
        var nonce: UInt64
        var ends: Moment
        var epochs: [MuxShared.Scope: UInt64]
    }

    package enum ClaimAction: Hashable, Sendable {
        case entry(Held)
        case granted(nonce: UInt64, Held?)
        case taken(until: Moment, Held?)
    }

    private var entries: [MuxStoreKey: Held] = [:]
    private var claims: [MuxStoreKey: Standing] = [:]
    private var epochs: [MuxShared.Scope: UInt64] = [:]
    private var lastNonce: UInt64 = 0

    package init() {}

    private func epochs(of name: MuxShared.Name) -> [MuxShared.Scope: UInt64] {
        Dictionary(name.scopes.map { ($0, self.epochs[$0] ?? 0) }) { epoch, _ in epoch }
    }

    /// The entry, unless it is over.
    package func entry(_ name: MuxShared.Name) -> Held? {
        self.entries[name.key].flatMap { $0.epochs == self.epochs(of: name) ? $0 : nil }
    }

    /// Whether a put with this nonce would be accepted.
    package func stands(_ nonce: UInt64, _ name: MuxShared.Name, at now: Moment) -> Bool {
        self.standing(name, at: now)?.nonce == nonce
    }

    /// Whether a caller has the right to put the entry.
    package func isClaimed(_ name: MuxShared.Name, at now: Moment) -> Bool { self.standing(name, at: now) != nil }

    private func standing(_ name: MuxShared.Name, at now: Moment) -> Standing? {
        guard let claim = self.claims[name.key], now < claim.ends, claim.epochs == self.epochs(of: name) else {
            return nil
        }
        return claim
    }

    /// A caller wants the entry, or else to fetch it.
    ///
    /// - Parameters:
    ///   - name: The entry's name.
    ///   - duration: For how long the claim stands at most.
    ///   - now: The time.
    ///   - isGoodEnough: Whether an entry will do.
    /// - Returns: The entry, or who fetches.
    package mutating func claimed(
        _ name: MuxShared.Name,
        for duration: Duration,
        at now: Moment,
        _ isGoodEnough: (Held) -> Bool
    ) -> ClaimAction {
        let held = self.entry(name)
        if let held, isGoodEnough(held) { return .entry(held) }
        if let claim = self.standing(name, at: now) { return .taken(until: claim.ends, held) }
        self.lastNonce += 1
        self.claims[name.key] = Standing(
            nonce: self.lastNonce,
            ends: now.advanced(by: duration),
            epochs: self.epochs(of: name)
        )
        return .granted(nonce: self.lastNonce, held)
    }

    /// A fetch has ended with a value.
    ///
    /// - Returns: Whether it is stored: its claim still stood.
    package mutating func put(
        _ content: Content,
        fetchedAt: Moment,
        _ nonce: UInt64,
        _ name: MuxShared.Name,
        at now: Moment
    ) -> Bool {
        guard let claim = self.standing(name, at: now), claim.nonce == nonce else { return false }
        self.claims[name.key] = nil
        self.entries[name.key] = Held(content: content, fetchedAt: fetchedAt, epochs: claim.epochs)
        return true
    }

    /// A fetch has ended without a value.
    ///
    /// - Returns: Whether its claim still stood.
    package mutating func givenUp(_ nonce: UInt64, _ name: MuxShared.Name, at now: Moment) -> Bool {
        guard self.stands(nonce, name, at: now) else { return false }
        self.claims[name.key] = nil
        return true
    }

    /// Something is over.
    package mutating func invalidated(_ scope: MuxShared.Scope) {
        if case .entry(let key) = scope {
            self.entries[key] = nil
            self.claims[key] = nil
        } else {
            self.epochs[scope, default: 0] += 1
        }
    }

    /// All entries are lost, as those of an engine that starts again without a disk; the epochs, too.
    ///
    /// Nonces go on, as random ones do: no put of before is accepted.
    package mutating func lost() {
        self.entries = [:]
        self.claims = [:]
        self.epochs = [:]
    }
}
