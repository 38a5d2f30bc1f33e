import MuxKit

/// A clock that moves only by calls of the test.
///
/// ```swift
/// let clock = VirtualClock()
/// async let done: Void = clock.sleep(for: .seconds(5))
/// await clock.waitForSleepers(1)
/// clock.advance(by: .seconds(5))
/// try await done
/// ```
///
/// **Concurrent calls.** Sleepers are resumed in the order of their deadlines, and for equal deadlines in the
/// order of their calls. All resumed sleepers see the new time.
///
/// **Cancellation.** A cancelled sleeper throws `CancellationError` at once.
///
/// - Complexity: O(log *n*) for each of *n* sleepers.
public final class VirtualClock: Clock, Sendable {
    /// A point in a virtual clock's time, in whole nanoseconds; its arithmetic saturates.
    public struct Instant: InstantProtocol, Sendable, Hashable {
        fileprivate var moment: Moment

        /// The point `offset` after the start of the clock.
        public init(offset: Duration = .zero) {
            self.moment = Moment(nanoseconds: offset.saturatedNanoseconds)
        }

        /// The time since the start of the clock.
        public var offset: Duration { .nanoseconds(self.moment.nanoseconds) }

        /// The point `duration` later, clamped to the representable range.
        public func advanced(by duration: Duration) -> Instant {
            var result = self
            result.moment = self.moment.advanced(by: duration)
            return result
        }

        /// The time from this point to `other`.
        public func duration(to other: Instant) -> Duration {
            other.moment.duration(since: self.moment)
        }

        /// Whether `a` is before `b`.
        public static func < (a: Instant, b: Instant) -> Bool { a.moment < b.moment }
    }

    private typealias Sleeper = CheckedContinuation<Void, any Error>

    private struct State: Sendable {
        var now = Instant()
        var nextID: UInt64 = 0
        var sleepers: [UInt64: Sleeper] = [:]
        /// The deadlines of the sleepers, and of some cancelled sleepers.
        var deadlines = DeadlineHeap()

        /// Removes deadlines of cancelled sleepers; the first deadline is then the deadline of a sleeper.
        mutating func compact() {
            let sleepers = self.sleepers
            self.deadlines.compact(ownerCount: sleepers.count) { sleepers[$0] != nil }
        }

        mutating func takeDue() -> [Sleeper] {
            var due: [Sleeper] = []
            while let first = self.deadlines.first, first <= self.now.moment.nanoseconds {
                if let sleeper = self.sleepers.removeValue(forKey: self.deadlines.removeFirst()) { due.append(sleeper) }
            }
            return due
        }
    }

    private let state = Locked(State())
    private let sleeping = Tally()

    /// Makes a clock at offset zero.
    public init() { Inspection.inspector?.note(self) }

    /// The current time.
    public var now: Instant { self.state.withLock { $0.now } }

    /// One nanosecond.
    public var minimumResolution: Duration { .nanoseconds(1) }

    /// The number of sleeping calls.
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
                    state.sleepers[id] = continuation
                    state.deadlines.insert(deadline.moment.nanoseconds, id)
                    return true
                }
                guard parked else {
                    return continuation.resume(
                        with: Task.isCancelled ? .failure(CancellationError()) : .success(())
                    )
                }
                self.sleeping.add()
                if Task.isCancelled { self.leave(id) }
            }
        } onCancel: {
            self.leave(id)
        }
    }

    /// Moves the time forward and resumes all sleepers whose deadline is reached; ignores a negative
    /// duration.
    public func advance(by duration: Duration) {
        let due = self.state.withLock { state -> [Sleeper] in
            state.now = max(state.now, state.now.advanced(by: duration))
            return state.takeDue()
        }
        self.wake(due)
    }

    /// Moves the time to the earliest deadline and resumes its sleepers.
    ///
    /// - Returns: The duration of the move; `nil` without sleepers.
    @discardableResult
    public func advanceToNextDeadline() -> Duration? {
        let (step, due) = self.state.withLock { state -> (Duration?, [Sleeper]) in
            state.compact()
            guard let first = state.deadlines.first else { return (nil, []) }
            let before = state.now
            state.now.moment = Moment(nanoseconds: first)
            let step = before.duration(to: state.now)
            return (step, state.takeDue())
        }
        self.wake(due)
        return step
    }

    /// Suspends until at least `count` calls sleep; returns early if the task is cancelled.
    public func waitForSleepers(_ count: Int = 1) async {
        await self.sleeping.reached(count)
    }

    private func wake(_ due: [Sleeper]) {
        self.sleeping.add(-due.count)
        for sleeper in due { sleeper.resume() }
    }

    private func leave(_ id: UInt64) {
        let sleeper = self.state.withLock { state in
            defer { state.compact() }
            return state.sleepers.removeValue(forKey: id)
        }
        guard let sleeper else { return }
        self.sleeping.add(-1)
        sleeper.resume(throwing: CancellationError())
    }
}

extension VirtualClock: Inspectable {
    package func faults() async -> [String] { self.sleeperCount > 0 ? ["\(self.sleeperCount) calls still sleep"] : [] }
}
