extension FlightEngine {
    // MARK: - Flying

    @inlinable
    func launch(_ flight: FlightID, of key: Key) {
        let (running, work) = self.engineState.withLock { ($0.running[flight], $0.work) }
        guard let running, let work else { return }
        let node = self.node(key, flight)
        let name = self.options.name
        let task = self.spawn(name: name, priority: running.priority, for: node) { await work(key, flight) }
        // A caller may have joined, or all may have left, before there was a task to tell.
        let meanwhile = self.engineState.withLock { engineState in
            engineState.running[flight]?.task = task
            return engineState.running[flight]
        }
        if let meanwhile, meanwhile.priority > running.priority { task.raisePriority(to: meanwhile.priority) }
        if meanwhile?.isCancelled ?? false { task.cancel() }
    }

    func cancel(_ flights: [FlightID]) {
        let tasks = self.engineState.withLock { engineState in
            flights.compactMap { flight -> Task<Void, Never>? in
                engineState.running[flight]?.isCancelled = true
                return engineState.running[flight]?.task
            }
        }
        for task in tasks { task.cancel() }
    }

    /// The work of a flight is about to begin, after a look at the disk: from here on, fences count.
    ///
    /// - Parameters:
    ///   - flight: The flight.
    ///   - key: What it is about.
    ///   - begins: Called under the lock if it is to begin; the flag says whether a fence has passed it before.
    /// - Returns: Whether it is to begin. Otherwise the flight is over, and must not land.
    @inlinable
    package func workBegins(_ flight: FlightID, of key: Key, _ begins: (inout State, Bool) -> Void) -> Bool {
        let (isToBegin, stuck) = self.engineState.withLock { engineState -> (Bool, [Waiter]) in
            let wasFenced = engineState.machines[key]?.flight != flight
            guard engineState.withMachine(of: key, { $0.worksNow(flight) }) else {
                engineState.running[flight] = nil
                return (false, self.waitersMoved(from: flight, of: key, in: &engineState))
            }
            begins(&engineState.state, wasFenced)
            return (true, [])
        }
        self.tellStuck(stuck)
        return isToBegin
    }

    /// Those who waited for `flight` wait for the current flight of `key` now.
    ///
    /// - Returns: Those who would wait for ever, taken out, to be told so.
    @usableFromInline
    func waitersMoved(from flight: FlightID, of key: Key, in engineState: inout EngineState) -> [Waiter] {
        guard !WaitForGraph.isEmpty, let machine = engineState.machines[key], let next = machine.currentFlight else {
            return []
        }
        let waiting = Set(machine.currentTickets)
        let stuck = WaitForGraph.moved(waiting, from: self.node(key, flight), to: self.node(key, next))
        guard !stuck.isEmpty else { return [] }
        return engineState.withMachine(of: key) { $0.taken(stuck, from: next) }
    }

    @usableFromInline
    func tellStuck(_ waiters: [Waiter]) { Self.wake(waiters, with: .failure(self.options.wouldDeadlock)) }

    /// What there is for those who wait for a flight before its work begins.
    package struct EarlyAnswers {
        /// What the callers get who are answered, by their tickets.
        package var outputs: [Ticket: Output] = [:]
        /// Whether the work need not begin, if nobody else waits.
        package var isOver = false

        package init() {}
    }

    /// Answers some of those who wait for a flight, if no fence has passed it.
    ///
    /// - Parameters:
    ///   - flight: The flight.
    ///   - key: What it is about.
    ///   - answers: Called under the lock with the tickets of those who wait.
    /// - Returns: Whether the flight is over. Then it must not land.
    package func answerEarly(
        _ flight: FlightID,
        of key: Key,
        _ answers: (inout State, [Ticket]) -> EarlyAnswers
    ) -> Bool {
        let (waiters, ended) = self.engineState.withLock { engineState -> ([(Waiter, Output)], RunningFlight?) in
            guard let machine = engineState.machines[key], machine.currentFlight == flight else { return ([], nil) }
            let early = answers(&engineState.state, machine.currentTickets)
            let answered = machine.currentTickets.filter { early.outputs[$0] != nil }
            let (waiters, isOver) = engineState.withMachine(of: key) {
                $0.answeredEarly(flight, answered, isOver: early.isOver)
            }
            let outputs = answered.compactMap { early.outputs[$0] }
            // Not when they notice it: until then they do not wait for what the flight may ask for next.
            for ticket in answered { WaitForGraph.end(WaitForGraph.WaitID(self, ticket)) }
            return (Array(zip(waiters, outputs)), isOver ? engineState.running.removeValue(forKey: flight) : nil)
        }
        ended?.linger?.cancel()
        for (waiter, output) in waiters { waiter.resume(with: Answer(.success(.output(output)))) }
        return ended != nil
    }

    /// Changes the owner's state on behalf of a flight that goes on, if no fence has passed it.
    ///
    /// - Returns: Whether the flight is still the current one of `key`.
    @discardableResult
    package func report(from flight: FlightID, of key: Key, _ change: (inout State) -> Void) -> Bool {
        self.engineState.withLock { engineState in
            guard engineState.machines[key]?.currentFlight == flight else { return false }
            change(&engineState.state)
            return true
        }
    }

    @usableFromInline
    enum LandingStep: Sendable {
        case nothing
        case wake([Waiter], Result<Output, any Error>)
        case restart(FlightID)
    }

    /// Ends a flight: keeps its outcome if no fence has passed it, and wakes its callers.
    ///
    /// `settle` is called under the lock if somebody has a use for the outcome: it changes the owner's state, if the flag says
    /// that the outcome may be kept, and returns what the callers get. `failed` says whether there is a new outcome at all.
    @inlinable
    package func land(
        _ flight: FlightID,
        of key: Key,
        failed: Bool,
        settle: (inout State, Bool) -> Result<Output, any Error>
    ) {
        let deadline = self.options.deadline.map { self.time.now.advanced(by: $0) }
        let (step, linger, stuck) = self.engineState.withLock {
            engineState -> (LandingStep, Task<Void, Never>?, [Waiter]) in
            let running = engineState.running.removeValue(forKey: flight)
            let next = self.nextID()
            let action = engineState.withMachine(of: key) { $0.ends(flight, failed: failed, next: next) }
            var step = LandingStep.nothing
            var stuck: [Waiter] = []
            switch action {
            case .ignore: stuck = self.waitersMoved(from: flight, of: key, in: &engineState)
            case .commit(let waiters): step = .wake(waiters, settle(&engineState.state, true))
            case .answer(let waiters): step = .wake(waiters, settle(&engineState.state, false))
            case .restart(let next):
                step = .restart(next)
                stuck = self.waitersMoved(from: flight, of: key, in: &engineState)
                if let running { engineState.begins(next, of: key, running.priority, until: deadline) }
            }
            return (step, running?.linger, stuck)
        }
        linger?.cancel()
        self.tellStuck(stuck)
        switch step {
        case .nothing: break
        case .wake(let waiters, let result): Self.wake(waiters, with: result)
        case .restart(let next):
            self.launch(next, of: key)
            self.watchDeadlines()
        }
    }

    @inlinable
    static func wake(_ waiters: [Waiter], with result: Result<Output, any Error>) {
        guard !waiters.isEmpty else { return }
        Waiter.resume(waiters, with: Answer(result.map(Landing.output)))
    }
}

/// What belongs to a flight that runs in a task of the engine's.
@usableFromInline
struct RunningFlight: Sendable {
    @usableFromInline var task: Task<Void, Never>?
    @usableFromInline var linger: Task<Void, Never>?
    /// The highest of its callers.
    @usableFromInline var priority: TaskPriority
    @usableFromInline var isCancelled = false

    @usableFromInline
    init(priority: TaskPriority) { self.priority = priority }
}

extension TaskLauncher {
    /// Starts the work of a flight, in a task that knows for which one it works.
    @usableFromInline
    func callAsFunction(
        name: String,
        priority: TaskPriority,
        for node: WaitForNode,
        _ work: @escaping @Sendable () async -> Void
    ) -> Task<Void, Never> {
        self(name: name, priority: priority, otherwiseOn: FlightExecutor.shared) {
            await FlightContext.$current.withValue(FlightContext(node)) { await work() }
        }
    }
}
