/// The participants of a repository that are alive, in the order in which they came.
struct WeakParticipants: Sendable {
    private struct Place: Sendable {
        weak let participant: (any SessionParticipant)?
    }

    private var places: [ObjectIdentifier: (order: UInt64, place: Place)] = [:]
    private var lastOrder: UInt64 = 0

    /// Adds `participant`; one that is there already stays where it is.
    ///
    /// - Returns: Who was looked at, for the caller to let go of outside its lock: each may be the last reference.
    mutating func insert(_ participant: any SessionParticipant) -> [any SessionParticipant] {
        let id = ObjectIdentifier(participant)
        // An object that is gone may have had the same address.
        if let present = self.places[id]?.place.participant { return [present] }
        var met: [any SessionParticipant] = []
        if self.places.count.isMultiple(of: 64) {
            met = self.living()
            let living = Set(met.map { ObjectIdentifier($0) })
            self.places = self.places.filter { living.contains($0.key) }
        }
        self.lastOrder &+= 1
        self.places[id] = (self.lastOrder, Place(participant: participant))
        return met
    }

    /// Removes `participant`.
    mutating func remove(_ participant: any SessionParticipant) {
        self.places[ObjectIdentifier(participant)] = nil
    }

    /// Those who are alive.
    func living() -> [any SessionParticipant] {
        self.places.values.sorted { $0.order < $1.order }.compactMap(\.place.participant)
    }
}
