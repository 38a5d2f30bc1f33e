import MuxKit
import MuxOutbox
import MuxTestSupport
import Testing

/// The guarantees of an outbox in every order of events.
@Suite(.standard)
struct OutboxStateMachineTests {
    private func explore(_ bug: OutboxBoard.Bug, hasKeys: Bool, depth: Int)
        async -> Explorer<OutboxBoard, OutboxBoard.Event>.Outcome
    {
        await BlockingWork.run {
            Explorer<OutboxBoard, OutboxBoard.Event>(events: { $0.events }, apply: { $0.apply($1) })
                .explore(from: OutboxBoard(bug, hasKeys: hasKeys), depth: depth)
        }
    }

    @Test(arguments: [true, false])
    func `OB-01 no order of events loses, repeats or reorders a change`(hasKeys: Bool) async {
        let depth = ProofEnvironment.depth(repetitionStep == 1 ? 13 : 11)
        let outcome = await self.explore(.none, hasKeys: hasKeys, depth: depth)
        #expect(outcome.story == nil)
        ProofEnvironment.report("OB-01", hasKeys ? "a server with keys" : "a server without keys", outcome)
    }

    @Test(arguments: OutboxBoard.Bug.allCases.dropFirst())
    func `OB-01 a bug planted around the machine is found by the shortest history`(bug: OutboxBoard.Bug) async throws {
        let outcome = await self.explore(bug, hasKeys: bug != .trustsServer, depth: 9)
        let story = try #require(outcome.story)
        print("OB-01: \(bug.rawValue): \(story)")
    }
}
