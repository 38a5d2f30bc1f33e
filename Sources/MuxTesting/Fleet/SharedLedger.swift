package import MuxKit

/// The ledger of a `MuxSharedStore`: entries, claims and epochs, as a pure state machine.
///
/// Each tag, each domain and the scope of all entries has an epoch, which an invalidation increments. A claim
/// records the epochs of the scopes of its name, and an entry gets the epochs of its claim. The entry is
/// invalid if an epoch was incremented after the grant of the claim. An invalidation of a single entry
/// removes the entry and its claim.
package struct SharedLedger<Content: Hashable & Sendable>: Hashable, Sendable {
    /// An entry.
    package struct Held: Hashable, Sendable {
        package var content: Content
        package var fetchedAt: Moment
        /// The epochs of the scopes at the grant of the entry's claim.
        fileprivate var epochs: [MuxShared.Scope: UInt64]
    }

    /// A claim: the exclusive right to put an entry.
    private struct Claim: Hashable {
        var nonce: UInt64
        /// The claim is valid before this time.
        var ends: Moment
        /// The epochs of the scopes at the grant.
        var epochs: [MuxShared.Scope: UInt64]
    }

    /// The result of ``claim(_:for:at:_:)``.
    package enum ClaimAction: Hashable, Sendable {
        /// An acceptable entry exists, and no claim was granted.
        case entry(Held)
        /// The claim was granted; with the present entry, which is not acceptable.
        case granted(nonce: UInt64, Held?)
        /// Another claim is valid until the given time; with the present entry, which is not acceptable.
        case taken(until: Moment, Held?)
    }

    private var entries: [MuxStoreKey: Held] = [:]
    private var claims: [MuxStoreKey: Claim] = [:]
    private var epochs: [MuxShared.Scope: UInt64] = [:]
    private var lastNonce: UInt64 = 0

    package init() {}

    private func epochs(of name: MuxShared.Name) -> [MuxShared.Scope: UInt64] {
        Dictionary(name.scopes.map { ($0, self.epochs[$0] ?? 0) }) { epoch, _ in epoch }
    }

    /// The entry; `nil` if absent, invalidated, or put with other tags.
    package func entry(_ name: MuxShared.Name) -> Held? {
        self.entries[name.key].flatMap { $0.epochs == self.epochs(of: name) ? $0 : nil }
    }

    /// Whether the nonce belongs to the valid claim of the entry, so that a put would be accepted.
    package func isClaimValid(_ nonce: UInt64, _ name: MuxShared.Name, at now: Moment) -> Bool {
        self.validClaim(name, at: now)?.nonce == nonce
    }

    /// Whether a valid claim of the entry exists.
    package func isClaimed(_ name: MuxShared.Name, at now: Moment) -> Bool { self.validClaim(name, at: now) != nil }

    /// The valid claim of the entry; `nil` without a claim, or if the claim has ended, was invalidated, or
    /// was granted with other tags.
    private func validClaim(_ name: MuxShared.Name, at now: Moment) -> Claim? {
        guard let claim = self.claims[name.key], now < claim.ends, claim.epochs == self.epochs(of: name) else {
            return nil
        }
        return claim
    }

    /// Returns an acceptable entry, or otherwise grants a claim unless another claim is valid.
    ///
    /// - Parameters:
    ///   - name: The entry's name.
    ///   - duration: The maximum validity of the claim.
    ///   - now: The current time.
    ///   - isAcceptable: Whether an entry is acceptable.
    /// - Returns: The acceptable entry; otherwise the granted claim or the end of the other claim, and the
    ///   entry that is not acceptable, if present.
    package mutating func claim(
        _ name: MuxShared.Name,
        for duration: Duration,
        at now: Moment,
        _ isAcceptable: (Held) -> Bool
    ) -> ClaimAction {
        let held = self.entry(name)
        if let held, isAcceptable(held) { return .entry(held) }
        if let claim = self.validClaim(name, at: now) { return .taken(until: claim.ends, held) }
        self.lastNonce += 1
        self.claims[name.key] = Claim(
            nonce: self.lastNonce,
            ends: now.advanced(by: duration),
            epochs: self.epochs(of: name)
        )
        return .granted(nonce: self.lastNonce, held)
    }

    /// Stores the value of a fetch with the epochs of the claim, and ends the claim.
    ///
    /// - Returns: Whether the value was stored; `false` if the claim is not valid any more.
    package mutating func put(
        _ content: Content,
        fetchedAt: Moment,
        _ nonce: UInt64,
        _ name: MuxShared.Name,
        at now: Moment
    ) -> Bool {
        guard let claim = self.validClaim(name, at: now), claim.nonce == nonce else { return false }
        self.claims[name.key] = nil
        self.entries[name.key] = Held(content: content, fetchedAt: fetchedAt, epochs: claim.epochs)
        return true
    }

    /// Ends the claim of a fetch without a value.
    ///
    /// - Returns: Whether the claim was still valid.
    package mutating func giveUp(_ nonce: UInt64, _ name: MuxShared.Name, at now: Moment) -> Bool {
        guard self.isClaimValid(nonce, name, at: now) else { return false }
        self.claims[name.key] = nil
        return true
    }

    /// Invalidates the entries and claims of a scope.
    package mutating func invalidate(_ scope: MuxShared.Scope) {
        if case .entry(let key) = scope {
            self.entries[key] = nil
            self.claims[key] = nil
        } else {
            self.epochs[scope, default: 0] += 1
        }
    }

    /// Removes all entries, claims and epochs, like a restart of a database without persistence.
    ///
    /// Nonces are never reused: no put with an earlier claim is accepted.
    package mutating func loseAll() {
        self.entries = [:]
        self.claims = [:]
        self.epochs = [:]
    }
}
