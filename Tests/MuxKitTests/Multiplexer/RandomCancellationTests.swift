import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RandomCancellationTests {
    @Test func `MX-03 random cancellation loses no caller and leaks no task`() async throws {
        for seed in 0..<UInt64(repetitions(10_000)) {
            var random = SplitMix64(state: seed)
            let world = World()
            let gate = Gate<Int>()
            let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
            let linger: MuxPolicy.WhenAbandoned =
                switch Int.random(in: 0..<3, using: &random) {
                case 0: .finish
                case 1: .cancel(linger: .zero)
                default: .cancel(linger: .seconds(1))
                }
            let number = Multiplexer<Int>(policy: .init(whenAbandoned: linger), repository: world.repository) {
                try await fetch()
            }
            var callers: [Task<Int, any Error>] = []
            for _ in 0..<Int.random(in: 1...6, using: &random) {
                callers.append(Task { try await number.request() })
                switch Int.random(in: 0..<6, using: &random) {
                case 0...1: callers.randomElement(using: &random)?.cancel()
                case 2: number.refresh()
                case 3: world.clock.advance(by: .seconds(1))
                default: break
                }
            }
            gate.openForGood(returning: 1)

            for caller in callers {
                switch await caller.result {
                case .success(let value): #expect(value == 1)
                case .failure(let error): #expect(error is CancellationError, "seed \(seed)")
                }
            }
            #expect(try await number.request() == 1)
            await fetch.waitForEnd(fetch.callCount)
            #expect(number.occupancy.waiters == 0, "seed \(seed)")
        }
    }
}
