extension FlightEngine {
    // MARK: - Fencing

    /// Changes the owner's state and fences off the flights of `key`.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - error: What their callers get now, and the flights are cancelled; `nil` if they wait on and get their outcome.
    ///   - change: Called under the lock.
    /// - Returns: What `change` returned.
    package func fence<R>(
        _ key: Key,
        answering error: (any Error)? = nil,
        _ change: (inout State) -> sending R
    ) -> sending R {
        let (result, action) = self.engineState.withLock { engineState in
            (change(&engineState.state), engineState.withMachine(of: key) { $0.fenced(dismissing: error != nil) })
        }
        if let error { Self.wake(action.answer, with: .failure(error)) }
        self.cancel(action.cancel)
        return result
    }

    /// Changes the owner's state and fences off the flights of `key`, unless `change` says that it changed nothing.
    package func fenceIf(_ key: Key, _ change: (inout State) -> Bool) -> Bool {
        let (hasChanged, action) = self.engineState.withLock { engineState in
            guard change(&engineState.state) else { return (false, FlightStateMachine<Waiter>.FenceAction()) }
            return (true, engineState.withMachine(of: key) { $0.detachedByFence() })
        }
        self.cancel(action.cancel)
        return hasChanged
    }

    /// Changes the owner's state and fences off all flights; see ``fence(_:answering:_:)``.
    package func fenceAll<R>(
        answering error: (any Error)? = nil,
        _ change: (inout State) -> sending R
    ) -> sending R {
        let (result, actions) = self.engineState.withLock { engineState in
            let result = change(&engineState.state)
            let actions = engineState.keysInFlight.map { key in
                engineState.withMachine(of: key) { $0.fenced(dismissing: error != nil) }
            }
            return (result, actions)
        }
        if let error { Self.wake(actions.flatMap(\.answer), with: .failure(error)) }
        self.cancel(actions.flatMap(\.cancel))
        return result
    }

    /// Changes the owner's state, fences off all flights and answers their callers now.
    ///
    /// - Parameters:
    ///   - cancelling: Whether the flights are also cancelled, or run on to no effect.
    ///   - change: Called under the lock; returns the answer, `nil` if the flights are to be left alone, and what the caller
    ///     of this gets.
    /// - Returns: What `change` said.
    @discardableResult
    package func dismissAll<R>(
        cancelling: Bool,
        _ change: (inout State) -> sending (Result<Output, any Error>?, R)
    ) -> sending R {
        let (result, answerWaiters) = self.dismissed(cancelling: cancelling, change)
        answerWaiters()
        return result
    }

    /// Does what ``dismissAll(cancelling:_:)`` does, but for telling anybody.
    ///
    /// - Returns: What `change` said, and what answers the callers and cancels the flights; to be called exactly once.
    package func dismissed<R>(
        cancelling: Bool,
        _ change: (inout State) -> sending (Result<Output, any Error>?, R)
    ) -> sending (R, answerWaiters: @Sendable () -> Void) {
        let (waiters, flights, (answer, result)) = self.engineState.withLock { engineState in
            let answer = change(&engineState.state)
            let keys = answer.0 == nil ? [] : engineState.keysInFlight
            let actions = keys.map { key in engineState.withMachine(of: key) { $0.dismissedByFence() } }
            return (actions.flatMap(\.answer), actions.flatMap(\.cancel), answer)
        }
        return (
            result,
            {
                if let answer { Self.wake(waiters, with: answer) }
                if cancelling { self.cancel(flights) }
            }
        )
    }
}

extension FlightEngine {
    /// The keys that have a flight.
    package var keysInFlight: [Key] { self.engineState.withLock { Array($0.machines.keys) } }

    /// Whether the key has a flight.
    package func isInFlight(_ key: Key) -> Bool { self.engineState.withLock { $0.machines[key] != nil } }

    /// How many callers wait, how many tasks run, and how many keys have a flight: all zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) {
        self.engineState.withLock { engineState in
            (
                engineState.machines.values.reduce(0) { $0 + $1.waiterCount }, engineState.running.count,
                engineState.machines.count
            )
        }
    }
}

extension FlightEngine: Inspectable {
    package func faults() async -> [String] { self.faultsNow }

    /// What should not be so when the owner's callers are gone; work may still run.
    var faultsNow: [String] {
        self.engineState.withLock { engineState in
            let machines = engineState.machines.values
            let waiters = machines.reduce(0) { $0 + $1.waiterCount }
            return [
                waiters > 0 ? "\(waiters) callers still wait" : nil,
                machines.contains(where: \.isIdle) ? "an idle key is kept" : nil,
                (engineState.state as? any SelfChecking)?.violation(),
            ].compactMap(\.self) + machines.compactMap { $0.violation() }
        }
    }
}
