import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(15)), .takesTurns, .endsAtRest)
struct FlightContextTests {
    private enum Trace {
        @TaskLocal static var name = "none"
    }

    @Test func `MX-21 the fetch sees the task-locals of the first caller`() async throws {
        let world = World()
        let gate = Gate<Void>()
        let name = Multiplexer<String>(repository: world.repository) {
            try await gate.pass()
            return Trace.name
        }

        let first = Trace.$name.withValue("first") { Task { try await name.request() } }
        await gate.waitForCall(1)
        let second = Trace.$name.withValue("second") { Task { try await name.request() } }
        await world.events.wait(for: .joined)
        gate.open()

        #expect(try await first.value == "first")
        #expect(try await second.value == "first")
    }

    @Test(arguments: [TaskPriority.low, .high])
    func `MX-21 the fetch starts at the priority of the first caller`(priority: TaskPriority) async throws {
        let world = World()
        let gate = Gate<Void>()
        let seen = Locked<TaskPriority?>(nil)
        let number = Multiplexer<Int>(repository: world.repository) {
            seen.withLock { $0 = Task.currentPriority }
            try await gate.pass()
            return 1
        }

        let caller = Task(priority: priority) { try await number.request() }
        // Not by waiting for the caller, which would raise its priority.
        await gate.waitForCall(1)

        #expect(seen.withLock { $0 } == priority)
        gate.open()
        #expect(try await caller.value == 1)
    }

    @Test func `MX-21 the fetch is raised to the highest priority of its waiters`() async throws {
        let world = World()
        let gate = Gate<Void>()
        let seen = Locked<TaskPriority?>(nil)
        let number = Multiplexer<Int>(repository: world.repository) {
            try await gate.pass()
            // It may be running before the caller who started it holds its task, and raises it then.
            while Task.currentPriority != .high { await Task.yield() }
            seen.withLock { $0 = Task.currentPriority }
            return 1
        }

        let first = Task(priority: .low) { try await number.request() }
        await gate.waitForCall(1)
        let second = Task(priority: .high) { try await number.request() }
        await world.events.wait(for: .joined)
        gate.open()
        _ = try await (first.value, second.value)

        #expect(seen.withLock { $0 } == .high)
    }
}
