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
/// order of their arrival. All resumed sleepers see the new time.
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
        var deadlines = DeadlineQueue()

        /// The earliest deadline of a sleeper.
        mutating func firstDeadline() -> DeadlineQueue.Element? {
            while let first = self.deadlines.first, self.sleepers[first.id] == nil {
                self.deadlines.removeFirst()
            }
            return self.deadlines.first
        }

        mutating func takeDue() -> [Sleeper] {
            var due: [Sleeper] = []
            while let first = self.firstDeadline(), first.nanoseconds <= self.now.moment.nanoseconds {
                if let sleeper = self.sleepers.removeValue(forKey: first.id) { due.append(sleeper) }
            }
            return due
        }

        mutating func takeCancelled(_ id: UInt64) -> Sleeper? {
            guard let sleeper = self.sleepers.removeValue(forKey: id) else { return nil }
            if self.deadlines.count > 2 * self.sleepers.count + 64 {
                let sleepers = self.sleepers
                self.deadlines.keep { sleepers[$0.id] != nil }
            }
            return sleeper
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
                    state.deadlines.insert(.init(nanoseconds: deadline.moment.nanoseconds, id: id))
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

    /// Moves the time forward and resumes all sleepers whose deadline has passed; ignores a negative
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
            guard let first = state.firstDeadline() else { return (nil, []) }
            let before = state.now
            state.now.moment = Moment(nanoseconds: first.nanoseconds)
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
        guard let sleeper = self.state.withLock({ $0.takeCancelled(id) }) else { return }
        self.sleeping.add(-1)
        sleeper.resume(throwing: CancellationError())
    }
}

extension VirtualClock: Inspectable {
    package func faults() async -> [String] { self.sleeperCount > 0 ? ["\(self.sleeperCount) timers are left"] : [] }
}

/// A binary heap: earliest deadline first, equal deadlines in the order of arrival.
private struct DeadlineQueue: Sendable {
    struct Element: Sendable {
        var nanoseconds: Int64
        var id: UInt64

        func precedes(_ other: Element) -> Bool {
            self.nanoseconds == other.nanoseconds
                ? self.id < other.id : self.nanoseconds < other.nanoseconds
        }
    }

    private var heap: [Element] = []

    var count: Int { self.heap.count }

    var first: Element? { self.heap.first }

    /// - Complexity: O(log *n*).
    mutating func insert(_ element: Element) {
        var index = self.heap.count
        self.heap.append(element)
        while index > 0 {
            let parent = (index - 1) / 2
            guard element.precedes(self.heap[parent]) else { break }
            self.heap.swapAt(index, parent)
            index = parent
        }
    }

    /// - Complexity: O(log *n*).
    mutating func removeFirst() {
        guard let last = self.heap.popLast(), !self.heap.isEmpty else { return }
        self.heap[0] = last
        var index = 0
        while true {
            var child = 2 * index + 1
            guard child < self.heap.count else { return }
            if child + 1 < self.heap.count, self.heap[child + 1].precedes(self.heap[child]) { child += 1 }
            guard self.heap[child].precedes(last) else { return }
            self.heap.swapAt(index, child)
            index = child
        }
    }

    /// - Complexity: O(*n* log *n*).
    mutating func keep(_ isKept: (Element) -> Bool) {
        // A sorted array is a heap.
        self.heap = self.heap.filter(isKept).sorted { $0.precedes($1) }
    }
}
