import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Callers that are cancelled or resumed during their arrival.
@Suite(.standard)
struct ArrivalTests {
    @Test func `MX-04 a caller that is cancelled during its arrival leaves`() async throws {
        let clock = CancellingClock()
        let repository = MuxRepository(store: MemoryStore(), clock: clock)
        for look in 1...2 {
            let number = Multiplexer<Int>(repository: repository) { 1 }
            clock.arm(atRead: look)
            let caller = Task { try await number.request() }
            await #expect(throws: CancellationError.self, "cancelled at look \(look)") { try await caller.value }
            #expect(clock.hasFired)
        }
    }

    @Test func `D02 a caller that is cancelled during its arrival leaves`() async throws {
        let clock = CancellingClock()
        for look in 1...3 {
            let runner = DependentRunner<Int>(clock: clock) { _ in .updatedDependency(1) }
            clock.arm(atRead: look)
            let caller = Task { try await runner.run { .output($0) } }
            await #expect(throws: CancellationError.self, "cancelled at look \(look)") { try await caller.value }
            #expect(clock.hasFired)
        }
    }

    @Test func `D02 a caller with its own update that is cancelled during its arrival does not update`() async throws {
        let clock = CancellingClock()
        let updates = Locked(0)
        for look in 1...3 {
            let runner = DependentRunner<Int>(clock: clock) { _ in .updatedDependency(1) }
            clock.arm(atRead: look)
            let caller = Task {
                try await runner.run {
                    .output($0)
                } update: { _ in
                    updates.withLock { $0 += 1 }
                    return .updatedDependency(2)
                }
            }
            await #expect(throws: CancellationError.self, "cancelled at look \(look)") { try await caller.value }
            #expect(clock.hasFired)
            await runner.expectAtRest()
        }
        #expect(updates.withLock { $0 } == 0)
    }

    @Test(arguments: [MuxPolicy.WhenAbandoned.finish, .cancel(linger: .zero), .cancel(linger: .seconds(1))])
    func `MX-05 the first caller leaves if it is cancelled before its fetch has a task`(
        _ abandonment: MuxPolicy.WhenAbandoned
    ) async throws {
        let executor = OrderedExecutor()
        let world = World(spawn: TaskLauncher(executor: executor), observer: CancellingObserver(.missed))
        let gate = Gate<Int>()
        let policy = MuxPolicy(whenAbandoned: abandonment)
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await gate.pass() }
        let caller = Task { try await number.request() }
        await #expect(throws: CancellationError.self) { try await caller.value }
        if abandonment != .cancel(linger: .zero) {
            await gate.waitForCall(1)
            gate.open(returning: 1)
        }
        executor.settle()
        #expect(gate.heldCount == 0)
        #expect(number.cachedValue == (abandonment == .cancel(linger: .zero) ? nil : 1))
        await number.expectAtRest()
    }

    @Test func `D02 the first caller leaves if it is cancelled before its update has a task`() async throws {
        let observer = CancellingObserver(.dependencyAwaited)
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: observer) { _ in .updatedDependency(try await gate.pass()) }
        let caller = Task { try await runner.run { .output($0) } }
        await #expect(throws: CancellationError.self) { try await caller.value }
        await gate.waitForCall(1)
        gate.open(returning: 3)
        #expect(try await runner.run { .output($0) } == 3)
        await runner.expectAtRest()
    }

    @Test func `PT-01 a wait that ends before its cleanup is stored is in no cycle`() async throws {
        // A flight without a suspension ends within the call that starts it.
        let world = World(spawn: TaskLauncher(executor: InlineExecutor()))
        let gate = Gate<Int>()
        let unawaited = Locked<Task<Int, any Error>?>(nil)
        let later = Later<Multiplexer<Int>>()
        let map = MultiplexerMap<Int, Int>(repository: world.repository) { key in
            if key == 1 {
                let task = Task { try await later().request() }
                unawaited.withLock { $0 = task }
            }
            return key
        }
        // This flight waits for the flights of the map. A task of a map flight waits for this flight.
        let outer = Multiplexer<Int>(repository: world.repository) {
            _ = try await map.request(keys: 1...2)
            return try await gate.pass(ignoringCancellation: true)
        }
        later.set(outer)
        let caller = Task { try await outer.request() }
        await gate.waitForCall()
        await world.events.wait(for: .joined)
        await world.clock.waitForSleepers(2)

        world.clock.advance(by: .seconds(60))

        let task = try #require(unawaited.withLock { $0 })
        await #expect(throws: MuxError.timedOut(after: .seconds(60))) { try await caller.value }
        await #expect(throws: MuxError.timedOut(after: .seconds(60))) { try await task.value }
        gate.open(returning: 0)
        await outer.expectAtRest()
        await map.expectAtRest()
    }
}

/// Cancels the task that reports the first event of `kind`.
private final class CancellingObserver: MuxObserver {
    private let kind: MuxEvent.Kind
    private let isArmed = Locked(true)

    init(_ kind: MuxEvent.Kind) { self.kind = kind }

    func observe(_ event: MuxEvent) {
        guard event.kind == self.kind else { return }
        let isFirst = self.isArmed.withLock { isArmed in
            defer { isArmed = false }
            return isArmed
        }
        if isFirst { withUnsafeCurrentTask { $0?.cancel() } }
    }
}
