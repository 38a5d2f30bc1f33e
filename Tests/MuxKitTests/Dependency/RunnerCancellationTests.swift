import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RunnerCancellationTests {
    private let events = EventTally()

    @Test func `D01 a call that is cancelled before its start runs neither task nor update`() async throws {
        let update = ScriptedFetch<Int>(thereafter: .value(1))
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await update()) }
        let hasRun = Locked(false)
        for isPreset in [false, true] {
            if isPreset { runner.set(1) }
            let caller = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                return try await runner.run { value in
                    hasRun.withLock { $0 = true }
                    return .output(value)
                }
            }
            await #expect(throws: CancellationError.self) { try await caller.value }
        }
        #expect(!hasRun.withLock { $0 })
        #expect(update.callCount == 0)
    }

    @Test func `D02 cancelled callers leave at once without an effect on other callers`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: events) { _ in
            .updatedDependency(try await gate.pass(ignoringCancellation: true))
        }
        let callers = (0..<100).map { _ in Task { try await runner.run { .output($0) } } }
        await events.wait(for: .dependencyAwaited, count: 100)

        for caller in callers.dropLast() { caller.cancel() }
        for caller in callers.dropLast() {
            await #expect(throws: CancellationError.self) { try await caller.value }
        }
        #expect(runner.occupancy.waiters == 1)
        gate.open(returning: 3)

        #expect(try await callers[99].value == 3)
        await runner.expectAtRest()
    }

    @Test func `D03 cancelling the first caller neither stops nor wedges the update`() async throws {
        let gate = Gate<Int>()
        let update = ScriptedFetch<Int>(thereafter: .gated(gate))
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await update()) }
        let first = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        let second = Task { try await runner.run { .output($0) } }
        await events.wait(for: .dependencyAwaited, count: 2)

        first.cancel()
        await #expect(throws: CancellationError.self) { try await first.value }
        #expect(gate.heldCount == 1, "the update goes on")
        gate.open(returning: 5)

        #expect(try await second.value == 5)
        #expect(update.callCount == 1)
        await runner.expectAtRest()
    }

    @Test func `D03 a cancelled leader with an update closure leaves after the end of the update`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: events)
        let wasCancelled = Locked<Bool?>(nil)
        let first = Task {
            try await runner.run {
                .output($0)
            } update: { _ in
                let value = try await gate.pass()
                wasCancelled.withLock { $0 = Task.isCancelled }
                return .updatedDependency(value)
            }
        }
        await gate.waitForCall(1)
        let second = Task {
            try await runner.run {
                .output($0)
            } update: { _ in
                .updateFailed
            }
        }
        await events.wait(for: .dependencyAwaited, count: 1)

        first.cancel()
        #expect(gate.heldCount == 1, "the cancellation does not reach the update")
        gate.open(returning: 5)

        #expect(try await second.value == 5)
        await #expect(throws: CancellationError.self) { try await first.value }
        #expect(wasCancelled.withLock { $0 } == false)
        #expect(runner.value == 5)
        await runner.expectAtRest()
    }

    @Test func `D03 an update continues after all callers have left, and its value is kept`() async throws {
        let gate = Gate<Int>()
        let update = ScriptedFetch<Int>(thereafter: .gated(gate))
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await update()) }
        let caller = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        caller.cancel()
        _ = await caller.result

        let next = Task { try await runner.run { .output($0) } }
        await events.wait(for: .dependencyAwaited, count: 1)
        gate.open(returning: 6)
        #expect(try await next.value == 6)
        #expect(update.callCount == 1)
    }

    @Test func `D05 a reset during an update takes effect at once`() async throws {
        let gate = Gate<Int>()
        let update = ScriptedFetch<Int>(thereafter: .computed { _ in try await gate.pass(ignoringCancellation: true) })
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await update()) }
        let callers = (0..<10).map { _ in Task { try await runner.run { .output($0) } } }
        await events.wait(for: .dependencyAwaited, count: 10)
        await gate.waitForCall(1)

        runner.reset()

        for caller in callers {
            let error = await #expect(throws: RunnerError.self) { try await caller.value }
            guard case .reset? = error else { return #expect(Bool(false), "\(error)") }
        }
        #expect(gate.heldCount == 1, "the update has not ended yet")
        gate.open(returning: 1)
        await events.wait(for: .updated)
        #expect(runner.value == nil)
    }

    @Test func `D06 the value of an old session's update is dropped`() async throws {
        let gate = Gate<Int>()
        let update = ScriptedFetch<Int>(thereafter: .computed { _ in try await gate.pass(ignoringCancellation: true) })
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await update()) }
        let old = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)

        runner.reset()
        await #expect(throws: RunnerError.self) { try await old.value }
        let new = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(2)
        gate.open(2, returning: 2)
        #expect(try await new.value == 2)
        gate.open(1, returning: 1)
        await events.wait(for: .updated, count: 2)

        #expect(runner.value == 2)
        #expect(try await runner.run { .output($0) } == 2)
    }

    @Test func `D06 the leader of an old session's update gets the reset, not the update's error`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: events)
        let leader = Task {
            try await runner.run {
                .output($0)
            } update: { _ in
                .updatedDependency(try await gate.pass())
            }
        }
        await gate.waitForCall(1)
        runner.reset()
        gate.fail(with: FetchFailed())
        await #expect(throws: RunnerError.self) { try await leader.value }
    }

    @Test func `D02 random cancellation loses no caller and leaks no task`() async throws {
        for seed in 0..<UInt64(repetitions(10_000)) {
            var random = SplitMix64(state: seed)
            let gate = Gate<Int>()
            let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await gate.pass()) }
            let callers = (0..<Int.random(in: 1...5, using: &random)).map { _ in
                Task { try await runner.run { .output($0) } }
            }
            for caller in callers where Bool.random(using: &random) { caller.cancel() }
            gate.openForGood(returning: 1)
            for caller in callers {
                switch await caller.result {
                case .success(let value): #expect(value == 1)
                case .failure(let error): #expect(error is CancellationError)
                }
            }
            #expect(try await runner.run { .output($0) } == 1)
            await runner.expectAtRest()
        }
    }

    // MARK: - Updates that are scheduled before a reset

    @Test func `A12 an update that is scheduled before a reset does not run after the reset`() async throws {
        let executor = OrderedExecutor()
        let events = EventTally()
        let updates = Locked(0)
        let time = TimeSource(VirtualClock())
        let spawn = TaskLauncher(executor: executor)
        let core = RunnerCore<Int>(
            policy: .init(),
            observer: events,
            time: time,
            spawn: spawn,
            update: { _, _ in RunnerCore.UpdateOutcome(.updatedDependency(updates.next())) }
        )
        executor.pause()
        let call = Task { try await core.run { held, _ in .output(held.value) } }
        await events.wait(for: .dependencyAwaited, count: 1)

        core.end(.reset)
        executor.resume()

        let error = await #expect(throws: RunnerError.self) { try await call.value }
        #expect(error?.code == .reset)
        executor.settle()
        #expect(updates.withLock { $0 } == 0)
        #expect(try await core.run { held, _ in .output(held.value) } == 1)
    }

    @MainActor @Test func `A12 a caller's update closure that is scheduled before a reset does not run`() async {
        let runner = DependentRunner<Int>()
        var updates = 0
        // The reset runs when the call suspends, before the call's update.
        let reset = Task { runner.reset() }
        do {
            _ = try await runner.run {
                .output($0)
            } update: { _ in
                updates += 1
                return .updatedDependency(updates)
            }
            Issue.record("the call goes on")
        } catch {
            #expect((error as? RunnerError)?.code == .reset)
        }
        await reset.value
        #expect(updates == 0)
    }
}
