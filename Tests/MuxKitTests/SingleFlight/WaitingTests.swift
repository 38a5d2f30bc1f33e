import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A wait for an operation with a time limit.
@Suite(.standard)
struct WaitingTests {
    private let clock = VirtualClock()
    private let gate = Gate<Int>()
    private let late = FirstValue<Int?>()

    private func wait(isShielded: Bool = false) -> Task<Int?, any Error> {
        Task {
            try await waiting(for: .seconds(5), by: TimeSource(self.clock), TaskLauncher(), isShielded: isShielded) {
                try await self.gate.pass()
            } late: { result in
                self.late.give(try? result.get())
            }
        }
    }

    @Test func `HS-05 a wait ends at its limit and the operation continues`() async throws {
        let caller = self.wait()
        await self.gate.waitForCall(1)
        await self.clock.waitForSleepers(1)
        self.clock.advance(by: .seconds(5))
        #expect(try await caller.value == nil)
        self.gate.open(returning: 7)
        #expect(await self.late.wait() == 7)
    }

    @Test func `HS-05 a cancelled caller cancels the operation`() async throws {
        let caller = self.wait()
        await self.gate.waitForCall(1)
        caller.cancel()
        await #expect(throws: CancellationError.self) { try await caller.value }
    }

    @Test func `HS-05 a cancelled caller waits for the end of a shielded operation`() async throws {
        let caller = self.wait(isShielded: true)
        await self.gate.waitForCall(1)
        caller.cancel()
        self.gate.open(returning: 7)
        #expect(try await caller.value == 7)
    }

    @Test func `HS-05 a cancelled caller waits for a shielded operation no longer than the limit`() async throws {
        let caller = self.wait(isShielded: true)
        await self.gate.waitForCall(1)
        caller.cancel()
        await self.clock.waitForSleepers(1)
        self.clock.advance(by: .seconds(5))
        #expect(try await caller.value == nil)
        self.gate.open(returning: 7)
        #expect(await self.late.wait() == 7)
    }
}
