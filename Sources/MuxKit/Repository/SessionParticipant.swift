/// Something that belongs to a session of a repository: multiplexers and runners.
package protocol SessionParticipant: AnyObject, Sendable {
    /// The `cacheKey` of a multiplexer that has one.
    var domain: String? { get }

    /// Tells the participant from others.
    var identity: ObjectIdentifier { get }

    /// Whether others fetch with what the participant hands out.
    var handsOutTokens: Bool { get }

    /// What the participant counted.
    var statistics: MuxStatistics { get }

    /// How many sessions had ended in this process when the participant was made.
    ///
    /// `nil` if it took part from its creation, so that none can have ended without it.
    var endedSessionsAtCreation: UInt64? { get }

    /// The session is about to end: notes beside what the participant keeps elsewhere that sessions before `epoch` are over.
    ///
    /// - Throws: What went wrong; the sign-out goes on, and removes what it can.
    func sessionWillEnd(before epoch: UInt64) async throws

    /// Ends the session in memory: fences flights, forgets values. Synchronous and final.
    ///
    /// - Parameter isTold: Whether those who watch are to hear of it: once, though a sign-out calls this twice.
    /// - Returns: What answers those who wait. It is called once, when all participants have forgotten the session.
    func sessionEnded(isTold: Bool) -> @Sendable () -> Void

    /// Removes what the participant itself keeps on disk of the session that ended.
    ///
    /// - Throws: What went wrong; the sign-out reports it.
    func removeTraces() async throws

    /// The sign-out is complete: forgets values that were fetched or stored while it ran.
    ///
    /// Callers that wait get what they asked for, and it is not kept. Tokens are not concerned: those that came since the
    /// session ended are of the next one.
    func signOutCompleted()

    /// Another participant cleared entries on disk which this one may have in memory: it lets go of them.
    func cleared(_ cleared: ClearedEntries)

    /// Does on disk what comes before a save: removals that failed earlier, refreshes of what is not in memory; in the lane.
    ///
    /// - Returns: What came of it; what went wrong is tried again before the next save, unless it can never succeed.
    func makeGood() async -> MadeGood

    /// What a save has to do for the participant.
    func unsaved() -> UnsavedEntries

    /// How many values left memory unsaved, because they could not be written, since this was asked last.
    func takeLosses() -> Int

    /// The disk has lost all entries: those in memory are to be saved again.
    func lostOnDisk()

    /// Forgets, in memory, what can be had again.
    func clearMemory()
}

extension SessionParticipant {
    package var domain: String? { nil }
    package var identity: ObjectIdentifier { ObjectIdentifier(self) }
    package var handsOutTokens: Bool { false }
    package var statistics: MuxStatistics { MuxStatistics() }
    package var endedSessionsAtCreation: UInt64? { nil }
    package func signOutCompleted() {}
    package func sessionWillEnd(before epoch: UInt64) async throws {}
    package func removeTraces() async throws {}
    package func cleared(_ cleared: ClearedEntries) {}
    package func makeGood() async -> MadeGood { MadeGood() }
    package func unsaved() -> UnsavedEntries { UnsavedEntries() }
    package func takeLosses() -> Int { 0 }
    package func lostOnDisk() {}
    package func clearMemory() {}
}

/// What was cleared on disk.
package struct ClearedEntries: Sendable {
    let domain: String
    /// The keys; `nil` for all entries of the domain.
    var keys: [String?]?
    /// Whether requests that wait for them end.
    let endsRequests: Bool
}

/// What came of what a participant does before a save.
package struct MadeGood: Sendable {
    /// What went wrong.
    var failures: [any Error] = []
    /// Entries that left memory because the disk has a newer value.
    var superseded: [MuxStoreKey] = []
}

/// What a save has to do for one participant.
package struct UnsavedEntries: Sendable {
    /// What is in memory and not yet on disk.
    var dirty: [UnsavedEntry] = []
    /// What is not written before the disk was asked what it has in its place.
    var unseen: [MuxStoreKey] = []
    /// How many entries the disk has already.
    var unchanged = 0
}

/// One entry that a save would write.
package struct UnsavedEntry: Sendable {
    /// The entry's name on disk.
    let name: MuxStoreKey
    /// When it was fetched, on the participant's time line: newer ones are saved first.
    let fetchedAt: Moment
    /// Encodes the entry for a session; runs anywhere.
    let encode: @Sendable (_ sessionEpoch: UInt64) throws -> MuxStoredEntry
    /// Whether the entry may still be written: no fence has passed since it was collected.
    let isCurrent: @Sendable () -> Bool
    /// Tells the participant that the disk has the entry.
    let markSaved: @Sendable () -> Void
    /// Tells the participant that the disk could not take the entry: it may leave memory without.
    let markFailed: @Sendable () -> Void
    /// Tells the participant that the disk has a newer value, which another process saved.
    let markSuperseded: @Sendable () -> Void
}

/// The participants of a repository that are alive, in the order in which they came.
struct WeakParticipants: Sendable {
    private struct Place: Sendable {
        let order: UInt64
        weak let participant: (any SessionParticipant)?
    }

    /// What became of a participant that was to be added.
    struct Insertion: Sendable {
        /// Whether it was not there before.
        var isNew = false
        /// Whether another living participant has the same `cacheKey`.
        var sharesDomain = false
        /// Participants that were looked at, for the caller to release outside its lock: each may be the last reference.
        var met: [any SessionParticipant] = []
    }

    private var places: [ObjectIdentifier: Place] = [:]
    /// The participants of each `cacheKey`, some of which may be gone.
    private var domains: [String: [ObjectIdentifier]] = [:]
    /// How many places there have to be before those of participants that are gone are removed.
    private var purgeCount = 64

    /// The number of the participant that came last; the next one has a greater one.
    private(set) var lastOrder: UInt64 = 0

    /// Adds `participant`; one that is there already keeps its place.
    mutating func insert(_ participant: any SessionParticipant, domain: String?) -> Insertion {
        let id = ObjectIdentifier(participant)
        var insertion = Insertion()
        // An object that is gone may have had the same address.
        if let present = self.places[id]?.participant {
            insertion.met.append(present)
            return insertion
        }
        insertion.isNew = true
        if self.places.count >= self.purgeCount { insertion.met = self.purge() }
        self.lastOrder &+= 1
        self.places[id] = Place(order: self.lastOrder, participant: participant)
        guard let domain else { return insertion }
        // Taken out while it is changed, so that it is not copied.
        var ids = self.domains.removeValue(forKey: domain) ?? []
        while let last = ids.last {
            if let other = self.places[last]?.participant {
                insertion.met.append(other)
                insertion.sharesDomain = other.domain == domain
            }
            guard !insertion.sharesDomain else { break }
            ids.removeLast()
        }
        ids.append(id)
        self.domains[domain] = ids
        return insertion
    }

    /// Removes the places of participants that are gone.
    ///
    /// - Returns: The others.
    private mutating func purge() -> [any SessionParticipant] {
        let living = self.living()
        let ids = Set(living.map { ObjectIdentifier($0) })
        self.places = self.places.filter { ids.contains($0.key) }
        self.domains = self.domains.mapValues { $0.filter(ids.contains) }.filter { !$0.value.isEmpty }
        self.purgeCount = max(64, self.places.count * 2)
        return living
    }

    /// Removes `participant`.
    mutating func remove(_ participant: any SessionParticipant) {
        self.places[ObjectIdentifier(participant)] = nil
    }

    /// The living participants, or those of them that came after the one with number `order`.
    func living(after order: UInt64 = 0) -> [any SessionParticipant] {
        self.places.values.filter { $0.order > order }.sorted { $0.order < $1.order }.compactMap(\.participant)
    }
}
