import Foundation
import MuxKit
import MuxTesting
import Testing

/// What calls get whose time ends while they wait for a dependency to be renewed early.
@Suite(.timeLimit(.minutes(5)), .takesTurns, .endsAtRest)
struct EarlyRenewalTests {
    private struct Pass: ExpiringDependency, Hashable {
        let number: Int
        let expiry: Date
    }

    private let clock = VirtualClock()

    /// Ends in ten seconds: it is to be renewed, and is good.
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

    @Test func `A18 whoever cannot wait longer for the early renewal uses the old one`() async throws {
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
        runner.expectAtRest()
    }

    @Test func `A18 so does one whose renewal fails when its time is over`() async throws {
        let clock = self.clock
        let runner = self.runner {
            clock.advance(by: .seconds(1))
            throw FetchFailed()
        }
        #expect(try await runner.run(timeout: .seconds(1)) { pass, _ in .output(pass.number) } == 1)
    }

    @Test(arguments: [true, false])
    func `A18 one that renews it by itself, for longer than it has, uses what there is then`(fails: Bool) async throws {
        let (clock, new) = (self.clock, self.new)
        let runner = self.runner()
        let number = try await runner.run(timeout: .seconds(1)) { pass, _ in
            .output(pass.number)
        } update: { _, _ in
            clock.advance(by: .seconds(2))
            if fails { throw FetchFailed() }
            return .updatedDependency(new)
        }
        #expect(number == (fails ? 1 : 2))
    }

    @Test func `A18 an old one that has ended meanwhile is no good`() async throws {
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

    @Test func `A18 one that was cancelled uses nothing`() async throws {
        let gate = Gate<Pass>()
        let runner = self.runner { try await gate.pass() }
        let call = Task { try await runner.run(timeout: .seconds(1)) { pass, _ in .output(pass.number) } }
        await gate.waitForCall(1)
        call.cancel()
        await #expect(throws: CancellationError.self) { try await call.value }
        gate.open(returning: self.new)
    }
}
