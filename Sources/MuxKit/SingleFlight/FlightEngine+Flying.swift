extension FlightEngine {
    /// Starts the work of a flight, and the watch of deadlines if necessary.
    @inlinable
    func launch(_ launch: Launch, of key: Key, beginsHere: Bool = false) {
        guard let work = launch.work else { return }
        let flight = launch.flight
        var launch = launch
        // The watch starts first, because work that begins on this thread may take long.
        self.startWatch(&launch)
        let context = FlightContext(self.node(flight), on: self.spawn.executor(otherwise: FlightExecutor.shared))
        let task = self.spawn(
            name: self.options.name,
            priority: launch.priority.ofTask,
            otherwiseOn: FlightExecutor.shared,
            beginsHere: beginsHere
        ) {
            await FlightContext.ofWork.withValue(context) { await work(key, flight) }
        }
        let running = self.engineState.withLock { engineState -> RunningFlight? in
            // By index: an assignment to an absent key allocates, and the flight may have ended.
            guard let place = engineState.running.index(forKey: flight) else { return nil }
            engineState.running.values[place].task = task
            engineState.running.values[place].sharedTask = nil
            return engineState.running.values[place]
        }
        // Before the task was stored, the priority may have risen, and the flight may have been cancelled.
        if let running, running.priority > launch.priority { task.raisePriority(to: running.priority.ofTask) }
        if running?.isCancelled ?? false { task.cancel() }
    }

    /// Starts the watch of deadlines, if `launch` requires a watch.
    @inlinable
    func startWatch(_ launch: inout Launch) {
        guard let first = launch.watch else { return }
        launch.watch = nil
        let watch = self.watchDeadlines(from: first)
        self.engineState.withLock { $0.watch = watch }
    }

    /// Sets the shared task of `flights`, until each flight has a separate task.
    ///
    /// Escalates the task to the highest priority of the flights.
    @usableFromInline
    func setSharedTask(_ task: Task<Void, Never>, of flights: [FlightID]) {
        let priority = self.engineState.withLock { engineState in
            flights.compactMap { flight -> FlightPriority? in
                guard let place = engineState.running.index(forKey: flight) else { return nil }
                engineState.running.values[place].sharedTask = task
                return engineState.running.values[place].priority
            }.max()
        }
        if let priority { task.raisePriority(to: priority.ofTask) }
    }

    /// Cancels the tasks of `flights`; ``launch(_:of:beginsHere:)`` cancels a task that is not stored yet.
    func cancel(_ flights: [FlightID]) {
        guard !flights.isEmpty else { return }
        let tasks = self.engineState.withLock { engineState in
            flights.compactMap { flight -> Task<Void, Never>? in
                engineState.running[flight]?.isCancelled = true
                return engineState.running[flight]?.task
            }
        }
        for task in tasks { Cascade.run { task.cancel() } }
    }

    /// Reports that the work of a flight begins: only later fences affect the flight.
    ///
    /// See ``FlightStateMachine/beginWork(_:)``.
    ///
    /// - Parameters:
    ///   - flight: The flight.
    ///   - key: The flight's key.
    ///   - withTickets: Whether `begins` gets the tickets of the flight's callers; otherwise an empty array.
    ///   - begins: Called under the lock if the work is to begin; the flags tell whether the flight was
    ///     fenced earlier, and whether the flight is cancelled.
    /// - Returns: Whether to begin the work. Otherwise the flight has ended, and the caller must not call
    ///   ``land(_:of:failed:at:late:settle:always:)``.
    @inlinable
    package func beginWork(
        _ flight: FlightID,
        of key: Key,
        withTickets: Bool = false,
        _ begins: (inout State, Bool, Bool, [Ticket]) -> Void
    ) -> Bool {
        let (isToBegin, ended, stuck) = self.withEngineState { engineState -> (Bool, RunningFlight?, Few<Waiter>) in
            var wasFenced = false
            let isToBegin = engineState.withMachine(of: key) { machine in
                wasFenced = machine.currentFlight != flight
                return machine.beginWork(flight)
            }
            guard isToBegin else {
                let ended = engineState.running.removeValue(forKey: flight)
                return (false, ended, self.moveWaits(from: flight, of: key, in: &engineState))
            }
            // The flight may have been cancelled before its task was stored.
            let isCancelled = Task.isCancelled || engineState.running[flight]?.isCancelled ?? false
            let tickets = withTickets ? engineState.machines[key]?.currentTickets ?? [] : []
            begins(&engineState.state, wasFenced, isCancelled, tickets)
            return (true, nil, [])
        }
        ended?.linger?.cancel()
        self.failStuck(stuck)
        return isToBegin
    }

    /// Moves the waits for `flight` in the graph to the current flight of `key`, after a move of the callers.
    ///
    /// - Returns: The callers in a deadlock, removed from the current flight.
    @usableFromInline
    func moveWaits(from flight: FlightID, of key: Key, in engineState: inout EngineState) -> Few<Waiter> {
        guard !WaitForGraph.isEmpty, let machine = engineState.machines[key], let next = machine.currentFlight else {
            return []
        }
        let waiting = Set(machine.currentTickets)
        let stuck = WaitForGraph.moveWaits(waiting, from: self.node(flight), to: self.node(next))
        guard !stuck.isEmpty else { return [] }
        return engineState.withMachine(of: key) { $0.removeWaiters(stuck, from: next) }
    }

    @usableFromInline
    func failStuck(_ waiters: Few<Waiter>) { Self.wake(waiters, with: .failure(self.options.wouldDeadlock)) }

    /// Answers to callers of a flight before its work begins.
    @usableFromInline
    package struct EarlyAnswers: Sendable {
        @usableFromInline package var outputs: [Ticket: Output] = [:]
        /// `true` to end the flight if no other caller waits and the flight need not finish; `false` to let
        /// the flight finish even without callers.
        @usableFromInline package var isOver = false
        /// Whether the flight is unnecessary, such as after the load of a fresh value from a shared store:
        /// ``isOver`` then also ends a flight that must finish.
        @usableFromInline package var isRenewed = false

        @inlinable
        package init() {}
    }

    /// Answers some callers of a flight before its work begins, if the flight is the current flight of `key`.
    ///
    /// - Parameters:
    ///   - flight: The flight.
    ///   - key: The flight's key.
    ///   - answers: Called under the lock with the tickets of the callers, if the flight is current.
    /// - Returns: Whether this call has ended the flight; then the caller must not call
    ///   ``land(_:of:failed:at:late:settle:always:)``.
    @inlinable
    package func answerEarly(
        _ flight: FlightID,
        of key: Key,
        _ answers: (inout State, [Ticket]) -> EarlyAnswers
    ) -> Bool {
        let (waiters, ended) = self.withEngineState { engineState -> ([(Waiter, Output)], RunningFlight?) in
            guard let machine = engineState.machines[key], machine.currentFlight == flight else { return ([], nil) }
            let early = answers(&engineState.state, machine.currentTickets)
            let answered = machine.currentTickets.filter { early.outputs[$0] != nil }
            let (waiters, isOver) = engineState.withMachine(of: key) {
                $0.answerWaitersEarly(flight, answered, isOver: early.isOver, isRenewed: early.isRenewed)
            }
            let outputs = answered.compactMap { early.outputs[$0] }
            // The waits are removed before the callers resume: an answered caller does not wait any more, so
            // a later wait of this flight for the caller's flight is no deadlock.
            WaitForGraph.end(answered, of: self.number)
            return (Array(zip(waiters, outputs)), isOver ? engineState.running.removeValue(forKey: flight) : nil)
        }
        ended?.linger?.cancel()
        for (waiter, output) in waiters { waiter.resume(with: Answer(.success(.output(output)))) }
        return ended != nil
    }

    /// Changes the owner's state on behalf of a running flight, if the flight is the current flight of `key`.
    ///
    /// - Returns: Whether the flight is still the current flight of `key`.
    @discardableResult
    package func report(from flight: FlightID, of key: Key, _ change: (inout State) -> Void) -> Bool {
        self.engineState.withLock { engineState in
            guard engineState.machines[key]?.currentFlight == flight else { return false }
            change(&engineState.state)
            return true
        }
    }

    /// Changes the owner's state unless ``isInFlight(_:)``.
    package func withState(unlessInFlight key: Key, _ change: (inout State) -> Void) {
        self.engineState.withLock { if $0.machines[key] == nil { change(&$0.state) } }
    }

    /// Ends a flight: keeps the outcome if permitted, and resumes the callers.
    ///
    /// - Parameters:
    ///   - flight: The flight.
    ///   - key: The flight's key.
    ///   - failed: Whether the work failed. If the flight was also cancelled, callers that joined after the
    ///     cancellation join the current flight, or a new flight.
    ///   - now: The time; `nil` to read the clock.
    ///   - late: Called first, under the lock. If the outcome is outdated, returns the first ticket of the
    ///     callers that must not get the outcome: these callers join the current flight, or a new flight. The
    ///     ticket has no effect after a failure.
    ///   - settle: Called under the lock, unless the flight has left its machine, such as at the deadline, or
    ///     failed after a cancellation. Returns the callers' answer; a cancellation error in the answer
    ///     becomes ``MuxError/fetchCancelled``. If the flag is `true`, also keeps the outcome in the owner's
    ///     state. The flag is `false` for a fenced flight, and if `late` has returned a ticket for a success.
    ///   - always: Called under the lock afterwards, in all cases.
    /// - Returns: Whether the flight was cancelled at its deadline; `false` for a flight with a leading
    ///   caller.
    @discardableResult
    @inlinable
    package func land(
        _ flight: FlightID,
        of key: Key,
        failed: Bool,
        at now: Moment? = nil,
        late: (inout State) -> Ticket? = { _ in nil },
        settle: (inout State, Bool) -> Result<Output, any Error>,
        always: (inout State) -> Void = { _ in }
    ) -> Bool {
        let deadline = self.options.deadline.map { (now ?? self.time.now).advanced(by: $0) }
        // Variables, because large tuples and enums are returned by slow calls of the runtime (Swift 6.3.1).
        var ended: RunningFlight?
        var (waiters, stuck) = (Few<Waiter>(), Few<Waiter>())
        // Stored even without callers, so that the outcome is released outside the lock.
        var (output, failure): (Answer?, (any Error)?)
        var launch: Launch?
        func keep(_ callers: Few<Waiter>, _ result: Result<Output, any Error>) {
            waiters = callers
            switch result {
            case .success(let value): output = Answer(.success(.output(value)))
            case .failure(let error): failure = error
            }
        }
        self.withEngineState { engineState in
            ended = engineState.running.removeValue(forKey: flight)
            let next = self.nextID()
            let first = late(&engineState.state)
            switch engineState.withMachine(of: key, { $0.endFlight(flight, failed: failed, next: next, late: first) }) {
            case .ignore: stuck = self.moveWaits(from: flight, of: key, in: &engineState)
            case .commit(let callers): keep(callers, settle(&engineState.state, true))
            case .answer(let callers): keep(callers, settle(&engineState.state, false))
            case .answerAndRestart(let callers, let next):
                stuck = self.moveWaits(from: flight, of: key, in: &engineState)
                let priority = ended?.priority ?? FlightPriority(.medium)
                if let next { launch = engineState.registerFlight(next, of: key, priority, until: deadline) }
                keep(callers, settle(&engineState.state, false))
            case .restart(let next):
                stuck = self.moveWaits(from: flight, of: key, in: &engineState)
                if let ended { launch = engineState.registerFlight(next, of: key, ended.priority, until: deadline) }
            }
            always(&engineState.state)
        }
        ended?.linger?.cancel()
        self.failStuck(stuck)
        // Cancelled callers have left, so the other callers get another error than a cancellation. Outside
        // the lock, because the examination of wrapped errors may run code of the app.
        let answer = output ?? failure.map { Answer(.failure($0.ofUncancelledWork)) }
        if let answer { for waiter in waiters { waiter.resume(with: answer) } }
        if let launch { self.launch(launch, of: key) }
        return ended?.hasTimedOut ?? false
    }

    @inlinable
    static func wake(_ waiters: Few<Waiter>, with result: Result<Output, any Error>) {
        guard !waiters.isEmpty else { return }
        let answer = Answer(result.map(Landing.output))
        for waiter in waiters { waiter.resume(with: answer) }
    }
}

/// The task, linger timer and priority of a running flight, which the state machine does not have.
@usableFromInline
struct RunningFlight: Sendable {
    /// The task; `nil` until the task is stored.
    @usableFromInline var task: Task<Void, Never>?
    /// A task for several flights, until this flight has a separate task; may be escalated, but is not
    /// cancelled with the flight.
    @usableFromInline var sharedTask: Task<Void, Never>?
    /// The timer of the last linger, which may have ended; `nil` before a linger.
    @usableFromInline var linger: Task<Void, Never>?
    /// The highest priority of the flight's callers.
    @usableFromInline var priority: FlightPriority
    /// Set even before the task is stored: ``FlightEngine/launch(_:of:beginsHere:)`` then cancels the task.
    @usableFromInline var isCancelled = false
    @usableFromInline var hasTimedOut = false

    @usableFromInline
    init(priority: FlightPriority) { self.priority = priority }
}

/// A task priority with a fixed layout.
///
/// Only the runtime knows the layout of `TaskPriority` (Swift 6.3.1): a struct with a `TaskPriority` is
/// copied and released by slow calls of the runtime.
@usableFromInline
package struct FlightPriority: Comparable, Sendable {
    @usableFromInline let rawValue: UInt8

    @inlinable
    init(_ priority: TaskPriority) { self.rawValue = priority.rawValue }

    @inlinable
    package var ofTask: TaskPriority { TaskPriority(rawValue: self.rawValue) }

    @inlinable
    package static func < (a: FlightPriority, b: FlightPriority) -> Bool { a.rawValue < b.rawValue }
}
