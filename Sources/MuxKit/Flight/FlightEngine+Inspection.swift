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
