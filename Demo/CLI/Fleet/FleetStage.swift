import Foundation
import MuxKit
import MuxTesting
import Synchronization

/// Four machines of a service in this process, each with a separate connection, and visitors with continuous
/// requests.
final class FleetStage: PageStage {
    /// The buttons of the page.
    enum Act: String, Encodable, Sendable {
        case burst, change, stop, start, machine
    }

    /// The outcome of one press.
    struct Outcome: Encodable, Sendable {
        var number: Int
        var act: Act
        var text: String
        /// Whether the library's promises held.
        var holds: Bool
    }

    private struct State {
        var machines: [FleetMachine] = []
        var visitors: [Task<Void, Never>] = []
        /// Whether visitors send requests: they pause during an act, so that the act can count requests.
        var isOpen = false
        var isEngineUp = true
        var running: Act?
        var outcomes: [Outcome] = []
        var outcomeCount = 0
        var machineCount = 0
        var changeCount = 0
        var nextChange = Gate<Void>()
    }

    private static let callers = 50

    let engine: FleetEngine
    let origin = FleetOrigin()
    private let state = Mutex(State())

    init(_ engine: FleetEngine) {
        self.engine = engine
        for _ in 0..<4 { self.addMachine() }
    }

    var machines: [FleetMachine] { self.state.withLock { $0.machines } }
    var isEngineUp: Bool { self.state.withLock { $0.isEngineUp } }
    var running: Act? { self.state.withLock { $0.running } }
    /// The last ten outcomes, newest first.
    var outcomes: [Outcome] { self.state.withLock { $0.outcomes } }

    var shown: FleetSnapshot { FleetSnapshot(of: self) }

    // MARK: - Changes

    var changeCount: Int { self.state.withLock { $0.changeCount } }

    private func announceChange() {
        let gate = self.state.withLock { state in
            defer { state.nextChange = Gate() }
            state.changeCount += 1
            return state.nextChange
        }
        gate.openForGood(returning: ())
    }

    func changed(_ count: Int) async {
        while !Task.isCancelled {
            let gate = self.state.withLock { $0.changeCount < count ? $0.nextChange : nil }
            guard let gate else { return }
            try? await gate.pass()
        }
    }

    // MARK: - Machines and visitors

    /// Adds a machine with the next letter, in the place of an ended machine.
    private func addMachine(inPlaceOf former: FleetMachine? = nil) {
        let number = self.state.withLock { state in
            defer { state.machineCount += 1 }
            return state.machineCount
        }
        let letter = String(UnicodeScalar(UInt8(65 + number % 26)))
        let machine = FleetMachine(number < 26 ? letter : "\(letter)\(number / 26)", self.engine, self.origin)
        self.state.withLock { state in
            let place = state.machines.firstIndex { $0 === former }
            if let place { state.machines[place] = machine } else { state.machines.append(machine) }
        }
    }

    func open() async throws { self.admitVisitors() }

    func close() async {
        await self.sendVisitorsHome()
        for machine in self.machines { machine.end() }
        try? await self.engine.stop()
    }

    /// Starts visitors that send several requests per second to each machine.
    private func admitVisitors() {
        self.state.withLock { state in
            state.isOpen = true
            state.visitors = state.machines.map { machine in
                Task { [weak self] in
                    while self?.state.withLock({ $0.isOpen }) ?? false {
                        try? await Task.sleep(for: .milliseconds(Int.random(in: 60...180)))
                        guard let key = FleetMachine.keys.randomElement() else { return }
                        await machine.ask(key)
                        self?.announceChange()
                    }
                }
            }
        }
    }

    private func sendVisitorsHome() async {
        let visitors = self.state.withLock { state in
            defer { state.visitors = [] }
            state.isOpen = false
            return state.visitors
        }
        for visitor in visitors { await visitor.value }
    }

    // MARK: - Acts

    func perform(_ act: Act) async -> Outcome? {
        let begins = self.state.withLock { state in
            guard state.running == nil else { return false }
            state.running = act
            return true
        }
        guard begins else { return nil }
        self.announceChange()
        await self.sendVisitorsHome()
        let (text, holds): (String, Bool)
        do {
            (text, holds) = try await self.play(act)
        } catch {
            (text, holds) = (error.localizedDescription, false)
        }
        self.admitVisitors()
        defer { self.announceChange() }
        return self.state.withLock { state in
            state.running = nil
            state.outcomeCount += 1
            let outcome = Outcome(number: state.outcomeCount, act: act, text: text, holds: holds)
            state.outcomes = [outcome] + state.outcomes.prefix(9)
            return outcome
        }
    }

    private func play(_ act: Act) async throws -> (String, Bool) {
        switch act {
        case .burst: await self.burst()
        case .change: await self.change()
        case .stop: try await self.stopEngine()
        case .start: try await self.startEngine()
        case .machine: await self.endMachine()
        }
    }

    /// Requests every offer from every machine, with `callers` callers for each offer.
    ///
    /// - Returns: The numbers of requests, calls of the origin, and failures.
    private func askAll(_ callers: Int) async -> (requests: Int, calls: Int, failures: Int) {
        let machines = self.machines
        let before = (self.origin.calls.shared, machines.reduce(0) { $0 + $1.failureCount })
        await withTaskGroup { group in
            for machine in machines {
                for key in FleetMachine.keys {
                    for _ in 0..<callers { group.addTask { await machine.ask(key) } }
                }
            }
        }
        return (
            machines.count * FleetMachine.keys.count * callers, self.origin.calls.shared - before.0,
            machines.reduce(0) { $0 + $1.failureCount } - before.1
        )
    }

    /// Clears all machines: while the store runs, one machine clears, and the store notifies the other
    /// machines.
    ///
    /// A notification during a fetch causes another fetch. The function therefore waits until every machine
    /// has received the notification.
    ///
    /// - Returns: Whether no machine has an offer in memory.
    private func clearAll() async -> Bool {
        if self.isEngineUp, let first = self.machines.first {
            // A machine whose offers disappear from memory has received the notification.
            _ = await self.askAll(1)
            if await first.clear() {
                let end = ContinuousClock.now + .seconds(10)
                for machine in self.machines where await !machine.becomesEmpty(before: end) { return false }
                return true
            }
        }
        for machine in self.machines { await machine.clear() }
        return true
    }

    private func burst() async -> (String, Bool) {
        guard await self.clearAll() else { return ("A machine did not clear its memory within ten seconds.", false) }
        let (requests, calls, failures) = await self.askAll(Self.callers)
        let keys = FleetMachine.keys.count
        let said =
            "\(requests.formatted()) requests on \(self.machines.count) machines with empty memory: \(calls) calls of the origin"
        guard self.isEngineUp else {
            return (
                "\(said), \(failures) failed requests. The store is stopped: each machine fetches alone.",
                failures == 0 && calls <= keys * self.machines.count
            )
        }
        return ("\(said) for \(keys) offers, \(failures) failed requests.", failures == 0 && calls == keys)
    }

    /// Changes an offer at the origin, and clears the offer on one machine: then all machines show the new
    /// offer.
    private func change() async -> (String, Bool) {
        guard let key = FleetMachine.keys.randomElement(), let first = self.machines.randomElement() else {
            return ("There is no machine.", false)
        }
        self.origin.change(key)
        let version = self.origin.version(of: key)
        let before = self.origin.calls.shared
        let start = ContinuousClock.now
        let isComplete = await first.clear(key)
        guard isComplete else {
            return (
                "\(key) changed, and machine \(first.name) cleared it. The store did not confirm: the other machines show the old offer until the store is back or the lifetime ends.",
                !self.isEngineUp
            )
        }
        var behind = self.machines
        while !behind.isEmpty, start.duration(to: .now) < .seconds(10) {
            let machines = behind
            behind = []
            for machine in machines {
                let offer = try? await machine.offers.request(key: key)
                if offer?.version != version { behind.append(machine) }
            }
            self.announceChange()
            if !behind.isEmpty { try? await Task.sleep(for: .milliseconds(2)) }
        }
        let time = start.duration(to: .now).formatted(.units(allowed: [.milliseconds], width: .wide))
        let calls = self.origin.calls.shared - before
        let rest = behind.isEmpty ? "All machines show the new offer" : "\(behind.count) machines show the old offer"
        return (
            "\(key) changed, and machine \(first.name) cleared it. \(rest) \(time) later, with \(calls) \(calls == 1 ? "call" : "calls") of the origin.",
            behind.isEmpty && calls == 1
        )
    }

    private func stopEngine() async throws -> (String, Bool) {
        guard self.isEngineUp else { return ("The store is stopped already.", true) }
        try await self.engine.stop()
        self.state.withLock { $0.isEngineUp = false }
        self.announceChange()
        let (requests, calls, failures) = await self.askAll(1)
        return (
            "The store is stopped. \(requests) requests: \(requests - calls - failures) from memory, \(calls) calls of the origin, \(failures) failed.",
            failures == 0
        )
    }

    private func startEngine() async throws -> (String, Bool) {
        guard !self.isEngineUp else { return ("The store runs already.", true) }
        try await self.engine.start()
        self.state.withLock { $0.isEngineUp = true }
        self.announceChange()
        for machine in self.machines where await !machine.joins() {
            return ("The store runs, but machine \(machine.name) did not connect within ten seconds.", false)
        }
        let (requests, calls, failures) = await self.askAll(1)
        let most = FleetMachine.keys.count
        return (
            "The store runs, and was empty. \(requests) requests for \(most) offers: \(calls) calls of the origin, \(failures) failed.",
            failures == 0 && calls <= most
        )
    }

    /// Ends a machine during a fetch that the other machines wait for.
    private func endMachine() async -> (String, Bool) {
        guard let key = FleetMachine.keys.randomElement(), let lost = self.machines.randomElement() else {
            return ("There is no machine.", false)
        }
        for machine in self.machines { await machine.clear(key) }
        let gate = self.origin.hold(lost.name)
        let request = Task { try await lost.offers.request(key: key) }
        await gate.waitForCall()
        lost.end()
        let others = self.machines.filter { $0 !== lost }
        let before = (self.origin.calls.shared, others.reduce(0) { $0 + $1.failureCount })
        let start = ContinuousClock.now
        await withTaskGroup { group in
            for machine in others { group.addTask { await machine.ask(key) } }
        }
        let time = start.duration(to: .now)
        let calls = self.origin.calls.shared - before.0
        let failures = others.reduce(0) { $0 + $1.failureCount } - before.1
        // From now on, the fetch of the ended machine has no effect.
        gate.openForGood(returning: ())
        _ = try? await request.value
        self.addMachine(inPlaceOf: lost)
        let seconds = time.formatted(.units(allowed: [.seconds], width: .wide, fractionalPart: .show(length: 1)))
        return (
            "Machine \(lost.name) ended during its fetch of \(key). \(others.count - failures) of \(others.count) other machines had the offer \(seconds) later, with \(calls) more calls of the origin.",
            failures == 0 && calls <= others.count && time < self.engine.patience + .seconds(3)
        )
    }
}

/// The state of the page at one moment.
struct FleetSnapshot: Encodable, Sendable {
    /// One offer in a machine's memory.
    struct Cell: Encodable, Sendable {
        var version: Int
        var machine: String
        /// The remaining lifetime in seconds, negative after the expiry.
        var left: Double
        /// Whether the origin has a newer version.
        var isOld: Bool
    }

    struct Machine: Encodable, Sendable {
        var name: String
        var requests, hits, joins, fromStore, fetches: Int
        var cells: [Cell?]
    }

    var engine: String
    var isEngineUp: Bool
    var requests, calls, callsAlone: Int
    var keys: [String]
    var machines: [Machine]
    /// The running act, if any.
    ///
    /// Acts count calls, so an act begins only after the end of the previous act.
    var running: [FleetStage.Act]
    var outcomes: [FleetStage.Outcome]

    init(of stage: FleetStage) {
        let calls = stage.origin.calls
        self.engine = stage.engine.name
        self.isEngineUp = stage.isEngineUp
        self.calls = calls.shared
        self.callsAlone = calls.alone
        self.keys = FleetMachine.keys
        self.machines = stage.machines.map { machine in
            let statistics = machine.offers.statistics
            return Machine(
                name: machine.name,
                requests: statistics.requests,
                hits: statistics.hits,
                joins: statistics.joins,
                fromStore: statistics.sharedHits,
                fetches: statistics.fetches,
                cells: FleetMachine.keys.map { key in
                    machine.offers.cachedEntry(key: key).map { entry in
                        let left = (entry.timeToLive - entry.age) / .seconds(1)
                        return Cell(
                            version: entry.value.version,
                            machine: entry.value.machine,
                            left: left,
                            isOld: entry.value.version < stage.origin.version(of: key)
                        )
                    }
                }
            )
        }
        self.requests = self.machines.reduce(0) { $0 + $1.requests }
        self.running = stage.running.map { [$0] } ?? []
        self.outcomes = stage.outcomes
    }
}
