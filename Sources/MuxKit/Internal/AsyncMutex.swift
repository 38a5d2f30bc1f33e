/// Runs asynchronous operations serially, in order of arrival.
///
/// An actor does not serialise asynchronous operations: other calls enter the actor at every `await`. A wait
/// is not cancellable: every operation runs.
package final class AsyncMutex: Sendable {
    private struct State: Sendable {
        var isBusy = false
        /// Raises the priority of the running operation, if possible.
        var raise: (@Sendable (TaskPriority) -> Void)?
        /// The highest priority of all waiting operations since the mutex was last free.
        var wanted: TaskPriority?
        var waiting = FIFOQueue<CheckedContinuation<Void, Never>>()
    }

    private let state = Locked(State())

    package init() {}

    /// Runs `operation` after the end of all earlier operations.
    package nonisolated(nonsending) func run<Success>(
        _ operation: () async throws -> Success
    ) async rethrows -> Success {
        await self.enter()
        defer { self.leave() }
        return try await operation()
    }

    private nonisolated(nonsending) func enter() async {
        await withEscalationHandler {
            self.raise(to: $0)
        } _: {
            await withCheckedContinuation { continuation in
                let isFree = self.state.withLock { state in
                    guard state.isBusy else {
                        state.isBusy = true
                        return true
                    }
                    state.waiting.append(continuation)
                    return false
                }
                if isFree { continuation.resume() } else { self.raise(to: Task.currentPriority) }
            }
        }
    }

    /// Escalates the running operation, and each later operation until the mutex is free, if the operation
    /// calls ``escalate(by:)``.
    private func raise(to priority: TaskPriority) {
        let raise = self.state.withLock { state -> (@Sendable (TaskPriority) -> Void)? in
            // Without a waiter, the caller's own operation has begun, and needs no escalation by this mutex.
            guard !state.waiting.isEmpty else { return nil }
            state.wanted = max(state.wanted ?? priority, priority)
            return state.raise
        }
        raise?(priority)
    }

    /// Escalates the running operation by `raise`, now and later, to the highest priority of the waiters;
    /// called inside the operation.
    package func escalate(by raise: @escaping @Sendable (TaskPriority) -> Void) {
        let wanted = self.state.withLock { state in
            state.raise = raise
            return state.wanted
        }
        if let wanted { raise(wanted) }
    }

    private func leave() {
        let next = self.state.withLock { state -> CheckedContinuation<Void, Never>? in
            guard let next = state.waiting.popFirst() else {
                state = State()
                return nil
            }
            state.raise = nil
            return next
        }
        next?.resume()
    }

    /// See ``FIFOQueue/placeCount``.
    package var placeCount: Int { self.state.withLock { $0.waiting.placeCount } }
}

/// An ``AsyncMutex`` that detects calls from inside an operation.
///
/// An operation may call other code, such as a user's store, and the other code may call the mutex's owner. A
/// queued nested call would wait for the enclosing operation, which waits for the nested call. Instead a
/// nested call runs at once, if the operation admits nested operations, or is refused. Deeper calls are
/// refused, to bound recursion. A call is also refused if operations of several mutexes would wait for each
/// other.
package final class ReentrantAsyncMutex: Sendable {
    /// One execution of an operation.
    private final class Turn: Sendable {
        /// The enclosing turn, of this or another mutex.
        let outer: Turn?
        let mutex: ObjectIdentifier
        let admitsNested: Bool
        /// The mutexes that tasks inside this turn wait for.
        let awaited = Locked<[ReentrantAsyncMutex]>([])
        private let state = Locked(State())

        private struct State {
            /// Whether the operation has ended, so no nested operation can begin.
            var isOver = false
            /// The number of running nested operations.
            var nestedCount = 0
            /// Given a value at the end of the last nested operation; `nil` if the turn does not wait for
            /// nested operations.
            var ended: FirstValue<Void>?
        }

        init(in mutex: ReentrantAsyncMutex, admitsNested: Bool) {
            self.outer = ReentrantAsyncMutex.liveTurns.first
            self.mutex = ObjectIdentifier(mutex)
            self.admitsNested = admitsNested
        }

        var isOver: Bool { self.state.withLock { $0.isOver } }

        /// Begins a nested operation.
        ///
        /// - Returns: `false` after the end of this turn; otherwise the caller must call ``leave()``.
        func enter() -> Bool {
            self.state.withLock { state in
                if !state.isOver { state.nestedCount += 1 }
                return !state.isOver
            }
        }

        func leave() {
            let ended = self.state.withLock { state in
                state.nestedCount -= 1
                return state.nestedCount == 0 ? state.ended : nil
            }
            ended?.give(())
        }

        /// Ends the turn, and waits for nested operations, such as operations of a task that was not awaited.
        nonisolated(nonsending) func end() async {
            let ended = self.state.withLock { state -> FirstValue<Void>? in
                state.isOver = true
                if state.nestedCount > 0 { state.ended = FirstValue() }
                return state.ended
            }
            await ended?.wait()
        }
    }

    /// The innermost turn of the current task, or of the task that started the current task; may have ended.
    @TaskLocal private static var turn: Turn?

    /// Serialises the checks for cycles of waits: of two tasks that would wait for each other, the second is
    /// refused.
    private static let cycleCheckLock = Locked(())

    /// The turns that have not ended, innermost first: a task may outlive the operation that started the
    /// task.
    private static var liveTurns: [Turn] {
        var turns: [Turn] = []
        var turn = self.turn
        while let present = turn {
            if !present.isOver { turns.append(present) }
            turn = present.outer
        }
        return turns
    }

    private let mutex = AsyncMutex()
    /// The turn of the running operation, not of a nested operation.
    private let holder = Locked<Turn?>(nil)
    private let refusal: any Error

    /// Makes a free mutex.
    ///
    /// - Parameter refusal: The error of refused operations.
    package init(refusal: any Error) { self.refusal = refusal }

    /// Whether the current task is outside all operations of this mutex.
    package var isOutside: Bool { self.presentTurn == nil }

    /// Runs `operation` after the end of all earlier operations, or at once if the current task is inside an
    /// operation that admits nested operations.
    ///
    /// - Parameters:
    ///   - admitsNested: Whether a nested operation may run during `operation`.
    ///   - operation: The operation.
    /// - Returns: The result of `operation`.
    /// - Throws: The refusal if the current task is inside an operation that does not admit nested
    ///   operations, or if the wait would deadlock; the error of `operation`.
    package nonisolated(nonsending) func run<Success>(
        admitsNested: Bool = true,
        _ operation: () async throws -> Success
    ) async throws -> Success {
        // If the turn ends before `enter()`, the current task is outside the mutex, and waits in the queue.
        if let outer = self.presentTurn, outer.enter() {
            defer { outer.leave() }
            guard outer.admitsNested else { throw self.refusal }
            return try await self.perform(Turn(in: self, admitsNested: false), operation)
        }
        let outer = Self.liveTurns
        guard self.beginsToWait(inside: outer) else { throw self.refusal }
        let turn = Turn(in: self, admitsNested: admitsNested)
        return try await self.mutex.run {
            self.endsWaiting(inside: outer)
            self.holder.withLock { $0 = turn }
            defer { self.holder.withLock { $0 = nil } }
            return try await self.perform(turn, operation)
        }
    }

    /// The turn of this mutex that the current task is inside; `nil` outside.
    private var presentTurn: Turn? { Self.liveTurns.first { $0.mutex == ObjectIdentifier(self) } }

    /// Runs `operation` as ``run(admitsNested:_:)`` does, and to the end even if the caller is cancelled.
    ///
    /// A waiting task escalates the running operation to the task's priority.
    package nonisolated(nonsending) func finish<Success: Sendable>(
        admitsNested: Bool = true,
        _ operation: @escaping @Sendable @concurrent () async -> Success
    ) async throws -> Success {
        try await self.run(admitsNested: admitsNested) {
            await finishing(operation) { task in self.mutex.escalate { task.raisePriority(to: $0) } }
        }
    }

    private nonisolated(nonsending) func perform<Success>(
        _ turn: Turn,
        _ operation: () async throws -> Success
    ) async throws -> Success {
        let result = await Result<_, any Error> { try await Self.$turn.withValue(turn) { try await operation() } }
        await turn.end()
        return try result.get()
    }

    // MARK: - Waiting inside turns of other mutexes

    /// Records that tasks inside `turns` wait for this mutex, unless the wait would deadlock.
    ///
    /// - Returns: `false` if the holder of this mutex waits for one of `turns`, directly or through other
    ///   mutexes.
    private func beginsToWait(inside turns: [Turn]) -> Bool {
        guard !turns.isEmpty else { return true }
        return Self.cycleCheckLock.withLock { _ in
            var mutexes = [self]
            var seen: Set<ObjectIdentifier> = []
            while let mutex = mutexes.popLast() {
                guard seen.insert(ObjectIdentifier(mutex)).inserted, let holder = mutex.holder.withLock({ $0 }) else {
                    continue
                }
                if turns.contains(where: { $0 === holder }) { return false }
                mutexes += holder.awaited.withLock { $0 }
            }
            for turn in turns { turn.awaited.withLock { $0.append(self) } }
            return true
        }
    }

    private func endsWaiting(inside turns: [Turn]) {
        for turn in turns {
            turn.awaited.withLock { awaited in
                if let place = awaited.firstIndex(where: { $0 === self }) { awaited.remove(at: place) }
            }
        }
    }

    /// Runs `body` outside the current turn: tasks that `body` starts are not inside an operation.
    package static func outside<Success>(_ body: () -> Success) -> Success {
        guard self.turn != nil else { return body() }
        return self.$turn.withValue(nil, operation: body)
    }
}
