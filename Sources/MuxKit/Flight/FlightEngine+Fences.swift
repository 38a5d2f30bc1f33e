extension FlightEngine {
    // MARK: - Fencing

    /// Changes the owner's state and fences off the flights of `key`; their callers wait on and get their outcome.
    package func fence<R>(_ key: Key, _ change: (inout State) -> sending R) -> sending R {
        let (result, action) = self.board.withLock { board in
            (change(&board.state), board.withMachine(of: key) { $0.detachedByFence() })
        }
        self.cancel(action.cancel)
        return result
    }

    /// Changes the owner's state and fences off the flights of `key`, unless `change` says that it changed nothing.
    package func fenceIf(_ key: Key, _ change: (inout State) -> Bool) -> Bool {
        let (hasChanged, action) = self.board.withLock { board in
            guard change(&board.state) else { return (false, FlightStateMachine<Waiter>.FenceAction()) }
            return (true, board.withMachine(of: key) { $0.detachedByFence() })
        }
        self.cancel(action.cancel)
        return hasChanged
    }

    /// Changes the owner's state and fences off all flights; their callers wait on and get their outcome.
    package func fenceAll<R>(_ change: (inout State) -> sending R) -> sending R {
        let (result, flights) = self.board.withLock { board in
            let result = change(&board.state)
            let actions = board.keysInFlight.map { key in board.withMachine(of: key) { $0.detachedByFence() } }
            return (result, actions.flatMap(\.cancel))
        }
        self.cancel(flights)
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
        let (result, farewell) = self.dismissed(cancelling: cancelling, change)
        farewell()
        return result
    }

    /// Does what ``dismissAll(cancelling:_:)`` does, but for telling anybody.
    ///
    /// - Returns: What `change` said, and what answers the callers and cancels the flights; to be called exactly once.
    package func dismissed<R>(
        cancelling: Bool,
        _ change: (inout State) -> sending (Result<Output, any Error>?, R)
    ) -> sending (R, farewell: @Sendable () -> Void) {
        let (waiters, flights, (answer, result)) = self.board.withLock { board in
            let answer = change(&board.state)
            let keys = answer.0 == nil ? [] : board.keysInFlight
            let actions = keys.map { key in board.withMachine(of: key) { $0.dismissedByFence() } }
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
