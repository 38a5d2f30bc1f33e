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
