import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The guards of the engine without the guards of its owners (PT-06).
@Suite(.standard)
struct FlightEngineTests {
    private typealias Engine = FlightEngine<SoleKey, Int, Int>

    @Test func `PT-06 a fenced flight neither resumes callers early nor changes the state`() async throws {
        let engine = Engine(
            0,
            .init(name: "test", linger: nil, wouldDeadlock: CancellationError()),
            time: TimeSource(VirtualClock()),
            spawn: TaskLauncher()
        )
        let working = Gate<Int>()
        let flights = Locked<[FlightID]>([])
        engine.setWork { [weak engine] key, flight in
            _ = engine?.beginWork(flight, of: key) { _, _, _, _ in flights.withLock { $0.append(flight) } }
            let output = try? await working.pass(ignoringCancellation: true)
            engine?.land(flight, of: key, failed: false) { _, _ in .success(output ?? 0) }
        }
        let first = Task { try await Self.output(of: engine) }
        await working.waitForCall(1)
        engine.fence(.sole) { _ in }
        let second = Task { try await Self.output(of: engine) }
        await working.waitForCall(2)

        let fenced = try #require(flights.withLock { $0.first })
        let isOver = engine.answerEarly(fenced, of: .sole) { state, tickets in
            state += 1
            var early = Engine.EarlyAnswers()
            for ticket in tickets { early.outputs[ticket] = 7 }
            early.isOver = true
            return early
        }
        #expect(!isOver)
        #expect(!engine.report(from: fenced, of: .sole) { $0 += 1 })
        #expect(engine.withState { $0 } == 0)

        for _ in 1...2 { working.open(returning: 5) }
        #expect(try await first.value == 5)
        #expect(try await second.value == 5)
    }

    @Test func `PT-02 a flight that ends before its work leaves no linger timer`() async throws {
        let clock = VirtualClock()
        let engine = Engine(
            0,
            .init(name: "test", linger: .seconds(1), wouldDeadlock: CancellationError()),
            time: TimeSource(clock),
            spawn: TaskLauncher()
        )
        let look = Gate<Int>()
        let begun = Locked<[Bool]>([])
        engine.setWork { [weak engine] key, flight in
            _ = try? await look.pass(ignoringCancellation: true)
            let isToBegin = engine?.beginWork(flight, of: key) { _, _, _, _ in } ?? false
            begun.withLock { $0.append(isToBegin) }
            if isToBegin { engine?.land(flight, of: key, failed: false) { _, _ in .success(5) } }
        }
        let first = Task { try await Self.output(of: engine) }
        await look.waitForCall(1)
        first.cancel()
        _ = await first.result
        await clock.waitForSleepers(1)
        engine.fence(.sole) { _ in }
        let second = Task { try await Self.output(of: engine) }
        await look.waitForCall(2)
        for _ in 1...2 { look.open(returning: 0) }
        #expect(try await second.value == 5)
        while begun.withLock({ $0.count }) < 2 { await Task.yield() }
        #expect(begun.withLock { Set($0) } == [false, true])
    }

    private static func output(of engine: Engine) async throws -> Int? {
        guard case .output(let output) = try await engine.enter(.sole, decide: { _ in .fly }, joined: { _, _ in })
        else { return nil }
        return output
    }
}
