import MuxKit
import MuxOutbox
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard(minutes: 60))
struct OutboxScheduleTests {
    @Test func `OB-08 in every schedule a change is shown once, sent once, and sent as its user`() async throws {
        let counts = Locked((steps: 0, applied: 0))
        let schedules = try await SeededExecutor.explore(500) { schedule in
            let scenario = OutboxScenario(schedule)
            try await scenario.play()
            let found = scenario.counts
            counts.withLock { $0 = ($0.steps + found.steps, $0.applied + found.applied) }
        }
        let (steps, applied) = counts.withLock { $0 }
        print("OB-08: \(schedules) schedules, \(steps) steps, \(applied) changes applied")
        #expect(steps > schedules && applied > schedules / 2)
    }
}
