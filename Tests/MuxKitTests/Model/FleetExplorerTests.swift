import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The guarantees of a fleet in every order of events.
@Suite(.standard)
struct FleetExplorerTests {
    private func explore(_ bug: FleetBoard.Bug, machines: Int, keys: Int, depth: Int)
        async -> Explorer<FleetBoard, FleetBoard.Event>.Outcome
    {
        await BlockingWork.run {
            Explorer<FleetBoard, FleetBoard.Event>(events: { $0.events }, apply: { $0.apply($1) })
                .explore(from: FleetBoard(bug, machines: machines, keys: keys), depth: depth)
        }
    }

    @Test(arguments: [(3, 2, 5), (3, 1, 7), (2, 2, 6), (2, 1, 8)])
    func `FL-04 no order of claims, puts, changes and disconnections returns an invalidated value`(
        machines: Int,
        keys: Int,
        depth: Int
    ) async {
        // The last event takes most of the time, so `swift test` omits the last event.
        let events = ProofEnvironment.depth(repetitionStep == 1 ? depth : depth - 1)
        let outcome = await self.explore(.none, machines: machines, keys: keys, depth: events)
        #expect(outcome.story == nil)
        ProofEnvironment.report("FL-04", "\(machines) machines, \(keys) keys", outcome)
    }

    @Test(arguments: FleetBoard.Bug.allCases.dropFirst())
    func `FL-04 a bug planted in a fleet is found by the shortest history`(bug: FleetBoard.Bug) async throws {
        let outcome = await self.explore(bug, machines: 2, keys: 1, depth: 8)
        let story = try #require(outcome.story)
        print("FL-04: \(bug.rawValue): \(story)")
    }
}
