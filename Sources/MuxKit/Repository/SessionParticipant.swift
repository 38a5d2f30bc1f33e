/// A member of a repository's session, such as a multiplexer or a runner.
package protocol SessionParticipant: AnyObject, Sendable {
    /// The `cacheKey` of a multiplexer; `nil` without a `cacheKey`.
    var domain: String? { get }

    /// Not unique: participants with the same token storage have the same identity.
    ///
    /// ``MuxRepository/endSession(before:sparing:)`` ends the session of all participants except the
    /// participants with a given identity.
    var identity: ObjectIdentifier { get }

    /// Whether other participants fetch with tokens of this participant.
    var handsOutTokens: Bool { get }

    var statistics: MuxRepository.Statistics { get }

    var gauges: MuxRepository.Gauges { get }

    /// Whether the participant has no entries on disk or in a shared store, no tokens and no users.
    ///
    /// Such a participant handles only ends of the session of all users, clears of memory, changes of tags,
    /// and gaps in the reports of a shared store. Statistics and gauges include the participant.
    var isMemoryOnly: Bool { get }

    /// Whether the participant's `deinit` removes the participant from the repository.
    var detachesItself: Bool { get }

    /// The greatest session number of the participant's persistent state; 0 without such a number.
    func lastSession() async -> UInt64

    /// The reason why a sign-out must not begin now; `nil` if the sign-out may begin.
    func refusalOfSignOut() async -> (any Error)?

    /// Marks persistent state outside the repository as invalid for sessions before `epoch`.
    ///
    /// Called before the session ends.
    ///
    /// - Throws: The failure; the sign-out continues, and removes all removable state.
    func sessionWillEnd(before epoch: UInt64) async throws

    /// Ends the session in memory: fences flights, removes values.
    ///
    /// - Parameter sendsEvent: Whether to send the event of the end of the session. The repository calls this
    ///   method twice for most participants, and requests one event.
    /// - Returns: A closure that resumes waiting callers; called once, when all participants have ended the
    ///   session.
    func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void

    /// Ends the session of one user in memory, as ``sessionEnded(sendsEvent:)`` does for all users.
    ///
    /// - Returns: A closure that resumes the user's waiting callers, to be called once; `nil` if no call is
    ///   necessary.
    func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)?

    /// The user of `group` whose ID has the ``MuxKey/keyText`` `text`; `nil` if the participant has no data
    /// of such a user.
    func user(of group: UserGroup, withText text: String) -> EndedUser?

    /// Removes the participant's data of the ended session from outside the repository's store, such as
    /// tokens and downloaded files.
    ///
    /// - Throws: The failure, which the sign-out reports.
    func removeTraces() async throws

    /// Returns the number of unsent changes that were dropped since the last call.
    func takeDroppedChanges() -> Int

    /// Removes values that were fetched or stored during the sign-out.
    ///
    /// Called at the end of a sign-out, and after any end of the session during which participants were
    /// added. Waiting callers get their outcome, which is not kept. Tokens stay: tokens from after the end of
    /// the session belong to the next session.
    func signOutCompleted()

    /// Removes entries from memory, because another participant with the same `cacheKey` clears the entries.
    func cleared(_ cleared: ClearedEntries)

    /// Repairs the disk before a save; in ``MuxRepository/lane``.
    ///
    /// Completes pending removals, writes refreshes of all entries and of entries that are only on disk, and
    /// removes values from memory that are older than the value on disk.
    ///
    /// - Returns: The result; a failed repair is repeated before the next save, unless the repair can never
    ///   succeed.
    func repairDisk() async -> DiskRepair

    /// The entries to save.
    func unsaved() -> UnsavedEntries

    /// Returns the number of values that were evicted unsaved since the last call.
    func takeLosses() -> Int

    /// Marks the persistent entries in memory as dirty, because the disk has no entries any more.
    func markUnsaved()

    /// Handles a change that the shared store reported, or ``MuxRepository/clear(tags:)`` made.
    func sharedStoreChanged(_ change: MuxShared.Change)

    /// Removes all values from memory, except unsaved values.
    func clearMemory()

    /// Notifies the consumers of all values: a refresh or clear by tags may concern their values.
    ///
    /// - Parameter mayClear: Whether values may have been removed.
    func tagsChanged(mayClear: Bool)

    /// Releases the values that a clear by tags has removed.
    ///
    /// - Parameter isToAll: Whether each remaining value with tags also records the effect of all changes, so
    ///   that the repository's `TagLog` can drop the changes.
    func applyTagChanges(toAll isToAll: Bool) async
}

/// Identifies one ``MuxSessions``, so that equal user IDs of different ``MuxSessions`` are different users.
package final class UserGroup: Sendable {}

/// A user with an ending session.
package struct EndedUser: Sendable {
    let group: UserGroup
    let user: any Sendable
    let hash: Int

    init(_ user: some Hashable & Sendable, of group: UserGroup) {
        self.group = group
        self.user = user
        self.hash = user.hashValue
    }

    /// The user, if the user belongs to `group`; otherwise `nil`.
    func user<User>(of group: UserGroup) -> User? { group === self.group ? self.user as? User : nil }
}

extension SessionParticipant {
    package var domain: String? { nil }
    package var identity: ObjectIdentifier { ObjectIdentifier(self) }
    package var handsOutTokens: Bool { false }
    package var statistics: MuxRepository.Statistics { MuxRepository.Statistics() }
    package var gauges: MuxRepository.Gauges { MuxRepository.Gauges() }
    package var isMemoryOnly: Bool { false }
    package var detachesItself: Bool { false }
    package func lastSession() async -> UInt64 { 0 }
    package func refusalOfSignOut() async -> (any Error)? { nil }
    package func takeDroppedChanges() -> Int { 0 }
    package func signOutCompleted() {}
    package func sessionWillEnd(before epoch: UInt64) async throws {}
    package func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)? { nil }
    package func user(of group: UserGroup, withText text: String) -> EndedUser? { nil }
    package func removeTraces() async throws {}
    package func cleared(_ cleared: ClearedEntries) {}
    package func repairDisk() async -> DiskRepair { DiskRepair() }
    package func unsaved() -> UnsavedEntries { UnsavedEntries() }
    package func takeLosses() -> Int { 0 }
    package func markUnsaved() {}
    package func sharedStoreChanged(_ change: MuxShared.Change) {}
    package func clearMemory() {}
    package func tagsChanged(mayClear: Bool) {}
    package func applyTagChanges(toAll isToAll: Bool) async {}
}

/// Entries that a participant clears.
package struct ClearedEntries: Sendable {
    let domain: String
    /// The keys; `nil` for all entries of the domain.
    var keys: [String?]?
    /// Whether waiting requests throw ``MuxError/cleared`` instead of getting the outcome of their fetch.
    let endsRequests: Bool
}

/// The result of a participant's repairs before a save.
package struct DiskRepair: Sendable {
    var failures: [any Error] = []
    /// The names of the entries on disk that could not be read, with the errors; ``failures`` includes the
    /// errors.
    var unread: [MuxStoreKey: any Error] = [:]
    /// Entries that were removed from memory, because the disk has a newer value.
    var superseded: [MuxStoreKey] = []
    /// The number of written refreshes.
    var refreshed = 0
}

/// The entries of one participant for a save.
package struct UnsavedEntries: Sendable {
    var dirty: [UnsavedEntry] = []
    /// The names of dirty entries that must not be written before the previous entry on disk is read.
    var unseen: [MuxStoreKey] = []
    /// The number of entries without unsaved changes.
    var unchanged = 0
}

/// One entry to save.
package struct UnsavedEntry: Sendable {
    let name: MuxStoreKey
    /// The time of the fetch; a save with a time limit writes the portion with the newest entries first.
    let fetchedAt: Moment
    /// Encodes the entry for a session; may run on any thread.
    let encode: @Sendable (_ sessionEpoch: UInt64) throws -> MuxStoredEntry
    /// Whether memory still has the entry; `true` also if the app has changed the value: a save does not
    /// include such a change.
    let isCurrent: @Sendable () -> Bool
    let markSaved: @Sendable () -> Void
    /// Marks the entry as failed: the entry could not be saved, and may be evicted.
    let markFailed: @Sendable () -> Void
    /// Marks the entry as superseded: the disk has a newer value of another process, or of another
    /// participant with the same name.
    let markSuperseded: @Sendable () -> Void
}

/// The living participants of a repository, in the order of their insertion.
///
/// The references are in an array, ascending by number. A hash table would cost more: each initialiser of a
/// multiplexer adds a reference, and each `deinit` removes a reference.
struct WeakParticipants: Sendable {
    private struct Place: Sendable {
        let order: UInt64
        weak var participant: (any SessionParticipant)?
        let isMemoryOnly: Bool
        let detachesItself: Bool
        /// Whether the participant was removed.
        ///
        /// A read of the weak reference instead would retain the participant, and could then release the last
        /// reference under a lock.
        var isVacant = false
    }

    struct Insertion: Sendable {
        /// The number of the participant, for ``WeakParticipants/remove(_:domain:)``.
        var order: UInt64 = 0
        /// Whether another living participant has the same `cacheKey`.
        var sharesDomain = false
        /// Living participants, for release outside the caller's lock: each reference may be the last.
        var retained: [any SessionParticipant] = []
    }

    /// Ascending by `order`.
    private var places: [Place] = []
    private var vacantCount = 0
    /// The numbers of the participants of each `cacheKey`, ascending; may include deallocated participants.
    ///
    /// Cache keys are compared byte for byte.
    private var domains: [[UInt8]: [UInt64]] = [:]
    /// The number of places for participants without `detachesItself`.
    private var purgeableCount = 0
    /// The value of ``purgeableCount`` at which the places of deallocated participants are removed.
    private var purgeThreshold = 64

    /// The number of the participant that was added last.
    private(set) var lastOrder: UInt64 = 0

    /// The number of places, including places of deallocated participants.
    var placeCount: Int { self.places.count }

    /// Adds a participant.
    ///
    /// - Complexity: Amortised O(1) without a `cacheKey`, otherwise amortised O(log *n*).
    mutating func insert(_ participant: any SessionParticipant, domain: String?) -> Insertion {
        var insertion = Insertion()
        if self.purgeableCount >= self.purgeThreshold { insertion.retained = self.purge() }
        self.lastOrder &+= 1
        insertion.order = self.lastOrder
        let place = Place(
            order: self.lastOrder,
            participant: participant,
            isMemoryOnly: participant.isMemoryOnly,
            detachesItself: participant.detachesItself
        )
        if !place.detachesItself { self.purgeableCount += 1 }
        self.places.append(place)
        guard let domain = domain.map({ Array($0.utf8) }) else { return insertion }
        // Removed from the dictionary during the change, to avoid a copy of the array.
        var orders = self.domains.removeValue(forKey: domain) ?? []
        while let last = orders.last {
            if let other = self.place(of: last).flatMap({ self.places[$0].participant }) {
                insertion.retained.append(other)
                insertion.sharesDomain = other.domain.map({ Array($0.utf8) }) == domain
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
    /// - Complexity: Amortised O(log *n* + *k*), with *k* participants of the same `cacheKey`.
    mutating func remove(_ order: UInt64, domain: String?) {
        guard let place = self.place(of: order), !self.places[place].isVacant else { return }
        self.places[place].participant = nil
        self.places[place].isVacant = true
        self.vacantCount += 1
        if self.vacantCount > 32, self.vacantCount > self.places.count / 2 {
            self.places = self.places.filter { !$0.isVacant }
            self.vacantCount = 0
        }
        guard let domain = domain.map({ Array($0.utf8) }), var orders = self.domains.removeValue(forKey: domain) else {
            return
        }
        let index = orders.firstIndex(after: order - 1)
        if index < orders.count, orders[index] == order { orders.remove(at: index) }
        if !orders.isEmpty { self.domains[domain] = orders }
    }

    /// Removes the places of deallocated participants, and returns the living participants.
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
        self.purgeThreshold = max(64, self.purgeableCount * 2)
        return living
    }

    /// The living participants that were added after the participant with number `order`.
    ///
    /// - Parameters:
    ///   - order: The number.
    ///   - includingMemoryOnly: Whether to include participants in memory only.
    /// - Returns: The participants, in the order of their insertion.
    func living(after order: UInt64 = 0, includingMemoryOnly: Bool = true) -> [any SessionParticipant] {
        self.places[self.places.firstIndex(after: order) { $0.order }...].compactMap { place in
            includingMemoryOnly || !place.isMemoryOnly ? place.participant : nil
        }
    }

    /// The living participants with this `cacheKey`.
    func living(in domain: String) -> [any SessionParticipant] {
        (self.domains[Array(domain.utf8)] ?? []).compactMap {
            self.place(of: $0).flatMap { self.places[$0].participant }
        }
    }

    /// The number of places and `cacheKey`s without a living participant that should have been removed.
    func leftoverCount() -> Int {
        let released = self.places.count { $0.detachesItself && !$0.isVacant && $0.participant == nil }
        let vacant = self.vacantCount > max(32, self.places.count / 2) ? self.vacantCount : 0
        return released + vacant + self.domains.values.count { $0.allSatisfy { self.place(of: $0) == nil } }
    }

    /// The index in ``places``; `nil` if the place was removed.
    private func place(of order: UInt64) -> Int? {
        let place = self.places.firstIndex(after: order &- 1) { $0.order }
        return place < self.places.count && self.places[place].order == order ? place : nil
    }
}

extension Array {
    /// The index of the first element with a number greater than `number`; elements are ascending by number.
    fileprivate func firstIndex(after number: UInt64, _ numberOf: (Element) -> UInt64) -> Int {
        var (low, high) = (0, self.count)
        while low < high {
            let middle = (low + high) / 2
            if numberOf(self[middle]) > number { high = middle } else { low = middle + 1 }
        }
        return low
    }
}

extension [UInt64] {
    fileprivate func firstIndex(after number: UInt64) -> Int { self.firstIndex(after: number) { $0 } }
}
