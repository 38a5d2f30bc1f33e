/// Suspends tasks and performs actions by the system's continuous clock; a cancelled sleep ends at once.
///
/// A cancelled `Task.sleep` leaves a job of 100 to 300 bytes until the deadline (Swift 6.3.1): a server with
/// a limit of an hour for each request would keep the jobs of an hour of requests. Here a sleep is an entry
/// in a heap. A *driver* is a task that sleeps until the deadline that was the earliest when the driver
/// started. A driver is started only if no driver wakes early enough, so the number of drivers is usually
/// small.
package final class SystemTimer: Sendable {
    package static let shared = SystemTimer()

    private enum Sleeper: Sendable {
        /// Resumed with `true` at the deadline, with `false` on cancellation.
        case task(LeanContinuation<Bool>)
        /// Performed at the deadline; see ``SystemTimer/schedule(after:_:)``.
        case action(@Sendable () -> Duration?)
    }

    private struct State: Sendable {
        var sleepers: [UInt64: Sleeper] = [:]
        var deadlines = DeadlineHeap()
        /// The wake times of the drivers, latest first.
        var drivers: [Int64] = []
        var lastID: UInt64 = 0

        /// Removes unneeded storage and heap entries.
        mutating func compact() {
            if self.sleepers.isEmpty, self.sleepers.capacity > 1_024 { self.sleepers = [:] }
            let sleepers = self.sleepers
            self.deadlines.compact(ownerCount: sleepers.count) { sleepers[$0] != nil }
        }

        mutating func nextID() -> UInt64 {
            self.lastID += 1
            return self.lastID
        }

        /// Adds a deadline, and returns the result of ``addDriverIfNeeded()``.
        mutating func add(_ deadline: Int64, of id: UInt64) -> Int64? {
            self.deadlines.insert(deadline, id)
            return self.addDriverIfNeeded()
        }

        /// Adds a driver if no driver wakes early enough.
        ///
        /// - Returns: The wake time of the new driver, which the caller must start outside the lock; `nil` if
        ///   no driver is needed.
        mutating func addDriverIfNeeded() -> Int64? {
            self.compact()
            guard let first = self.deadlines.first, self.drivers.last.map({ first < $0 }) ?? true else { return nil }
            self.drivers.append(first)
            return first
        }
    }

    private let state = Locked(State())

    package init() {}

    /// Suspends for at least `duration`.
    ///
    /// - Throws: `CancellationError`, at once, if the task is cancelled first.
    package func sleep(isolation: isolated (any Actor)? = #isolation, for duration: Duration) async throws {
        let deadline = Self.deadline(after: duration)
        let id = self.state.withLock { $0.nextID() }
        let isOver = await withTaskCancellationHandler {
            _ = isolation
            return await LeanContinuation<Bool>.wait { self.begin(id, until: deadline, $0) }
        } onCancel: {
            self.cancel(id)
        }
        guard isOver else { throw CancellationError() }
    }

    /// Performs `action` after at least `duration`, and again after each duration that `action` returns,
    /// until `nil` or ``cancel(_:)``.
    ///
    /// An action delays the other sleeps and actions of the same driver, so an action must be short and must
    /// not run code of the app. Different actions may run at the same time.
    ///
    /// - Returns: The argument of ``cancel(_:)``.
    package func schedule(after duration: Duration, _ action: @escaping @Sendable () -> Duration?) -> UInt64 {
        let deadline = Self.deadline(after: duration)
        let (id, driver) = self.state.withLock { state in
            let id = state.nextID()
            state.sleepers[id] = .action(action)
            return (id, state.add(deadline, of: id))
        }
        if let driver { self.drive(until: driver) }
        return id
    }

    private static func deadline(after duration: Duration) -> Int64 {
        Moment(nanoseconds: SystemClock.nanoseconds).advanced(by: max(duration, .zero)).nanoseconds
    }

    /// Sets the next deadline of an action; without effect on a cancelled action.
    private func setDeadline(of id: UInt64, after duration: Duration) {
        let deadline = Self.deadline(after: duration)
        if let driver = self.state.withLock({ $0.add(deadline, of: id) }) { self.drive(until: driver) }
    }

    private func begin(_ id: UInt64, until deadline: Int64, _ sleeper: LeanContinuation<Bool>) {
        let (begins, driver) = self.state.withLock { state -> (Bool, Int64?) in
            // Checked under the lock: after a later cancellation `cancel` finds this sleeper, but after an
            // earlier cancellation `cancel` does not run again.
            guard !Task.isCancelled else { return (false, nil) }
            state.sleepers[id] = .task(sleeper)
            return (true, state.add(deadline, of: id))
        }
        if let driver { self.drive(until: driver) }
        if !begins { sleeper.resume(returning: false) }
    }

    /// Ends a sleep or an action; an action that is due may still run.
    package func cancel(_ id: UInt64) {
        let sleeper = self.state.withLock { state in
            defer { state.compact() }
            return state.sleepers.removeValue(forKey: id)
        }
        if case .task(let continuation)? = sleeper { continuation.resume(returning: false) }
    }

    private func drive(until deadline: Int64) {
        let left = Moment(nanoseconds: deadline).duration(since: Moment(nanoseconds: SystemClock.nanoseconds))
        TaskLauncher.uninherited(name: "mux.timer") {
            try? await ContinuousClock().sleep(for: min(max(left, .zero), .longest))
            self.wake(deadline)
        }
    }

    private func wake(_ driver: Int64) {
        // Even if the sleep of the driver has ended early, the driver's deadline counts as reached.
        let now = max(driver, SystemClock.nanoseconds)
        let (due, next) = self.state.withLock { state -> ([(UInt64, Sleeper)], Int64?) in
            state.drivers.removeAll { $0 == driver }
            var due: [(UInt64, Sleeper)] = []
            while let first = state.deadlines.first, first <= now {
                let id = state.deadlines.removeFirst()
                guard let sleeper = state.sleepers[id] else { continue }
                if case .task = sleeper { state.sleepers[id] = nil }
                due.append((id, sleeper))
            }
            return (due, state.addDriverIfNeeded())
        }
        if let next { self.drive(until: next) }
        for (id, sleeper) in due {
            switch sleeper {
            case .task(let continuation): continuation.resume(returning: true)
            case .action(let action):
                if let pause = action() { self.setDeadline(of: id, after: pause) } else { self.cancel(id) }
            }
        }
    }

    /// The numbers of sleeping tasks and pending actions, of heap entries, and of drivers.
    package var occupancy: (sleepers: Int, places: Int, drivers: Int) {
        self.state.withLock { ($0.sleepers.count, $0.deadlines.count, $0.drivers.count) }
    }
}

/// A binary heap of deadlines with the numbers of owners, earliest deadline first, equal deadlines in the
/// order of the numbers.
///
/// An entry without an owner stays until the entry reaches the top, or until the heap has too many such
/// entries.
package struct DeadlineHeap: Sendable {
    private var places: [(deadline: Int64, id: UInt64)] = []

    package init() {}

    var count: Int { self.places.count }

    package var first: Int64? { self.places.first?.deadline }

    package mutating func insert(_ deadline: Int64, _ id: UInt64) {
        self.places.append((deadline, id))
        self.siftUp(from: self.places.count - 1)
    }

    /// Removes the earliest entry, and returns the owner's number; the heap must not be empty.
    package mutating func removeFirst() -> UInt64 {
        self.places.swapAt(0, self.places.count - 1)
        let id = self.places.removeLast().id
        self.siftDown(from: 0)
        return id
    }

    /// Removes entries without owners from the top, and all entries without owners if the heap has more than
    /// 64 + 2 × `ownerCount` entries.
    package mutating func compact(ownerCount: Int, where isOwned: (UInt64) -> Bool) {
        while let first = self.places.first, !isOwned(first.id) { _ = self.removeFirst() }
        guard self.places.count > 64 + 2 * ownerCount else { return }
        self.places = self.places.filter { isOwned($0.id) }
        for index in (0..<self.places.count / 2).reversed() { self.siftDown(from: index) }
    }

    private mutating func siftUp(from index: Int) {
        var index = index
        while index > 0, self.places[index] < self.places[(index - 1) / 2] {
            self.places.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
    }

    private mutating func siftDown(from index: Int) {
        var index = index
        while 2 * index + 1 < self.places.count {
            var least = 2 * index + 1
            if least + 1 < self.places.count, self.places[least + 1] < self.places[least] {
                least += 1
            }
            guard self.places[least] < self.places[index] else { return }
            self.places.swapAt(index, least)
            index = least
        }
    }
}
