import MuxKit

/// A model of callers and keys, which compares the decisions of a machine with the decisions of an oracle.
struct FlightBoard<Decider: FlightDecider>: Hashable, Sendable {
    typealias Machine = FlightStateMachine

    enum Event: CustomStringConvertible, Sendable {
        case request(key: Int)
        case reload(key: Int)
        case cancelledReload(key: Int)
        case leave(Ticket, key: Int)
        case lingerPassed(Ticket, key: Int)
        case ended(FlightID, failed: Bool, key: Int)
        case outdated(FlightID, late: Ticket, key: Int)
        case fence(key: Int)
        case dismissAll
        case renewal(key: Int)
        case answeredEarly(FlightID, key: Int)
        case answeredEnough(FlightID, all: Bool, key: Int)
        case workBegins(FlightID, key: Int)
        case deadlinePassed(FlightID, key: Int)

        var description: String {
            switch self {
            case .request(let key): "a caller asks for key \(key)"
            case .reload(let key): "a caller demands key \(key)"
            case .cancelledReload(let key): "a cancelled caller demands key \(key)"
            case .leave(let ticket, let key): "caller \(ticket) of key \(key) leaves"
            case .lingerPassed(let ticket, let key): "linger \(ticket) of key \(key) passes"
            case .ended(let id, let failed, let key): "flight \(id) of key \(key) \(failed ? "fails" : "succeeds")"
            case .outdated(let id, let late, let key):
                "flight \(id) of key \(key) is outdated for caller \(late) and later"
            case .fence(let key): "fence of key \(key)"
            case .dismissAll: "sign-out"
            case .renewal(let key): "renewal of key \(key)"
            case .answeredEarly(let id, let key): "flight \(id) of key \(key) answers early"
            case .answeredEnough(let id, let all, let key):
                "flight \(id) of key \(key) has enough for \(all ? "all" : "the first")"
            case .workBegins(let id, let key): "work of flight \(id) of key \(key) begins"
            case .deadlinePassed(let id, let key): "flight \(id) of key \(key) runs out of time"
            }
        }
    }

    /// The limits of an exploration.
    struct Scope: Sendable {
        var keys = 2
        var callers = 3
        var abandonment = Machine.Abandonment.cancel
        var hasFences = true
        /// Whether flights read the disk first, may begin without a caller, and may time out.
        var hasDiskAndDeadlines = false
        /// Whether values may be outdated by their tags.
        var hasTags = false
    }

    private struct Flight: Hashable, Sendable {
        let id: FlightID
        var hasBegun = false
        var isOverdue = false
    }

    private struct Lane: Hashable, Sendable {
        var decider: Decider
        var oracle = FlightOracle()
        /// Running work, with or without waiters.
        var flights: [Flight] = []
        /// Running linger timers.
        var lingers: [Ticket] = []
        /// Waiting callers, which differ only in their tickets.
        var waiting: [Ticket] = []
        /// The ticket of a caller that was just resumed, and whose cancellation may still arrive.
        var late: Ticket?
        var last: UInt64 = 0

        mutating func nextID() -> UInt64 {
            self.last += 1
            return self.last
        }
    }

    private var lanes: [Lane]

    init(_ decider: Decider, _ scope: Scope) {
        self.lanes = Array(repeating: Lane(decider: decider), count: scope.keys)
    }

    /// The possible events.
    func events(_ scope: Scope) -> [Event] {
        var events: [Event] = []
        let isSomebodyFree = self.lanes.reduce(0) { $0 + $1.waiting.count } < scope.callers
        for (key, lane) in self.lanes.enumerated() where !self.lanes[..<key].contains(lane) {
            if isSomebodyFree { events.append(.request(key: key)) }
            for ticket in lane.waiting { events.append(.leave(ticket, key: key)) }
            if let late = lane.late { events.append(.leave(late, key: key)) }
            for ticket in lane.lingers { events.append(.lingerPassed(ticket, key: key)) }
            for flight in lane.flights {
                events.append(.ended(flight.id, failed: false, key: key))
                events.append(.ended(flight.id, failed: true, key: key))
                if scope.hasTags {
                    for late in lane.waiting + [.max] { events.append(.outdated(flight.id, late: late, key: key)) }
                }
                guard scope.hasDiskAndDeadlines else { continue }
                if !flight.hasBegun {
                    events.append(.workBegins(flight.id, key: key))
                    events.append(.answeredEarly(flight.id, key: key))
                    events.append(.answeredEnough(flight.id, all: true, key: key))
                    events.append(.answeredEnough(flight.id, all: false, key: key))
                }
                if !flight.isOverdue { events.append(.deadlinePassed(flight.id, key: key)) }
            }
            if scope.hasFences { events.append(.fence(key: key)) }
            guard scope.hasDiskAndDeadlines else { continue }
            events.append(.renewal(key: key))
            events.append(.cancelledReload(key: key))
            if isSomebodyFree { events.append(.reload(key: key)) }
        }
        events.append(.dismissAll)
        return events
    }

    /// Applies `event` and returns a wrong decision or a violation of the new state, or `nil`.
    mutating func apply(_ event: Event, _ scope: Scope) -> String? {
        switch event {
        case .request(let key):
            return self.request(key, mustFinish: false) ?? self.rest(key)
        case .reload(let key):
            return self.request(key, mustFinish: true) ?? self.rest(key)
        case .cancelledReload(let key):
            let id = self.lanes[key].nextID()
            let begins = self.decide(
                key,
                { $0.keepFlight(without: FlightWaiter(id)) },
                { $0.keepFlight(without: FlightWaiter(id)) }
            )
            if begins.expected { self.lanes[key].flights.append(Flight(id: id)) }
            return begins.wrong ?? self.rest(key)
        case .leave(let ticket, let key):
            return self.leave(ticket, key, scope) ?? self.rest(key)
        case .lingerPassed(let ticket, let key):
            self.lanes[key].lingers.removeAll { $0 == ticket }
            return self.decide(key, { $0.endLinger(since: ticket) }, { $0.endLinger(since: ticket) }).wrong
                ?? self.rest(key)
        case .ended(let id, let failed, let key):
            return self.ended(id, failed, late: nil, key) ?? self.rest(key)
        case .outdated(let id, let late, let key):
            return self.ended(id, false, late: late, key) ?? self.rest(key)
        case .fence(let key):
            let action = self.decide(
                key,
                { $0.fenceFlights(dismissing: false) },
                { $0.fenceFlights(dismissing: false) }
            )
            return action.wrong ?? self.rest(key)
        case .dismissAll:
            for key in self.lanes.indices {
                if let wrong = self.dismiss(key) ?? self.rest(key) { return wrong }
            }
            return nil
        case .renewal(let key):
            let id = self.lanes[key].nextID()
            let begins = self.decide(key, { $0.startFlight(id) }, { $0.startFlight(id) })
            if begins.expected { self.lanes[key].flights.append(Flight(id: id)) }
            return begins.wrong ?? self.rest(key)
        case .answeredEarly(let id, let key):
            let answer = self.decide(key, { $0.answerWaitersEarly(id) }, { $0.answerWaitersEarly(id) })
            self.answered(answer.expected, key)
            return answer.wrong ?? self.rest(key)
        case .answeredEnough(let id, let all, let key):
            let end = self.decide(
                key,
                { $0.answeredEnough(id, all: all) },
                { $0.answeredEnough(id, all: all) }
            )
            self.answered(end.expected.waiters, key)
            if end.expected.isOver { self.lanes[key].flights.removeAll { $0.id == id } }
            return end.wrong ?? self.rest(key)
        case .workBegins(let id, let key):
            let begins = self.decide(key, { $0.beginWork(id) }, { $0.beginWork(id) })
            if begins.expected {
                for index in self.lanes[key].flights.indices where self.lanes[key].flights[index].id == id {
                    self.lanes[key].flights[index].hasBegun = true
                }
            } else {
                self.lanes[key].flights.removeAll { $0.id == id }
            }
            return begins.wrong ?? self.rest(key)
        case .deadlinePassed(let id, let key):
            for index in self.lanes[key].flights.indices where self.lanes[key].flights[index].id == id {
                self.lanes[key].flights[index].isOverdue = true
            }
            let late = self.decide(key, { $0.expireFlight(id) }, { $0.expireFlight(id) })
            self.answered(late.expected ?? [], key)
            return late.wrong ?? self.rest(key)
        }
    }

    private mutating func request(_ key: Int, mustFinish: Bool) -> String? {
        let id = self.lanes[key].nextID()
        self.lanes[key].waiting.append(id)
        let action = self.decide(
            key,
            { $0.addWaiter(FlightWaiter(id), mustFinish: mustFinish) },
            { $0.addWaiter(FlightWaiter(id), mustFinish: mustFinish) }
        )
        if case .start(let flight) = action.expected { self.lanes[key].flights.append(Flight(id: flight)) }
        return action.wrong
    }

    private mutating func leave(_ ticket: Ticket, _ key: Int, _ scope: Scope) -> String? {
        let how = scope.abandonment
        self.lanes[key].waiting.removeAll { $0 == ticket }
        if self.lanes[key].late == ticket { self.lanes[key].late = nil }
        let action = self.decide(
            key,
            { $0.removeWaiter(ticket, abandonment: how) },
            { $0.removeWaiter(ticket, abandonment: how) }
        )
        if case .resumeAndLinger = action.expected { self.lanes[key].lingers.append(ticket) }
        return action.wrong
    }

    private mutating func ended(_ id: FlightID, _ failed: Bool, late: Ticket?, _ key: Int) -> String? {
        let next = self.lanes[key].nextID()
        self.lanes[key].flights.removeAll { $0.id == id }
        let action = self.decide(
            key,
            { $0.endFlight(id, failed: failed, next: next, late: late) },
            { $0.endFlight(id, failed: failed, next: next, late: late) }
        )
        switch action.expected {
        case .restart: self.lanes[key].flights.append(Flight(id: next))
        case .commit(let waiters), .answer(let waiters): self.answered(waiters, key)
        case .answerAndRestart(let waiters, let started):
            if let started { self.lanes[key].flights.append(Flight(id: started)) }
            self.answered(waiters, key)
        case .ignore: break
        }
        return action.wrong
    }

    private mutating func dismiss(_ key: Int) -> String? {
        let real = self.lanes[key].decider.fenceFlights(dismissing: true)
        let expected = self.lanes[key].oracle.fenceFlights(dismissing: true)
        self.answered(expected.answer, key)
        // The order is not specified.
        guard Set(real.answer) == Set(expected.answer), real.cancel.sorted() == expected.cancel.sorted() else {
            return "\(real) instead of \(expected)"
        }
        return nil
    }

    private mutating func decide<Answer: Equatable>(
        _ key: Int,
        _ real: (inout Decider) -> Answer,
        _ model: (inout FlightOracle) -> Answer
    ) -> (expected: Answer, wrong: String?) {
        let said = real(&self.lanes[key].decider)
        let expected = model(&self.lanes[key].oracle)
        return (expected, said == expected ? nil : "\(said) instead of \(expected)")
    }

    /// Removes resumed callers, and records that the cancellation of the last caller may arrive late.
    private mutating func answered(_ callers: Few<FlightWaiter>, _ key: Int) {
        let tickets = callers.map(\.ticket)
        guard let last = tickets.max() else { return }
        self.lanes[key].waiting.removeAll { tickets.contains($0) }
        self.lanes[key].late = last
    }

    /// Returns a violation of the state of a key, or `nil`.
    private mutating func rest(_ key: Int) -> String? {
        let lane = self.lanes[key]
        if let violation = lane.decider.violation() { return violation }
        guard lane.decider.waiterCount == lane.waiting.count else {
            return "\(lane.decider.waiterCount) callers wait instead of \(lane.waiting.count)"
        }
        guard lane.decider.isIdle == lane.oracle.isIdle else {
            return lane.oracle.isIdle ? "something is kept at rest" : "something is forgotten"
        }
        self.lanes[key].oracle.settle()
        // IDs without a reference may be reused, which makes states equal that differ only in their IDs.
        if lane.oracle.isIdle, lane.flights.isEmpty, lane.lingers.isEmpty, lane.late == nil { self.lanes[key].last = 0 }
        return nil
    }
}
