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
/// their own. Time stands still while anything can go on, and then jumps to the next moment that somebody sleeps for.
///
/// **What is not.** The main actor, actors with an executor of their own (among them the store on disk: take a `MemoryStore`),
/// `Task { }`, `Task.yield()` and threads. Such work is waited for, but when it comes back is chance.
public final class SeededExecutor: TaskExecutor, Sendable {
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
        case await
        case end
    }

    private struct State: Sendable {
        var random: SplitMix64
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
        var isOver = false
        /// Nothing came for too long.
        var isGivenUp = false
        var steps = 0
        var digest = FNV()

        mutating func nextStep(canPassTime: Bool) -> Step {
            self.items += self.arrived
            self.arrived = []
            guard self.awaited == 0 else { return .await }
            guard !self.items.isEmpty else { return self.isOver ? .end : canPassTime ? .passTime : .await }
            let index = Int.random(in: 0..<self.items.count, using: &self.random)
            self.steps += 1
            self.digest.combine(word: UInt64(truncatingIfNeeded: self.items.count))
            self.digest.combine(word: UInt64(truncatingIfNeeded: index))
            return .run(self.items.remove(at: index))
        }
    }

    private let state: Guarded<State>
    private let arrivals = DispatchSemaphore(value: 0)
    /// How long to wait for something from outside.
    private let patience: Double

    /// Makes an executor for one run.
    ///
    /// - Parameter seed: What the order is drawn from.
    public convenience init(seed: UInt64) {
        // What comes from outside may be late on a busy machine, or where something blocks the threads that tasks share.
        self.init(seed: seed, patience: .seconds(60))
    }

    package init(seed: UInt64, patience: Duration) {
        self.seed = seed
        self.patience = patience.secondsValue
        self.state = Guarded(State(random: SplitMix64(state: seed)))
    }

    /// How many jobs have been run.
    public var steps: Int { self.state.withLock { $0.steps } }

    /// Sums up the order so far: the same for the same order, and different, but for chance, for another one.
    public var fingerprint: UInt64 { self.state.withLock { $0.digest.value } }

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
    /// - Throws: What the operation threw, or ``SeededScheduleError/stuck(seed:)`` if it waits for something that never comes.
    public func run<Success: Sendable>(
        _ operation: @escaping @Sendable @concurrent () async throws -> Success
    ) async throws -> Success {
        let outcome = Guarded<Result<Success, any Error>?>(nil)
        let root = Spawn.$schedule.withValue(self) {
            Spawn(executor: self)(name: "mux.seeded") {
                let result: Result<Success, any Error>
                do {
                    result = .success(try await operation())
                } catch {
                    result = .failure(error)
                }
                outcome.withLock { $0 = result }
                self.state.withLock { $0.isOver = true }
            }
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                // On a thread of its own, for it may wait for what needs the pool.
                DispatchQueue(label: "MuxTesting.Schedules").async {
                    self.drive(root)
                    continuation.resume()
                }
            }
        } onCancel: {
            root.cancel()
        }
        let isStuck = self.state.withLock { $0.isGivenUp }
        guard !isStuck, let result = outcome.withLock({ $0 }) else { throw SeededScheduleError.stuck(seed: self.seed) }
        return try result.get()
    }

    /// Runs one step after another until the end; gives up if nothing comes for too long, twice.
    private func drive(_ root: Task<Void, Never>) {
        let driver = ObjectIdentifier(Thread.current)
        while true {
            let canPassTime = self.clock.sleeperCount > 0
            let step = self.state.withLock { state in
                state.driver = driver
                let step = state.nextStep(canPassTime: canPassTime)
                if case .await = step { state.isIdle = true }
                return step
            }
            switch step {
            case .run(.job(let job)): job.runSynchronously(on: self.asUnownedTaskExecutor())
            case .run(.action(let action)): action()
            case .passTime: self.clock.advanceToNextDeadline()
            case .end: return
            case .await:
                guard self.arrivals.wait(timeout: .now() + self.patience) == .timedOut else { continue }
                let isSecondTime = self.state.withLock { state in
                    defer { state.isGivenUp = true }
                    return state.isGivenUp
                }
                if isSecondTime { return }
                root.cancel()
            }
        }
    }

    // MARK: - TaskExecutor

    /// Takes a job, to be run when its turn comes.
    public func enqueue(_ job: consuming ExecutorJob) { self.take(.job(UnownedJob(job))) }

    private func take(_ item: Item) {
        let thread = ObjectIdentifier(Thread.current)
        let wasIdle = self.state.withLock { state -> Bool in
            state.awaited = max(0, state.awaited - 1)
            if state.driver == thread {
                state.items.append(item)
            } else {
                // In a place of its own, for when exactly it comes is chance.
                state.arrived.append(item)
            }
            defer { state.isIdle = false }
            return state.isIdle
        }
        if wasIdle { self.arrivals.signal() }
    }
}

extension SeededExecutor: JobSchedule {
    package func later(_ action: @escaping @Sendable () -> Void) { self.take(.action(action)) }

    package func awaitArrival() { self.state.withLock { $0.awaited += 1 } }
}
