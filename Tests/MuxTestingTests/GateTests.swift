import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct GateTests {
    private struct Broken: Error {}

    let gate = Gate<Int>()

    @Test func `P-04 a gate holds each call until a result with its number`() async throws {
        let gate = self.gate
        let first = Task { try await gate.pass() }
        await gate.waitForCall(1)
        let second = Task { try await gate.pass() }
        await gate.waitForCall(2)
        #expect(gate.heldCount == 2)

        #expect(gate.open(2, returning: 20))
        #expect(gate.fail(1, with: Broken()))

        #expect(try await second.value == 20)
        await #expect(throws: Broken.self) { try await first.value }
        #expect(!gate.open(2, returning: 21))
        #expect(gate.callCount == 2 && gate.heldCount == 0)
    }

    @Test func `P-04 results without a number go to the calls in order of arrival`() async throws {
        let gate = self.gate
        let first = Task { try await gate.pass() }
        await gate.waitForCall(1)
        gate.open(2, returning: 2)

        for value in [1, 3, 4] { gate.open(returning: value) }

        #expect(try await first.value == 1)
        for value in [2, 3, 4] { #expect(try await gate.pass() == value) }
    }

    @Test func `P-04 a cancelled call leaves a gate at once, and its result goes to the next call`() async throws {
        let gate = self.gate
        let first = Task { try await gate.pass() }
        await gate.waitForCall(1)

        first.cancel()

        await #expect(throws: CancellationError.self) { try await first.value }
        #expect(!gate.open(1, returning: 1))
        gate.open(returning: 2)
        #expect(try await gate.pass() == 2)
    }

    @Test func `P-04 a call that ignores cancellation stays at the gate`() async throws {
        let gate = self.gate
        let call = Task { try await gate.pass(ignoringCancellation: true) }
        await gate.waitForCall(1)

        call.cancel()

        #expect(gate.heldCount == 1)
        gate.open(returning: 1)
        #expect(try await call.value == 1)
    }

    @Test func `P-04 a permanently opened gate lets all calls pass`() async throws {
        let gate = self.gate
        let held = Task { try await gate.pass() }
        await gate.waitForCall(1)
        gate.fail(2, with: Broken())

        gate.openForGood(returning: 7)

        #expect(try await held.value == 7)
        await #expect(throws: Broken.self) { try await gate.pass() }
        #expect(try await gate.pass() == 7)
    }

    @Test func `P-04 a simultaneous cancellation and opening ends every call once`() async {
        let gate = self.gate
        let outcomes = await withTaskGroup(of: Int.self) { group in
            for _ in 0..<500 {
                group.addTask { (try? await gate.pass()) ?? 0 }
            }
            await gate.waitForCall(250)
            group.cancelAll()
            gate.openForGood(returning: 1)
            return await group.reduce(into: [0, 0]) { $0[$1] += 1 }
        }

        #expect(outcomes.reduce(0, +) == 500)
        #expect(gate.callCount == 500 && gate.heldCount == 0)
    }
}
