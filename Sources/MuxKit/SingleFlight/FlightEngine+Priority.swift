extension FlightEngine.EngineState {
    /// Raises a flight to the priority of a caller that joined.
    ///
    /// - Returns: The task to escalate; `nil` if it need not be, or does not exist yet.
    @inlinable
    mutating func raise(_ flight: FlightID, to priority: TaskPriority) -> Task<Void, Never>? {
        // Checked first: changing a value in a dictionary allocates.
        guard self.lowestPriority < priority, let place = self.running.index(forKey: flight),
            self.running.values[place].priority < priority
        else { return nil }
        self.running[flight]?.priority = priority
        return self.running[flight]?.task ?? self.running[flight]?.sharedTask
    }
}
