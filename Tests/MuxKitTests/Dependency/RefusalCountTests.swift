import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// What counts as too many updates: refusals one after the other, with no success in between.
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

    @Test func `CO-20 values that were accepted before they were refused fill no window`() async throws {
        let runner = self.runner(.onePerCall)
        for number in 0..<20 {
            // Each value is refused once it was accepted.
            #expect(try await runner.run { .output($0) } == number)
            #expect(try await runner.run { $0 > number ? .output($0) : .badDependency } == number + 1)
        }
        #expect(self.updates.withLock { $0 } == 20)
    }

    @Test func `CO-20 a success clears the window and refusals one after the other fill it`() async throws {
        let runner = self.runner(.onePerCall)
        for _ in 0..<4 { #expect(await self.code(runner) == .tooManyUpdates) }
        #expect(try await runner.run { .output($0) } == 4)
        for _ in 0..<5 { #expect(await self.code(runner) == .tooManyUpdates) }
        #expect(await self.code(runner) == .tooManyUpdatesInWindow)
        #expect(self.updates.withLock { $0 } == 9)
        // The value is not refused by all.
        #expect(try await runner.run { .output($0) } == 9)
    }

    @Test func `CO-20 a success with a value that was refused is none that came in between`() async throws {
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

    @Test func `CO-20 a call whose value others accepted may ask again`() async throws {
        let runner = self.runner(.onePerCall)
        let rounds = Locked(0)
        let output = try await runner.run { value -> RunResult<Int> in
            if rounds.next() > 6 { return .output(value) }
            // Somebody else has a use for this one.
            _ = try await runner.run { .output($0) }
            return .badDependency
        }
        #expect(output == 6)
    }

    @Test func `CO-20 a task that refuses what all others accept ends nevertheless`() async throws {
        let runner = self.runner(.onePerCall)
        let error = await #expect(throws: RunnerError.self) {
            try await runner.run { _ -> RunResult<Int> in
                _ = try await runner.run { .output($0) }
                return .badDependency
            }
        }
        guard case .tooManyUpdates(10, _, _)? = error else { return #expect(Bool(false), "\(error)") }
    }

    @Test func `CO-20 a call with a time to keep notes its success as well`() async throws {
        let runner = self.runner(.onePerCall)
        for _ in 0..<3 {
            for _ in 0..<4 { #expect(await self.code(runner) == .tooManyUpdates) }
            _ = try await runner.run(timeout: .seconds(1)) { value, _ in .output(value) }
        }
        #expect(self.updates.withLock { $0 } == 12)
    }

    @Test func `CO-20 renewing is no success`() async throws {
        let runner = self.runner(.onePerCall)
        for _ in 0..<5 {
            #expect(await self.code(runner) == .tooManyUpdates)
            try await runner.renew()
        }
        #expect(await self.code(runner) == .tooManyUpdatesInWindow)
    }
}
