/// The participants of a repository that are alive, in the order in which they came.
struct WeakParticipants: Sendable {
    private struct Place: Sendable {
        weak let participant: (any SessionParticipant)?
    }

    private var places: [ObjectIdentifier: (order: UInt64, place: Place)] = [:]
    private var lastOrder: UInt64 = 0

    /// Adds `participant`; one that is there already stays where it is.
    mutating func insert(_ participant: any SessionParticipant) {
        let id = ObjectIdentifier(participant)
        // An object that is gone may have had the same address.
        guard self.places[id]?.place.participant == nil else { return }
        if self.places.count.isMultiple(of: 64) {
            self.places = self.places.filter { $0.value.place.participant != nil }
        }
        self.lastOrder &+= 1
        self.places[id] = (self.lastOrder, Place(participant: participant))
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
