import MuxKit

/// The expected decisions about the flights of one key, derived from a flat table of facts.
///
/// Written from the specification, not from the machine: a flight may be joined if no fence came since its
/// begin. The value of a joinable flight is cached. Every waiter of a flight receives the result of the flight.
struct FlightOracle: Hashable, Sendable {
    typealias Machine = FlightStateMachine

    private struct Work: Hashable, Sendable {
        let id: FlightID
        /// The number of fences before the work began.
        var bornAt: Int
        var isStopped = false
        var mustFinish = false
        var lingersSince: Ticket?
    }

    private struct Wait: Hashable, Sendable {
        let ticket: Ticket
        let waiter: FlightWaiter
        var work: FlightID
    }

    private var fences = 0
    private var works: [Work] = []
    /// In the order of tickets.
    private var waits: [Wait] = []

    var isIdle: Bool { self.works.isEmpty }
    var waiterCount: Int { self.waits.count }

    private var joinable: Int? { self.works.firstIndex { $0.bornAt == self.fences } }

    private func place(of id: FlightID) -> Int? { self.works.firstIndex { $0.id == id } }

    private mutating func dismissWaiters(of id: FlightID) -> Few<FlightWaiter> {
        defer { self.waits.removeAll { $0.work == id } }
        return Few(self.waits.filter { $0.work == id }.map(\.waiter))
    }

    /// Renumbers the fences, because their absolute number is not observable.
    mutating func settle() {
        let kept = Array(Set(self.works.map(\.bornAt) + [self.fences])).sorted()
        for index in self.works.indices {
            self.works[index].bornAt = kept.firstIndex(of: self.works[index].bornAt) ?? 0
        }
        self.fences = kept.firstIndex(of: self.fences) ?? 0
    }

    mutating func addWaiter(_ waiter: FlightWaiter, mustFinish: Bool) -> Machine.RequestAction {
        let ticket = waiter.ticket
        guard let index = self.joinable else {
            self.works.append(Work(id: ticket, bornAt: self.fences, mustFinish: mustFinish))
            self.waits.append(Wait(ticket: ticket, waiter: waiter, work: ticket))
            return .start(ticket)
        }
        let id = self.works[index].id
        self.waits.append(Wait(ticket: ticket, waiter: waiter, work: id))
        if mustFinish { self.works[index].mustFinish = true }
        defer { self.works[index].lingersSince = nil }
        return self.works[index].lingersSince == nil ? .join(id) : .adopt(id)
    }

    /// A cancelled caller demands a value: the joinable flight, or else a new flight, runs to its end.
    mutating func keepFlight(without waiter: FlightWaiter) -> Bool {
        guard let index = self.joinable else {
            self.works.append(Work(id: waiter.ticket, bornAt: self.fences, mustFinish: true))
            return true
        }
        self.works[index].mustFinish = true
        self.works[index].lingersSince = nil
        return false
    }

    mutating func startFlight(_ id: FlightID) -> Bool {
        guard self.joinable == nil else { return false }
        self.works.append(Work(id: id, bornAt: self.fences, mustFinish: true))
        return true
    }

    mutating func answerWaitersEarly(_ id: FlightID) -> Few<FlightWaiter> {
        guard let index = self.joinable, self.works[index].id == id, self.waits.contains(where: { $0.work == id })
        else { return [] }
        self.works[index].mustFinish = true
        self.works[index].lingersSince = nil
        return self.dismissWaiters(of: id)
    }

    mutating func answeredEnough(_ id: FlightID, all: Bool) -> EarlyEnd {
        guard let index = self.joinable, self.works[index].id == id else { return EarlyEnd() }
        let served = self.waits.filter { $0.work == id }.map(\.ticket).prefix(all ? .max : 1)
        let waiters = self.waits.filter { served.contains($0.ticket) }.map(\.waiter)
        self.waits.removeAll { served.contains($0.ticket) }
        let isOver = !self.works[index].mustFinish && !self.waits.contains { $0.work == id }
        if isOver { self.works.remove(at: index) }
        return EarlyEnd(waiters: Few(waiters), isOver: isOver)
    }

    mutating func removeWaiter(_ ticket: Ticket, abandonment: Machine.Abandonment) -> Machine.LeaveAction {
        guard let place = self.waits.firstIndex(where: { $0.ticket == ticket }) else { return .ignore }
        let wait = self.waits.remove(at: place)
        guard !self.waits.contains(where: { $0.work == wait.work }), let index = self.place(of: wait.work) else {
            return .resume(wait.waiter)
        }
        guard self.works[index].bornAt == self.fences else {
            self.works.remove(at: index)
            return .resumeAndCancel(wait.waiter, wait.work)
        }
        guard !self.works[index].isStopped, !self.works[index].mustFinish else { return .resume(wait.waiter) }
        switch abandonment {
        case .finish: return .resume(wait.waiter)
        case .cancel:
            self.works[index].isStopped = true
            return .resumeAndCancel(wait.waiter, wait.work)
        case .linger:
            self.works[index].lingersSince = ticket
            return .resumeAndLinger(wait.waiter, wait.work)
        }
    }

    mutating func endLinger(since ticket: Ticket) -> FlightID? {
        guard let index = self.joinable, self.works[index].lingersSince == ticket else { return nil }
        self.works[index].lingersSince = nil
        self.works[index].isStopped = true
        return self.works[index].id
    }

    mutating func beginWork(_ id: FlightID) -> Bool {
        guard let index = self.place(of: id) else { return false }
        guard let other = self.joinable, other != index else {
            self.works[index].bornAt = self.fences
            return true
        }
        // A newer flight exists. The waiters of this flight move to the newer flight and end its linger.
        for place in self.waits.indices where self.waits[place].work == id {
            self.waits[place].work = self.works[other].id
        }
        self.works[other].lingersSince = nil
        if self.works[index].mustFinish { self.works[other].mustFinish = true }
        self.works.remove(at: index)
        return false
    }

    mutating func endFlight(_ id: FlightID, failed: Bool, next: FlightID, late: Ticket?) -> Machine.EndAction {
        guard let index = self.place(of: id) else { return .ignore }
        let work = self.works.remove(at: index)
        let isKept = work.bornAt == self.fences
        if failed, work.isStopped {
            // A caller does not receive the cancellation of others: later callers wait for another flight.
            // A demanded value is fetched again even without a caller.
            guard work.mustFinish || self.waits.contains(where: { $0.work == id }) else { return .ignore }
            let other = self.joinable.map { self.works[$0].id } ?? next
            let hadOther = self.joinable != nil
            if let joinable {
                self.works[joinable].lingersSince = nil
                if work.mustFinish { self.works[joinable].mustFinish = true }
            } else {
                self.works.append(Work(id: next, bornAt: self.fences, mustFinish: work.mustFinish))
            }
            for place in self.waits.indices where self.waits[place].work == id { self.waits[place].work = other }
            return hadOther ? .ignore : .restart(next)
        }
        if let late, !failed {
            // The outcome is outdated: callers since the change wait for a flight from after the change.
            let later = self.waits.indices.filter { self.waits[$0].work == id && self.waits[$0].ticket >= late }
            let hadOther = self.joinable != nil
            if let joinable, !later.isEmpty {
                self.works[joinable].lingersSince = nil
                if work.mustFinish { self.works[joinable].mustFinish = true }
                for place in later { self.waits[place].work = self.works[joinable].id }
            } else if !later.isEmpty {
                self.works.append(Work(id: next, bornAt: self.fences, mustFinish: work.mustFinish))
                for place in later { self.waits[place].work = next }
            }
            let waiters = self.dismissWaiters(of: id)
            return later.isEmpty ? .answer(waiters) : .answerAndRestart(waiters, hadOther ? nil : next)
        }
        let waiters = self.dismissWaiters(of: id)
        return isKept ? .commit(waiters) : .answer(waiters)
    }

    mutating func expireFlight(_ id: FlightID) -> Few<FlightWaiter>? {
        guard let index = self.place(of: id) else { return nil }
        self.works.remove(at: index)
        return self.dismissWaiters(of: id)
    }

    mutating func fenceFlights(dismissing: Bool) -> Machine.FenceAction {
        defer { self.fences += 1 }
        guard !dismissing else {
            defer {
                self.works = []
                self.waits = []
            }
            return .init(answer: Few(self.waits.map(\.waiter)), cancel: self.works.map(\.id))
        }
        guard let index = self.joinable, !self.waits.contains(where: { $0.work == self.works[index].id }) else {
            return .init()
        }
        return .init(cancel: [self.works.remove(at: index).id])
    }
}
