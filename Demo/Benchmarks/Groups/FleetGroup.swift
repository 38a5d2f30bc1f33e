import MuxTestFleet

/// Fetches of a value per time to live of a minute, by machines with two requests per second each: simulated,
/// and the same in every run.
enum FleetGroup {
    private static let sharings: [(FleetSimulation.Sharing, name: String, expected: [Double])] = [
        (.nothing, "each a memory of its own", [8, 64, 256]),
        (.store, "a shared store", [3.4, 16, 56]),
        (.storeWithEarlyExpiry, "a shared store, and early expiry", [2.3, 2.6, 3.0]),
        (.claims, "a shared store that says who fetches", [1, 1, 1]),
    ]

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        [8, 64, 256].enumerated().flatMap { place, machines in
            self.sharings.map { sharing, name, expected in
                let simulation = FleetSimulation(machines: machines, sharing: sharing)
                let count = simulation.fetchesPerTimeToLive(cycles: 60, seed: 1)
                let alone = Double(machines)
                return Row(
                    group,
                    "fetches of \(machines) machines, \(name)",
                    unit: .count,
                    figure: count,
                    instead: sharing == .nothing
                        ? nil
                        : Row.Reference(name: "each a memory of its own", value: alone, ratio: alone / count),
                    goals: [.atMost(expected[place] * 1.2)],
                    isCount: true
                )
            }
        }
    }
}
