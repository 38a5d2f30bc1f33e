import MuxKit
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(1)))
struct HopTests {
    @Test func `A05 a caller who waits comes back to its executor by one job`() async throws {
        let events = EventTally()
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await gate.pass()) }
        let caller = CountedActor()
        let jobs = Task { try await caller.jobs { _ = try await runner.run { .output($0) } } }
        await events.wait(for: .dependencyAwaited)
        gate.open(returning: 1)
        #expect(try await jobs.value == 1)
    }

    @Test func `MX-20 a caller who waits comes back to its executor by one job`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }
        let caller = CountedActor()
        let jobs = Task { try await caller.jobs { _ = try await number.request() } }
        await gate.waitForCall(1)
        gate.open(returning: 1)
        #expect(try await jobs.value == 1)
    }
}
