extension FlightEngine {
    /// The keys that have a flight.
    package var keysInFlight: [Key] { self.engineState.withLock { Array($0.machines.keys) } }

    /// Whether the key has a flight.
    package func isInFlight(_ key: Key) -> Bool { self.engineState.withLock { $0.machines[key] != nil } }

    /// How many callers wait, how many tasks run, and how many keys have a flight: all zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) {
        self.engineState.withLock { engineState in
            (
                engineState.machines.values.reduce(0) { $0 + $1.waiterCount }, engineState.running.count,
                engineState.machines.count
            )
        }
    }
}

extension FlightEngine: Inspectable {
    package func faults() async -> [String] { self.faultsNow }

    /// What should not be so when the owner's callers are gone; work may still run.
    var faultsNow: [String] {
        self.engineState.withLock { engineState in
            let machines = engineState.machines.values
            let waiters = machines.reduce(0) { $0 + $1.waiterCount }
            return [
                waiters > 0 ? "\(waiters) callers still wait" : nil,
                machines.contains(where: \.isIdle) ? "an idle key is kept" : nil,
                (engineState.state as? any SelfChecking)?.violation(),
            ].compactMap(\.self) + machines.compactMap { $0.violation() }
        }
    }
}
