extension FlightEngine {
    /// Raises the flight that the caller with this ticket waits for, whose task was raised.
    @usableFromInline
    func raise(_ ticket: Ticket, _ key: Key, to priority: TaskPriority) {
        let task = self.engineState.withLock { engineState -> Task<Void, Never>? in
            guard let flight = engineState.machines[key]?.flight(of: ticket) else { return nil }
            return engineState.raise(flight, to: priority)
        }
        task?.raisePriority(to: priority)
    }
}

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
