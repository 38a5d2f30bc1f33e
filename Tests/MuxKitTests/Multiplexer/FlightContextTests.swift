import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
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
        // A wait for the caller instead would raise the caller's priority.
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
            // The fetch may run before its first caller holds the task and raises the priority.
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

    /// Raises the priority of the waiting `caller` after the fetch behind `gate` has begun.
    private func raise(_ caller: Task<Int, any Error>, behind gate: Gate<Void>) async throws {
        await gate.waitForCall(1)
        caller.raisePriority(to: .high)
        gate.open()
        _ = try await caller.value
    }

    /// Returns when the current task's priority has been raised, or at the test's time limit.
    ///
    /// A task that was just started is raised a moment after its caller.
    private static func raised() async {
        let (changes, change) = AsyncStream<Void>.makeStream()
        await withEscalationHandler { _ in
            change.yield()
        } _: {
            if Task.currentPriority >= .high { return }
            for await _ in changes where Task.currentPriority >= .high { return }
        }
    }

    @Test func `DS-06 raising the priority of a caller raises the fetch that the caller awaits`() async throws {
        let world = World()
        let gate = Gate<Void>()
        let number = Multiplexer<Int>(repository: world.repository) {
            try await gate.pass()
            await Self.raised()
            return 1
        }
        let other = Task(priority: .background) { try await number.request() }
        await gate.waitForCall(1)
        let caller = Task(priority: .background) { try await number.request(.reload) }
        await world.events.wait(for: .joined)

        try await self.raise(caller, behind: gate)
        #expect(try await other.value == 1)
    }

    @Test func `DS-06 a raised priority reaches the end of a chain of fetches, updates and batches`() async throws {
        let world = World()
        let gate = Gate<Void>()
        let runner = DependentRunner<Int> { _ in
            try await gate.pass()
            await Self.raised()
            return .updatedDependency(1)
        }
        let batch = MultiplexerMap<Int, Int>(batching: .init(window: .zero), repository: world.repository) {
            (keys: [Int]) -> [Int: Int] in
            let value = try await runner.run { .output($0) }
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, value) })
        }
        let later = Later<MultiplexerMap<Int, Int>>()
        let map = MultiplexerMap<Int, Int>(repository: world.repository) { key in
            if key == 10 { return try await batch.request(keys: [1, 2, 3]).count }
            return try await later().request(key: key + 1)
        }
        later.set(map)
        let caller = Task(priority: .background) { try await map.request(key: 0) }

        try await self.raise(caller, behind: gate)
    }

    @Test func `DS-06 a raised priority passes through a chain of ten thousand fetches`() async throws {
        let world = World()
        let (gate, count) = (Gate<Void>(), 10_000)
        let later = Later<MultiplexerMap<Int, Int>>()
        let map = MultiplexerMap<Int, Int>(repository: world.repository) { key in
            if key < count { return try await later().request(key: key + 1) }
            try await gate.pass()
            await Self.raised()
            return 1
        }
        later.set(map)
        let caller = Task(priority: .background) { try await map.request(key: 0) }

        try await self.raise(caller, behind: gate)
    }

    @Test func `DS-06 raising the priority of a caller raises only the flight that the caller awaits`() async throws {
        let world = World()
        let gates = [Gate<Void>(), Gate<Void>()]
        let other = Locked<TaskPriority?>(nil)
        let map = MultiplexerMap<Int, Int>(repository: world.repository) { key in
            try await gates[key].pass()
            if key == 0 { await Self.raised() } else { other.withLock { $0 = Task.currentPriority } }
            return key
        }
        let callers = [0, 1].map { key in Task(priority: .background) { try await map.request(key: key) } }
        for gate in gates { await gate.waitForCall(1) }
        // The refresh fences the running fetch of key 0.
        map.refresh(key: 0)

        callers[0].raisePriority(to: .high)
        gates[0].open()
        _ = try await callers[0].value
        gates[1].open()
        _ = try await callers[1].value

        #expect(other.withLock { $0 }.map { $0 < .high } ?? false)
    }
}
