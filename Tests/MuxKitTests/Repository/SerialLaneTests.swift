import MuxKit
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(5)), .takesTurns, .endsAtRest)
struct SerialLaneTests {
    @Test func `RP-03 a lane that is never empty forgets those who had their turn`() async throws {
        let executor = OrderedExecutor()
        let lane = SerialLane()
        let gate = Gate<Void>()
        let enter: @Sendable () -> Task<Void, any Error> = {
            Task(executorPreference: executor) { try await lane.run { try await gate.pass() } }
        }
        var operations = [enter()]
        await gate.waitForCall(1)

        var mostPlaces = 0
        for turn in 1...1_000 {
            operations.append(enter())
            executor.settle()  // now it waits for its turn
            gate.open(turn)
            await gate.waitForCall(turn + 1)
            mostPlaces = max(mostPlaces, lane.placeCount)
        }
        gate.openForGood(returning: ())
        for operation in operations { try await operation.value }

        #expect(mostPlaces > 0)
        #expect(mostPlaces < 100)
    }
}
