public import Synchronization

/// The shell of ``FlightStateMachine``: tasks, continuations, cancellation and the lock around its owner's state.
///
/// The one single-flight engine of the package. An owner puts its own state beside the flights, so that looking for an
/// answer and joining a flight, or keeping an outcome and waking its callers, is one critical section.
///
/// **Concurrent calls.** Any member may be called from anywhere. Owner closures run under the lock: they only look and
/// change, and call nothing.
///
/// **Cancellation.** A caller whose task is cancelled leaves at once; what happens to the flight is the owner's choice.
@usableFromInline
package final class FlightEngine<Key: Hashable & Sendable, Output: Sendable, State: Sendable>: Sendable {
    /// How a call ends that no error ends.
    @usableFromInline
    package enum Landing: Sendable {
        /// The outcome, or an answer that made a flight unnecessary.
        case output(Output)
        /// The caller leads this flight: it does the work, then calls ``land(_:of:failed:settle:)``.
        case lead(FlightID)
    }

    /// What the owner's state says to a caller.
    @usableFromInline
    package enum Decision: Sendable {
        /// No flight is needed.
        case answer(Output)
        /// The caller need not wait for the flight that is needed.
        case answerAndFly(Output)
        /// A flight is needed, but if it takes longer, the caller gets what there is then.
        case flyNoLonger(than: Duration, Instead)
        /// No flight can help.
        case fail(any Error)
        /// A flight is needed.
        case fly
    }

    /// Says, under the lock, what there is for a caller whose patience has ended, perhaps an error; `nil` if it has to wait on.
    @usableFromInline package typealias Instead = @Sendable (inout State, Moment) -> Result<Output, any Error>?

    /// Does the work of a flight in a task of the engine's, and calls ``land(_:of:failed:settle:)`` in the end, unless
    /// ``workBegins(_:of:_:)`` or ``answerEarly(_:of:_:)`` says that the flight is over.
    @usableFromInline package typealias Work = @Sendable (Key, FlightID) async -> Void

    @usableFromInline package typealias Waiter = FlightWaiter
    @usableFromInline typealias Answer = FlightAnswer<Landing>

    /// What owners choose.
    @usableFromInline
    package struct Options: Sendable {
        /// What the tasks are called that do the work.
        @usableFromInline package var name: String
        /// How long a flight that nobody waits for is left running, in case somebody comes; `nil` to let it finish.
        package var linger: Duration?
        /// How long a flight may take; `nil` for as long as it likes.
        @usableFromInline package var deadline: Duration?
        /// What the callers of a flight get that took too long.
        package var timedOut: any Error
        /// What becomes of the owner's state when a flight took too long; called under the lock.
        package var whenTimedOut: (@Sendable (inout State, Moment) -> Void)?
        /// What a caller gets whose wait would never end, because it works for what it would wait for; see ``WaitForGraph``.
        @usableFromInline package var wouldDeadlock: any Error

        package init(
            name: String,
            linger: Duration?,
            deadline: Duration? = nil,
            timedOut: any Error = CancellationError(),
            whenTimedOut: (@Sendable (inout State, Moment) -> Void)? = nil,
            wouldDeadlock: any Error
        ) {
            self.name = name
            self.linger = linger
            self.deadline = deadline
            self.timedOut = timedOut
            self.whenTimedOut = whenTimedOut
            self.wouldDeadlock = wouldDeadlock
        }
    }

    @usableFromInline
    struct EngineState: Sendable {
        @usableFromInline var state: State
        @usableFromInline var work: Work?
        @usableFromInline var machines: [Key: FlightStateMachine<Waiter>] = [:]
        @usableFromInline var running: [FlightID: RunningFlight] = [:]
        /// No flight that runs has a lower one; all have the same, as a rule.
        @usableFromInline var lowestPriority = TaskPriority.background
        @usableFromInline var deadlines = Deadlines<Key>()
        var watch: Task<Void, Never>?

        /// A flight begins, at the priority of its first caller.
        @inlinable
        mutating func begins(_ flight: FlightID, of key: Key, _ priority: TaskPriority, until deadline: Moment?) {
            self.lowestPriority = self.running.isEmpty ? priority : min(self.lowestPriority, priority)
            self.running[flight] = RunningFlight(priority: priority)
            guard let deadline else { return }
            let running = self.running
            self.deadlines.add(flight, of: key, at: deadline, runningCount: running.count) { running[$0] != nil }
        }

        /// Notes that a caller of `priority` joined.
        ///
        /// - Returns: The flight's task, if there is one already and it is to be raised.
        @inlinable
        mutating func raise(_ flight: FlightID, to priority: TaskPriority) -> Task<Void, Never>? {
            // Looked at first: changing what is in a dictionary allocates, for each who comes.
            guard self.lowestPriority < priority, let place = self.running.index(forKey: flight),
                self.running.values[place].priority < priority
            else { return nil }
            self.running[flight]?.priority = priority
            return self.running[flight]?.task
        }

        /// The keys that have flights, in the order in which these were named: the order of a dictionary is chance.
        var keysInFlight: [Key] {
            self.machines.sorted { ($0.value.firstFlight ?? 0) < ($1.value.firstFlight ?? 0) }.map(\.key)
        }

        /// Lets `body` use the machine of `key`, and forgets the machine once it is idle.
        @inlinable
        mutating func withMachine<R>(of key: Key, _ body: (inout FlightStateMachine<Waiter>) -> R) -> R {
            guard let place = self.machines.index(forKey: key) else {
                var machine = FlightStateMachine<Waiter>.idle
                let result = body(&machine)
                if !machine.isOver { self.machines[key] = machine }
                return result
            }
            // In place: a machine that is copied copies all who wait.
            let result = body(&self.machines.values[place])
            if self.machines.values[place].isOver { self.machines.remove(at: place) }
            return result
        }
    }

    @usableFromInline let engineState: Locked<EngineState>
    @usableFromInline let spawn: TaskLauncher
    @usableFromInline let time: TimeSource
    @usableFromInline let options: Options
    @usableFromInline let lastID = Atomic<UInt64>(0)
    private let inspector = Inspection.inspector

    /// Makes an engine around the owner's `state`, which its lock guards.
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
        // No caller can wait any more: each of them holds the engine. Work that is never abandoned finishes nevertheless.
        let (running, watch) = self.engineState.withLock { ($0.running, $0.watch) }
        watch?.cancel()
        for flight in running.values {
            flight.linger?.cancel()
            if self.options.linger != nil { flight.task?.cancel() }
        }
    }

    /// Says what does the work of flights that callers do not do themselves; to be called before anybody arrives.
    package func flies(with work: @escaping Work) { self.engineState.withLock { $0.work = work } }

    /// Names a flight of `key` among those of all engines.
    @inlinable
    package func node(_ key: Key, _ flight: FlightID) -> WaitForNode { WaitForNode(self, flight, key) }

    /// Looks at or changes the owner's state, without touching flights.
    @inlinable
    package func withState<R>(_ body: (inout State) -> sending R) -> sending R {
        self.engineState.withLock { body(&$0.state) }
    }

    // MARK: - Arriving and leaving

    /// A name for a caller who is about to arrive, or for a flight.
    @inlinable
    package func nextID() -> UInt64 { self.lastID.wrappingAdd(1, ordering: .relaxed).newValue }

    /// Does all that a call does at an engine: it is named, arrives, waits until it is answered, and departs.
    ///
    /// An owner whose callers are many does the same by itself, and keeps less on the stack while they wait.
    ///
    /// - Returns: The answer or the outcome.
    /// - Throws: What `decide` failed with, what the flight failed with, or `CancellationError` if the caller's task is
    ///   cancelled while it waits.
    package func enter(
        isolation: isolated (any Actor)? = #isolation,
        _ key: Key,
        decide: (inout State) -> Decision,
        joined: (inout State, Bool) -> Void,
        left: (inout State) -> Void = { _ in },
        arrived: () -> Void = {}
    ) async throws -> Landing {
        let ticket = self.nextID()
        var loose: Waiter.WaitCleanup?
        let answer = await Waiter.answer { waiter in
            loose = self.arrive(
                waiter,
                ticket,
                at: key,
                now: self.time.now,
                decide: decide,
                joined: joined,
                left: left,
                arrived: arrived
            )
        } onCancel: {
            self.leave(ticket, key)
        }
        return try self.landing(answer, loose)
    }

    /// What a call ends with that was answered.
    @inlinable
    package func landing(_ answer: Waiter.Answer, _ loose: Waiter.WaitCleanup?) throws -> Landing {
        loose?.run()
        guard let answer = answer as? Answer else { throw CancellationError() }
        return try answer.result.get()
    }

    /// Settles what a caller gets, or what it waits for: what `decide` answers, or else the outcome of the flight of `key`,
    /// started if none runs.
    ///
    /// - Parameters:
    ///   - waiter: Who is told, now or later; its task is the present one.
    ///   - ticket: The caller's name, from ``nextID()``.
    ///   - key: What the flight is about.
    ///   - now: The time.
    ///   - leads: Whether the caller does the work itself if a flight has to start.
    ///   - decide: Called under the lock, once.
    ///   - joined: Called under the lock if the caller waits; the flag says whether the flight is running already.
    ///   - left: Called under the lock if the caller would have to wait, and its task is cancelled already.
    ///   - arrived: Called outside the lock as soon as it is settled what the caller gets or waits for.
    /// - Returns: What is to be given to ``landing(_:_:)`` with the answer.
    @inlinable
    package func arrive(
        _ waiter: Waiter,
        _ ticket: Ticket,
        at key: Key,
        now: Moment,
        leads: Bool = false,
        decide: (inout State) -> Decision,
        joined: (inout State, Bool) -> Void,
        left: (inout State) -> Void = { _ in },
        arrived: () -> Void = {}
    ) -> Waiter.WaitCleanup? {
        var wait: WaitForGraph.WaitID?
        let deadline = self.options.deadline.map(now.advanced)
        let arrival = self.arrival(
            of: waiter,
            ticket,
            at: key,
            leads: leads,
            until: deadline,
            &wait,
            decide: decide,
            joined: joined,
            left: left
        )
        switch arrival {
        case .resume(let result):
            arrived()
            waiter.resume(with: Answer(result))
            return nil
        case .resumeAndLaunch(let output):
            arrived()
            self.launch(ticket, of: key)
            self.watchDeadlines()
            waiter.resume(with: Answer(.success(.output(output))))
            return nil
        case .wait(let effect, let waitLimit):
            if case .joined(let slow, let linger) = effect {
                slow?.raisePriority(to: Task.currentPriority)
                linger?.cancel()
            }
            arrived()
            let timer = waitLimit.map { self.startWaitLimit(of: ticket, key, $0.0, $0.1) }
            if case .launch = effect {
                self.launch(ticket, of: key)
                self.watchDeadlines()
            }
            return wait == nil && timer == nil ? nil : Waiter.WaitCleanup(wait: wait, timer: timer)
        }
    }

    /// What is to be done for a caller that waits, once the lock is let go.
    @usableFromInline
    enum Effect: Sendable {
        case launch
        case joined(slow: Task<Void, Never>?, linger: Task<Void, Never>?)
    }

    @usableFromInline
    enum Arrival: Sendable {
        case resume(Result<Landing, any Error>)
        case resumeAndLaunch(Output)
        case wait(Effect, (Duration, Instead)?)
    }

    @inlinable
    func arrival(
        of waiter: Waiter,
        _ ticket: Ticket,
        at key: Key,
        leads: Bool,
        until deadline: Moment?,
        _ wait: inout WaitForGraph.WaitID?,
        decide: (inout State) -> Decision,
        joined: (inout State, Bool) -> Void,
        left: (inout State) -> Void
    ) -> Arrival {
        let priority = Task.currentPriority
        let caller = FlightContext.ofTask
        return self.engineState.withLock { engineState -> Arrival in
            var waitLimit: (Duration, Instead)?
            switch decide(&engineState.state) {
            case .answer(let output): return .resume(.success(.output(output)))
            case .fail(let error): return .resume(.failure(error))
            case .answerAndFly(let output):
                guard engineState.withMachine(of: key, { $0.starts(ticket) }) else {
                    return .resume(.success(.output(output)))
                }
                engineState.begins(ticket, of: key, priority, until: deadline)
                return .resumeAndLaunch(output)
            case .flyNoLonger(let duration, let instead): waitLimit = (duration, instead)
            case .fly: break
            }
            // Under the lock: `leave` finds who is cancelled from here on, and did not find who was before.
            guard !Task.isCancelled else {
                left(&engineState.state)
                return .resume(.failure(CancellationError()))
            }
            if leads, engineState.withMachine(of: key, { $0.starts(ticket) }) {
                return .resume(.success(.lead(ticket)))
            }
            if let caller {
                let flight = engineState.machines[key]?.flight
                let id = WaitForGraph.WaitID(self, ticket)
                let awaited = self.node(key, flight ?? ticket)
                guard WaitForGraph.begin(id, of: caller, for: awaited, isNew: flight == nil) else {
                    return .resume(.failure(self.options.wouldDeadlock))
                }
                wait = id
            }
            switch engineState.withMachine(of: key, { $0.arrives(waiter, ticket: ticket) }) {
            case .start(let flight):
                engineState.begins(flight, of: key, priority, until: deadline)
                joined(&engineState.state, false)
                return .wait(.launch, waitLimit)
            case .join(let flight):
                joined(&engineState.state, true)
                return .wait(.joined(slow: engineState.raise(flight, to: priority), linger: nil), waitLimit)
            case .adopt(let flight):
                joined(&engineState.state, true)
                let linger = engineState.running[flight]?.linger
                engineState.running[flight]?.linger = nil
                return .wait(.joined(slow: engineState.raise(flight, to: priority), linger: linger), waitLimit)
            }
        }
    }

    /// Answers the caller with this ticket, whose task is cancelled, if it has arrived and nobody has answered it.
    @usableFromInline
    func leave(_ ticket: Ticket, _ key: Key) {
        let abandonment: FlightStateMachine<Waiter>.Abandonment =
            switch self.options.linger {
            case nil: .finish
            case .some(let linger) where linger <= .zero: .cancel
            case .some: .linger
            }
        let action = self.engineState.withLock { engineState in
            WaitForGraph.end(WaitForGraph.WaitID(self, ticket))
            return engineState.withMachine(of: key) { $0.left(ticket, abandonment: abandonment) }
        }
        switch action {
        case .ignore:
            break
        case .resume(let waiter):
            waiter.resume(with: Answer(.failure(CancellationError())))
        case .resumeAndCancel(let waiter, let flight):
            waiter.resume(with: Answer(.failure(CancellationError())))
            self.cancel([flight])
        case .resumeAndLinger(let waiter, let flight):
            self.startLinger(of: flight, key, since: ticket)
            waiter.resume(with: Answer(.failure(CancellationError())))
        }
    }
}
