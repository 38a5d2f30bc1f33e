import Dispatch
import Foundation
import MuxKit

/// A test double: runs asynchronous code one job at a time, in an order drawn from a seed, with a clock that jumps.
///
/// Tasks that meet in a multiplexer can meet in many orders, and the system shows a test only a few of them. This shows as
/// many as are asked for, and the same one again for the same seed:
///
/// ```swift
/// @Test func `nobody sees the old name`() async throws {
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
/// A failure names its seed; with `MUX_SEED` set to it, only that order is run. `MUX_SCHEDULES` multiplies the number of orders.
///
/// **What is scheduled.** The operation, its child tasks, what the library starts for it, and actors without an executor of
/// their own. Time stands still while anything can go on, and then jumps to the next deadline that a task sleeps for.
///
/// **What is outside, and waited for.** The main actor, actors with an executor of their own (among them the store on disk),
/// `Task { }`, `Task.yield()` and short work of other threads: virtual time does not pass until they had real time to come
/// back, which ``run(_:)`` allows them always, and ``explore(_:_:)`` as soon as it has seen that there are any. When exactly they
/// come back is chance, so a seed does not repeat their part of the order.
///
/// **What cannot be seen.** `Task.sleep` and other clocks (use ``clock``), `URLSession` and other networking (use
/// ``ScriptedTransport``), timers, and threads that take longer than some tenths of a second. A run in which virtual time had to pass beside such work
/// ends with ``ScheduleError/outside(seed:underlying:)`` or ``ScheduleError/stuck(seed:)``, within two seconds.
///
/// **Concurrent calls** of ``run(_:)`` take place one after another. Jobs that arrive after a run, or between two, are run as they
/// come.
public final class SeededExecutor: TaskExecutor, Sendable {
    /// How long work outside the schedule has, in real time, to come back before virtual time passes.
    package struct Grace: Sendable, Equatable {
        package var duration: Duration
        /// How much a run may wait in vain, all in all; later waits are short.
        package var budget: Duration = .milliseconds(600)

        /// For what is known to be scheduled as a whole.
        package static let none = Grace(duration: .zero)
        /// For what comes back as fast as a processor gets to it.
        package static let short = Grace(duration: .milliseconds(25))
        /// For a run that cannot be repeated.
        package static let usual = Grace(duration: .milliseconds(100))
        /// For a run that failed with less.
        package static let long = Grace(duration: .milliseconds(300))
    }

    /// What a run showed of work outside the schedule.
    package struct Visits: Sendable {
        /// How often a job came from outside while the run lasted.
        package var arrivals = 0
        /// How many of those tasks had been away while virtual time passed.
        package var late = 0
        /// How often virtual time passed.
        package var jumps = 0
    }

    /// What the order is drawn from.
    public let seed: UInt64

    /// The time of everything that runs here.
    public let clock = VirtualClock()

    private enum Item: Sendable {
        case job(UnownedJob)
        case action(@Sendable () -> Void)
    }

    private enum Step: Sendable {
        case run(Item)
        case passTime
        case await(isKnown: Bool)
        case end
    }

    private enum Phase: Sendable {
        /// Nothing is run yet: what arrives waits for the first run.
        case new
        case running
        /// What arrives is run as it comes.
        case idle
        case draining
    }

    private struct State: Sendable {
        var random: SplitMix64
        var phase = Phase.new
        /// What can go on.
        var items: [Item] = []
        /// What other threads have brought since the last step.
        var arrived: [Item] = []
        /// How many jobs have to arrive before the next step.
        var awaited = 0
        /// The driver sleeps until something arrives.
        var isIdle = false
        /// The thread that runs the steps.
        var driver: ObjectIdentifier?
        /// How often time had passed when a task last ran here, by the task's address.
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

    private let state: Locked<State>
    private let grace: Grace
    private let arrivals = DispatchSemaphore(value: 0)
    /// Where all steps are run: a thread that may block, for it waits for what needs the pool.
    private let queue = DispatchQueue(label: "MuxTesting.Schedules")
    /// How long to wait for a job that is known to come: it may be late on a busy machine, or where something blocks the threads
    /// that tasks share.
    private static let knownLimit = Duration.seconds(60)
    /// How long to wait, where no time can pass, for what nothing is known of.
    private static let unknownLimit = Duration.milliseconds(900)

    /// Makes an executor.
    ///
    /// - Parameter seed: What the order is drawn from.
    public convenience init(seed: UInt64) {
        self.init(seed: seed, grace: .usual)
    }

    package init(seed: UInt64, grace: Grace) {
        self.seed = seed
        self.grace = grace
        self.state = Locked(State(random: SplitMix64(state: seed)))
    }

    /// How many jobs have been run.
    public var steps: Int { self.state.withLock { $0.steps } }

    /// Sums up the order so far: the same for the same order, and different, but for chance, for another one.
    public var fingerprint: UInt64 { self.state.withLock { $0.digest.value } }

    /// What came from outside during the last run.
    package var visits: Visits { self.state.withLock { $0.visits } }

    /// A number that belongs to the seed, for decisions of the operation's own.
    ///
    /// - Parameter range: What to choose from.
    /// - Returns: A number of the range.
    public func draw(_ range: Range<Int>) -> Int {
        guard !range.isEmpty else { return range.lowerBound }
        return self.state.withLock { .random(in: range, using: &$0.random) }
    }

    /// Lets anything else that can go on do so, or not.
    public func pause() async {
        await withCheckedContinuation { continuation in self.later { continuation.resume() } }
    }

    // MARK: - Running

    /// Runs `operation` and all that it starts, job after job, and waits until nothing is left that can go on.
    ///
    /// - Parameter operation: What to run.
    /// - Returns: What the operation returned.
    /// - Throws: What the operation threw; ``ScheduleError/outside(seed:underlying:)`` if it did because virtual time passed
    ///   beside work that the schedule cannot see; ``ScheduleError/stuck(seed:)`` if it waits for something that never comes.
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

    /// Whether `error`, with which the last run ended, comes of time that passed beside work outside the schedule.
    package func isCausedOutside(_ error: any Error) -> Bool {
        guard !(error is ScheduleError) else { return false }
        let visits = self.visits
        return visits.late > 0 || (visits.jumps > 0 && Self.isTimeOut(error))
    }

    /// Whether a limit in virtual time was reached: what waited for too long may have waited for something outside.
    private static func isTimeOut(_ error: any Error) -> Bool {
        switch error {
        case MuxError.timedOut, RunnerError.timedOut, RunnerError.updateTimedOut: true
        default: false
        }
    }

    /// Runs `operation`, and says how it ended.
    package func outcome<Success: Sendable>(
        of operation: @escaping @Sendable @concurrent () async throws -> Success
    ) async -> Result<Success, any Error> {
        let outcome = Locked<Result<Success, any Error>?>(nil)
        // The beginning waits for the run, as all the rest of it does.
        self.state.withLock { if $0.phase == .idle { $0.phase = .new } }
        let root = TaskLauncher.$schedule.withValue(self) {
            TaskLauncher(executor: self)(name: "mux.seeded") {
                let result: Result<Success, any Error>
                do {
                    result = .success(try await operation())
                } catch {
                    result = .failure(error)
                }
                outcome.withLock { $0 = result }
            }
        }
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

    /// Runs one step after another until the end.
    ///
    /// - Returns: `false` if nothing came for too long.
    private func drive(_ root: Task<Void, Never>, isOver: () -> Bool) -> Bool {
        let driver = ObjectIdentifier(Thread.current)
        self.state.withLock { state in
            state.phase = .running
            state.driver = driver
            state.visits = Visits()
            state.lastRun = [:]
        }
        var isGivenUp = false
        var budget = self.grace.budget
        while true {
            let canPassTime = self.clock.sleeperCount > 0
            let hasEnded = isOver()
            switch self.state.withLock({ $0.nextStep(canPassTime: canPassTime, isOver: hasEnded) }) {
            case .run(let item): self.run(item)
            case .passTime:
                guard self.isQuietOutside(&budget) else { continue }
                self.state.withLock { $0.visits.jumps += 1 }
                self.clock.advanceToNextDeadline()
            case .end: return !isGivenUp
            case .await(let isKnown):
                let limit =
                    isKnown ? Self.knownLimit : isGivenUp ? Self.unknownLimit / 3 : Self.unknownLimit
                guard !self.awaitArrival(limit) else { continue }
                guard !isGivenUp else { return false }
                isGivenUp = true
                root.cancel()
            }
        }
    }

    private func run(_ item: Item) {
        switch item {
        case .job(let job): job.runSynchronously(on: self.asUnownedTaskExecutor())
        case .action(let action): action()
        }
    }

    // MARK: - What is outside

    /// The address of a job's task, which belongs to it for as long as it lives.
    private static func address(_ job: UnownedJob) -> UInt { unsafeBitCast(job, to: UInt.self) }

    /// Blocks until something arrives.
    ///
    /// - Returns: `false` if nothing did for so long.
    private func awaitArrival(_ limit: Duration) -> Bool {
        let isThere = self.state.withLock { state -> Bool in
            state.isIdle = state.arrived.isEmpty
            return !state.isIdle
        }
        if isThere { return true }
        let result = self.arrivals.wait(timeout: .now() + limit.secondsValue)
        return self.state.withLock { state in
            state.isIdle = false
            return result == .success || !state.arrived.isEmpty
        }
    }

    /// Blocks until work outside had time to come back, if there may be any.
    ///
    /// - Parameter budget: How much may be waited in vain; less what was.
    /// - Returns: `false` if something came.
    private func isQuietOutside(_ budget: inout Duration) -> Bool {
        let hasVisitors = self.state.withLock { $0.visits.arrivals > 0 }
        var duration = max(self.grace.duration, hasVisitors ? Grace.short.duration : .zero)
        guard duration > .zero else { return true }
        if budget <= .zero { duration = duration / 12 }
        let start = ContinuousClock.now
        // On a busy machine time alone says little: a thread may not have had its turn. So those who wait are asked, too.
        let echo = DispatchSemaphore(value: 0)
        Self.call(twice: echo)
        guard !self.awaitArrival(duration) else { return false }
        _ = echo.wait(timeout: .now() + (duration * 4).secondsValue)
        budget -= ContinuousClock.now - start
        return !self.awaitArrival(.zero)
    }

    /// Signals after the main queue and a thread of Dispatch's have come to it, and once more.
    private static func call(twice echo: DispatchSemaphore) {
        Self.call { Self.call { echo.signal() } }
    }

    private static func call(_ next: @escaping @Sendable () -> Void) {
        DispatchQueue.main.async { DispatchQueue.global().async { next() } }
    }

    /// Waits a moment for a task that was away while time passed, and thus may have failed the operation.
    private func awaitLateArrival() {
        guard self.grace != .none, self.grace != .short else { return }
        let visits = self.visits
        guard visits.jumps > 0, visits.late == 0 else { return }
        _ = self.awaitArrival(.milliseconds(200))
    }

    // MARK: - After a run

    /// Ends a run: from now on what arrives is run as it comes.
    private func rest() {
        let hasMore = self.state.withLock { state -> Bool in
            state.driver = nil
            let hasMore = !state.items.isEmpty || !state.arrived.isEmpty
            state.phase = hasMore ? .draining : .idle
            return hasMore
        }
        if hasMore { self.queue.async { self.drain() } }
    }

    private func drain() {
        let driver = ObjectIdentifier(Thread.current)
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

    // MARK: - TaskExecutor

    /// Takes a job, to be run when its turn comes.
    public func enqueue(_ job: consuming ExecutorJob) { self.take(.job(UnownedJob(job))) }

    private func take(_ item: Item) {
        let thread = ObjectIdentifier(Thread.current)
        let (wasIdle, needsDrain) = self.state.withLock { state -> (Bool, Bool) in
            if state.driver == thread {
                state.awaited = max(0, state.awaited - 1)
                state.items.append(item)
            } else {
                if state.awaited > 0 { state.awaited -= 1 } else { Self.note(item, &state) }
                // In a place of its own, for when exactly it comes is chance.
                state.arrived.append(item)
            }
            let needsDrain = state.phase == .idle
            if needsDrain { state.phase = .draining }
            defer { state.isIdle = false }
            return (state.isIdle, needsDrain)
        }
        if wasIdle { self.arrivals.signal() }
        if needsDrain { self.queue.async { self.drain() } }
    }

    /// Writes down that something came from outside, unbidden.
    private static func note(_ item: Item, _ state: inout State) {
        guard state.phase == .running else { return }
        state.visits.arrivals += 1
        guard case .job(let job) = item, let jumps = state.lastRun[self.address(job)] else { return }
        if jumps < state.visits.jumps { state.visits.late += 1 }
    }
}

extension SeededExecutor: JobSchedule {
    package func later(_ action: @escaping @Sendable () -> Void) { self.take(.action(action)) }

    package func awaitArrival() { self.state.withLock { $0.awaited += 1 } }
}

/// Numbers that look random and are the same for the same start.
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
