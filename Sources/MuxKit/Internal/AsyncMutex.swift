/// Runs asynchronous operations one after another, in order of arrival.
///
/// An actor does not: other calls enter it at every `await`. Waiting is not cancellable: every operation runs.
package final class AsyncMutex: Sendable {
    private struct Lane: Sendable {
        var isBusy = false
        /// Raises the priority of the running operation, if possible.
        var raise: (@Sendable (TaskPriority) -> Void)?
        /// The highest priority of the operations that wait, or have waited since the mutex was free.
        var wanted: TaskPriority?
        var waiting: [CheckedContinuation<Void, Never>] = []
        var next = 0
    }

    private let lane = Locked(Lane())

    package init() {}

    /// Runs `operation` after all earlier ones have ended.
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
                let isFree = self.lane.withLock { lane in
                    guard lane.isBusy else {
                        lane.isBusy = true
                        return true
                    }
                    lane.waiting.append(continuation)
                    return false
                }
                if isFree { continuation.resume() } else { self.raise(to: Task.currentPriority) }
            }
        }
    }

    /// Raises the running operation, and those that run before the mutex is free.
    private func raise(to priority: TaskPriority) {
        let raise = self.lane.withLock { lane -> (@Sendable (TaskPriority) -> Void)? in
            guard !lane.waiting.isEmpty else { return nil }
            lane.wanted = max(lane.wanted ?? priority, priority)
            return lane.raise
        }
        raise?(priority)
    }

    /// Escalates the running operation to its waiters' priority by `raise`, now and for each later waiter.
    package func escalate(by raise: @escaping @Sendable (TaskPriority) -> Void) {
        let wanted = self.lane.withLock { lane in
            lane.raise = raise
            return lane.wanted
        }
        if let wanted { raise(wanted) }
    }

    private func leave() {
        let next = self.lane.withLock { lane -> CheckedContinuation<Void, Never>? in
            guard lane.next < lane.waiting.count else {
                lane = Lane()
                return nil
            }
            lane.raise = nil
            let next = lane.waiting[lane.next]
            lane.next += 1
            if lane.next > 32, lane.next * 2 > lane.waiting.count {
                lane.waiting.removeFirst(lane.next)
                lane.next = 0
            }
            return next
        }
        next?.resume()
    }

    /// The length of the wait queue, including operations that have had their turn.
    package var placeCount: Int { self.lane.withLock { $0.waiting.count } }
}

/// An ``AsyncMutex`` that knows which task is inside an operation.
///
/// An operation may call code that calls the owner of the mutex, such as a user's store. Waiting for its turn, that
/// call would wait for itself. Instead it runs at once, nested in the operation, one level deep; deeper calls are
/// refused, which bounds recursion. Operations of two mutexes that would wait for each other are refused as well.
package final class ReentrantAsyncMutex: Sendable {
    /// How the current task can enter the mutex.
    package enum Access: Sendable {
        /// Outside the mutex: it waits for its turn.
        case queued
        /// Inside an operation that admits a nested one.
        case nested
        /// Inside an operation that admits none.
        case refused
    }

    private final class Turn: Sendable {
        /// The enclosing turn, of this or another mutex.
        let outer: Turn?
        let lane: ObjectIdentifier
        let admitsNested: Bool
        /// The mutexes that tasks inside this turn wait for.
        let awaited = Locked<[ReentrantAsyncMutex]>([])
        private let state = Locked(State())

        private struct State {
            /// Whether the operation has ended: no nested one can begin.
            var isOver = false
            /// The number of nested operations that run.
            var nestedCount = 0
            /// Receives an answer when the last of them has ended.
            var ended: FirstAnswer<Void>?
        }

        init(in lane: ReentrantAsyncMutex, admitsNested: Bool) {
            self.outer = ReentrantAsyncMutex.liveTurn
            self.lane = ObjectIdentifier(lane)
            self.admitsNested = admitsNested
        }

        var isOver: Bool { self.state.withLock { $0.isOver } }

        /// Begins a nested operation.
        ///
        /// - Returns: `false` if this turn is over; otherwise the caller must call ``leave()``.
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

        /// Ends the turn, and waits for nested operations, such as those of a task that was not awaited.
        nonisolated(nonsending) func end() async {
            let ended = self.state.withLock { state -> FirstAnswer<Void>? in
                state.isOver = true
                if state.nestedCount > 0 { state.ended = FirstAnswer() }
                return state.ended
            }
            await ended?.wait()
        }
    }

    /// The innermost turn of the current task, or of the task that started it.
    @TaskLocal private static var turn: Turn?

    /// Serializes the cycle checks of tasks inside turns, so that of two that would wait for each other one is refused.
    private static let waiting = Locked(())

    /// The innermost turn that has not ended: a task may outlive the operation in which it was started.
    private static var liveTurn: Turn? { self.liveTurns.first }

    /// The turns that have not ended, innermost first.
    private static var liveTurns: [Turn] {
        var turns: [Turn] = []
        var turn = self.turn
        while let present = turn {
            if !present.isOver { turns.append(present) }
            turn = present.outer
        }
        return turns
    }

    private let lane = AsyncMutex()
    /// The turn of the running operation.
    private let holder = Locked<Turn?>(nil)
    private let refusal: any Error

    /// Makes a free mutex.
    ///
    /// - Parameter refusal: The error of refused operations.
    package init(refusal: any Error) { self.refusal = refusal }

    /// How the current task can enter the mutex.
    package var access: Access {
        self.presentTurn.map { $0.admitsNested ? .nested : .refused } ?? .queued
    }

    /// Runs `operation` after all earlier ones have ended, or at once if the current task is inside one.
    ///
    /// - Parameters:
    ///   - admitsNested: Whether a nested operation may run inside this one.
    ///   - operation: The operation.
    /// - Returns: The result of `operation`.
    /// - Throws: The refusal if the current task is inside an operation that admits none, or waiting would deadlock;
    ///   the error of `operation`.
    package nonisolated(nonsending) func run<Success>(
        admitsNested: Bool = true,
        _ operation: () async throws -> Success
    ) async throws -> Success {
        if let outer = self.presentTurn, outer.enter() {
            defer { outer.leave() }
            guard outer.admitsNested else { throw self.refusal }
            return try await self.perform(Turn(in: self, admitsNested: false), operation)
        }
        let outer = Self.liveTurns
        guard self.beginsToWait(inside: outer) else { throw self.refusal }
        let turn = Turn(in: self, admitsNested: admitsNested)
        return try await self.lane.run {
            self.endsWaiting(inside: outer)
            self.holder.withLock { $0 = turn }
            defer { self.holder.withLock { $0 = nil } }
            return try await self.perform(turn, operation)
        }
    }

    /// The turn of this mutex that the current task is inside.
    private var presentTurn: Turn? { Self.liveTurns.first { $0.lane == ObjectIdentifier(self) } }

    /// Runs `operation` as ``run(admitsNested:_:)`` does, and to its end even if the caller is cancelled.
    ///
    /// A task that waits for its turn raises the priority of the running operation to its own.
    package nonisolated(nonsending) func finish<Success: Sendable>(
        admitsNested: Bool = true,
        _ operation: @escaping @Sendable @concurrent () async -> Success
    ) async throws -> Success {
        try await self.run(admitsNested: admitsNested) {
            await finishing(operation) { task in self.lane.escalate { task.raisePriority(to: $0) } }
        }
    }

    private nonisolated(nonsending) func perform<Success>(
        _ turn: Turn,
        _ operation: () async throws -> Success
    ) async throws -> Success {
        let result: Result<Success, any Error>
        do {
            result = .success(try await Self.$turn.withValue(turn) { try await operation() })
        } catch {
            result = .failure(error)
        }
        await turn.end()
        return try result.get()
    }

    // MARK: - Waiting inside turns of other lanes

    /// - Returns: `false` if the holder of this mutex waits for one of `turns`, directly or through others.
    private func beginsToWait(inside turns: [Turn]) -> Bool {
        guard !turns.isEmpty else { return true }
        return Self.waiting.withLock { _ in
            var lanes = [self]
            var seen: Set<ObjectIdentifier> = []
            while let lane = lanes.popLast() {
                guard seen.insert(ObjectIdentifier(lane)).inserted, let holder = lane.holder.withLock({ $0 }) else {
                    continue
                }
                if turns.contains(where: { $0 === holder }) { return false }
                lanes += holder.awaited.withLock { $0 }
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

    /// Runs `body`, whose tasks do not count as inside the current turn: no operation waits for them.
    package static func outside<Success>(_ body: () -> Success) -> Success {
        guard self.turn != nil else { return body() }
        return self.$turn.withValue(nil, operation: body)
    }
}
