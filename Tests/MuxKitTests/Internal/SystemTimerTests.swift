import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SystemTimerTests {
    private let timer = SystemTimer()

    @Test func `CO-17 cancelled sleeps leave no sleepers and few places`() async {
        let sleeps = (0..<2_000).map { number in
            Task { [timer] in try await timer.sleep(for: .seconds(3_600 + number % 7)) }
        }
        for sleep in sleeps { sleep.cancel() }
        for sleep in sleeps { await #expect(throws: CancellationError.self) { try await sleep.value } }

        let occupancy = self.timer.occupancy
        #expect(occupancy.sleepers == 0)
        #expect(occupancy.places <= 64)
        #expect(occupancy.drivers <= 7, "one for each time that was earlier than all before")
    }

    @Test func `PT-01 cancelled sleeps do not delay other sleeps`() async throws {
        var sleeps: [Task<Void, any Error>] = []
        // These durations are in the order of a heap. Without the cancelled sleeps, the second short sleep
        // is below a long sleep.
        let short = [0: 1_000, 7: 1_600]
        let cancelled = [1: 1_200, 3: 1_400].merging((9..<120).map { ($0, 4_000_000 + $0) }) { $1 }
        // A busy machine may be too slow for this order.
        let end = ContinuousClock.now.advanced(by: .milliseconds(900))
        for number in 0..<120 {
            let duration = Duration.milliseconds(short[number] ?? cancelled[number] ?? 3_600_000 + number)
            sleeps.append(Task { [timer] in try await timer.sleep(for: duration) })
            while self.timer.occupancy.places <= number, .now < end { await Task.yield() }
        }
        for number in cancelled.keys { sleeps[number].cancel() }
        for number in cancelled.keys { _ = await sleeps[number].result }
        #expect(self.timer.occupancy.places < 100)
        for number in short.keys { try await sleeps[number].value }
        for sleep in sleeps { sleep.cancel() }
        for sleep in sleeps { _ = await sleep.result }
    }

    @Test func `CO-17 no sleep ends early, and a cancelled task does not sleep`() async throws {
        try await withThrowingTaskGroup { group in
            for number in [3, 1, 2, 0] {
                group.addTask { [timer] in
                    let time = Duration.milliseconds(10 * number)
                    let start = ContinuousClock.now
                    try await timer.sleep(for: time)
                    #expect(ContinuousClock.now - start >= time)
                }
            }
            try await group.waitForAll()
        }
        try await self.timer.sleep(for: .seconds(-1))
        #expect(self.timer.occupancy.sleepers == 0)

        let late = Task { [timer] in
            withUnsafeCurrentTask { $0?.cancel() }
            try await timer.sleep(for: .longest)
        }
        await #expect(throws: CancellationError.self) { try await late.value }
        // A late driver has also woken the sleepers of the next driver, and the next driver ends by itself.
        while self.timer.occupancy.drivers > 0 { await Task.yield() }
    }

    @Test func `CO-17 an action repeats after each duration that the action returns, and leaves nothing behind`() async
    {
        let (runs, start) = (Locked<[ContinuousClock.Instant]>([]), ContinuousClock.now)
        let sleepers = Locked<[Int]>([])
        let end = FirstValue<Void>()
        _ = self.timer.schedule(after: .milliseconds(10)) { [timer] in
            sleepers.withLock { $0.append(timer.occupancy.sleepers) }
            let count = runs.withLock { runs in
                runs.append(.now)
                return runs.count
            }
            guard count == 3 else { return .milliseconds(10) }
            end.give(())
            return nil
        }
        await end.wait()
        #expect(sleepers.withLock { $0 } == [1, 1, 1])
        #expect(runs.withLock(\.self).enumerated().allSatisfy { $1 - start >= .milliseconds(10 * ($0 + 1)) })
        while self.timer.occupancy.sleepers + self.timer.occupancy.drivers > 0 { await Task.yield() }
        #expect(runs.withLock(\.count) == 3)
    }

    @Test func `CO-17 a cancelled action does not start again, even if the action runs`() async throws {
        let id = Locked<UInt64?>(nil)
        let counts = Locked((cancelled: 0, running: 0))
        let start = ContinuousClock.now
        let never = self.timer.schedule(after: .milliseconds(20)) {
            counts.withLock { $0.cancelled += 1 }
            return nil
        }
        self.timer.cancel(never)
        // A busy machine may be too slow for the cancellation.
        let isEarly = ContinuousClock.now - start < .milliseconds(20)
        let own = self.timer.schedule(after: .zero) { [timer] in
            counts.withLock { $0.running += 1 }
            if let own = id.withLock(\.self) { timer.cancel(own) }
            return .zero
        }
        id.withLock { $0 = own }
        while self.timer.occupancy.sleepers > 0 { await Task.yield() }
        let count = counts.withLock(\.running)
        try await self.timer.sleep(for: .milliseconds(30))
        #expect(counts.withLock(\.running) == count)
        #expect(!isEarly || counts.withLock { $0.cancelled } == 0)
    }

    @Test func `CO-17 time that passes before the task of an injected clock begins counts`() {
        let (clock, executor, hasRun) = (VirtualClock(), OrderedExecutor(), Locked(false))
        executor.pause()
        let action = TimeSource(clock).schedule(
            name: "mux.test",
            after: .seconds(5),
            TaskLauncher(executor: executor)
        ) {
            hasRun.withLock { $0 = true }
            return nil
        }
        clock.advance(by: .seconds(6))
        executor.resume()
        executor.settle()

        #expect(hasRun.withLock { $0 })
        action.cancel()
    }

    @Test func `CO-17 a completed request with a time limit leaves no sleep behind`() async throws {
        let repository = MuxRepository(store: MemoryStore())
        let number = Multiplexer<Int>(repository: repository) { 1 }
        for _ in 0..<1_000 { _ = try await number.request(.reload.within(.seconds(3_600))) }
        await number.expectAtRest()
        // Other tests use the same timer, with far fewer than a thousand sleeps.
        let occupancy = SystemTimer.shared.occupancy
        #expect(occupancy.sleepers < 500)
        #expect(occupancy.places < 1_500)
        #expect(occupancy.drivers < 100)
    }
}
