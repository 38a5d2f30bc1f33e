extension FlightEngine {
    /// The keys that have a flight.
    package var keysInFlight: [Key] { self.board.withLock { Array($0.machines.keys) } }

    /// Whether the key has a flight.
    package func isInFlight(_ key: Key) -> Bool { self.board.withLock { $0.machines[key] != nil } }

    /// How many callers wait, how many tasks run, and how many keys have a flight: all zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) {
        self.board.withLock { board in
            (board.machines.values.reduce(0) { $0 + $1.waiterCount }, board.running.count, board.machines.count)
        }
    }
}

extension FlightEngine: Inspectable {
    package func faults() async -> [String] { self.faultsNow }

    /// What should not be so when the owner's callers are gone; work may still run.
    var faultsNow: [String] {
        self.board.withLock { board in
            let machines = board.machines.values
            let waiters = machines.reduce(0) { $0 + $1.waiterCount }
            return [
                waiters > 0 ? "\(waiters) callers still wait" : nil,
                machines.contains(where: \.isIdle) ? "an idle key is kept" : nil,
                (board.state as? any SelfChecking)?.violation(),
            ].compactMap(\.self) + machines.compactMap { $0.violation() }
        }
    }
}
