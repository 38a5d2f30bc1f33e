/// The way of a call whose dependency is there and good, specialised in the caller's module.
extension RunnerCore {
    /// How a first try ends that is not over with an error.
    @usableFromInline
    enum FirstTry<Output: Sendable> {
        /// The task accepted the dependency.
        case output(Output)
        /// The call has to go the long way, which begins here.
        case unfinished(PendingCall)
    }

    /// Runs `task` with the dependency if there is no need to wait, to ask, or to note anything before.
    ///
    /// Specialised, but not inlined: a caller that has to wait after all does not keep what this one needed.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func firstTry<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> FirstTry<Output> {
        let now = self.coarseClock.now ?? self.time.now
        guard let ready = self.ready(at: now) else { return .unfinished(self.begun(nil)) }
        do {
            if case .output(let output) = try await task(ready.value) {
                if ready.isUnproven { self.accepted(ready.epoch) }
                return .output(output)
            }
        } catch {
            return .unfinished(try self.reported(error, of: ready, since: now))
        }
        return .unfinished(try self.reported(nil, of: ready, since: now))
    }

    /// The dependency, if a call that begins now can use it.
    @inlinable
    func ready(at now: Moment) -> ReadyDependency<Dependency>? {
        guard !Task.isCancelled else { return nil }
        // First the parent's epoch: a value that belongs to it cannot be older than this look.
        let parentEpoch = self.parent?.forChildren ?? 0
        let ready = self.engineState.withLock { $0.state.ready }
        guard let ready, ready.parentEpoch >= parentEpoch, now < ready.until else { return nil }
        return ready
    }

    /// Notes that a task accepted the value of `epoch`: refusals of earlier ones do not count any more.
    @usableFromInline
    func accepted(_ epoch: UInt64) { self.engine.withState { $0.accepted(epoch) } }

    /// The call whose task has refused the dependency of its first try.
    ///
    /// - Throws: `error`, if it is none about the dependency.
    @usableFromInline
    func reported(_ error: (any Error)?, of ready: ReadyDependency<Dependency>, since start: Moment) throws
        -> PendingCall
    {
        var call = Machine.Call(session: ready.session, startedAt: start)
        call.badEpoch = ready.epoch
        call.lastError = try error.map { try self.report($0, call) }
        return PendingCall(self, call)
    }
}

@available(*, unavailable)
extension RunnerCore.FirstTry: Sendable {}
