public import Synchronization

/// Runs at most one current flight per key; all new callers of a key share this flight.
///
/// A *flight* is one run of the work of a key, such as a fetch. The *owner* of an engine is the type that
/// uses the engine, such as a multiplexer.
///
/// A ``FlightStateMachine`` has the flights and callers of a key; the engine adds a lock, tasks and
/// continuations. One lock guards the flights and the owner's state. An owner therefore looks up an answer
/// and joins a flight in one critical section. Another critical section stores an outcome and removes the
/// flight with its callers.
///
/// **Concurrent calls.** Any member may be called from any thread. The closures that receive the owner's
/// state run under the lock. A closure that runs under the lock must not call the engine.
///
/// **Cancellation.** A cancelled caller stops waiting at once. ``Options/linger`` describes the effect on a
/// flight without callers.
@usableFromInline
package final class FlightEngine<Key: Hashable & Sendable, Output: Sendable, State: Sendable>: Sendable {
    /// What a caller gets, unless the caller gets an error.
    @usableFromInline
    package enum Landing: Sendable {
        /// The answer, such as the outcome of a flight.
        case output(Output)
        /// The caller leads this flight: the caller, instead of a task of the engine, does the ``Work``.
        ///
        /// The engine does not cancel the work, and the flight has no deadline in the engine.
        case lead(FlightID)
    }

    /// The owner's decision for a caller.
    @usableFromInline
    package enum Decision: Sendable {
        /// Answer without a flight.
        case answer(Output)
        /// Answer at once, and start a flight unless the key has a current flight.
        case answerAndFly(Output)
        /// Join or start a flight; if the caller still waits after the duration, answer with the result of
        /// the closure, if any.
        case flyNoLonger(than: Duration, AnswerAtLimit)
        /// Fail without a flight.
        case fail(any Error)
        /// Join or start a flight.
        case fly
    }

    /// Returns, under the lock, the answer to a caller at its wait limit; `nil` if the caller has to continue
    /// waiting.
    @usableFromInline
    package typealias AnswerAtLimit = @Sendable (inout State, Key, Ticket, Moment) -> Result<Output, any Error>?

    /// Does the work of a flight in a task of the engine.
    ///
    /// Calls ``land(_:of:failed:at:late:settle:always:)`` at the end, unless
    /// ``beginWork(_:of:withTickets:_:)`` or ``answerEarly(_:of:_:)`` has reported the end of the flight.
    @usableFromInline package typealias Work = @Sendable (Key, FlightID) async -> Void

    @usableFromInline package typealias Waiter = FlightWaiter
    @usableFromInline typealias Answer = FlightAnswer<Landing>

    @usableFromInline
    package struct Options: Sendable {
        /// The name of the tasks for the work; `nil` in a release build: a name costs two allocations for
        /// each task.
        @usableFromInline package var name: String?
        /// The time from the cancellation of a flight's last caller to the cancellation of the flight; `nil`
        /// to let the flight continue.
        ///
        /// A flight that must finish continues, and so does a flight whose last caller reaches a wait limit.
        /// A fenced flight is an exception: this flight is always cancelled when the last caller leaves.
        package var linger: Duration?
        /// The time limit of a flight without a leading caller; `nil` for no limit.
        @usableFromInline package var deadline: Duration?
        /// The error for the callers of a flight at its deadline, except callers in a deadlock.
        package var timedOut: any Error
        /// Changes the owner's state at the deadline of a current flight, or of a fenced flight with callers.
        ///
        /// Called under the lock; the result is released outside the lock. The flag tells whether the flight
        /// was the current flight of the key.
        package var whenTimedOut: (@Sendable (inout State, Key, Bool, Moment) -> (any Sendable)?)?
        /// The error for a caller in a deadlock; see ``WaitForGraph``.
        @usableFromInline package var wouldDeadlock: any Error

        package init(
            name: String,
            linger: Duration?,
            deadline: Duration? = nil,
            timedOut: any Error = CancellationError(),
            whenTimedOut: (@Sendable (inout State, Key, Bool, Moment) -> (any Sendable)?)? = nil,
            wouldDeadlock: any Error
        ) {
            self.name = SystemLog.isDebugBuild ? name : nil
            self.linger = linger
            self.deadline = deadline
            self.timedOut = timedOut
            self.whenTimedOut = whenTimedOut
            self.wouldDeadlock = wouldDeadlock
        }
    }

    /// A flight to start outside the lock.
    @usableFromInline
    package struct Launch: Sendable {
        @usableFromInline let flight: FlightID
        @usableFromInline let priority: FlightPriority
        @usableFromInline var work: Work?
        /// The first deadline for a new ``FlightEngine/watchDeadlines(from:)``; `nil` to start no such task.
        @usableFromInline var watch: Moment?
        /// The result of ``FlightDeadlines/add(_:of:at:runningCount:keeping:)``, released outside the lock.
        @usableFromInline var forgotten: [FlightDeadlines<Key>.Deadline] = []

        @inlinable
        init(_ flight: FlightID, _ priority: FlightPriority, _ work: Work?) {
            self.flight = flight
            self.priority = priority
            self.work = work
        }
    }

    @usableFromInline
    struct EngineState: Sendable {
        @usableFromInline var state: State
        /// The work of flights without a leading caller; `nil` before ``FlightEngine/setWork(_:)``.
        @usableFromInline var work: Work?
        @usableFromInline var machines: [Key: FlightStateMachine] = [:]
        /// The keys of removed machines, which ``FlightEngine/withEngineState(_:)`` releases outside the
        /// lock.
        @usableFromInline var released = Few<Key>()
        /// The flights without a leading caller whose work has not ended, including flights that have left
        /// their machine.
        @usableFromInline var running: [FlightID: RunningFlight] = [:]
        /// A lower bound of the priorities of all running flights; the priorities are usually equal.
        @usableFromInline var lowestPriority = FlightPriority(.background)
        @usableFromInline var deadlines = FlightDeadlines<Key>()
        @usableFromInline var watch: Task<Void, Never>?
        /// The keys that are reported to ``follower``.
        @usableFromInline package var followedKeys: Set<Key> = []
        /// Receives, outside the lock, each followed key that has gained or lost its current flight.
        @usableFromInline package var follower: (@Sendable ([Key]) -> Void)?
        /// The followed keys that have gained or lost their current flight, not yet reported to
        /// ``follower``.
        @usableFromInline var changedKeys: [Key] = []

        @inlinable
        func isFollowed(_ key: Key) -> Bool { !self.followedKeys.isEmpty && self.followedKeys.contains(key) }

        /// Returns a closure that reports ``changedKeys``, to be called outside the lock; `nil` if there is
        /// nothing to report.
        @inlinable
        mutating func takeNotice() -> (@Sendable () -> Void)? {
            guard let follower, !self.changedKeys.isEmpty else { return nil }
            let keys = self.changedKeys
            self.changedKeys = []
            return { follower(keys) }
        }

        /// Registers a flight that is to start at the given priority.
        @inlinable
        mutating func registerFlight(
            _ flight: FlightID,
            of key: Key,
            _ priority: FlightPriority,
            until deadline: Moment?
        ) -> Launch {
            self.lowestPriority = self.running.isEmpty ? priority : min(self.lowestPriority, priority)
            self.running[flight] = RunningFlight(priority: priority)
            var launch = Launch(flight, priority, self.work)
            guard let deadline else { return launch }
            let running = self.running
            launch.forgotten = self.deadlines.add(flight, of: key, at: deadline, runningCount: running.count) {
                running[$0] != nil
            }
            if !self.deadlines.isWatched {
                self.deadlines.isWatched = true
                launch.watch = deadline
            }
            return launch
        }

        /// Calls `body` with the machine of `key`, or with a new machine; does not keep an idle machine.
        @inlinable
        mutating func withMachine<R>(of key: Key, _ body: (inout FlightStateMachine) -> R) -> R {
            guard let place = self.machines.index(forKey: key) else {
                var machine = FlightStateMachine()
                let result = body(&machine)
                if machine.currentFlight != nil, self.isFollowed(key) { self.changedKeys.append(key) }
                if !machine.isIdle { self.machines[key] = machine }
                return result
            }
            var (hasChanged, isIdle) = (false, false)
            // A single access in place: any other access, even to one property, copies the machine.
            func change(_ machine: inout FlightStateMachine) -> R {
                let wasFlying = machine.currentFlight != nil
                let result = body(&machine)
                hasChanged = wasFlying != (machine.currentFlight != nil)
                isIdle = machine.isIdle
                return result
            }
            let result = change(&self.machines.values[place])
            if hasChanged, self.isFollowed(key) { self.changedKeys.append(key) }
            if isIdle { self.released.append(self.machines.remove(at: place).key) }
            return result
        }
    }

    @usableFromInline let engineState: Locked<EngineState>
    @usableFromInline let spawn: TaskLauncher
    @usableFromInline let time: TimeSource
    @usableFromInline let options: Options
    @usableFromInline let lastID = Atomic<UInt64>(0)
    /// The number of the engine in a ``WaitForNode``, unique in the process.
    @usableFromInline let number = WaitForNode.nextEngine()
    private let inspector = Inspection.inspector

    /// Makes an engine whose lock guards the owner's `state`.
    package init(_ state: State, _ options: Options, time: TimeSource, spawn: TaskLauncher) {
        self.engineState = Locked(EngineState(state: state))
        self.options = options
        self.time = time
        self.spawn = spawn
        self.inspector?.note(self)
    }

    deinit {
        if let inspector {
            let leftover = self.engineState.withLock { ($0.state as? any SelfChecking)?.leftover() }
            inspector.note(faults: self.faultsNow + [leftover].compactMap(\.self))
        }
        // No caller is left, because each caller retains the engine. Running work is cancelled, unless
        // ``Options/linger`` is `nil`.
        let (running, watch) = self.engineState.withLock { ($0.running, $0.watch) }
        watch?.cancel()
        for flight in running.values {
            flight.linger?.cancel()
            if self.options.linger != nil { flight.task?.cancel() }
        }
    }

    /// Sets the work of flights without a leading caller; the first call must precede the first such flight.
    @usableFromInline
    package func setWork(_ work: @escaping Work) { self.engineState.withLock { $0.work = work } }

    @inlinable
    package func node(_ flight: FlightID) -> WaitForNode { WaitForNode(engine: self.number, flight: flight) }

    /// Changes flights under the lock.
    ///
    /// Notifies the follower and releases removed keys outside the lock: the follower, and the `deinit` of a
    /// key, may call the owner.
    @inlinable
    func withEngineState<R>(_ body: (inout EngineState) -> sending R) -> sending R {
        var released = Few<Key>()
        var notice: (@Sendable () -> Void)?
        let result = self.engineState.withLock { engineState in
            let result = body(&engineState)
            released = engineState.released.take()
            notice = engineState.takeNotice()
            return result
        }
        withExtendedLifetime(released) {}
        notice?()
        return result
    }

    /// Reads or changes the owner's state.
    @inlinable
    package func withState<R>(_ body: (inout State) -> sending R) -> sending R {
        self.engineState.withLock { body(&$0.state) }
    }

    // MARK: - Arriving and leaving

    /// A new ticket or flight identifier.
    @inlinable
    package func nextID() -> UInt64 { self.lastID.wrappingAdd(1, ordering: .relaxed).newValue }

    /// Returns the first of `count` consecutive new tickets.
    @inlinable
    func nextIDs(_ count: Int) -> Ticket {
        self.lastID.wrappingAdd(UInt64(count), ordering: .relaxed).oldValue &+ 1
    }

    /// Adds a caller, and waits for the answer to the caller.
    ///
    /// See
    /// ``arrive(_:at:now:leads:mayBeginHere:mustFinish:highestPriority:gather:decide:joined:left:arrived:)``.
    ///
    /// An owner with many callers calls `arrive` and ``unwrap(_:_:)`` separately, so that each waiting caller
    /// takes less memory.
    ///
    /// - Returns: The answer, or the flight that the caller leads.
    /// - Throws: The error of the answer, such as `CancellationError` after a cancellation of the caller.
    package func enter(
        isolation: isolated (any Actor)? = #isolation,
        _ key: Key,
        ticket: Ticket? = nil,
        leads: Bool = false,
        decide: (inout State) -> Decision,
        joined: (inout State, Bool) -> Void,
        left: (inout State) -> Void = { _ in },
        arrived: () -> Void = {}
    ) async throws -> Landing {
        var cleanup: Waiter.WaitCleanup?
        let answer = await Waiter.answer(to: Caller(self, key, ticket)) { waiter in
            cleanup = self.arrive(
                waiter,
                at: key,
                now: self.time.now,
                leads: leads,
                decide: decide,
                joined: joined,
                left: left,
                arrived: arrived
            )
        }
        return try self.unwrap(answer, cleanup)
    }

    /// Runs the cleanup of a caller, and unwraps the answer.
    @inlinable
    package func unwrap(_ answer: Waiter.Answer, _ cleanup: Waiter.WaitCleanup?) throws -> Landing {
        cleanup?.run()
        guard let answer = answer as? Answer else { throw CancellationError() }
        return try answer.result.get()
    }

    /// Answers a caller, or adds the caller to the current flight of `key` or to a new flight.
    ///
    /// - Parameters:
    ///   - waiter: The caller, in the current task.
    ///   - key: The key.
    ///   - now: The time.
    ///   - leads: Whether the caller does the work if a new flight has to start.
    ///   - mayBeginHere: Whether a new flight may begin in this call, on the caller's thread, up to the
    ///     flight's first suspension; `true` only for a caller that has no isolation and waits for no other
    ///     flight.
    ///   - mustFinish: Whether the flight that the caller joins or starts must finish, even if all callers
    ///     leave. The flight then starts or continues even for a cancelled caller, unless the caller is
    ///     within a flight.
    ///   - highestPriority: The limit of the caller's priority on arrival, but not of later escalations.
    ///   - gather: Receives a new flight for which `waiter` waits; the caller of this method then starts the
    ///     flight with ``launch(_:of:beginsHere:)``. Without `gather`, and for a flight without a waiting
    ///     caller, this call starts the flight.
    ///   - decide: Called once, under the lock.
    ///   - joined: Called under the lock if the caller waits; the flag tells whether the caller joins an
    ///     existing flight.
    ///   - left: Called under the lock if the caller would wait or lead, but its task is cancelled.
    ///   - arrived: Called outside the lock, before the caller continues and before a new flight starts.
    /// - Returns: The cleanup for ``unwrap(_:_:)``; `nil` if no cleanup is necessary.
    @inlinable
    package func arrive(
        _ waiter: Waiter,
        at key: Key,
        now: Moment,
        leads: Bool = false,
        mayBeginHere: Bool = false,
        mustFinish: Bool = false,
        highestPriority: TaskPriority = TaskPriority(rawValue: .max),
        gather: ((Launch) -> Void)? = nil,
        decide: (inout State) -> Decision,
        joined: (inout State, Bool) -> Void,
        left: (inout State) -> Void = { _ in },
        arrived: () -> Void = {}
    ) -> Waiter.WaitCleanup? {
        let ticket = waiter.ticket
        let deadline = self.options.deadline.map(now.advanced)
        var priority = FlightPriority(.medium)
        let caller = FlightContext.ofTask
        // Read before the lock is taken: see ``WaitForGraph/begin(_:of:isCertain:for:sameKey:)``.
        let isCertain = caller?.isAwaited ?? false
        var wait: WaitForGraph.WaitID?
        var waitLimit: (Duration, AnswerAtLimit)?
        var notice: (@Sendable () -> Void)?
        // Variables, as in ``land(_:of:failed:at:late:settle:always:)``.
        var (answer, launch): (Answer?, Launch?)
        var (taskToRaise, linger): (Task<Void, Never>?, Task<Void, Never>?)
        // Without ``withEngineState(_:)``: an arrival removes no machine, so no key has to be released.
        self.engineState.withLock { engineState in
            defer { notice = engineState.takeNotice() }
            // Under the lock: the current priority includes earlier escalations, and ``raise(_:_:to:)``
            // handles later escalations.
            priority = FlightPriority(min(Task.currentPriority, highestPriority))
            switch decide(&engineState.state) {
            case .answer(let output):
                answer = Answer(.success(.output(output)))
                return
            case .fail(let error):
                answer = Answer(.failure(error))
                return
            case .answerAndFly(let output):
                answer = Answer(.success(.output(output)))
                if engineState.withMachine(of: key, { $0.startOrKeepFlight(ticket) }) {
                    launch = engineState.registerFlight(ticket, of: key, priority, until: deadline)
                }
                return
            case .flyNoLonger(let duration, let instead): waitLimit = (duration, instead)
            case .fly: break
            }
            // Under the lock: this check detects an earlier cancellation, and `leave` handles a later
            // cancellation.
            guard !Task.isCancelled else {
                left(&engineState.state)
                answer = Answer(.failure(CancellationError()))
                // Not for a caller within a flight: the caller may be cancelled because that flight is
                // cancelled, and that flight may be the flight of `key`.
                if mustFinish, caller == nil, engineState.withMachine(of: key, { $0.keepFlight(without: waiter) }) {
                    launch = engineState.registerFlight(ticket, of: key, priority, until: deadline)
                }
                return
            }
            if leads, engineState.withMachine(of: key, { $0.startFlight(ticket) }) {
                answer = Answer(.success(.lead(ticket)))
                return
            }
            if let caller {
                let flight = engineState.machines[key]?.currentFlight
                let id = WaitForGraph.WaitID(self.number, ticket)
                let fenced = flight == nil ? engineState.machines[key]?.fencedFlights.map(self.node) ?? [] : []
                guard
                    WaitForGraph.begin(
                        id,
                        of: caller,
                        isCertain: isCertain,
                        for: self.node(flight ?? ticket),
                        sameKey: fenced
                    )
                else {
                    answer = Answer(.failure(self.options.wouldDeadlock))
                    return
                }
                wait = id
            }
            switch engineState.withMachine(of: key, { $0.addWaiter(waiter, mustFinish: mustFinish) }) {
            case .start(let flight):
                joined(&engineState.state, false)
                launch = engineState.registerFlight(flight, of: key, priority, until: deadline)
            case .join(let flight):
                joined(&engineState.state, true)
                taskToRaise = engineState.raise(flight, to: priority)
            case .adopt(let flight):
                joined(&engineState.state, true)
                linger = engineState.running[flight]?.linger
                engineState.running[flight]?.linger = nil
                taskToRaise = engineState.raise(flight, to: priority)
            }
        }
        notice?()
        taskToRaise?.raisePriority(to: priority.ofTask)
        linger?.cancel()
        arrived()
        if let answer {
            if let launch { self.launch(launch, of: key) }
            waiter.resume(with: answer)
            return nil
        }
        let timer = waitLimit.map { self.startWaitLimit(of: [(ticket, key)], $0.0, $0.1) }
        if var launch {
            if let gather {
                self.startWatch(&launch)
                gather(launch)
            } else {
                // Not for a caller within a flight: the stack would grow with each nested flight.
                let beginsHere = mayBeginHere && caller == nil && waitLimit == nil && self.spawn.canBeginHere
                self.launch(launch, of: key, beginsHere: beginsHere)
            }
        }
        return wait == nil && timer == nil ? nil : Waiter.WaitCleanup(wait: wait, timer: timer)
    }

    /// Answers the cancelled caller with this ticket, unless the caller has not arrived yet or was already
    /// answered.
    @usableFromInline
    func leave(_ ticket: Ticket, _ key: Key) {
        let abandonment: FlightStateMachine.Abandonment =
            switch self.options.linger {
            case nil: .finish
            case .some(let linger) where linger <= .zero: .cancel
            case .some: .linger
            }
        let action = self.withEngineState { engineState in
            WaitForGraph.end(WaitForGraph.WaitID(self.number, ticket))
            return engineState.withMachine(of: key) { $0.removeWaiter(ticket, abandonment: abandonment) }
        }
        self.carryOut(action, answering: .failure(CancellationError()), key, ticket)
    }

    /// Answers a caller that leaves its flight, and cancels the flight or starts its linger if necessary.
    func carryOut(
        _ action: FlightStateMachine.LeaveAction,
        answering result: Result<Landing, any Error>,
        _ key: Key,
        _ ticket: Ticket
    ) {
        let answer = Answer(result)
        switch action {
        case .ignore: break
        case .resume(let waiter): waiter.resume(with: answer)
        case .resumeAndCancel(let waiter, let flight):
            waiter.resume(with: answer)
            self.cancel([flight])
        case .resumeAndLinger(let waiter, let flight):
            self.startLinger(of: flight, key, since: ticket)
            waiter.resume(with: answer)
        }
    }
}

/// The key of an engine that needs only one key.
@usableFromInline
package enum SoleKey: Hashable, Sendable {
    /// The only key.
    case sole
}
