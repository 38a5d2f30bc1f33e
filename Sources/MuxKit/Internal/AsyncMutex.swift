/// Lets asynchronous operations run one after another, in the order in which they arrived.
///
/// An actor does not: another call enters it at every `await`. Waiting for one's turn is not cancellable; what is put in
/// the lane is done.
package final class AsyncMutex: Sendable {
    private struct Lane: Sendable {
        var isBusy = false
        /// Raises the priority of the operation that has the lane, if it can be raised.
        var raise: (@Sendable (TaskPriority) -> Void)?
        /// The greatest priority of those that wait, or have waited since the lane was free.
        var wanted: TaskPriority?
        var waiting: [CheckedContinuation<Void, Never>] = []
        var next = 0
    }

    private let lane = Locked(Lane())

    package init() {}

    /// Runs `operation` when all that came before have ended.
    package nonisolated(nonsending) func run<Success>(
        _ operation: () async throws -> Success
    ) async rethrows -> Success {
        await self.enter()
        defer { self.leave() }
        return try await operation()
    }

    private nonisolated(nonsending) func enter() async {
        let priority = Task.currentPriority
        await withCheckedContinuation { continuation in
            let (isFree, raise) = self.lane.withLock { lane in
                guard lane.isBusy else {
                    lane.isBusy = true
                    return (true, nil as (@Sendable (TaskPriority) -> Void)?)
                }
                lane.wanted = max(lane.wanted ?? priority, priority)
                lane.waiting.append(continuation)
                return (false, lane.raise)
            }
            if isFree { continuation.resume() } else { raise?(priority) }
        }
    }

    /// The operation that has the lane can be raised by `raise` to the priority of those that wait, now and later.
    package func isOccupied(_ raise: @escaping @Sendable (TaskPriority) -> Void) {
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

    /// How many places there are, those of operations that had their turn included.
    package var placeCount: Int { self.lane.withLock { $0.waiting.count } }
}

/// Runs asynchronous operations one after another, as ``AsyncMutex`` does, and knows which task is inside one.
///
/// An operation may call code that calls the lane's owner, such as a store of the user's own. If that call waited for its
/// turn, it would wait for itself. It runs at once instead, inside the operation that it is part of, one level deep; deeper
/// ones are refused, so that no recursion is endless. Refused are also operations that would wait for one another: of two
/// lanes, each inside an operation of the other.
package final class ReentrantAsyncMutex: Sendable {
    /// What the present task can do.
    package enum Access: Sendable {
        /// It is outside of the lane, and waits for its turn.
        case queued
        /// It is inside an operation that admits another one inside it.
        case nested
        /// It is inside an operation that admits none.
        case refused
    }

    private final class Turn: Sendable {
        /// The turn of another lane that this one is inside of.
        let outer: Turn?
        let lane: ObjectIdentifier
        let admitsNested: Bool
        /// The lanes that something inside this turn waits for.
        let awaited = Locked<[ReentrantAsyncMutex]>([])
        private let state = Locked(State())

        private struct State {
            /// Whether the operation has ended: no other one can begin inside it.
            var isOver = false
            /// How many operations run inside.
            var nestedCount = 0
            /// Told when the last of them has ended.
            var ended: FirstAnswer<Void>?
        }

        init(in lane: ReentrantAsyncMutex, admitsNested: Bool) {
            self.outer = ReentrantAsyncMutex.liveTurn
            self.lane = ObjectIdentifier(lane)
            self.admitsNested = admitsNested
        }

        var isOver: Bool { self.state.withLock { $0.isOver } }

        /// An operation begins inside this one.
        ///
        /// - Returns: Whether it may: `false` if this one is over. If so, ``leave()`` has to follow.
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

        /// Ends the turn, and waits for what still runs inside, such as a task that was not awaited.
        nonisolated(nonsending) func end() async {
            let ended = self.state.withLock { state -> FirstAnswer<Void>? in
                state.isOver = true
                if state.nestedCount > 0 { state.ended = FirstAnswer() }
                return state.ended
            }
            await ended?.wait()
        }
    }

    /// The innermost turn that the present task, or the one that started it, is inside of.
    @TaskLocal private static var turn: Turn?

    /// Taken by those inside a turn that are about to wait, so that of two that would wait for each other one notices.
    private static let waiting = Locked(())

    /// The innermost one that has not ended: a task may outlive the operation that it was started in.
    private static var liveTurn: Turn? { self.liveTurns.first }

    /// Those that have not ended, from the innermost to the outermost.
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
    /// The turn of the operation that has the lane.
    private let holder = Locked<Turn?>(nil)
    private let refusal: any Error

    /// A lane that is free.
    ///
    /// - Parameter refusal: What an operation gets that is refused.
    package init(refusal: any Error) { self.refusal = refusal }

    /// What the present task can do.
    package var access: Access {
        self.presentTurn.map { $0.admitsNested ? .nested : .refused } ?? .queued
    }

    /// Runs `operation` when all that came before have ended, or at once if the present task is inside of one.
    ///
    /// - Parameters:
    ///   - admitsNested: Whether an operation may run inside this one.
    ///   - operation: What is done.
    /// - Returns: What `operation` returned.
    /// - Throws: The refusal if the present task is inside an operation that admits none, or that would have to wait for the
    ///   caller; what `operation` throws.
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

    /// The turn of this lane that the present task is inside of.
    private var presentTurn: Turn? { Self.liveTurns.first { $0.lane == ObjectIdentifier(self) } }

    /// Does what ``run(admitsNested:_:)`` does, to its end, whatever becomes of the caller's task.
    ///
    /// A task that waits for a turn raises the priority of the running operation to its own.
    package nonisolated(nonsending) func finish<Success: Sendable>(
        admitsNested: Bool = true,
        _ operation: @escaping @Sendable @concurrent () async -> Success
    ) async throws -> Success {
        try await self.run(admitsNested: admitsNested) {
            await finishing(operation) { task in self.lane.isOccupied { task.raisePriority(to: $0) } }
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

    /// - Returns: Whether it may wait: `false` if the holder of the lane waits for one of `turns`, directly or through others.
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

    /// Runs `body`, which starts tasks that nothing inside an operation waits for: they wait for their own turns.
    package static func outside<Success>(_ body: () -> Success) -> Success {
        guard self.turn != nil else { return body() }
        return self.$turn.withValue(nil, operation: body)
    }
}
