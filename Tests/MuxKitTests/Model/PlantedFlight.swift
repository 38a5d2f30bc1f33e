import MuxKit

/// The machine with a planted bug, which distorts events and decisions without a copy of the machine's code.
struct PlantedFlight: FlightDecider {
    enum Bug: String, CaseIterable, Sendable {
        case none = "no bug"
        case waiterClearsTheSlot = "waiter clears the slot"
        case outcomeCommittedWithoutTheFence = "outcome committed without the fence"
        case cancelledWaiterResumedTwice = "cancelled waiter resumed twice"
        case leaderEndsTheFlight = "leader's cancellation ends the flight"
        case fenceForgotten = "fence forgotten"
        case fencedCallersLost = "callers of a fenced flight are never answered"
        case cancelledOutcomeGivenToNewcomers = "newcomers get the cancellation of those who left"
        case lingerOutlivesTheReturn = "linger goes on although somebody came back"
        case deadlineLeavesTheSlotTaken = "a flight that ran out of time keeps the slot"
        case owedFlightCancelled = "a flight that is owed is cancelled with its last caller"
        case lateStartRunsBeside = "a fenced flight begins beside the next one"
        case reloadIsAPlainRequest = "a reload is cancelled with its caller"
        case reloadLostWithTheCancellation = "a reload that joins a cancelled flight is lost"
        case dismissalForgetsTheFenced = "sign-out forgets the callers of fenced flights"
        case outdatedOutcomeGivenToLateCallers = "late callers get an outdated outcome"
        case outdatedOutcomeKept = "an outdated outcome is kept"
    }

    let bug: Bug
    private var base = Machine()
    /// State for the bugs: the first caller of the current flight, left callers, the flight and a linger.
    private var leader: Ticket?
    private var gone: Few<FlightWaiter> = []
    private var flight: FlightID?
    private var lingers: Ticket?

    init(_ bug: Bug) { self.bug = bug }

    var waiterCount: Int { self.base.waiterCount }
    var isIdle: Bool { self.base.isIdle }
    func violation() -> String? { self.base.violation() }

    mutating func addWaiter(_ waiter: FlightWaiter, mustFinish: Bool) -> Machine.RequestAction {
        let action = self.base.addWaiter(waiter, mustFinish: mustFinish && self.bug != .reloadIsAPlainRequest)
        if case .start(let id) = action {
            self.flight = id
            self.leader = waiter.ticket
            self.gone = []
        }
        return action
    }

    mutating func keepFlight(without waiter: FlightWaiter) -> Bool { self.base.keepFlight(without: waiter) }

    mutating func startFlight(_ id: FlightID) -> Bool { self.base.startFlight(id) }

    mutating func answerWaitersEarly(_ id: FlightID) -> Few<FlightWaiter> { self.base.answerWaitersEarly(id) }

    mutating func answeredEnough(_ id: FlightID, all: Bool) -> EarlyEnd { self.base.answeredEnough(id, all: all) }

    mutating func removeWaiter(_ ticket: Ticket, abandonment: Machine.Abandonment) -> Machine.LeaveAction {
        let action = self.base.removeWaiter(ticket, abandonment: abandonment)
        switch (self.bug, action) {
        case (.waiterClearsTheSlot, .resume):
            _ = self.base.fenceFlights(dismissing: false)
        case (.cancelledWaiterResumedTwice, .resume(let waiter)):
            self.gone.append(waiter)
        case (.leaderEndsTheFlight, .resume(let waiter)) where ticket == self.leader:
            if let flight { return .resumeAndCancel(waiter, flight) }
        case (.owedFlightCancelled, .resume(let waiter)) where self.base.waiterCount == 0:
            if let current = self.base.currentFlight, abandonment == .cancel {
                return .resumeAndCancel(waiter, current)
            }
        case (.lingerOutlivesTheReturn, .resumeAndLinger):
            self.lingers = ticket
        default: break
        }
        return action
    }

    mutating func endLinger(since ticket: Ticket) -> FlightID? {
        if self.bug == .lingerOutlivesTheReturn, self.lingers == ticket, let current = self.base.currentFlight {
            return current
        }
        return self.base.endLinger(since: ticket)
    }

    mutating func beginWork(_ id: FlightID) -> Bool {
        let begins = self.base.beginWork(id)
        return self.bug == .lateStartRunsBeside ? true : begins
    }

    mutating func endFlight(_ id: FlightID, failed: Bool, next: FlightID, late: Ticket?) -> Machine.EndAction {
        var late = late
        if self.bug == .outdatedOutcomeGivenToLateCallers, late != nil { late = .max }
        if self.bug == .outdatedOutcomeKept, late == .max { late = nil }
        let action = self.base.endFlight(id, failed: failed, next: next, late: late)
        switch (self.bug, action) {
        case (.outcomeCommittedWithoutTheFence, .answer(let waiters)): return .commit(waiters)
        case (.fencedCallersLost, .answer): return .ignore
        case (.cancelledWaiterResumedTwice, .commit(let waiters)):
            defer { self.gone = [] }
            return .commit(waiters + self.gone)
        case (.cancelledOutcomeGivenToNewcomers, .restart):
            if case .commit(let waiters) = self.base.endFlight(next, failed: true, next: next) {
                return .commit(waiters)
            }
            return action
        case (.reloadLostWithTheCancellation, .restart) where self.base.waiterCount == 0:
            _ = self.base.endFlight(next, failed: false, next: next)
            return .ignore
        default: return action
        }
    }

    mutating func expireFlight(_ id: FlightID) -> Few<FlightWaiter>? {
        guard self.bug == .deadlineLeavesTheSlotTaken, self.base.currentFlight == id else {
            return self.base.expireFlight(id)
        }
        return self.base.answerWaitersEarly(id)
    }

    mutating func fenceFlights(dismissing: Bool) -> Machine.FenceAction {
        switch self.bug {
        case .fenceForgotten where !dismissing: return .init()
        case .dismissalForgetsTheFenced where dismissing:
            _ = self.base.fenceFlights(dismissing: false)
            return .init()
        default: return self.base.fenceFlights(dismissing: dismissing)
        }
    }
}
