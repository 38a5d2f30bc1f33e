import Dispatch
import Foundation
import MuxKit

/// Runs asynchronous code one job at a time, in an order drawn from a seed, with virtual time.
///
/// Concurrent tasks can interleave in many orders; with the system's executor a test sees only a few orders.
/// This executor runs any number of orders, and reproduces an order from its seed:
///
/// ```swift
/// @Test func `no caller sees the old name`() async throws {
///     try await SeededExecutor.explore(10_000) { schedule in
///         let repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
///         let name = Multiplexer<String>(cacheKey: "Name", repository: repository) { try await api.name() }
///         async let before = name.request()
///         name.refresh()
///         let after = try await name.request()
///         guard after != "old" else { throw SawOldName() }
///         _ = try await before
///     }
/// }
/// ```
///
/// A failure of an order contains the seed; with `MUX_SEED` set to the seed, only this order is run.
/// `MUX_SCHEDULES` multiplies the number of orders.
///
/// **Scheduled:** the operation, its child tasks, tasks of the library for the operation, and actors without
/// a custom executor. Virtual time stands still while a job is ready, and then jumps to the next deadline of
/// a sleeper.
///
/// **Outside the schedule, but awaited:** the main actor, actors with a custom executor (such as the store on
/// disk), `Task { }`, `Task.yield()` and short work on other threads. Before virtual time passes, such work
/// gets real time to return: always in ``run(_:)``, and in ``explore(_:_:)`` after the first detection of
/// such work, and in the repetitions of an order. The seed does not determine when such work returns.
///
/// **Not detected:** `Task.sleep` and other clocks (use ``clock``), `URLSession` and other networking (use
/// ``ScriptedTransport``), timers, and work of more than some tenths of a second on other threads. If such
/// work outlasts the real time that the run waits, virtual time may pass too early: an error of the operation
/// can then become ``ScheduleError/outside(seed:underlying:)``. If no job arrives, the run ends with
/// ``ScheduleError/stuck(seed:)`` within two seconds. While other work blocks the main thread or all threads
/// of the pool, the run waits up to 20 seconds more.
///
/// **Concurrent calls.** The jobs of concurrent calls of ``run(_:)`` run one at a time. Jobs that arrive
/// between two runs run without a wait for the next run.
public final class SeededExecutor: TaskExecutor, Sendable {
    /// The real time that work outside the schedule gets to return before virtual time passes.
    package struct Grace: Sendable, Equatable {
        package var duration: Duration
        /// The total time of waits without an arrival in one run, after which further waits are shorter.
        package var budget: Duration = .milliseconds(600)

        /// The grace while no work outside has been detected.
        package static let none = Grace(duration: .zero)
        /// The grace after the detection of work outside.
        package static let short = Grace(duration: .milliseconds(25))
        /// The grace of a single run.
        package static let usual = Grace(duration: .milliseconds(100))
        /// The grace of the last repetition of an order.
        package static let long = Grace(duration: .milliseconds(300))

        /// Whether an order with this grace may be repeated.
        var isRepeated: Bool { self == .none || self == .short }
    }

    /// Counts of work outside the schedule in one run.
    package struct Visits: Sendable {
        /// The number of unexpected jobs from outside during the run.
        package var arrivals = 0
        /// The number of arrivals of tasks that were outside while virtual time advanced.
        package var late = 0
        /// The number of advances of virtual time.
        package var jumps = 0
    }

    /// The seed of the order.
    public let seed: UInt64

    /// The virtual time of the schedule.
    ///
    /// Created without an inspector: sleeping timers may outlive the schedule.
    public let clock = Inspection.$inspector.withValue(nil) { VirtualClock() }

    enum Item: Sendable {
        case job(UnownedJob)
        /// A closure of ``SeededExecutor/runBetweenJobs(_:)``, which runs synchronously.
        case action(@Sendable () -> Void)
    }

    enum Step: Sendable {
        case run(Item)
        case passTime
        /// Wait for a job from another thread; `isKnown` if the library has announced the job.
        case await(isKnown: Bool)
        case end
    }

    enum Phase: Sendable {
        /// Jobs wait for a run.
        case new
        case running
        /// Between runs, without jobs.
        case idle
        /// Between runs; jobs run at their arrival.
        case draining
    }

    struct State: Sendable {
        var random: SplitMix64
        var phase = Phase.new
        /// The ready jobs.
        var items: [Item] = []
        /// Jobs from other threads since the last step.
        var arrived: [Item] = []
        /// The number of jobs that were announced by ``SeededExecutor/announceArrival()`` and have not
        /// arrived.
        var awaited = 0
        var isDriverWaiting = false
        /// The identity of the thread or main queue that runs the steps (``SeededExecutor/place``); `nil`
        /// while no steps run.
        var driver: ObjectIdentifier?
        /// The value of `visits.jumps` at the last run of each task in this run of the executor, by the
        /// task's address.
        var lastRun: [UInt: Int] = [:]
        var visits = Visits()
        var steps = 0
        var digest = FNV()

        mutating func nextItem() -> Item? {
            self.items += self.arrived
            self.arrived = []
            guard !self.items.isEmpty else { return nil }
            let index = Int.random(in: 0..<self.items.count, using: &self.random)
            self.steps += 1
            self.digest.combine(word: UInt64(truncatingIfNeeded: self.items.count))
            self.digest.combine(word: UInt64(truncatingIfNeeded: index))
            self.items.swapAt(index, self.items.count - 1)
            let item = self.items.removeLast()
            if case .job(let job) = item { self.lastRun[SeededExecutor.address(job)] = self.visits.jumps }
            return item
        }

        mutating func nextStep(canPassTime: Bool, isOver: Bool) -> Step {
            guard self.awaited == 0 else {
                self.items += self.arrived
                self.arrived = []
                return .await(isKnown: true)
            }
            if let item = self.nextItem() { return .run(item) }
            return isOver ? .end : canPassTime ? .passTime : .await(isKnown: false)
        }
    }

    let state: Locked<State>
    private let grace: Grace
    private let arrivals = DispatchSemaphore(value: 0)
    /// Runs the steps, except the steps of ``runWithMainActor(_:)``, which run on the main queue.
    ///
    /// The queue is blocked during waits for work on the cooperative pool.
    private let queue = DispatchQueue(label: "MuxTesting.Schedules")
    /// The limit of the wait for an expected job; long because the cooperative pool may be blocked.
    private static let knownLimit = Duration.seconds(60)
    /// The limit of all waits of a run for a turn of the cooperative pool; other work may block the pool.
    private static let turnLimit = Duration.seconds(20)
    /// The limit of the wait for an unexpected job if no sleeper has a deadline.
    private static let unknownLimit = Duration.milliseconds(900)

    /// Makes an executor with the order of a seed.
    public convenience init(seed: UInt64) {
        self.init(seed: seed, grace: .usual)
    }

    package init(seed: UInt64, grace: Grace) {
        self.seed = seed
        self.grace = grace
        self.state = Locked(State(random: SplitMix64(state: seed)))
    }

    /// The number of executed jobs and actions of the library.
    public var steps: Int { self.state.withLock { $0.steps } }

    /// A hash of the order so far.
    public var fingerprint: UInt64 { self.state.withLock { $0.digest.value } }

    /// The counts of the current or last run.
    package var visits: Visits { self.state.withLock { $0.visits } }

    /// Returns a random number determined by the seed, for decisions of the operation.
    ///
    /// - Returns: A number in `range`; the lower bound of an empty range.
    public func draw(_ range: Range<Int>) -> Int {
        guard !range.isEmpty else { return range.lowerBound }
        return self.state.withLock { .random(in: range, using: &$0.random) }
    }

    /// Suspends to give other ready jobs a turn.
    public func pause() async {
        await withCheckedContinuation { continuation in self.runBetweenJobs { continuation.resume() } }
    }

    // MARK: - Running

    /// Runs `operation` and its jobs, one at a time, until the operation has ended and no job is ready.
    ///
    /// - Returns: The result of the operation.
    /// - Throws: The operation's error; ``ScheduleError/outside(seed:underlying:)`` if an advance of virtual
    ///   time during work outside the schedule may have caused the error; ``ScheduleError/stuck(seed:)`` if
    ///   the operation waits, and no job arrives for too long. An operation whose jobs or timers repeat
    ///   without end does not return.
    public func run<Success: Sendable>(
        _ operation: @escaping @Sendable @concurrent () async throws -> Success
    ) async throws -> Success {
        switch await self.outcome(of: operation) {
        case .success(let value): return value
        case .failure(let error) where self.isCausedOutside(error):
            throw ScheduleError.outside(seed: self.seed, underlying: error)
        case .failure(let error): throw error
        }
    }

    /// Whether an advance of virtual time during work outside the schedule may have caused the last run's
    /// `error`.
    package func isCausedOutside(_ error: any Error) -> Bool {
        guard !(error is ScheduleError) else { return false }
        let visits = self.visits
        return visits.late > 0 || (visits.jumps > 0 && Self.isTimeOut(error))
    }

    /// Whether the error is a time-out: a limit in virtual time can expire during work outside.
    private static func isTimeOut(_ error: any Error) -> Bool {
        switch error {
        case MuxError.timedOut, RunnerError.timedOut, RunnerError.updateTimedOut: true
        default: false
        }
    }

    /// Runs `operation` and returns its result or error; ``ScheduleError/stuck(seed:)`` as for ``run(_:)``.
    package func outcome<Success: Sendable>(
        of operation: @escaping @Sendable @concurrent () async throws -> Success
    ) async -> Result<Success, any Error> {
        let (root, outcome) = self.start(operation)
        let isStuck = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                self.queue.async {
                    let isStuck = !self.drive(root) { outcome.withLock { $0 != nil } }
                    if !isStuck, case .failure? = outcome.withLock({ $0 }) { self.awaitLateArrival() }
                    self.rest()
                    continuation.resume(returning: isStuck)
                }
            }
        } onCancel: {
            root.cancel()
        }
        guard !isStuck, let result = outcome.withLock({ $0 }) else {
            return .failure(ScheduleError.stuck(seed: self.seed))
        }
        return result
    }

    /// Enqueues the first job of an operation for the next run.
    func start<Success: Sendable>(
        _ operation: @escaping @Sendable @concurrent () async throws -> Success
    ) -> (root: Task<Void, Never>, outcome: Locked<Result<Success, any Error>?>) {
        let outcome = Locked<Result<Success, any Error>?>(nil)
        // The first job must wait for the run, too.
        self.state.withLock { if $0.phase == .idle { $0.phase = .new } }
        let root = TaskLauncher.$schedule.withValue(self) {
            TaskLauncher(executor: self)(name: "mux.seeded") {
                let result = await Result<_, any Error> { try await operation() }
                outcome.withLock { $0 = result }
            }
        }
        return (root, outcome)
    }

    func begin() {
        let driver = Self.place
        self.state.withLock { state in
            state.phase = .running
            state.driver = driver
            state.visits = Visits()
            state.lastRun = [:]
        }
    }

    /// Runs steps until the operation has ended and no job is ready.
    ///
    /// - Returns: `false` if no job arrived for too long.
    private func drive(_ root: Task<Void, Never>, isOver: () -> Bool) -> Bool {
        self.begin()
        var isGivenUp = false
        var budget = self.grace.budget
        var turns = Self.turnLimit
        while true {
            let canPassTime = self.clock.sleeperCount > 0
            let hasEnded = isOver()
            switch self.state.withLock({ $0.nextStep(canPassTime: canPassTime, isOver: hasEnded) }) {
            case .run(let item): self.run(item)
            case .passTime:
                guard self.isQuietOutside(&budget, &turns) else { continue }
                self.state.withLock { $0.visits.jumps += 1 }
                self.clock.advanceToNextDeadline()
            case .end: return !isGivenUp
            case .await(let isKnown):
                let limit =
                    isKnown ? Self.knownLimit : isGivenUp ? Self.unknownLimit / 3 : Self.unknownLimit
                guard !self.awaitArrival(limit) else { continue }
                guard !isGivenUp else { return false }
                guard self.awaitTurn(&turns) else { continue }
                isGivenUp = true
                root.cancel()
            }
        }
    }

    func run(_ item: Item) {
        switch item {
        case .job(let job): job.runSynchronously(on: self.asUnownedTaskExecutor())
        case .action(let action): action()
        }
    }

    // MARK: - Work outside

    /// The address of a job's task: the identity of the task until its deallocation.
    private static func address(_ job: UnownedJob) -> UInt { unsafeBitCast(job, to: UInt.self) }

    /// Blocks until a job arrives.
    ///
    /// - Returns: `false` if the limit was reached.
    private func awaitArrival(_ limit: Duration) -> Bool {
        let isThere = self.state.withLock { state -> Bool in
            state.isDriverWaiting = state.arrived.isEmpty
            return !state.isDriverWaiting
        }
        if isThere { return true }
        let result = self.arrivals.wait(timeout: .now() + limit.secondsValue)
        return self.state.withLock { state in
            state.isDriverWaiting = false
            return result == .success || !state.arrived.isEmpty
        }
    }

    /// Blocks for the grace, so that work outside the schedule can return before virtual time passes.
    ///
    /// - Parameters:
    ///   - budget: The rest of the grace's budget.
    ///   - turns: The rest of the limit for turns.
    /// - Returns: `false` if a job arrived.
    private func isQuietOutside(_ budget: inout Duration, _ turns: inout Duration) -> Bool {
        let hasVisitors = self.state.withLock { $0.visits.arrivals > 0 }
        var duration = max(self.grace.duration, hasVisitors ? Grace.short.duration : .zero)
        guard duration > .zero else { return true }
        if budget <= .zero { duration = duration / 12 }
        let start = ContinuousClock.now
        guard !self.awaitArrival(duration) else { return false }
        // A short limit suffices if a failed order is repeated with a longer grace.
        var limit = self.grace.isRepeated ? min(duration * 4, turns) : turns
        let former = limit
        defer { turns -= former - limit }
        guard self.awaitTurn(&limit) else { return false }
        budget -= ContinuousClock.now - start
        return true
    }

    /// Blocks until the main queue and the cooperative pool have had a turn, because the machine may be busy.
    ///
    /// - Parameter limit: The time limit; the elapsed time is subtracted.
    /// - Returns: `false` if a job arrived.
    private func awaitTurn(_ limit: inout Duration) -> Bool {
        let start = ContinuousClock.now
        let end = start + limit
        let echo = DispatchSemaphore(value: 0)
        // The signal follows two round trips through the main queue, a global queue and the cooperative pool.
        Self.callAfterRoundTrip { Self.callAfterRoundTrip { echo.signal() } }
        defer { limit = max(.zero, limit - (ContinuousClock.now - start)) }
        // A short wait first; usually sufficient.
        var pause = Duration.milliseconds(2)
        while ContinuousClock.now < end, echo.wait(timeout: .now() + pause.secondsValue) == .timedOut {
            guard !self.awaitArrival(.zero) else { return false }
            pause = .milliseconds(50)
        }
        return !self.awaitArrival(.zero)
    }

    /// Calls `next` after one round trip through the main queue, a global queue and the cooperative pool.
    private static func callAfterRoundTrip(_ next: @escaping @Sendable () -> Void) {
        DispatchQueue.main.async { DispatchQueue.global().async { TaskLauncher()(name: "mux.seeded.echo") { next() } } }
    }

    /// Waits briefly for a task that was outside while virtual time advanced: the absence of the task may be
    /// the cause of the failure.
    private func awaitLateArrival() {
        guard !self.grace.isRepeated else { return }
        let visits = self.visits
        guard visits.jumps > 0, visits.late == 0 else { return }
        _ = self.awaitArrival(.milliseconds(200))
    }

    // MARK: - After a run

    /// Ends a run: later jobs run at their arrival.
    func rest() {
        let hasMore = self.state.withLock { state -> Bool in
            state.driver = nil
            let hasMore = !state.items.isEmpty || !state.arrived.isEmpty
            state.phase = hasMore ? .draining : .idle
            return hasMore
        }
        if hasMore { self.queue.async { self.drain() } }
    }

    private func drain() {
        let driver = Self.place
        while true {
            let item = self.state.withLock { state -> Item? in
                state.driver = driver
                if let item = state.nextItem() { return item }
                state.driver = nil
                state.phase = .idle
                return nil
            }
            guard let item else { return }
            self.run(item)
        }
    }

    /// Identifies the main queue, which can run on any thread on Linux, or else the thread.
    private static var place: ObjectIdentifier {
        MainQueue.isCurrent ? ObjectIdentifier(MainActor.self) : ObjectIdentifier(Thread.current)
    }

    // MARK: - TaskExecutor

    /// Enqueues a job of the schedule.
    public func enqueue(_ job: consuming ExecutorJob) { self.take(.job(UnownedJob(job))) }

    private func take(_ item: Item) {
        let place = Self.place
        let (wasDriverWaiting, needsDrain) = self.state.withLock { state -> (Bool, Bool) in
            if state.driver == place {
                state.awaited = max(0, state.awaited - 1)
                state.items.append(item)
            } else {
                if state.awaited > 0 { state.awaited -= 1 } else { Self.countArrival(item, &state) }
                // Stored separately: the seed does not determine the time of the arrival.
                state.arrived.append(item)
            }
            let needsDrain = state.phase == .idle
            if needsDrain { state.phase = .draining }
            defer { state.isDriverWaiting = false }
            return (state.isDriverWaiting, needsDrain)
        }
        if wasDriverWaiting { self.arrivals.signal() }
        if needsDrain { self.queue.async { self.drain() } }
    }

    /// Counts an unexpected arrival from outside.
    private static func countArrival(_ item: Item, _ state: inout State) {
        guard state.phase == .running else { return }
        state.visits.arrivals += 1
        guard case .job(let job) = item, let jumps = state.lastRun[self.address(job)] else { return }
        if jumps < state.visits.jumps { state.visits.late += 1 }
    }
}

extension SeededExecutor: JobSchedule {
    package func runBetweenJobs(_ action: @escaping @Sendable () -> Void) { self.take(.action(action)) }

    package func decideToBeginAtOnce() -> Bool {
        let place = Self.place
        // On another thread, the result is `false`, because the seed does not determine the time of this
        // call.
        return self.state.withLock { $0.driver == place && Bool.random(using: &$0.random) }
    }

    package func announceArrival() { self.state.withLock { $0.awaited += 1 } }
}

/// A random number generator; its first state determines all numbers.
///
/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
package struct SplitMix64: RandomNumberGenerator, Sendable {
    private var state: UInt64

    package init(state: UInt64) { self.state = state }

    package mutating func next() -> UInt64 {
        self.state &+= 0x9e37_79b9_7f4a_7c15
        var word = self.state
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}
