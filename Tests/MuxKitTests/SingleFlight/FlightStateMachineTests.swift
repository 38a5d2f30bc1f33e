import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct FlightStateMachineTests {
    private typealias Machine = FlightStateMachine

    @Test func `SC-07 a reload from after a change of tags finishes without its caller, after an outdated flight`() {
        var machine = FlightStateMachine()
        #expect(machine.addWaiter(1) == .start(1))
        #expect(machine.addWaiter(2, mustFinish: true) == .join(1))
        #expect(machine.endFlight(1, failed: false, next: 3, late: 2) == .answerAndRestart([1], 3))
        #expect(machine.removeWaiter(2, abandonment: .cancel) == .resume(2))
        #expect(machine.currentFlight == 3)
    }

    @Test func `SC-07 a reload finishes without its caller after a move from a fenced flight to the next flight`() {
        var machine = FlightStateMachine()
        _ = machine.addWaiter(1, mustFinish: true)
        _ = machine.fenceFlights(dismissing: false)
        #expect(machine.addWaiter(2) == .start(2))
        let begins = machine.beginWork(1)
        #expect(!begins, "its caller waits for the next flight")
        #expect(machine.removeWaiter(2, abandonment: .cancel) == .resume(2))
        #expect(machine.removeWaiter(1, abandonment: .cancel) == .resume(1))
        #expect(machine.endFlight(2, failed: false, next: 3) == .commit([]))
    }

    @Test func `SC-07 a reload finishes without its caller after an outdated flight, which was fenced`() {
        var machine = FlightStateMachine()
        _ = machine.addWaiter(1)
        _ = machine.addWaiter(2, mustFinish: true)
        _ = machine.fenceFlights(dismissing: false)
        #expect(machine.endFlight(1, failed: false, next: 3, late: 2) == .answerAndRestart([1], 3))
        #expect(machine.removeWaiter(2, abandonment: .cancel) == .resume(2))
        #expect(machine.currentFlight == 3)
    }

    @Test func `Q-01 callers join one flight, and its end resumes the callers in order`() {
        var machine = Machine()
        #expect(machine.addWaiter(1) == .start(1))
        #expect(machine.addWaiter(2) == .join(1))
        #expect(machine.addWaiter(3) == .join(1))
        #expect(machine.endFlight(1, failed: false, next: 4) == .commit([1, 2, 3]))
        #expect(machine.isIdle)
        #expect(machine.endFlight(1, failed: false, next: 5) == .ignore)
    }

    @Test func `Q-01 a leaving caller is resumed once, and the last caller to leave cancels the flight`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        _ = machine.addWaiter(2)
        #expect(machine.removeWaiter(1, abandonment: .cancel) == .resume(1))
        #expect(machine.removeWaiter(1, abandonment: .cancel) == .ignore)
        #expect(machine.removeWaiter(2, abandonment: .cancel) == .resumeAndCancel(2, 1))
        #expect(!machine.isIdle, "it has not ended yet")
        #expect(machine.endFlight(1, failed: true, next: 3) == .ignore)
        #expect(machine.isIdle)
    }

    @Test func `Q-01 an interrupted linger does not cancel the flight`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        #expect(machine.removeWaiter(1, abandonment: .linger) == .resumeAndLinger(1, 1))
        #expect(machine.addWaiter(2) == .adopt(1))
        #expect(machine.endLinger(since: 1) == nil)
        #expect(machine.removeWaiter(2, abandonment: .linger) == .resumeAndLinger(2, 1))
        #expect(machine.endLinger(since: 1) == nil, "that was the other one")
        #expect(machine.endLinger(since: 2) == 1)
        #expect(machine.endLinger(since: 2) == nil)
    }

    @Test func `Q-01 callers after a cancellation get a new flight if the cancelled flight fails`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        _ = machine.removeWaiter(1, abandonment: .cancel)
        #expect(machine.addWaiter(2) == .join(1))
        #expect(machine.endFlight(1, failed: true, next: 3) == .restart(3))
        #expect(machine.endFlight(1, failed: true, next: 4) == .ignore)
        #expect(machine.endFlight(3, failed: true, next: 5) == .commit([2]))
    }

    @Test func `Q-01 callers between a cancellation and a fence do not receive the cancellation`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        _ = machine.removeWaiter(1, abandonment: .cancel)
        #expect(machine.addWaiter(2) == .join(1))
        #expect(machine.fenceFlights(dismissing: false) == .init())
        #expect(machine.endFlight(1, failed: true, next: 3) == .restart(3))
        #expect(machine.endFlight(3, failed: false, next: 4) == .commit([2]))

        _ = machine.addWaiter(5)
        _ = machine.removeWaiter(5, abandonment: .cancel)
        #expect(machine.addWaiter(6) == .join(5))
        _ = machine.fenceFlights(dismissing: false)
        #expect(machine.addWaiter(7) == .start(7))
        #expect(machine.endFlight(5, failed: true, next: 8) == .ignore)
        #expect(machine.endFlight(7, failed: false, next: 9) == .commit([6, 7]))
        #expect(machine.isIdle)
    }

    @Test func `Q-01 a request after a fence starts a new flight beside the fenced flight`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        #expect(machine.fenceFlights(dismissing: false) == .init())
        #expect(machine.addWaiter(2) == .start(2))
        #expect(machine.endFlight(2, failed: false, next: 3) == .commit([2]))
        #expect(machine.endFlight(1, failed: false, next: 4) == .answer([1]))
        #expect(machine.isIdle)
    }

    @Test func `Q-01 a fenced flight without waiters is cancelled`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        _ = machine.removeWaiter(1, abandonment: .linger)
        #expect(machine.fenceFlights(dismissing: false) == .init(cancel: [1]))
        #expect(machine.endFlight(1, failed: false, next: 2) == .ignore)

        _ = machine.addWaiter(3)
        _ = machine.fenceFlights(dismissing: false)
        #expect(machine.removeWaiter(3, abandonment: .finish) == .resumeAndCancel(3, 3))
        #expect(machine.isIdle)
    }

    @Test func `Q-01 a dismissal resumes all callers at once, including the callers of fenced flights`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        _ = machine.fenceFlights(dismissing: false)
        _ = machine.addWaiter(2)
        #expect(machine.fenceFlights(dismissing: true) == .init(answer: [1, 2], cancel: [1, 2]))
        #expect(machine.isIdle)
        #expect(machine.endFlight(2, failed: false, next: 3) == .ignore)
    }

    @Test func `Q-01 a flight that began without a caller is joined like any other flight`() {
        var machine = Machine()
        let leads = [machine.startFlight(1), machine.startFlight(2)]
        #expect(leads == [true, false])
        #expect(machine.addWaiter(3) == .join(1))
        #expect(machine.removeWaiter(3, abandonment: .cancel) == .resume(3))
        #expect(machine.endFlight(1, failed: false, next: 4) == .commit([]))
    }

    @Test func `Q-01 a flight that is fenced before its work begins counts as a new flight`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        _ = machine.fenceFlights(dismissing: false)
        var begins = machine.beginWork(1)
        #expect(begins)
        #expect(machine.addWaiter(2) == .join(1))
        #expect(machine.endFlight(1, failed: false, next: 3) == .commit([1, 2]))

        _ = machine.addWaiter(4)
        _ = machine.fenceFlights(dismissing: false)
        _ = machine.addWaiter(5)
        begins = machine.beginWork(4)
        #expect(!begins, "its caller waits for the other one")
        #expect(machine.endFlight(4, failed: false, next: 6) == .ignore)
        #expect(machine.endFlight(5, failed: false, next: 7) == .commit([4, 5]))

        _ = machine.addWaiter(8)
        _ = machine.fenceFlights(dismissing: true)
        begins = machine.beginWork(8)
        #expect(!begins)
    }

    @Test func `Q-01 a flight that resumed its callers early continues to its end`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        let early = machine.answerWaitersEarly(1, machine.currentTickets, isOver: false)
        #expect(early.waiters == [1])
        #expect(!early.isOver)
        #expect(machine.addWaiter(2) == .join(1))
        #expect(machine.removeWaiter(2, abandonment: .cancel) == .resume(2))
        #expect(machine.endFlight(1, failed: false, next: 3) == .commit([]))
    }

    @Test func `Q-01 an early answer to no caller does not keep an abandoned flight`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        #expect(machine.removeWaiter(1, abandonment: .linger) == .resumeAndLinger(1, 1))
        _ = machine.answerWaitersEarly(1, [], isOver: false)
        let cancelled = machine.endLinger(since: 1)
        #expect(cancelled == 1)
    }

    @Test func `Q-01 a caller with a stale value keeps an abandoned flight`() {
        for isCancelled in [false, true] {
            var machine = Machine()
            _ = machine.addWaiter(1)
            _ = machine.removeWaiter(1, abandonment: isCancelled ? .cancel : .linger)
            let starts = machine.startOrKeepFlight(2)
            let cancelled = machine.endLinger(since: 1)
            #expect(!starts && cancelled == nil)
            let action = machine.endFlight(1, failed: isCancelled, next: 3)
            #expect(isCancelled ? action == .restart(3) : action == .commit([]), "\(action)")
        }
    }

    @Test func `Q-01 a flight ends early if its early result serves all its callers`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        _ = machine.addWaiter(2)
        _ = machine.addWaiter(3)
        #expect(machine.removeWaiter(2, abandonment: .cancel) == .resume(2))
        #expect(machine.currentTickets == [1, 3])
        var early = machine.answerWaitersEarly(1, [1, 2], isOver: true)
        #expect(early.waiters == [1])
        #expect(!early.isOver)
        early = machine.answerWaitersEarly(2, [3], isOver: true)
        #expect(early.waiters.isEmpty && !early.isOver, "no such flight")
        early = machine.answerWaitersEarly(1, [3], isOver: true)
        #expect(early.waiters == [3])
        #expect(early.isOver)
        #expect(machine.isIdle)
        let begins = machine.beginWork(1)
        #expect(!begins)
    }

    @Test func `Q-01 a deadline frees the slot and resumes the callers`() {
        var machine = Machine()
        _ = machine.addWaiter(1)
        #expect(machine.expireFlight(1) == [1])
        #expect(machine.expireFlight(1) == nil)
        #expect(machine.addWaiter(2) == .start(2))
        #expect(machine.endFlight(1, failed: false, next: 3) == .ignore)
        _ = machine.fenceFlights(dismissing: false)
        #expect(machine.expireFlight(2) == [2])
        #expect(machine.isIdle)
    }

    /// Checks the invariants of the machine after each step.
    @Test func `Q-02 in ten thousand random scripts every caller is resumed exactly once`() {
        for seed in UInt64(0)..<10_000 {
            if let violation = Script(seed: seed).play() {
                Issue.record("seed \(seed): \(violation)")
                return
            }
        }
    }

    /// A random script, with the tickets of the callers that still wait.
    private struct Script {
        var random: SplitMix64
        var machine = FlightStateMachine()
        var owed: Set<UInt64> = []
        var flights: Set<UInt64> = []
        var lingers: [UInt64] = []
        var named: [UInt64] = []
        var lastID: UInt64 = 0

        init(seed: UInt64) { self.random = SplitMix64(state: seed) }

        mutating func nextID() -> UInt64 {
            self.lastID += 1
            return self.lastID
        }

        consuming func play() -> String? {
            for _ in 0..<24 {
                if let violation = self.step() ?? self.machine.violation() { return violation }
                if self.machine.waiterCount != self.owed.count { return "waiters are lost or invented" }
            }
            for flight in self.flights.sorted() where self.end(flight, failed: true) { return "answered twice" }
            while let flight = self.flights.first { if self.end(flight, failed: false) { return "answered twice" } }
            if !self.owed.isEmpty { return "\(self.owed) were never answered" }
            return self.machine.isIdle ? nil : "the machine is not idle though nothing runs"
        }

        private mutating func step() -> String? {
            switch Int.random(in: 0..<10, using: &self.random) {
            case 0..<4:
                // A ticket is drawn before its caller arrives. A caller with a later ticket may arrive first.
                self.named.append(self.nextID())
                guard self.named.count > 3 || Bool.random(using: &self.random) else { return nil }
                let ticket = self.named.remove(at: self.named.indices.randomElement(using: &self.random) ?? 0)
                self.owed.insert(ticket)
                if case .start(let flight) = self.machine.addWaiter(FlightWaiter(ticket)) {
                    guard flight == ticket else { return "a flight has somebody else's name" }
                    self.flights.insert(flight)
                }
            case 4..<6:
                guard let ticket = self.owed.randomElement(using: &self.random) else { return nil }
                return self.leave(ticket)
            case 6:
                guard let ticket = self.lingers.popLast() else { return nil }
                _ = self.machine.endLinger(since: ticket)
            case 7..<9:
                guard let flight = self.flights.sorted().randomElement(using: &self.random) else { return nil }
                let failed = Bool.random(using: &self.random)
                return self.end(flight, failed: failed) ? "answered twice, or in no order" : nil
            default:
                return self.fence(dismisses: Int.random(in: 0..<4, using: &self.random) == 0) ? "answered twice" : nil
            }
            return nil
        }

        private mutating func leave(_ ticket: UInt64) -> String? {
            let how = [FlightStateMachine.Abandonment.cancel, .linger, .finish]
            switch self.machine.removeWaiter(ticket, abandonment: how.randomElement(using: &self.random) ?? .cancel) {
            case .ignore: return "somebody who waits is not known"
            case .resume(let waiter), .resumeAndCancel(let waiter, _): return self.answered([waiter]) ? "wrong" : nil
            case .resumeAndLinger(let waiter, _):
                self.lingers.append(ticket)
                return self.answered([waiter]) ? "wrong" : nil
            }
        }

        private mutating func end(_ flight: UInt64, failed: Bool) -> Bool {
            self.flights.remove(flight)
            let isOutdated = Int.random(in: 0..<4, using: &self.random) == 0
            let late = isOutdated ? self.owed.sorted().randomElement(using: &self.random) ?? .max : nil
            switch self.machine.endFlight(flight, failed: failed, next: self.nextID(), late: late) {
            case .ignore: return false
            case .commit(let waiters), .answer(let waiters):
                return waiters.map(\.ticket) != waiters.map(\.ticket).sorted() || self.answered(waiters)
            case .answerAndRestart(let waiters, let next):
                if let next { self.flights.insert(next) }
                return waiters.map(\.ticket) != waiters.map(\.ticket).sorted() || self.answered(waiters)
            case .restart(let next):
                self.flights.insert(next)
                return false
            }
        }

        private mutating func fence(dismisses: Bool) -> Bool {
            self.answered(self.machine.fenceFlights(dismissing: dismisses).answer)
        }

        /// Removes resumed waiters from the waiting callers, and returns whether a waiter did not wait.
        private mutating func answered(_ waiters: Few<FlightWaiter>) -> Bool {
            waiters.contains { self.owed.remove($0.ticket) == nil }
        }
    }
}
