import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct DependentRunnerTests {
    /// Calls a closure at its release.
    private final class Connection: Sendable {
        private let whenReleased: @Sendable () -> Void
        init(_ whenReleased: @escaping @Sendable () -> Void) { self.whenReleased = whenReleased }
        deinit { self.whenReleased() }
    }

    @Test func `C06 a critical error of an update is not retried`() async throws {
        struct Closed: Error {}
        let count = Locked(0)
        let runner = DependentRunner<Int>(policy: .init(retry: .immediate(maxAttempts: 3))) { _ in
            let number = count.withLock { count in
                count += 1
                return count
            }
            guard number > 1 else { throw CriticalError(Closed()) }
            return .updatedDependency(number)
        }
        let error = await #expect(throws: RunnerError.self) { try await runner.run { $0 } }
        #expect(error?.code == .critical && count.withLock { $0 } == 1)
    }

    @Test func `CO-17 the deinit of a replaced value may call its runner`() {
        let ends = Locked<[Bool]>([])
        let runner = DependentRunner<Connection>()
        for _ in 0..<2 {
            runner.set(
                Connection { [weak runner] in
                    let isThere = runner?.value != nil
                    ends.withLock { $0.append(isThere) }
                }
            )
        }
        #expect(ends.withLock { $0 } == [true])
        runner.reset()
        #expect(ends.withLock { $0 } == [true, false])
    }

    @Test func `CO-17 the deinit of a value that a critical error drops may call its runner`() async throws {
        let ends = Locked<[Bool]>([])
        let gate = Gate<Void>()
        let runner = DependentRunner<Connection>()
        runner.set(Connection {})
        let call = Task {
            try await runner.run { _ -> RunResult<Void> in
                try await gate.pass()
                throw CriticalError(FetchFailed())
            }
        }
        await gate.waitForCall(1)
        runner.set(
            Connection { [weak runner] in
                let isThere = runner?.value != nil
                ends.withLock { $0.append(isThere) }
            }
        )
        gate.open()

        await #expect(throws: RunnerError.self) { try await call.value }
        #expect(ends.withLock { $0 } == [false])
    }

    /// An error whose advice calls a closure.
    private struct CallingError: RetryableError {
        let call: @Sendable () -> Void

        var retryAdvice: RetryAdvice {
            self.call()
            return .transient
        }
    }

    @Test func `CO-17 a property of an update's error may call the runner`() async {
        let hasCalled = Locked(false)
        let later = Later<DependentRunner<Int>>()
        let runner = DependentRunner<Int> { _ -> UpdateResult<Int> in
            throw CallingError {
                _ = (try? later())?.value
                hasCalled.withLock { $0 = true }
            }
        }
        later.set(runner)

        await #expect(throws: CallingError.self) { _ = try await runner.run { .output($0) } }

        #expect(hasCalled.withLock { $0 })
    }

    private let events = EventTally()

    /// An update that returns the number of its calls as the dependency.
    final class Updates: Sendable {
        private let state = Locked<(running: Int, most: Int, failed: [Int?])>((0, 0, []))

        func next(_ failed: Int?) -> UpdateResult<Int> {
            self.state.withLock { state in
                state.failed.append(failed)
                return .updatedDependency(state.failed.count)
            }
        }

        var count: Int { self.state.withLock { $0.failed.count } }
        var failed: [Int?] { self.state.withLock { $0.failed } }
    }

    @Test func `A01 an empty runner makes the dependency once`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(observer: events)

        let output = try await runner.run {
            .output("got \($0)")
        } update: {
            updates.next($0)
        }

        #expect(output == "got 1")
        #expect(updates.count == 1)
        #expect(runner.value == 1)
    }

    @Test func `A02 a refused dependency is renewed until the task accepts it`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(observer: events)

        let three = try await runner.run {
            $0 == 3 ? .output($0) : .badDependency
        } update: {
            updates.next($0)
        }

        #expect(three == 3)
        #expect(updates.count == 3)
    }

    @Test func `A02 the example of the documentation returns three`() async throws {
        let runner = DependentRunner<Int>(observer: events)
        let three = try await runner.run { value in
            value == 3 ? .output(value) : .badDependency
        } update: { failed in
            .updatedDependency((failed ?? 0) + 1)
        }
        #expect(three == 3)
    }

    @Test func `A03 the dependency is kept across calls`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(observer: events)
        for _ in 0..<100 {
            #expect(
                try await runner.run {
                    .output($0)
                } update: {
                    updates.next($0)
                } == 1
            )
        }
        #expect(updates.count == 1)
    }

    @Test func `A04 a thousand cold callers make one update`() async throws {
        let gate = Gate<Int>()
        let update = ScriptedFetch<Int>(thereafter: .gated(gate))
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await update()) }

        let outputs = try await withThrowingTaskGroup { group in
            for _ in 0..<1_000 { group.addTask { try await runner.run { .output($0) } } }
            await events.wait(for: .dependencyAwaited, count: 1_000)
            gate.open(returning: 5)
            return try await group.reduce(into: []) { $0.append($1) }
        }

        #expect(outputs == Array(repeating: 5, count: 1_000))
        #expect(update.callCount == 1)
        #expect(update.maximumConcurrency == 1)
        await runner.expectAtRest()
    }

    @Test func `A04 a thousand cold callers with update closures make one update`() async throws {
        let gate = Gate<Int>()
        let update = ScriptedFetch<Int>(thereafter: .gated(gate))
        let runner = DependentRunner<Int>(observer: events)

        let outputs = try await withThrowingTaskGroup { group in
            for _ in 0..<1_000 {
                group.addTask {
                    try await runner.run {
                        .output($0)
                    } update: { _ in
                        .updatedDependency(try await update())
                    }
                }
            }
            await events.wait(for: .dependencyAwaited, count: 999)
            gate.open(returning: 5)
            return try await group.reduce(into: []) { $0.append($1) }
        }

        #expect(outputs == Array(repeating: 5, count: 1_000))
        #expect(update.callCount == 1)
        await runner.expectAtRest()
    }

    @Test func `A05 waiters resume in order of arrival with the new value`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await gate.pass()) }
        let order = Locked<[Int]>([])
        let executor = OrderedExecutor()

        let callers = await withTaskGroup { group in
            for caller in 0..<200 {
                // Callers arrive one after another, so the order of arrival is known. All callers share an
                // executor, so the order of resumption is known.
                group.addTask(executorPreference: executor) {
                    _ = try? await runner.run { value in
                        order.withLock { $0.append(caller) }
                        return .output(value)
                    }
                }
                await events.wait(for: .dependencyAwaited, count: caller + 1)
            }
            // The executor runs this task after the last caller has suspended.
            await Task(executorPreference: executor) {}.value
            gate.open(returning: 1)
            return await group.reduce(0) { count, _ in count + 1 }
        }

        #expect(callers == 200)
        #expect(order.withLock { $0 } == Array(0..<200))
        await runner.expectAtRest()
    }

    @Test func `A06 S4 a late refusal of an old value gets the new value without an update`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(1) { updates.next($0.map { $0 + 1 }) }
        // Bob's reply for token 1 is late.
        let late = Gate<Void>()
        let bob = Task {
            try await runner.run { token in
                if token == 1 {
                    try await late.pass()
                    return RunResult<String>.badDependency
                }
                return .output("Bob with \(token)")
            }
        }
        await late.waitForCall(1)

        runner.set(1)
        runner.set(2)
        late.open()

        #expect(try await bob.value == "Bob with 2")
        #expect(updates.count == 0)
        await runner.expectAtRest()
    }

    @Test func `A08 epochs continue after a reset, so an old refusal has no effect`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(7) { _ in updates.next(nil) }
        let before = runner.epoch
        let late = Gate<Void>()
        let old = Task {
            try await runner.run { token in
                try await late.pass()
                return RunResult<Int>.badDependency
            }
        }
        await late.waitForCall(1)

        runner.reset()
        #expect(runner.epoch > before)
        runner.set(8)
        late.open()

        await #expect(throws: RunnerError.self) { try await old.value }
        #expect(updates.count == 0)
        #expect(runner.value == 8)
        #expect(try await runner.run { .output($0) } == 8)
    }

    @Test func `A09 the update gets nil first and then the refused value`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(observer: events)
        _ = try await runner.run {
            $0 == 3 ? .output($0) : .badDependency
        } update: {
            updates.next($0)
        }
        #expect(updates.failed == [nil, 1, 2])
    }

    @Test func `A11 a preset value is used without an update`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(5)
        #expect(
            try await runner.run {
                .output($0)
            } update: {
                updates.next($0)
            } == 5
        )
        #expect(updates.count == 0)
    }

    @Test func `A11 a value set during an update is used at once and the update's value is dropped`() async throws {
        let gate = Gate<Int>()
        let update = ScriptedFetch<Int>(thereafter: .gated(gate))
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await update()) }
        let caller = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        let epoch = runner.epoch

        runner.set(9)
        #expect(try await caller.value == 9)
        #expect(runner.epoch > epoch)
        gate.open(returning: 1)
        await events.wait(for: .updated)

        #expect(runner.value == 9)
    }

    @Test func `A11 setting a value clears a refusal`() async throws {
        let runner = DependentRunner<Int> { _ in .updateFailed }
        await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        runner.set(4)
        #expect(try await runner.run { .output($0) } == 4)
    }

    @Test func `A11 a refusal from before a value was set does not affect a later update`() async throws {
        let update = ScriptedFetch<UpdateResult<Int>>([.value(.updateFailed), .value(.updatedDependency(5))])
        let runner = DependentRunner<Int> { _ in try await update() }
        await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        runner.set(4)
        #expect(try await runner.run { $0 == 4 ? .badDependency : .output($0) } == 5)
    }

    @Test func `A12 after a reset the next call makes the dependency again`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int> { updates.next($0) }
        _ = try await runner.run { .output($0) }
        runner.reset()
        #expect(runner.value == nil)
        #expect(try await runner.run { .output($0) } == 2)
        #expect(updates.failed == [nil, nil])
    }

    @Test func `A14 Task inject behaves like the method`() async throws {
        let runner = DependentRunner<Int>(observer: events)
        let three = try await Task.inject(dependency: runner) {
            $0 == 3 ? .output($0) : .badDependency
        } refresh: { failed in
            .updatedDependency((failed ?? 0) + 1)
        }
        #expect(three == 3)
        #expect(runner.value == 3)
        await #expect(throws: FetchFailed.self) {
            try await Task.inject(dependency: runner) { _ -> RunResult<Int> in
                throw FetchFailed()
            } refresh: { _ in
                .updateFailed
            }
        }
    }

    @MainActor @Test func `A14 closures run in the caller's isolation and may use non-Sendable values`() async throws {
        final class Screen {
            var tokens: [Int] = []
            var updates = 0
            func load(_ runner: DependentRunner<Int>) async throws -> Int {
                try await runner.run { token in
                    MainActor.assertIsolated()
                    tokens.append(token)
                    return token == 2 ? .output(token) : .badDependency
                } update: { refused in
                    MainActor.assertIsolated()
                    updates += 1
                    return .updatedDependency((refused ?? 0) + 1)
                }
            }
        }
        let screen = Screen()
        #expect(try await screen.load(DependentRunner<Int>()) == 2)
        #expect(screen.tokens == [1, 2])
        #expect(screen.updates == 2)
    }

    @Test func `A16 an error of the task passes through and changes no state`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(5) { updates.next($0) }
        let epoch = runner.epoch

        await #expect(throws: FetchFailed(call: 3)) {
            try await runner.run { _ -> RunResult<Int> in throw FetchFailed(call: 3) }
        }

        #expect(runner.epoch == epoch)
        #expect(updates.count == 0)
        #expect(try await runner.run { .output($0) } == 5)
    }

    @Test func `A16 a thrown bad dependency error counts as a refusal`() async throws {
        let updates = Updates()
        let runner = DependentRunner<Int>(policy: .init(maximumUpdatesPerCall: 1)) { updates.next($0) }
        let two = try await runner.run { token -> RunResult<Int> in
            guard token == 2 else { throw BadDependency() }
            return .output(token)
        }
        #expect(two == 2)
        // The thrown error is the underlying error at the limit (C04).
        let error = await #expect(throws: RunnerError.self) {
            try await runner.run { _ -> RunResult<Int> in throw BadDependency() }
        }
        guard case .tooManyUpdates(1, _, let cause)? = error else { return #expect(Bool(false), "\(error)") }
        #expect(cause is BadDependency)
    }
}
