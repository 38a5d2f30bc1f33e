import MuxKit
import Testing

extension DependentRunner {
    /// Checks what has to hold when nothing is under way.
    nonisolated func expectAtRest(_ location: SourceLocation = #_sourceLocation) {
        let occupancy = self.occupancy
        #expect(occupancy.waiters == 0, "callers still wait", sourceLocation: location)
        #expect(occupancy.tasks == 0, "updates still run", sourceLocation: location)
        #expect(occupancy.keys == 0, "flights are still known", sourceLocation: location)
    }
}
