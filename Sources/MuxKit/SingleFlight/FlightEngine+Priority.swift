extension FlightEngine {
    /// Escalates the flight of the caller with this ticket to the caller's new priority.
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
    /// Escalates a flight to the priority of a caller that joined.
    ///
    /// - Returns: The task to escalate; `nil` if the flight's priority suffices, or if the task does not
    ///   exist yet.
    @inlinable
    mutating func raise(_ flight: FlightID, to priority: TaskPriority) -> Task<Void, Never>? {
        // Checked first, because a change of a value in a dictionary allocates.
        guard self.lowestPriority < priority, let place = self.running.index(forKey: flight),
            self.running.values[place].priority < priority
        else { return nil }
        self.running[flight]?.priority = priority
        return self.running[flight]?.task ?? self.running[flight]?.sharedTask
    }
}
