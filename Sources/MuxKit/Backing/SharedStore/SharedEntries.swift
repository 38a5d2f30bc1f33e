/// A claim of this machine: the right to fetch for all machines.
///
/// An object, because few flights have a claim.
@usableFromInline
final class FetchClaim: Sendable {
    private let client: SharedStoreClient
    let ticket: MuxShared.Ticket
    /// Whether the store has an earlier entry.
    let replaces: Bool
    /// The remaining time that the flight may wait for the store.
    let budget: Duration

    init(_ client: SharedStoreClient, _ ticket: MuxShared.Ticket, replaces: Bool, budget: Duration) {
        self.client = client
        self.ticket = ticket
        self.replaces = replaces
        self.budget = budget
    }

    /// Ends the claim without an entry.
    @usableFromInline
    func giveUp() { self.client.giveUp(self.ticket) }
}

/// The outcome of a put of a fetched value in the shared store.
///
/// Indirect, so that the usual outcome, without a shared store, is a small value.
@usableFromInline
indirect enum SharedOutcome<Value: Sendable>: Sendable {
    /// The store has not stored the value; this machine may keep the value in memory.
    case notShared
    /// The store has refused the value; this machine may keep the value in memory.
    case refused
    /// The claim had ended, and another machine has stored a newer entry with this digest.
    case superseded(by: Slot<Value>.Entry, digest: String)
    /// The store has the entry or, after an unknown outcome, may have the entry; `digest` is the payload's
    /// digest.
    case stored(digest: String)
}

/// The metadata of a multiplexer's entries in a shared store, in addition to the slots.
///
/// Only a key with an entry in memory or a flight has a `Fact`. An entry with changes of the app may lack a
/// `Fact`.
@usableFromInline
struct SharedEntries<Key: Hashable & Sendable>: Sendable {
    private struct Fact: Sendable {
        let name: MuxShared.Name
        /// The digest of the payload of the entry with this revision.
        var digest: (text: String, revision: UInt64)?
        /// The sequence number of the last refresh by a caller; see ``Slot/Entry/sequence``.
        var lastRefresh: UInt64 = 0
        var flightCount = 0
        /// The end of the last claim of another machine for which a flight stopped waiting.
        var vainClaimEnd: Moment?
    }

    private var facts: [Key: Fact] = [:]
    /// The keys by name; names that differ only in Unicode normalization are different.
    private var keys: [MuxStoreKey: Key] = [:]
    private var tagged: [MuxShared.Scope: Set<Key>] = [:]
    /// The sequence number of the last refresh of all entries by a caller.
    private var lastRefresh: UInt64 = 0
    /// The sequence number of the last gap in the store's reports of changes.
    ///
    /// Entries that arrived before the gap must be verified.
    private(set) var lastUnknown: UInt64 = 0
    /// The sequence number of the last gap if the store has lost all entries in this gap; otherwise zero.
    ///
    /// Entries that arrived before the loss may be put again.
    private var lastEmptied: UInt64 = 0

    /// Whether a fact was ever added; `false` saves look-ups without a shared store.
    @usableFromInline private(set) var hasHadFacts = false

    var count: Int { self.facts.count }

    // MARK: - Flights

    mutating func recordFlight(of key: Key, _ name: MuxShared.Name) {
        if let place = self.facts.index(forKey: key) {
            self.facts.values[place].flightCount += 1
        } else {
            self.add(key, Fact(name: name, flightCount: 1))
        }
    }

    private mutating func add(_ key: Key, _ fact: Fact) {
        self.hasHadFacts = true
        self.facts[key] = fact
        self.keys[fact.name.key] = key
        for tag in fact.name.tags { self.tagged[.tag(tag), default: []].insert(key) }
    }

    /// Records that a flight has ended; a call of ``dropFact(about:)`` must follow if memory has no entry.
    mutating func recordEnd(of key: Key) { self.facts[key]?.flightCount -= 1 }

    /// Removes the fact about a key without an entry in memory; during a flight, removes the digest only.
    ///
    /// - Returns: Keys to be released outside the lock.
    @usableFromInline
    mutating func dropFact(about key: Key) -> [Key] {
        guard let place = self.facts.index(forKey: key) else { return [] }
        guard self.facts.values[place].flightCount == 0 else {
            self.facts.values[place].digest = nil
            return []
        }
        let (known, fact) = self.facts.remove(at: place)
        var released = [known, self.keys.removeValue(forKey: fact.name.key)].compactMap(\.self)
        for tag in fact.name.tags {
            // In place: a change of a copy would copy the set.
            guard let place = self.tagged.index(forKey: .tag(tag)) else { continue }
            if let known = self.tagged.values[place].remove(key) { released.append(known) }
            if self.tagged.values[place].isEmpty { self.tagged.remove(at: place) }
        }
        return released
    }

    /// Removes the facts about all keys, after all entries have left memory; facts about keys with a flight
    /// stay, without digest.
    ///
    /// - Returns: The former facts, to be released outside the lock.
    mutating func dropAllFacts() -> any Sendable {
        let former = (self.facts, self.keys, self.tagged)
        (self.facts, self.keys, self.tagged) = ([:], [:], [:])
        for (key, fact) in former.0 where fact.flightCount > 0 {
            var fact = fact
            fact.digest = nil
            self.add(key, fact)
        }
        return former
    }

    /// Records that a flight stopped waiting for another machine's claim, which ends at `end`.
    mutating func recordVainWait(for key: Key, until end: Moment) { self.facts[key]?.vainClaimEnd = end }

    func vainClaimEnd(_ key: Key) -> Moment? { self.facts[key]?.vainClaimEnd }

    /// Whether the key has a fact, which a report of a change needs to find the key.
    func hasFact(_ key: Key) -> Bool { self.facts[key] != nil }

    /// The key with this name, if the key has an entry in memory or a flight.
    func key(of name: MuxStoreKey) -> Key? { self.keys[name] }

    /// The keys with this tag that have an entry in memory or a flight.
    func keys(tagged tag: String) -> Set<Key> { self.tagged[.tag(tag)] ?? [] }

    // MARK: - Entries

    @usableFromInline
    mutating func recordDigest(_ digest: String, of key: Key, revision: UInt64) {
        self.facts[key]?.digest = (digest, revision)
    }

    func digest(_ key: Key, of revision: UInt64) -> String? {
        guard let digest = self.facts[key]?.digest, digest.revision == revision else { return nil }
        return digest.text
    }

    /// Records that a caller has refreshed the entry.
    mutating func recordRefresh(of key: Key, number: UInt64) { self.facts[key]?.lastRefresh = number }

    /// Records that a caller has refreshed all entries.
    mutating func recordRefreshOfAll(number: UInt64) { self.lastRefresh = number }

    /// Records a gap in the store's reports of changes.
    mutating func recordGap(at number: UInt64, isEmptied: Bool) {
        self.lastUnknown = number
        // Entries that were cleared during the gap must not be put again.
        self.lastEmptied = isEmptied ? number : 0
    }

    /// Whether an entry counts as refreshed only because this machine may have missed changes.
    func isUnverified<Value>(_ slot: Slot<Value>, _ key: Key) -> Bool {
        guard let entry = slot.entry, slot.isRefreshed else { return false }
        let lastRefresh = max(self.lastRefresh, self.facts[key]?.lastRefresh ?? 0)
        return entry.sequence <= self.lastUnknown && entry.sequence > lastRefresh
    }

    /// Whether an unverified entry may be put again, because the store has lost all entries.
    func mayBeOffered<Value>(_ entry: Slot<Value>.Entry) -> Bool { entry.sequence <= self.lastEmptied }

    /// A violated invariant, for tests; `nil` without a violation.
    func violation(_ hasEntry: (Key) -> Bool) -> String? {
        if self.facts.contains(where: { $0.value.flightCount < 0 }) { return "more flights ended than began" }
        if self.facts.contains(where: { $0.value.flightCount == 0 && !hasEntry($0.key) }) {
            return "a fact about a shared entry that is not in memory"
        }
        return nil
    }
}

extension SlotState {
    /// Forgets the facts about the shared entry of `key`, unless memory has an entry: after an eviction, and
    /// after the end of a flight.
    @usableFromInline
    mutating func forgetSharedIfAbsent(_ key: Key) {
        if self.slots.slot(of: key)?.entry == nil { self.dropSharedFact(about: key) }
    }

    /// Forgets the facts about the shared entry of `key`, which has left memory.
    @usableFromInline
    mutating func dropSharedFact(about key: Key) {
        for known in self.shared.dropFact(about: key) { self.release(known) }
    }

    /// Records the end of a flight of an entry in the shared store.
    mutating func sharedFlightEnded(_ key: Key) {
        self.shared.recordEnd(of: key)
        self.forgetSharedIfAbsent(key)
    }
}
