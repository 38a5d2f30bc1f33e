import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SerialLaneTests {
    @Test func `RP-03 a mutex that always has waiters releases the places of finished operations`() async throws {
        let executor = OrderedExecutor()
        let lane = AsyncMutex()
        let gate = Gate<Void>()
        let enter: @Sendable () -> Task<Void, any Error> = {
            Task(executorPreference: executor) { try await lane.run { try await gate.pass() } }
        }
        var operations = [enter()]
        await gate.waitForCall(1)

        var mostPlaces = 0
        for turn in 1...1_000 {
            operations.append(enter())
            executor.settle()  // the operation now waits for its turn
            gate.open(turn)
            await gate.waitForCall(turn + 1)
            mostPlaces = max(mostPlaces, lane.placeCount)
        }
        gate.openForGood(returning: ())
        for operation in operations { try await operation.value }

        #expect(mostPlaces > 0)
        #expect(mostPlaces < 100)
    }

    @Test func `CO-17 a waiting clear raises the priority of the save before it`() async throws {
        let executor = OrderedExecutor()
        let store = UnreliableStore()
        let world = World(store: store)
        let (gate, priorities) = (Gate<Void>(), Locked<[TaskPriority]>([]))
        store.beforeSave.withLock { before in
            before = {
                priorities.withLock { $0.append(Task.currentPriority) }
                try? await gate.pass()
                priorities.withLock { $0.append(Task.currentPriority) }
            }
        }
        let number = Multiplexer(cacheKey: "Number", repository: world.repository) { 1 }
        number.store(1)
        // One executor for both tasks: the clear begins after the save can be escalated.
        let save = Task(executorPreference: executor, priority: .background) { await number.save() }
        await gate.waitForCall(1)
        let clear = Task(executorPreference: executor, priority: .high) { await number.clear() }
        executor.settle()  // the clear now waits for its turn

        gate.openForGood(returning: ())
        #expect(await clear.value.isComplete)
        _ = await save.value

        let seen = priorities.withLock { $0 }
        #expect(seen.count == 2 && seen[0] < .high && seen[1] >= .high, "\(seen)")
    }

    @Test func `DS-06 raising the priority of a waiting clear raises the save before it`() async throws {
        let executor = OrderedExecutor()
        let store = UnreliableStore()
        let world = World(store: store)
        let (gate, priorities) = (Gate<Void>(), Locked<[TaskPriority]>([]))
        store.beforeSave.withLock { before in
            before = {
                priorities.withLock { $0.append(Task.currentPriority) }
                try? await gate.pass()
                priorities.withLock { $0.append(Task.currentPriority) }
            }
        }
        let number = Multiplexer(cacheKey: "Number", repository: world.repository) { 1 }
        number.store(1)
        // One executor for both tasks: the clear begins after the save can be escalated.
        let save = Task(executorPreference: executor, priority: .background) { await number.save() }
        await gate.waitForCall(1)
        let clear = Task(executorPreference: executor, priority: .background) { await number.clear() }
        executor.settle()  // the clear now waits for its turn

        clear.raisePriority(to: .high)
        gate.openForGood(returning: ())
        #expect(await clear.value.isComplete)
        _ = await save.value

        let seen = priorities.withLock { $0 }
        #expect(seen.count == 2 && seen[0] < .high && seen[1] >= .high, "\(seen)")
    }
}
