import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct DependencyStateMachineTests {
    private typealias Machine = DependencyStateMachine<Int>

    private let refusal = RunnerError.updateFailed(underlying: nil)

    private func at(_ seconds: Int64) -> Moment { Moment(nanoseconds: seconds * 1_000_000_000) }

    private func code(_ error: (any Error)?) -> RunnerError.Code? { (error as? RunnerError)?.code }

    @Test func `C06 a critical error outlasts every other failure`() {
        var machine = Machine(1)
        let call = machine.makeCall(at: self.at(0))
        machine.recordCriticalError(RaisedCritical(FetchFailed()))
        machine.recordRefusedUpdate(self.refusal)
        machine.recordFailure(FetchFailed(), until: self.at(9))
        #expect(machine.standingError(for: call) is RaisedCritical)
        let isRaisedAgain = machine.recordCriticalError(RaisedCritical(FetchFailed()), by: call)
        #expect(!isRaisedAgain)
        #expect(machine.brokenInvariants() == [])

        machine.clearFailures()
        #expect(machine.standingError(for: call) == nil)
        #expect(machine.current(parentEpoch: 0) == nil)
    }

    @Test func `PT-01 a call gets the error of its session's end`() {
        var machine = Machine(1)
        for (end, code) in [(Machine.End.signOut, RunnerError.Code.signedOut), (.reset, .reset)] {
            let call = machine.makeCall(at: self.at(0))
            machine.endSession(end)
            #expect(self.code(machine.standingError(for: call)) == code)
            #expect(machine.standingError(for: machine.makeCall(at: self.at(0))) == nil)
        }
    }

    @Test func `C06 a refused update takes precedence over an update that throws`() {
        var machine = Machine(1)
        let call = machine.makeCall(at: self.at(0))
        machine.recordRefusedUpdate(self.refusal)
        machine.recordFailure(FetchFailed(), until: self.at(9))
        #expect(self.code(machine.standingError(for: call)) == .updateFailed)

        _ = machine.setValue(2, parentEpoch: 0)
        #expect(machine.standingError(for: call) == nil)
        #expect(machine.brokenInvariants() == [])
    }

    @Test func `C06 a failure prevents updates during the cool-down and leaves the value`() {
        var machine = Machine(1)
        machine.recordFailure(FetchFailed(), until: self.at(9))
        var call = machine.makeCall(at: self.at(0))
        call.badEpoch = machine.epoch
        func action(at seconds: Int64) -> Machine.RequestAction {
            machine.decideAction(of: &call, parentEpoch: 0, policy: RunnerPolicy(), at: self.at(seconds))
        }
        if case .fail = action(at: 8) {} else { Issue.record("the cool-down is not over") }
        if case .update = action(at: 9) {} else { Issue.record("the cool-down is over") }
        #expect(machine.current(parentEpoch: 0)?.value == 1)
    }

    @Test func `A04 a value newer than the last request makes a pending update unnecessary`() {
        var machine = Machine(nil)
        func ask(badEpoch: UInt64?) {
            var call = machine.makeCall(at: self.at(0))
            call.badEpoch = badEpoch
            let action = machine.decideAction(of: &call, parentEpoch: 0, policy: RunnerPolicy(), at: self.at(0))
            if case .update = action {} else { Issue.record("no update") }
        }
        ask(badEpoch: nil)
        #expect(machine.needsUpdate(parentEpoch: 0))
        let held = machine.setValue(1, parentEpoch: 0)
        #expect(!machine.needsUpdate(parentEpoch: 0))
        #expect(machine.needsUpdate(parentEpoch: 1), "the value is void")

        ask(badEpoch: held.epoch)
        #expect(machine.needsUpdate(parentEpoch: 0), "the value was refused")
    }

    @Test func `B03 a late value of an update from before the parent's replacement is dropped`() {
        var machine = Machine(1)
        let epoch = machine.epoch
        let isReplaced = machine.recordParentReplacement(parentEpoch: 1)
        #expect(isReplaced)
        #expect(machine.current(parentEpoch: 0) == nil)
        #expect(!machine.acceptsLateValue(since: epoch))

        // A value of the new parent stays, and the updates that began after this value stay valid.
        let next = machine.setValue(2, parentEpoch: 1)
        let isReplacedAgain = machine.recordParentReplacement(parentEpoch: 1)
        #expect(!isReplacedAgain)
        #expect(machine.current(parentEpoch: 1)?.epoch == next.epoch)
        #expect(machine.acceptsLateValue(since: next.epoch))
    }

    @Test(arguments: 0..<200 as Range<UInt64>)
    func `Q-02 every event of a dependency is handled in every state`(seed: UInt64) {
        var generator = SplitMix64(state: seed)
        func pick<T>(_ choices: [T]) -> T { choices[Int.random(in: 0..<choices.count, using: &generator)] }
        let policy = RunnerPolicy(maximumUpdatesPerCall: 2, maximumUpdatesPerWindow: pick([nil, 1, 3]))
        var machine = Machine(pick([nil, 0]))
        var calls = [machine.makeCall(at: self.at(0))]
        var held = [Machine(0)].compactMap { $0.current(parentEpoch: 0) }
        var isCritical = false

        for second in 0..<60 as Range<Int64> {
            let (now, before) = (self.at(second), (machine.epoch, machine.session))
            if let current = machine.current(parentEpoch: 0) { held.append(current) }
            let (some, number) = (pick(held), Int.random(in: 0..<calls.count, using: &generator))
            switch Int.random(in: 0..<15, using: &generator) {
            case 0: calls.append(machine.makeCall(at: now))
            case 1...4:
                let isFailing = machine.standingError(for: calls[number]) != nil
                switch machine.decideAction(of: &calls[number], parentEpoch: pick([0, 1]), policy: policy, at: now) {
                case .use(let value):
                    #expect(!isFailing && value.epoch != calls[number].badEpoch)
                    calls[number].badEpoch = pick([nil, value.epoch])
                case .fail: break
                case .update: #expect(!isFailing)
                }
            case 5: machine.recordAcceptance(some.epoch)
            case 6:
                _ = machine.setValue(Int(second), parentEpoch: pick([0, 1, 2]))
                isCritical = false
            case 7 where !isCritical:
                _ = machine.setUpdatedValue(
                    Int(second),
                    parentEpoch: 1,
                    renewal: nil,
                    isFound: false,
                    at: now,
                    policy: policy
                )
            case 8: _ = machine.setSuccessor(of: some, to: Int(second), raisesEpoch: pick([true, false]))
            case 9: _ = machine.updateData(of: some, to: Int(second))
            case 10: machine.recordParentSuccessor(from: 0, to: pick([1, 2]))
            case 11:
                pick([true, false])
                    ? machine.recordRefusedUpdate(self.refusal) : machine.recordFailure(FetchFailed(), until: now)
            case 12:
                if machine.recordCriticalError(RaisedCritical(FetchFailed()), by: calls[number]) { isCritical = true }
            case 13:
                pick([true, false]) ? machine.clearFailures() : machine.endSession(pick([.reset, .signOut]))
                isCritical = false
            case 14:
                let isReplaced = machine.recordParentReplacement(parentEpoch: pick([0, 1, 2]))
                #expect(isReplaced == (machine.current(parentEpoch: 0) == nil))
                isCritical = false
            default: break
            }
            #expect(machine.brokenInvariants() == [])
            #expect(machine.epoch >= before.0 && machine.session >= before.1)
            #expect((machine.standingError(for: machine.makeCall(at: now)) is RaisedCritical) == isCritical)
        }
    }
}
