extension BoundedTable {
    /// How many words and places all arrays have, together.
    package var footprint: Int {
        self.keys.capacity + self.elements.capacity + self.costs.capacity + self.index.size + self.order.capacity
            + self.order.ghosts.footprint
    }

    /// What is wrong, if anything: for tests, after every change.
    package func violation() -> String? {
        if let violation = self.order.violation() { return violation }
        if self.keys.count != self.elements.count || self.keys.count != self.order.count { return "arrays differ" }
        if self.index.occupancy != self.count { return "index has \(self.index.occupancy) of \(self.count)" }
        if !self.index.hasRoom(for: self.count) { return "index is too full" }
        for (number, key) in self.keys.enumerated() {
            if FlatIndex.hash(key) != self.order.hash(of: number) { return "hash of \(number) is another's" }
            if self.place(of: key).hit?.number != number { return "\(number) is not found" }
        }
        let cost = self.costs.reduce(into: UInt128(0)) { $0 += UInt128($1) }
        if cost != self.cost { return "costs add up to \(cost), not \(self.cost)" }
        if self.costs.count != (self.maximumCost == nil ? 0 : self.count) { return "costs are of others" }
        // Room is that of an array that doubles, of one that has just grown past its bound, or of hardly any.
        if self.room > max(64, 4 * self.count + 4) { return "room for \(self.room), \(self.count) there" }
        return nil
    }
}
