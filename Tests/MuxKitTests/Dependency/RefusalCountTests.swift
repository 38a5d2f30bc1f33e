import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The limits on updates count consecutive refusals without a success in between.
@Suite(.standard)
struct RefusalCountTests {
    private let updates = Locked(0)

    private func runner(_ policy: RunnerPolicy, _ clock: VirtualClock = VirtualClock()) -> DependentRunner<Int> {
        DependentRunner<Int>(0, policy: policy, clock: clock) { _ in .updatedDependency(self.updates.next()) }
    }

    private func code(_ runner: DependentRunner<Int>) async -> RunnerError.Code? {
        do {
            try await runner.run { _ in RunResult<Void>.badDependency }
            return nil
        } catch {
            return (error as? RunnerError)?.code
        }
    }

    @Test func `CO-20 values accepted before their refusal do not fill the window`() async throws {
        let runner = self.runner(.onePerCall)
        for number in 0..<20 {
            // Each value is accepted before its refusal.
            #expect(try await runner.run { .output($0) } == number)
            #expect(try await runner.run { $0 > number ? .output($0) : .badDependency } == number + 1)
        }
        #expect(self.updates.withLock { $0 } == 20)
    }

    @Test func `CO-20 a success clears the window and consecutive refusals fill the window`() async throws {
        let runner = self.runner(.onePerCall)
        for _ in 0..<4 { #expect(await self.code(runner) == .tooManyUpdates) }
        #expect(try await runner.run { .output($0) } == 4)
        for _ in 0..<5 { #expect(await self.code(runner) == .tooManyUpdates) }
        #expect(await self.code(runner) == .tooManyUpdatesInWindow)
        #expect(self.updates.withLock { $0 } == 9)
        // Another task accepts the value.
        #expect(try await runner.run { .output($0) } == 9)
    }

    @Test func `CO-20 a late success with a refused value does not clear the window`() async throws {
        let runner = self.runner(.onePerCall)
        let gate = Gate<Void>()
        let slow = Task {
            try await runner.run { value in
                try await gate.pass()
                return .output(value)
            }
        }
        await gate.waitForCall(1)
        for _ in 0..<5 { #expect(await self.code(runner) == .tooManyUpdates) }
        gate.open()
        #expect(try await slow.value == 0)
        #expect(await self.code(runner) == .tooManyUpdatesInWindow)
    }

    @Test func `CO-20 a call may update again after other calls accepted its value`() async throws {
        let runner = self.runner(.onePerCall)
        let rounds = Locked(0)
        let output = try await runner.run { value -> RunResult<Int> in
            if rounds.next() > 6 { return .output(value) }
            // Another call accepts the value.
            _ = try await runner.run { .output($0) }
            return .badDependency
        }
        #expect(output == 6)
    }

    @Test func `CO-20 a task that refuses values accepted by all other tasks still ends`() async throws {
        let runner = self.runner(.onePerCall)
        let error = await #expect(throws: RunnerError.self) {
            try await runner.run { _ -> RunResult<Int> in
                _ = try await runner.run { .output($0) }
                return .badDependency
            }
        }
        guard case .tooManyUpdates(10, _, _)? = error else { return #expect(Bool(false), "\(error)") }
    }

    @Test func `CO-20 a success of a call with a time-out also clears the window`() async throws {
        let runner = self.runner(.onePerCall)
        for _ in 0..<3 {
            for _ in 0..<4 { #expect(await self.code(runner) == .tooManyUpdates) }
            _ = try await runner.run(timeout: .seconds(1)) { value, _ in .output(value) }
        }
        #expect(self.updates.withLock { $0 } == 12)
    }

    @Test func `CO-20 a renewal does not count as a success`() async throws {
        let runner = self.runner(.onePerCall)
        for _ in 0..<5 {
            #expect(await self.code(runner) == .tooManyUpdates)
            try await runner.renew()
        }
        #expect(await self.code(runner) == .tooManyUpdatesInWindow)
    }
}
