import MuxKit
import MuxTestFleet
import MuxTestSupport
import Testing

/// The fetch rate of machines for each kind of sharing, compared with the expected rates of early expiry.
@Suite(.standard)
struct FleetSimulationTests {
    /// Origin calls in each time to live, of 8, 64 and 256 machines; 256 machines take long.
    private static let table: [(FleetSimulation.Sharing, [Double])] = [
        (.nothing, [8, 64, 256]), (.store, [3.4, 16, 56]), (.storeWithEarlyExpiry, [2.3, 2.6, 3.0]),
        (.claims, [1, 1, 1]),
    ]

    @Test func `FL-08 with early expiry a fleet fetches as rarely as expected`() {
        for (sharing, expected) in Self.table {
            for (machines, expected) in zip([8, 64, 256].prefix(repetitionStep == 1 ? 3 : 2), expected) {
                let simulation = FleetSimulation(machines: machines, sharing: sharing)
                let count = simulation.fetchesPerTimeToLive(cycles: repetitions(60), seed: 1)
                print("FL-08: \(sharing), \(machines) machines: \(count), expected \(expected)")
                #expect(abs(count - expected) <= expected / 5)
            }
        }
    }
}
