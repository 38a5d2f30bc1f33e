/// What is done to a runner from outside, and what it says of itself.
extension RunnerCore {
    /// The value with its epochs, if there is one that may be used.
    package var held: VersionedDependency? {
        let parentEpoch = self.parentEpoch
        return self.engine.withState { $0.machine.current(parentEpoch: parentEpoch) }
    }

    /// Raised with every change of the value.
    package var epoch: UInt64 { self.engine.withState { $0.machine.epoch } }

    /// Raised when a session ends.
    package var session: UInt64 { self.engine.withState { $0.machine.session } }

    /// Sets the value; who waits for an update gets it now, and the update's own value is dropped.
    ///
    /// - Returns: The value with its epochs.
    @discardableResult
    package func set(_ value: Dependency, cancellingUpdate: Bool = false) -> VersionedDependency {
        let parentEpoch = self.parentEpoch
        let expiry = self.expiry(of: value, lifetime: nil, isNew: false)
        let (held, number) = self.engine.dismissAll(cancelling: cancellingUpdate) { state in
            let held = state.machine.changed(to: value, parentEpoch: parentEpoch, expiry: expiry)
            return (.success(held), (held, state.machine.nextEvent()))
        }
        self.watchers.tell(.set(epoch: held.epoch), number: number)
        return held
    }

    /// Has everybody who waits look again: the parent's value was replaced, and the running update's is for nothing.
    package func parentReplaced() {
        self.engine.dismissAll(cancelling: false) { state in
            state.machine.forgetFailures()
            return (.failure(LookAgain()), ())
        }
    }

    /// Lets earlier failures not count any more.
    package func forgetFailures() { self.engine.withState { $0.machine.forgetFailures() } }

    /// Notes something about the value of `held`, unless more has become known meanwhile.
    @discardableResult
    package func note(_ held: VersionedDependency, as value: Dependency) -> VersionedDependency? {
        self.engine.withState { $0.machine.noted(held, as: value) }
    }

    /// Exchanges the value of `held` for one that continues it.
    package func continued(_ held: VersionedDependency, with value: Dependency, raisesEpoch: Bool)
        -> VersionedDependency?
    {
        self.engine.withState { $0.machine.continued(held, with: value, raisesEpoch: raisesEpoch) }
    }

    /// Ends the session: calls that are under way end, and an update that runs is cancelled to no effect.
    package func end(_ end: Machine.End) { self.ended(end)() }

    /// Does what ``end(_:)`` does, but for telling anybody, which what it returns does.
    package func ended(_ end: Machine.End, isTold: Bool = true) -> @Sendable () -> Void {
        let (number, answerWaiters): (UInt64?, _) = self.engine.dismissed(cancelling: true) { state in
            state.machine.ended(end)
            return (.failure(end.error), isTold ? state.machine.nextEvent() : nil)
        }
        return {
            answerWaiters()
            if let number { self.watchers.tell(end == .reset ? .reset : .signedOut, number: number) }
        }
    }

    /// How many callers wait and how many updates run: zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.engine.occupancy }
}
