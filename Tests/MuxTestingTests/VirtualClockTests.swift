import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct VirtualClockTests {
    let clock = VirtualClock()

    @Test func `P-04 the virtual clock stands still until it is advanced`() async throws {
        #expect(self.clock.now.offset == .zero)

        self.clock.advance(by: .seconds(3))
        self.clock.advance(by: .seconds(-1))

        #expect(self.clock.now.offset == .seconds(3))
        try await self.clock.sleep(until: self.clock.now)
    }

    @Test func `P-04 sleepers wake by deadline and then by arrival`() async throws {
        let clock = self.clock
        let order = Locked<[String]>([])
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (arrived, (name, seconds)) in [("c", 3), ("a1", 1), ("b", 2), ("a2", 1)].enumerated() {
                group.addTask {
                    try await clock.sleep(for: .seconds(seconds))
                    order.withLock { $0.append(name) }
                }
                await clock.waitForSleepers(arrived + 1)
            }

            for expected in [["a1", "a2"], ["a1", "a2", "b"], ["a1", "a2", "b", "c"]] {
                let before = order.withLock { $0.count }
                #expect(clock.advanceToNextDeadline() == .seconds(1))
                for _ in before..<expected.count { try await group.next() }
                #expect(order.withLock { $0.sorted() } == expected)
            }
        }
        #expect(clock.advanceToNextDeadline() == nil)
    }

    @Test func `PT-01 the next deadline is the earliest of all in any order of arrival`() async throws {
        let clock = self.clock
        var random = SplitMix64(state: 1)
        for _ in 0..<50 {
            let start = clock.now.offset
            let deadlines = (1...Int.random(in: 4...12, using: &random)).shuffled(using: &random)
            var sleepers: [Task<Void, any Error>] = []
            for deadline in deadlines {
                sleepers.append(Task { try await clock.sleep(for: .seconds(deadline)) })
                await clock.waitForSleepers(sleepers.count)
            }
            for deadline in 1...deadlines.count {
                #expect(clock.advanceToNextDeadline() == .seconds(1))
                #expect(clock.now.offset - start == .seconds(deadline))
                #expect(clock.sleeperCount == deadlines.count - deadline)
            }
            for sleeper in sleepers { try await sleeper.value }
        }
    }

    @Test func `P-04 a cancelled sleeper leaves at once, and other sleepers continue`() async throws {
        let clock = self.clock
        let short = Task { try await clock.sleep(for: .seconds(1)) }
        let long = Task { try await clock.sleep(for: .seconds(2)) }
        await clock.waitForSleepers(2)

        long.cancel()

        await #expect(throws: CancellationError.self) { try await long.value }
        #expect(clock.sleeperCount == 1)
        clock.advance(by: .seconds(1))
        try await short.value
    }

    @Test func `P-04 a task cancelled before it sleeps does not sleep`() async {
        let clock = self.clock
        let gate = Gate<Void>()
        let task = Task {
            try await gate.pass(ignoringCancellation: true)
            try await clock.sleep(for: .seconds(1))
        }
        await gate.waitForCall()

        task.cancel()
        gate.open()

        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(clock.sleeperCount == 0)
        let over = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            try await clock.sleep(until: clock.now)
        }
        await #expect(throws: CancellationError.self) { try await over.value }
    }

    @Test func `P-04 the virtual clock's arithmetic saturates`() {
        let end = VirtualClock.Instant().advanced(by: .longest).advanced(by: .longest).advanced(by: .longest)
        let start = VirtualClock.Instant(offset: .seconds(Int64.min))

        #expect(end.advanced(by: .seconds(Int64.max)) == end)
        #expect(start < end)
        #expect(start.duration(to: end) > .longest)
        self.clock.advance(by: .seconds(Int64.max))
        self.clock.advance(by: .seconds(Int64.max))
        self.clock.advance(by: .seconds(Int64.max))
        #expect(self.clock.now == end)
    }

    @Test func `P-04 waiting for sleepers ends when the waiter is cancelled`() async {
        let clock = self.clock
        let waiter = Task { await clock.waitForSleepers(1) }

        waiter.cancel()

        await waiter.value
    }

    /// The processor time of this thread, which other tests do not affect.
    private static var processorTime: Duration {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    enum Crowd: CaseIterable, Sendable {
        case deadlinesOfTheirOwn
        case oneDeadline
        case cancelled
    }

    /// The processor time of `count` sleepers.
    private func time(of count: Int, _ crowd: Crowd) async -> Duration {
        let clock = VirtualClock()
        let executor = InlineExecutor()
        let awake = Locked(0)

        // All tasks run on one thread: each task sleeps before its creator continues.
        let time = await Task(executorPreference: executor) {
            let start = Self.processorTime
            let tasks = (0..<count).map { number in
                let seconds = crowd == .deadlinesOfTheirOwn ? number * 7_919 % count + 1 : 1
                return Task(executorPreference: executor) {
                    try await clock.sleep(for: .seconds(seconds))
                    awake.withLock { $0 += 1 }
                }
            }
            #expect(clock.sleeperCount == count)
            switch crowd {
            case .deadlinesOfTheirOwn: while clock.advanceToNextDeadline() != nil {}
            case .oneDeadline: clock.advance(by: .seconds(1))
            case .cancelled: for task in tasks { task.cancel() }
            }
            return Self.processorTime - start
        }.value

        #expect(clock.sleeperCount == 0)
        #expect(awake.withLock { $0 } == (crowd == .cancelled ? 0 : count))
        return time
    }

    @Test(arguments: Crowd.allCases)
    func `CO-43 eight times the sleepers do not take sixty-four times as long`(crowd: Crowd) async {
        let few = await self.time(of: 2_500, crowd)
        let many = await self.time(of: 20_000, crowd)

        // 24 is between 8 (linear) and 64 (quadratic). The 20,000 sleepers usually take half a second in a
        // debug build.
        #expect(many < few * 24)
    }
}
