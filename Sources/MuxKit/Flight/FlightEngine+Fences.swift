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
