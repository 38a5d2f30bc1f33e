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

    private func item(_ id: String, session: UInt64 = 0) -> OutboxStateMachine.Item {
        let progress = OutboxStateMachine.Progress(key: id, since: 0)
        return OutboxStateMachine.Item(id: id, lane: "", session: session, progress: progress)
    }

    @Test func `OB-04 a record of an ended session adds no change`() {
        var machine = OutboxStateMachine()
        _ = machine.beginSession(2)
        let isAdded = machine.addItem(self.item("a", session: 1))
        #expect(!isAdded)
        let isNew = machine.addItem(self.item("b", session: 2))
        #expect(isNew)
        #expect(machine.all.map(\.id) == ["b"])
    }

    @Test func `OB-07 a record does not change the state of a change in flight`() {
        var machine = OutboxStateMachine()
        machine.addItem(self.item("a"))
        let result1 = machine.startLanes(upTo: 1)
        #expect(result1 == [""])
        let result2 = machine.nextChange(in: "", at: 0)
        #expect(result2 == .send("a"))
        _ = machine.beginAttempt("a", at: 0)
        machine.setProgress("a", to: OutboxStateMachine.Progress(key: "other", since: 0))
        #expect(machine["a"]?.progress.status == .sending && machine["a"]?.progress.key == "a")
    }

    @Test func `OB-01 a change that is added while its sender ends is not forgotten`() {
        var machine = OutboxStateMachine()
        machine.addItem(self.item("a"))
        let result3 = machine.startLanes(upTo: 1)
        #expect(result3 == [""])
        machine.removeItem("a")
        let result4 = machine.nextChange(in: "", at: 0)
        #expect(result4 == .rest)
        machine.addItem(self.item("b"))
        let result5 = machine.startLanes(upTo: 1)
        #expect(result5 == [])
        machine.endSender("")
        let result6 = machine.startLanes(upTo: 1)
        #expect(result6 == [""])
    }

    @Test func `OB-03 no attempt of a failed change begins`() {
        var machine = OutboxStateMachine()
        machine.addItem(self.item("a"))
        _ = machine.beginAttempt("a", at: 0)
        _ = machine.endAttempt("a", .refused("No.", mayHaveArrived: false))
        let result7 = machine.beginAttempt("a", at: 0)
        #expect(result7 == nil)
        let retried = machine.resetForRetry("a", key: "b", since: 1, expiry: 2)
        #expect(retried?.progress.key == "b")
        let result8 = machine.beginAttempt("a", at: 0)
        #expect(result8 != nil, "a retried change is not sent")
    }

    @Test func `OB-05 a change that expires between two attempts of a delivery is not sent again`() {
        var machine = OutboxStateMachine()
        var item = self.item("a")
        item.expiry = 2
        machine.addItem(item)
        _ = machine.startLanes(upTo: 1)
        let first = machine.beginAttempt("a", at: 1)
        #expect(first != nil)
        // The server has refused the token, and the next token arrives late.
        let second = machine.beginAttempt("a", at: 2)
        #expect(second == nil)
        _ = machine.endAttempt("a", .unsent)
        _ = machine.nextChange(in: "", at: 2)
        #expect(machine["a"]?.progress.status == .expired)
        #expect(machine.violation == nil)
    }

    @Test(arguments: OutboxBoard.Bug.allCases.dropFirst())
    func `OB-01 a bug planted around the machine is found by the shortest history`(bug: OutboxBoard.Bug) async throws {
        let outcome = await self.explore(bug, hasKeys: bug != .trustsServer, depth: 9)
        let story = try #require(outcome.story)
        print("OB-01: \(bug.rawValue): \(story)")
    }
}
