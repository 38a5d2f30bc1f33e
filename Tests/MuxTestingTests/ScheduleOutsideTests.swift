import Dispatch
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Schedules of code that depends on work outside the schedule.
@Suite(.standard(.waiting))
struct ScheduleOutsideTests {
    @MainActor private final class Screen {
        func name() -> String { "new" }
    }

    /// An actor with its own executor.
    private actor Database {
        private final class Queue: SerialExecutor {
            let queue = DispatchQueue(label: "ScheduleOutsideTests.Database")

            func enqueue(_ job: consuming ExecutorJob) {
                let job = UnownedJob(job)
                self.queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
            }
        }

        private let executor = Queue()

        nonisolated var unownedExecutor: UnownedSerialExecutor { self.executor.asUnownedSerialExecutor() }

        func name() -> String { "new" }
    }

    enum Dependency: CaseIterable, Sendable {
        case mainActor
        case ownExecutor
        case oneAfterTheOther
        case unstructuredTask

        func name() async -> String {
            switch self {
            case .mainActor: return await Screen().name()
            case .ownExecutor: return await Database().name()
            case .oneAfterTheOther:
                _ = await Screen().name()
                _ = await Database().name()
                return await Screen().name()
            case .unstructuredTask: return await Task { await Database().name() }.value
            }
        }
    }

    private struct SawOldName: Error {}

    /// The example of the documentation.
    private static func example(
        _ schedule: SeededExecutor,
        fetch: @escaping @Sendable () async throws -> String
    ) async throws {
        let repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
        let name = Multiplexer<String>(cacheKey: "Name", repository: repository) { try await fetch() }
        async let before = name.request()
        name.refresh()
        let after = try await name.request()
        guard after != "old" else { throw SawOldName() }
        _ = try await before
    }

    @Test(arguments: Dependency.allCases)
    func `CO-40 virtual time waits for work outside the schedule`(dependency: Dependency) async throws {
        let ends = Locked<[UInt64: Duration]>([:])
        try await SeededExecutor.explore(50) { schedule in
            try await Self.example(schedule) { await dependency.name() }
            // An order with a wait in vain is repeated: the last run counts.
            ends.withLock { $0[schedule.seed] = schedule.clock.now.offset }
        }
        #expect(Set(ends.withLock { $0.values }) == [.zero])

        for seed in UInt64(0)..<5 {
            let schedule = SeededExecutor(seed: seed)
            try await schedule.run { try await Self.example(schedule) { await dependency.name() } }
            #expect(schedule.clock.now.offset == .zero)
        }
    }

    @Test(arguments: Dependency.allCases)
    func `CO-40 a virtual sleep and work outside the schedule can be combined`(dependency: Dependency) async throws {
        try await SeededExecutor.explore(10) { schedule in
            try await Self.example(schedule) {
                try await schedule.clock.sleep(for: .seconds(5))
                let name = await dependency.name()
                try await schedule.clock.sleep(for: .seconds(5))
                return name
            }
        }
    }

    #if os(macOS) || os(Linux)
    @Test(.ownThreads) func `CO-40 virtual time waits for work that waits for a thread`() async {
        await #expect(processExitsWith: .success) {
            let processors = ProcessInfo.processInfo.activeProcessorCount
            let blocker = DispatchSemaphore(value: 0)
            for _ in 0..<processors { Task.detached { Self.block(blocker) } }
            let schedule = SeededExecutor(seed: 1)
            try await schedule.run {
                try await Self.example(schedule) { await Task.detached { "new" }.value }
            }
            #expect(schedule.clock.now.offset == .zero)

            // The same without a sleep in virtual time.
            for _ in 0..<processors { Task.detached { Self.block(blocker) } }
            #expect(try await SeededExecutor(seed: 1).run { await Task.detached { "new" }.value } == "new")
        }
    }

    /// Holds a thread of the pool for longer than a schedule waits for unobservable work.
    private static func block(_ semaphore: DispatchSemaphore) { _ = semaphore.wait(timeout: .now() + 3) }
    #endif

    enum Unseen: CaseIterable, Sendable {
        case realSleep
        case network
        case thread
    }

    @Test(arguments: Unseen.allCases)
    func `CO-40 an error names the waits that a schedule cannot observe`(unseen: Unseen) async throws {
        let gate = Gate<Void>()
        let server = LoopbackServer { _ in
            try? await gate.pass()
            return .text("late")
        }
        let url = try server.start()
        let transport = URLSessionTransport()
        let fetch: @Sendable () async throws -> String = {
            switch unseen {
            case .realSleep: try await ContinuousClock().sleep(for: .seconds(3_600))
            case .network: _ = try await transport.send(HTTPCall(url: url))
            case .thread: try await gate.pass(ignoringCancellation: true)
            }
            return "late"
        }

        for isExploring in [true, false] {
            let time = ContinuousClock.now
            let error = await #expect(throws: SeededExecutor.ScheduleError.self) {
                if isExploring {
                    try await SeededExecutor.explore(50) { try await Self.example($0, fetch: fetch) }
                } else {
                    let schedule = SeededExecutor(seed: 0)
                    try await schedule.run { try await Self.example(schedule, fetch: fetch) }
                }
            }
            #expect(time.duration(to: .now) < .busyMachine)
            let text = error?.localizedDescription ?? ""
            for word in ["MUX_SEED=0", "URLSession", "Task.sleep"] { #expect(text.contains(word), "\(text)") }
        }

        gate.openForGood(returning: ())
        await server.stop()
    }

    @Test func `CO-40 a wait that never ends is reported within two seconds`() async throws {
        // The minimum of several runs, because a machine may be busy.
        var least = Duration.busyMachine
        for _ in 0..<20 where least > .seconds(2) {
            let gate = Gate<Int>()
            let time = ContinuousClock.now

            let error = await #expect(throws: SeededExecutor.ScheduleError.self) {
                try await SeededExecutor(seed: 3).run { try await gate.pass(ignoringCancellation: true) }
            }

            least = min(least, time.duration(to: .now))
            let text = error?.localizedDescription ?? ""
            for word in ["MUX_SEED=3", "URLSession", "Task.sleep"] { #expect(text.contains(word), "\(text)") }
            gate.openForGood(returning: 1)
        }
        #expect(least <= .seconds(2))
    }

    @Test func `CO-40 a genuine failure is reported unchanged although virtual time passed`() async throws {
        let error = await #expect(throws: SeededExecutor.ScheduleError.self) {
            try await SeededExecutor.explore(50) { schedule in
                try await Self.example(schedule) {
                    try await schedule.clock.sleep(for: .seconds(5))
                    return "old"
                }
            }
        }
        guard case .failed(seed: 0, let underlying)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(underlying is SawOldName)
    }

    @Test func `CO-40 jobs that arrive after a run are executed`() async throws {
        let schedule = SeededExecutor(seed: 1)
        let gate = Gate<Void>()
        let steps = Tally()
        let late = Locked<Task<Void, Never>?>(nil)

        try await schedule.run {
            let task = Task(executorPreference: schedule) {
                try? await gate.pass()
                steps.add()
                await withTaskGroup { group in
                    for _ in 0..<10 { group.addTask { steps.add() } }
                }
            }
            late.withLock { $0 = task }
        }
        gate.open()

        await late.withLock { $0 }?.value
        #expect(steps.value == 11)
        await Task(executorPreference: schedule) { _ = steps.add() }.value
        #expect(steps.value == 12)
    }

    @Test func `CO-40 one schedule can run several operations`() async throws {
        let schedule = SeededExecutor(seed: 1)
        let clock = schedule.clock
        for number in 1...3 {
            let result = try await schedule.run {
                async let other: Void = clock.sleep(for: .seconds(2))
                try await clock.sleep(for: .seconds(1))
                try await other
                return number
            }
            #expect(result == number)
        }
        #expect(clock.now.offset == .seconds(6))
        let sum = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 1...10 {
                group.addTask {
                    try await schedule.run {
                        await schedule.pause()
                        return number
                    }
                }
            }
            return try await group.reduce(0, +)
        }
        #expect(sum == 55)
    }

    @Test func `CO-40 a cancelled exploration names no seed`() async throws {
        for ignoringCancellation in [false, true] {
            let gate = Gate<Void>()
            let exploring = Task {
                try await SeededExecutor.explore { _ in
                    try await gate.pass(ignoringCancellation: ignoringCancellation)
                    throw SawOldName()
                }
            }
            await gate.waitForCall()

            exploring.cancel()

            await #expect(throws: CancellationError.self) { try await exploring.value }
            gate.openForGood(returning: ())
        }
    }

    @Test(arguments: [
        ["MUX_SEED": "seven"], ["MUX_SEED": ""], ["MUX_SEED": "-1"], ["MUX_SEED": "7 "], ["MUX_SCHEDULES": "many"],
        ["MUX_SCHEDULES": "-1"], ["MUX_SEED": "1", "MUX_SCHEDULES": "0x10"],
    ])
    func `CO-40 an invalid number in the environment is an error`(environment: [String: String]) async {
        let runs = Tally()
        let error = await #expect(throws: SeededExecutor.ScheduleError.self) {
            try await SeededExecutor.explore(3, in: environment) { _ in _ = runs.add() }
        }

        guard case .invalidEnvironment(let name, let value)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(environment[name] == value && error?.localizedDescription.contains(name) == true)
        #expect(runs.value == 0)
    }

    @Test func `CO-40 the environment selects the orders of a run`() async throws {
        let seeds = Locked<[UInt64]>([])
        let body: @Sendable (SeededExecutor) async throws -> Void = { schedule in
            seeds.withLock { $0.append(schedule.seed) }
        }

        #expect(try await SeededExecutor.explore(2, in: [:], body) == 2)
        #expect(try await SeededExecutor.explore(2, in: ["MUX_SCHEDULES": "2"], body) == 4)
        #expect(try await SeededExecutor.explore(2, in: ["MUX_SEED": "18446744073709551615"], body) == 1)

        #expect(seeds.withLock { $0 } == [0, 1, 0, 1, 2, 3, .max])
    }
}
