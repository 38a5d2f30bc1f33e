/// A member of a repository's session: a multiplexer or a runner.
package protocol SessionParticipant: AnyObject, Sendable {
    /// The `cacheKey` of a multiplexer that has one.
    var domain: String? { get }

    var identity: ObjectIdentifier { get }

    /// Whether other participants fetch with tokens of this one.
    var handsOutTokens: Bool { get }

    var statistics: MuxRepository.Statistics { get }

    var gauges: MuxRepository.Gauges { get }

    /// Whether the participant concerns no disk, no other machine, no token and no user: only sign-outs and memory.
    var isPlain: Bool { get }

    /// Whether its `deinit` removes it from the repository.
    var detachesItself: Bool { get }

    /// The session is about to end: marks persistent state outside the repository as void for sessions before `epoch`.
    ///
    /// - Throws: The failure; the sign-out goes on, and removes what it can.
    func sessionWillEnd(before epoch: UInt64) async throws

    /// Ends the session in memory: fences flights, removes values.
    ///
    /// - Parameter isTold: Whether to notify watchers: a sign-out calls this twice, and notifies once.
    /// - Returns: A closure that answers waiting callers; called once, when all participants have ended the session.
    func sessionEnded(isTold: Bool) -> @Sendable () -> Void

    /// Ends the session of one user in memory, as ``sessionEnded(isTold:)`` does that of all.
    ///
    /// - Returns: A closure that answers the user's waiting callers; `nil` if the user's session is none of this participant.
    func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)?

    /// A user with that text of whom this has anything; `nil` if there is none.
    func user(of group: UserGroup, withText text: String) -> EndedUser?

    /// Removes the participant's own files of the session that ended.
    ///
    /// - Throws: The failure; the sign-out reports it.
    func removeTraces() async throws

    /// The sign-out is complete: removes values that were fetched or stored while it ran.
    ///
    /// Waiting callers get their outcome, which is not kept. Tokens stay: those obtained since the session ended belong to the next
    /// one.
    func signOutCompleted()

    /// Another participant of the same `cacheKey` cleared entries on disk: removes them from memory.
    func cleared(_ cleared: ClearedEntries)

    /// Repairs the disk before a save: pending removals, refreshes of entries that are not in memory; in the lane.
    ///
    /// - Returns: The result; what failed is tried again before the next save, unless it can never succeed.
    func makeGood() async -> MadeGood

    /// The entries to save.
    func unsaved() -> UnsavedEntries

    /// The number of values evicted unsaved since the last call, because they could not be written.
    func takeLosses() -> Int

    /// The disk has lost all entries: those in memory become dirty.
    func lostOnDisk()

    /// Another machine has changed the shared store.
    func sharedStoreChanged(_ change: MuxShared.Change)

    /// Removes from memory the values that need not be saved.
    func clearMemory()
}

/// The users of one object that has the sessions of many, by its identity.
package final class UserGroup: Sendable {}

/// One of many users, whose session ends.
package struct EndedUser: Sendable {
    let group: UserGroup
    let user: any Sendable
    /// That of `user`.
    let hash: Int

    init(_ user: some Hashable & Sendable, of group: UserGroup) {
        self.group = group
        self.user = user
        self.hash = user.hashValue
    }

    /// The user, if it is one of these.
    func user<User>(of group: UserGroup) -> User? { group === self.group ? self.user as? User : nil }
}

extension SessionParticipant {
    package var domain: String? { nil }
    package var identity: ObjectIdentifier { ObjectIdentifier(self) }
    package var handsOutTokens: Bool { false }
    package var statistics: MuxRepository.Statistics { MuxRepository.Statistics() }
    package var gauges: MuxRepository.Gauges { MuxRepository.Gauges() }
    package var isPlain: Bool { false }
    package var detachesItself: Bool { false }
    package func signOutCompleted() {}
    package func sessionWillEnd(before epoch: UInt64) async throws {}
    package func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)? { nil }
    package func user(of group: UserGroup, withText text: String) -> EndedUser? { nil }
    package func removeTraces() async throws {}
    package func cleared(_ cleared: ClearedEntries) {}
    package func makeGood() async -> MadeGood { MadeGood() }
    package func unsaved() -> UnsavedEntries { UnsavedEntries() }
    package func takeLosses() -> Int { 0 }
    package func lostOnDisk() {}
    package func sharedStoreChanged(_ change: MuxShared.Change) {}
    package func clearMemory() {}
}

/// Entries that were cleared on disk.
package struct ClearedEntries: Sendable {
    let domain: String
    /// The keys; `nil` for all entries of the domain.
    var keys: [String?]?
    /// Whether requests that wait for them end.
    let endsRequests: Bool
}

/// The result of a participant's repairs before a save.
package struct MadeGood: Sendable {
    var failures: [any Error] = []
    /// Entries that left memory because the disk has a newer value.
    var superseded: [MuxStoreKey] = []
    /// The number of refreshes that were written.
    var refreshed = 0
}

/// The entries of one participant that a save is concerned with.
package struct UnsavedEntries: Sendable {
    var dirty: [UnsavedEntry] = []
    /// Dirty entries that may not be written before the disk was read.
    var unseen: [MuxStoreKey] = []
    /// The number of saved entries.
    var unchanged = 0
}

/// One entry that a save would write.
package struct UnsavedEntry: Sendable {
    /// The entry's name on disk.
    let name: MuxStoreKey
    /// When it was fetched; newer ones are saved first.
    let fetchedAt: Moment
    /// Encodes the entry for a session; runs anywhere.
    let encode: @Sendable (_ sessionEpoch: UInt64) throws -> MuxStoredEntry
    /// Whether the entry may still be written: no fence has passed since it was collected.
    let isCurrent: @Sendable () -> Bool
    /// The entry was saved.
    let markSaved: @Sendable () -> Void
    /// The entry could not be saved: it may be evicted.
    let markFailed: @Sendable () -> Void
    /// The disk has a newer value, of another process or of another participant with the same name.
    let markSuperseded: @Sendable () -> Void
}

/// The living participants of a repository, in the order of their insertion.
///
/// An ascending array of weak references, without a hash table: a multiplexer is added when it is made, and removed by its `deinit`.
struct WeakParticipants: Sendable {
    private struct Place: Sendable {
        let order: UInt64
        weak var participant: (any SessionParticipant)?
        let isPlain: Bool
        let detachesItself: Bool
        /// Whether the participant was removed; its weak reference cannot be read for that, since this retains it under a lock.
        var isVacant = false
    }

    struct Insertion: Sendable {
        /// The number of the participant, for ``WeakParticipants/remove(_:domain:)``.
        var order: UInt64 = 0
        /// Whether another living participant has the same `cacheKey`.
        var sharesDomain = false
        /// Participants to be released outside the caller's lock: each may be the last reference.
        var met: [any SessionParticipant] = []
    }

    /// Ascending by their order.
    private var places: [Place] = []
    private var vacantCount = 0
    /// The orders of the participants of each `cacheKey`, ascending; some of these may be deallocated.
    private var domains: [String: [UInt64]] = [:]
    /// The number of places whose participants do not detach themselves.
    private var purgeableCount = 0
    /// The number of these places at which those of deallocated participants are removed.
    private var purgeCount = 64

    /// The number of the last participant; ascending.
    private(set) var lastOrder: UInt64 = 0

    /// The number of places, those of deallocated participants included.
    var placeCount: Int { self.places.count }

    /// Adds a participant.
    ///
    /// - Complexity: Amortised O(1).
    mutating func insert(_ participant: any SessionParticipant, domain: String?) -> Insertion {
        var insertion = Insertion()
        if self.purgeableCount >= self.purgeCount { insertion.met = self.purge() }
        self.lastOrder &+= 1
        insertion.order = self.lastOrder
        let place = Place(
            order: self.lastOrder,
            participant: participant,
            isPlain: participant.isPlain,
            detachesItself: participant.detachesItself
        )
        if !place.detachesItself { self.purgeableCount += 1 }
        self.places.append(place)
        guard let domain else { return insertion }
        // Removed while it is changed, so that it is not copied.
        var orders = self.domains.removeValue(forKey: domain) ?? []
        while let last = orders.last {
            if let other = self.place(of: last).flatMap({ self.places[$0].participant }) {
                insertion.met.append(other)
                insertion.sharesDomain = other.domain == domain
            }
            guard !insertion.sharesDomain else { break }
            orders.removeLast()
        }
        orders.append(self.lastOrder)
        self.domains[domain] = orders
        return insertion
    }

    /// Removes the participant with number `order`, which is being deallocated.
    ///
    /// - Complexity: Amortised O(log *n*).
    mutating func remove(_ order: UInt64, domain: String?) {
        guard let place = self.place(of: order), !self.places[place].isVacant else { return }
        self.places[place].participant = nil
        self.places[place].isVacant = true
        self.vacantCount += 1
        if self.vacantCount > 32, self.vacantCount > self.places.count / 2 {
            self.places = self.places.filter { !$0.isVacant }
            self.vacantCount = 0
        }
        guard let domain, var orders = self.domains.removeValue(forKey: domain) else { return }
        let index = orders.partition(after: order - 1)
        if index < orders.count, orders[index] == order { orders.remove(at: index) }
        if !orders.isEmpty { self.domains[domain] = orders }
    }

    /// Removes the places of deallocated participants, and returns the others.
    private mutating func purge() -> [any SessionParticipant] {
        var living: [any SessionParticipant] = []
        self.places = self.places.filter { place in
            guard let participant = place.participant else { return false }
            living.append(participant)
            return true
        }
        let orders = Set(self.places.map(\.order))
        self.domains = self.domains.mapValues { $0.filter(orders.contains) }.filter { !$0.value.isEmpty }
        self.vacantCount = 0
        self.purgeableCount = self.places.count { !$0.detachesItself }
        self.purgeCount = max(64, self.purgeableCount * 2)
        return living
    }

    /// The living participants that were added after the one with number `order`.
    ///
    /// - Parameters:
    ///   - order: The number.
    ///   - plain: Whether to include those that are plain.
    /// - Returns: The participants, in the order of their insertion.
    func living(after order: UInt64 = 0, plain: Bool = true) -> [any SessionParticipant] {
        self.places[self.places.partition(after: order) { $0.order }...].compactMap { place in
            plain || !place.isPlain ? place.participant : nil
        }
    }

    /// The living participants with that `cacheKey`.
    func living(in domain: String) -> [any SessionParticipant] {
        (self.domains[domain] ?? []).compactMap { self.place(of: $0).flatMap { self.places[$0].participant } }
    }

    /// The number of slots without a living participant after their removal.
    func leftoverCount() -> Int {
        let released = self.places.count { $0.detachesItself && !$0.isVacant && $0.participant == nil }
        let vacant = self.vacantCount > max(32, self.places.count / 2) ? self.vacantCount : 0
        return released + vacant + self.domains.values.count { $0.allSatisfy { self.place(of: $0) == nil } }
    }

    private func place(of order: UInt64) -> Int? {
        let place = self.places.partition(after: order &- 1) { $0.order }
        return place < self.places.count && self.places[place].order == order ? place : nil
    }
}

extension Array {
    /// The index of the first element whose number is greater than `number`; the elements are ascending by their numbers.
    fileprivate func partition(after number: UInt64, _ numberOf: (Element) -> UInt64) -> Int {
        var (low, high) = (0, self.count)
        while low < high {
            let middle = (low + high) / 2
            if numberOf(self[middle]) > number { high = middle } else { low = middle + 1 }
        }
        return low
    }
}

extension [UInt64] {
    fileprivate func partition(after number: UInt64) -> Int { self.partition(after: number) { $0 } }
}
