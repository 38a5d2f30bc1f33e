import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Calls that time out or are cancelled during an early renewal.
@Suite(.standard)
struct EarlyRenewalTests {
    private struct Pass: ExpiringDependency, Hashable {
        let number: Int
        let expiry: Date?
    }

    private let clock = VirtualClock()

    /// Ends in ten seconds: within the leeway, but still valid.
    private let old = Pass(number: 1, expiry: World.start.addingTimeInterval(10))
    private let new = Pass(number: 2, expiry: World.start.addingTimeInterval(300))

    private var wall: @Sendable () -> Date {
        let clock = self.clock
        return { World.start.addingTimeInterval(clock.now.offset.secondsValue) }
    }

    private func runner(
        _ policy: RunnerPolicy = .init(),
        update: @escaping @Sendable () async throws -> Pass = { throw FetchFailed() }
    ) -> DependentRunner<Pass> {
        DependentRunner(self.old, policy: policy, clock: self.clock, wallTime: self.wall) { _ in
            .updatedDependency(try await update())
        }
    }

    @Test func `A18 a call that times out during an early renewal uses the old dependency`() async throws {
        let gate = Gate<Pass>()
        let runner = self.runner { try await gate.pass() }
        let call = Task { try await runner.run(timeout: .seconds(1)) { pass, _ in .output(pass.number) } }
        let picky = Task {
            try await runner.run(timeout: .seconds(1)) { _, _ -> RunResult<Int> in .badDependency }
        }
        await gate.waitForCall(1)
        await self.clock.waitForSleepers(3)
        self.clock.advance(by: .seconds(1))
        #expect(try await call.value == 1)
        let error = await #expect(throws: RunnerError.self) { try await picky.value }
        #expect(error?.code == .timedOut)
        gate.open(returning: self.new)
        #expect(try await runner.run { .output($0.number) } == 2)
        await runner.expectAtRest()
    }

    @Test func `PT-01 a call waits for an early renewal for half of the remaining lifetime`() async throws {
        let gate = Gate<Pass>()
        let runner = self.runner { try await gate.pass() }
        let call = Task { try await runner.run { .output($0.number) } }
        await gate.waitForCall(1)
        await self.clock.waitForSleepers(2)
        #expect(self.clock.advanceToNextDeadline() == .seconds(5))
        #expect(try await call.value == 1)
        gate.open(returning: self.new)
        #expect(try await runner.run { .output($0.number) } == 2)
        await runner.expectAtRest()
    }

    @Test func `A18 a call whose early renewal fails uses the old dependency after its time-out`() async throws {
        // The paused executor delays the call from the failure of the renewal to the call's time-out.
        let executor = OrderedExecutor()
        let events = EventTally()
        let gate = Gate<Pass>()
        let runner = DependentRunner(self.old, observer: events, clock: self.clock, wallTime: self.wall) { _ in
            .updatedDependency(try await gate.pass())
        }
        let call = Task(executorPreference: executor) {
            try await runner.run(timeout: .seconds(1)) { pass, _ in .output(pass.number) }
        }
        await gate.waitForCall(1)
        executor.settle()
        executor.pause()
        gate.fail(with: FetchFailed())
        await events.wait(for: .updateFailed)
        self.clock.advance(by: .seconds(1))
        executor.resume()
        #expect(try await call.value == 1)
    }

    /// The dependency's number in a call with an update closure that takes twice the call's time-out.
    private func led(
        _ runner: DependentRunner<Pass>,
        _ update: @escaping @Sendable () throws -> Pass
    ) async throws -> Int {
        let clock = self.clock
        return try await runner.run(timeout: .seconds(1)) { pass, _ in
            .output(pass.number)
        } update: { _, _ in
            clock.advance(by: .seconds(2))
            return .updatedDependency(try update())
        }
    }

    @Test func `A18 a call with an update closure slower than its time-out uses the current dependency`() async throws {
        let new = self.new
        #expect(try await self.led(self.runner()) { throw FetchFailed() } == 1)
        #expect(try await self.led(self.runner()) { new } == 2)
    }

    @Test func `A18 a call past its time-out uses a value that was set during its update closure`() async throws {
        let (runner, new) = (self.runner(), self.new)
        let number = try await self.led(runner) {
            runner.set(Pass(number: 3, expiry: .distantFuture))
            return new
        }
        #expect(number == 3)
    }

    @Test func `A18 a call past its time-out uses a renewed dependency with an unknown end`() async throws {
        // The dependency is expired on arrival, so a clock is wrong and the end is unknown.
        #expect(try await self.led(self.runner()) { Pass(number: 3, expiry: World.start) } == 3)
    }

    @Test func `A18 a renewal that throws a CancellationError fails without cancelling the call`() async throws {
        let runner = self.runner { throw CancellationError() }
        #expect(try await runner.run { .output($0.number) } == 1)
    }

    @Test func `A18 a dependency whose parent is replaced during its renewal is made again`() async throws {
        let (clock, wall, old, new) = (self.clock, self.wall, self.old, self.new)
        let parent = DependentRunner<Int>(1)
        let child = DependentRunner<Pass>(dependingOn: parent, clock: clock, wallTime: wall) { number, refused in
            guard refused != nil else { return .updatedDependency(number == 1 ? old : new) }
            parent.set(2)
            throw FetchFailed()
        }
        // The child's first dependency is within the leeway and is made with the parent's first value.
        #expect(try await child.run { .output($0.number) } == 1)
        self.clock.advance(by: .seconds(6))
        #expect(try await child.run { .output($0.number) } == 2)
    }

    @Test func `A18 a call cancelled after a failed renewal does not run with the old dependency`() async throws {
        let executor = OrderedExecutor()
        let events = EventTally()
        let gate = Gate<Pass>()
        let runner = DependentRunner(self.old, observer: events, clock: self.clock, wallTime: self.wall) { _ in
            .updatedDependency(try await gate.pass())
        }
        let call = Task(executorPreference: executor) { try await runner.run { .output($0.number) } }
        await gate.waitForCall(1)
        executor.settle()
        executor.pause()
        gate.fail(with: FetchFailed())
        await events.wait(for: .updateFailed)
        call.cancel()
        executor.resume()
        await #expect(throws: CancellationError.self) { try await call.value }
    }

    @Test func `A18 an old dependency that ends during the renewal is not used`() async throws {
        let gate = Gate<Pass>()
        let runner = self.runner { try await gate.pass() }
        let call = Task { try await runner.run(timeout: .seconds(10)) { pass, _ in .output(pass.number) } }
        await gate.waitForCall(1)
        await self.clock.waitForSleepers(2)
        self.clock.advance(by: .seconds(10))
        let error = await #expect(throws: RunnerError.self) { try await call.value }
        #expect(error?.code == .timedOut)
        gate.open(returning: self.new)
    }

    @Test func `A18 a call cancelled during an early renewal uses no dependency`() async throws {
        let gate = Gate<Pass>()
        let runner = self.runner { try await gate.pass() }
        let call = Task { try await runner.run(timeout: .seconds(1)) { pass, _ in .output(pass.number) } }
        await gate.waitForCall(1)
        call.cancel()
        await #expect(throws: CancellationError.self) { try await call.value }
        gate.open(returning: self.new)
    }
}
