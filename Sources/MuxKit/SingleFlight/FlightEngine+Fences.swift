extension FlightEngine {
    /// Changes the owner's state and fences the flights of `key`: the outcome of work that has begun is not
    /// kept.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - error: The immediate answer to the callers; all flights are then cancelled. With `nil`, the
    ///     callers wait for the outcome, and a flight without callers is cancelled.
    ///   - change: Called under the lock, before the fence.
    /// - Returns: The result of `change`.
    package func fence<R>(
        _ key: Key,
        answering error: (any Error)? = nil,
        _ change: (inout State) -> sending R
    ) -> sending R {
        let (result, action) = self.withEngineState { engineState in
            (change(&engineState.state), engineState.withMachine(of: key) { $0.fenceFlights(dismissing: error != nil) })
        }
        self.carryOut([action], answering: error.map(Result.failure))
        return result
    }

    /// Changes the owner's state and, if `change` returns `true`, fences the flights of `key`.
    ///
    /// The callers wait for the outcome; a flight without callers is cancelled.
    ///
    /// - Returns: The result of `change`.
    @usableFromInline
    package func fenceIf(_ key: Key, _ change: (inout State) -> Bool) -> Bool {
        let action = self.withEngineState { engineState -> FlightStateMachine.FenceAction? in
            guard change(&engineState.state) else { return nil }
            return engineState.withMachine(of: key) { $0.fenceFlights(dismissing: false) }
        }
        guard let action else { return false }
        self.cancel(action.cancel)
        return true
    }

    /// Changes the owner's state and fences all flights; see ``fence(_:answering:_:)``.
    package func fenceAll<R>(
        answering error: (any Error)? = nil,
        _ change: (inout State) -> sending R
    ) -> sending R {
        let (result, actions) = self.withEngineState { engineState in
            (change(&engineState.state), engineState.fenceFlights(dismissing: error != nil))
        }
        self.carryOut(actions, answering: error.map(Result.failure))
        return result
    }

    private func carryOut(
        _ actions: [FlightStateMachine.FenceAction],
        answering answer: Result<Output, any Error>?,
        cancelling: Bool = true
    ) {
        if let answer { Self.wake(Few(actions.flatMap(\.answer)), with: answer) }
        if cancelling { self.cancel(actions.flatMap(\.cancel)) }
    }

    /// Changes the owner's state and fences flights; the callers leave the flights, but are answered later.
    ///
    /// - Parameters:
    ///   - cancelling: Whether the flights are cancelled; otherwise the flights continue, but no outcome is
    ///     kept.
    ///   - isConcerned: Selects the keys of the flights; called under the lock.
    ///   - change: Called under the lock. Returns a pair: the callers' answer, or `nil` to leave the flights
    ///     unchanged; and the result for the caller of this method.
    /// - Returns: The second element of the pair; and a closure that answers the callers and, with
    ///   `cancelling`, cancels the flights. The closure must be called once.
    package func dismissCallers<R>(
        cancelling: Bool,
        where isConcerned: (Key) -> Bool = { _ in true },
        _ change: (inout State) -> sending (Result<Output, any Error>?, R)
    ) -> sending (R, resumeWaiters: @Sendable () -> Void) {
        let (actions, (answer, result)) = self.withEngineState { engineState in
            let answer = change(&engineState.state)
            return (answer.0 == nil ? [] : engineState.fenceFlights(dismissing: true, where: isConcerned), answer)
        }
        return (result, { self.carryOut(actions, answering: answer, cancelling: cancelling) })
    }

    /// The keys for which ``isInFlight(_:)`` is `true`.
    package var keysInFlight: [Key] { self.engineState.withLock { Array($0.machines.keys) } }

    /// Reports when `key` gains or loses its current flight.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - follower: Called outside the lock with the keys that have gained or lost their current flight; the
    ///     engine keeps the first follower.
    ///   - change: Changes the state under the lock.
    package func follow(
        _ key: Key,
        _ follower: @escaping @Sendable ([Key]) -> Void,
        _ change: (inout State) -> Void
    ) {
        self.engineState.withLock { engineState in
            change(&engineState.state)
            engineState.followedKeys.insert(key)
            if engineState.follower == nil { engineState.follower = follower }
        }
    }

    /// Ends the reports about `key` of ``follow(_:_:_:)``, unless `change` returns `nil`.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - change: Changes the state under the lock; returns a value to be released outside the lock.
    package func unfollow(_ key: Key, _ change: (inout State) -> (any Sendable)?) {
        let released = self.engineState.withLock { engineState -> (any Sendable)? in
            guard let removed = change(&engineState.state) else { return nil }
            return (removed, engineState.followedKeys.remove(key))
        }
        withExtendedLifetime(released) {}
    }

    /// Reads the state, and whether the key has a current flight, in one critical section.
    package func read<Facts>(_ key: Key, _ read: (State, _ isFlying: Bool) -> Facts) -> Facts {
        self.engineState.withLock { engineState in
            read(engineState.state, engineState.machines[key]?.currentFlight != nil)
        }
    }

    /// Whether the key has a current flight, or a fenced flight with callers.
    ///
    /// May be `false` while a task of the key still runs: the task of a fenced flight without callers, or of
    /// a flight beyond its deadline.
    package func isInFlight(_ key: Key) -> Bool { self.engineState.withLock { $0.machines[key] != nil } }

    /// The numbers of waiting callers, of flights without a leading caller whose work has not ended, and of
    /// keys in flight (``isInFlight(_:)``); all zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) {
        self.engineState.withLock { engineState in
            (engineState.waiterCount, engineState.running.count, engineState.machines.count)
        }
    }

    /// Escalates the flight of the caller with this ticket to the caller's new priority.
    @usableFromInline
    func raise(_ ticket: Ticket, _ key: Key, to priority: TaskPriority) {
        let task = self.engineState.withLock { engineState -> Task<Void, Never>? in
            guard let flight = engineState.machines[key]?.flight(of: ticket) else { return nil }
            return engineState.raise(flight, to: FlightPriority(priority))
        }
        task?.raisePriority(to: priority)
    }
}

extension FlightEngine: Inspectable {
    package func faults() async -> [String] {
        let (_, tasks, keys) = self.occupancy
        return self.faultsNow + (tasks + keys > 0 ? ["\(tasks) flights of \(keys) keys still run"] : [])
    }

    /// The broken invariants of an engine without callers; flights may still run.
    var faultsNow: [String] {
        self.engineState.withLock { engineState in
            let machines = engineState.machines.values
            return [
                engineState.waiterCount > 0 ? "\(engineState.waiterCount) callers still wait" : nil,
                machines.contains(where: \.isIdle) ? "an idle machine is kept" : nil,
                (engineState.state as? any SelfChecking)?.violation(),
            ].compactMap(\.self) + machines.compactMap { $0.violation() }
        }
    }
}

extension FlightEngine.EngineState {
    /// Fences all flights of the selected keys, ordered by the oldest flight of each key, because the order
    /// of a dictionary is random.
    fileprivate mutating func fenceFlights(
        dismissing: Bool,
        where isConcerned: (Key) -> Bool = { _ in true }
    ) -> [FlightStateMachine.FenceAction] {
        // A list of keys: a list of machines would retain the machines, and each change would copy a machine.
        let keys = self.machines.filter { isConcerned($0.key) }
            .sorted { ($0.value.firstFlight ?? 0) < ($1.value.firstFlight ?? 0) }.map(\.key)
        return keys.map { key in self.withMachine(of: key) { $0.fenceFlights(dismissing: dismissing) } }
    }

    fileprivate var waiterCount: Int { self.machines.values.reduce(0) { $0 + $1.waiterCount } }

    /// Escalates a flight to the priority of a waiting caller.
    ///
    /// - Returns: The task to escalate; `nil` if the flight has a sufficient priority, or no task now.
    @inlinable
    mutating func raise(_ flight: FlightID, to priority: FlightPriority) -> Task<Void, Never>? {
        // Checked first, because a change of a value in a dictionary allocates.
        guard self.lowestPriority < priority, let place = self.running.index(forKey: flight),
            self.running.values[place].priority < priority
        else { return nil }
        self.running[flight]?.priority = priority
        return self.running[flight]?.task ?? self.running[flight]?.sharedTask
    }
}
