import MuxKit

/// A test double: a clock whose time moves only when the test says so.
///
/// ```swift
/// let clock = VirtualClock()
/// async let done: Void = clock.sleep(for: .seconds(5))
/// await clock.waitForSleepers(1)
/// clock.advance(by: .seconds(5))
/// try await done
/// ```
///
/// **Concurrent calls.** Sleepers are resumed in the order of their deadlines, those of one deadline in the order of
/// their arrival. All of them see the time that the clock was moved to.
///
/// **Cancellation.** A cancelled sleeper leaves at once with `CancellationError`, however far its deadline is.
public final class VirtualClock: Clock, Sendable {
    /// A point on a virtual clock's time line, in whole nanoseconds; its arithmetic saturates.
    public struct Instant: InstantProtocol, Sendable, Hashable {
        private var moment: Moment

        /// The point that lies `offset` after the start of the clock.
        public init(offset: Duration = .zero) {
            self.moment = Moment(nanoseconds: offset.saturatedNanoseconds)
        }

        /// How long after the start of the clock this is.
        public var offset: Duration { .nanoseconds(self.moment.nanoseconds) }

        /// The point `duration` later, held at the ends of the time line.
        public func advanced(by duration: Duration) -> Instant {
            var result = self
            result.moment = self.moment.advanced(by: duration)
            return result
        }

        /// How much later `other` is.
        public func duration(to other: Instant) -> Duration { other.moment.duration(since: self.moment) }

        /// Whether `a` is before `b`.
        public static func < (a: Instant, b: Instant) -> Bool { a.moment < b.moment }
    }

    private struct Sleeper: Sendable {
        var id: UInt64
        var deadline: Instant
        var continuation: CheckedContinuation<Void, any Error>
    }

    private struct State: Sendable {
        var now = Instant()
        var nextID: UInt64 = 0
        /// In the order in which they are to be resumed.
        var sleepers: [Sleeper] = []

        mutating func takeDue() -> [Sleeper] {
            let now = self.now
            let due = self.sleepers.prefix { $0.deadline <= now }
            self.sleepers.removeFirst(due.count)
            return Array(due)
        }
    }

    private let state = Guarded(State())
    private let sleeping = Tally()

    /// A clock that stands at its start.
    public init() {}

    /// The time that the clock was last moved to.
    public var now: Instant { self.state.withLock { $0.now } }

    /// One nanosecond.
    public var minimumResolution: Duration { .nanoseconds(1) }

    /// How many calls are asleep.
    public var sleeperCount: Int { self.state.withLock { $0.sleepers.count } }

    /// Suspends until the clock has been moved to `deadline` or beyond.
    ///
    /// - Throws: `CancellationError` if the task is cancelled first.
    public func sleep(until deadline: Instant, tolerance: Duration? = nil) async throws {
        let id = self.state.withLock { state -> UInt64 in
            state.nextID += 1
            return state.nextID
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let parked = self.state.withLock { state -> Bool in
                    guard deadline > state.now else { return false }
                    let index = state.sleepers.firstIndex { $0.deadline > deadline } ?? state.sleepers.endIndex
                    state.sleepers.insert(Sleeper(id: id, deadline: deadline, continuation: continuation), at: index)
                    return true
                }
                guard parked else {
                    return continuation.resume(with: Task.isCancelled ? .failure(CancellationError()) : .success(()))
                }
                self.sleeping.add()
                if Task.isCancelled { self.leave(id) }
            }
        } onCancel: {
            self.leave(id)
        }
    }

    /// Moves the time forward and resumes the calls whose deadline is reached; a negative duration moves nothing.
    public func advance(by duration: Duration) {
        let due = self.state.withLock { state -> [Sleeper] in
            state.now = max(state.now, state.now.advanced(by: duration))
            return state.takeDue()
        }
        self.wake(due)
    }

    /// Moves the time to the earliest deadline and resumes the calls that waited for it.
    ///
    /// - Returns: By how much the time moved; `nil` if nobody sleeps.
    @discardableResult
    public func advanceToNextDeadline() -> Duration? {
        let (step, due) = self.state.withLock { state -> (Duration?, [Sleeper]) in
            guard let deadline = state.sleepers.first?.deadline else { return (nil, []) }
            let step = state.now.duration(to: deadline)
            state.now = deadline
            return (step, state.takeDue())
        }
        self.wake(due)
        return step
    }

    /// Suspends until at least `count` calls are asleep; returns early if the task is cancelled.
    public func waitForSleepers(_ count: Int = 1) async {
        await self.sleeping.reached(count)
    }

    private func wake(_ due: [Sleeper]) {
        self.sleeping.add(-due.count)
        for sleeper in due { sleeper.continuation.resume() }
    }

    private func leave(_ id: UInt64) {
        let sleeper = self.state.withLock { state -> Sleeper? in
            guard let index = state.sleepers.firstIndex(where: { $0.id == id }) else { return nil }
            return state.sleepers.remove(at: index)
        }
        guard let sleeper else { return }
        self.sleeping.add(-1)
        sleeper.continuation.resume(throwing: CancellationError())
    }
}
