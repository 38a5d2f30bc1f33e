import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RetryStateMachineTests {
    private func at(_ seconds: Int64) -> Moment { Moment(nanoseconds: seconds * 1_000_000_000) }

    private func waiting(
        _ verdict: RetryStateMachine.Verdict = .retry(retryAfter: nil),
        _ policy: RetryPolicy = .fixed(.seconds(60), jitter: .none)
    ) throws -> (RetryStateMachine, RetryStateMachine.Wait) {
        var machine = RetryStateMachine(policy)
        #expect(machine.start(at: self.at(0)) == true)
        guard case .wait(let wait) = machine.recordFailure(verdict, at: self.at(0), random: 0.5) else {
            throw Flaky()
        }
        return (machine, wait)
    }

    @Test func `E01 a started machine does not start again`() {
        var machine = RetryStateMachine(.web)

        #expect(machine.start(at: self.at(5)) == true)
        #expect(machine.start(at: self.at(6)) == false)
        #expect(machine.elapsed(at: self.at(7)) == .seconds(2))
        #expect(machine.elapsed(at: self.at(4)) == .zero, "time never goes back")
    }

    @Test func `E01 events that do not match the state are ignored`() throws {
        var fresh = RetryStateMachine(.web)
        #expect(fresh.recordFailure(.retry(retryAfter: nil), at: self.at(0), random: 0) == .ignore)
        #expect(fresh.endWait(0, by: .time, at: self.at(0), random: 0) == .ignore(.unstarted))
        #expect(fresh.demandAttempt(at: self.at(0)) == .ignore(.unstarted))
        #expect(fresh.reschedule(.zero, at: self.at(0)) == .ignore(.unstarted))
        #expect(fresh.end() == .nothing)
        #expect(fresh.start(at: self.at(0)) == false)

        var (machine, wait) = try self.waiting()
        #expect(machine.recordFailure(.never, at: self.at(0), random: 0) == .ignore)
        #expect(machine.endWait(wait.id + 1, by: .time, at: self.at(60), random: 0) == .ignore(.waiting))
        #expect(machine.endWait(wait.id, by: .time, at: self.at(60), random: 0) == .attempt(1))
        #expect(machine.endWait(wait.id, by: .time, at: self.at(60), random: 0) == .ignore(.running))
        #expect(machine.demandAttempt(at: self.at(60)) == .ignore(.running))
        #expect(machine.end() == .nothing)
        #expect(machine.end() == .ignore)
        #expect(machine.recordFailure(.never, at: self.at(0), random: 0) == .ignore)
        #expect(machine.demandAttempt(at: self.at(60)) == .ignore(.finished))
    }

    @Test func `F09 a demand ends a wait despite the server's Retry-After`() throws {
        var (machine, wait) = try self.waiting(.retry(retryAfter: .seconds(200)))

        #expect(machine.demandAttempt(at: self.at(1)) == .attempt(1))
        #expect(
            machine.endWait(wait.id, by: .time, at: self.at(60), random: 0) == .ignore(.running),
            "that wait is over"
        )
    }

    @Test func `F10 another wait replaces the current wait`() throws {
        var (machine, wait) = try self.waiting()

        guard case .wait(let next) = machine.reschedule(.seconds(2), at: self.at(10)) else {
            Issue.record("no wait")
            return
        }

        #expect(next.deadline == self.at(12))
        #expect(machine.endWait(wait.id, by: .time, at: self.at(12), random: 0) == .ignore(.waiting))
        #expect(machine.endWait(next.id, by: .time, at: self.at(12), random: 0) == .attempt(1))
    }

    @Test func `F11 a wait without a deadline ends only with a wake-up`() throws {
        var (machine, wait) = try self.waiting(.whenWoken)
        #expect(wait.deadline == nil)

        guard case .wait(let next) = machine.endWait(wait.id, by: .signal, at: self.at(500), random: 0.5) else {
            Issue.record("no settling")
            return
        }

        #expect(next.deadline == self.at(500).advanced(by: .milliseconds(1_500)))
        #expect(machine.endWait(next.id, by: .time, at: self.at(502), random: 0.5) == .attempt(1))
    }

    @Test func `E01 a wake-up after the maximum duration ends the retries`() throws {
        var policy = RetryPolicy.fixed(.seconds(60), jitter: .none)
        policy.maximumDuration = .seconds(100)
        var (machine, wait) = try self.waiting(.whenWoken, policy)

        #expect(machine.endWait(wait.id, by: .signal, at: self.at(101), random: 0) == .stop(.timeExhausted))
        #expect(machine.phase == .finished)
    }

    /// Plays random events and checks the invariants after each event.
    @Test(arguments: 0..<300 as Range<UInt64>)
    func `E01 no order of events makes too many attempts or an early attempt`(seed: UInt64) {
        var generator = SplitMix64(state: seed)
        func pick<T>(_ choices: [T]) -> T { choices[Int.random(in: 0..<choices.count, using: &generator)] }
        var policy = RetryPolicy(
            maxAttempts: Int.random(in: -1...5, using: &generator),
            backoff: pick([.immediate, .fixed(.seconds(5)), .exponential(base: .seconds(1)), .patient])
        )
        policy.maximumDuration = pick([nil, .seconds(30)])
        var machine = RetryStateMachine(policy)
        var now = self.at(0)
        var attempts = 0
        var wait: RetryStateMachine.Wait?
        var floor = now
        var isOver = false
        var firstStart = Duration.zero

        for _ in 0..<60 {
            now = now.advanced(by: .seconds(Int64.random(in: 0...8, using: &generator)))
            let random = Double.random(in: 0...1, using: &generator)
            let before = machine.phase
            switch Int.random(in: 0..<10, using: &generator) {
            case 0:
                if machine.start(at: now) {
                    attempts += 1
                    firstStart = now.duration(since: self.at(0))
                }
            case 1...4:
                let after = pick([nil, Duration.seconds(7), .seconds(1_000)])
                let verdict = pick([
                    RetryStateMachine.Verdict.never, .retry(retryAfter: after), .retry(retryAfter: after),
                    .after(.seconds(3)), .whenWoken,
                ])
                switch machine.recordFailure(verdict, at: now, random: random) {
                case .ignore: #expect(before != .running)
                case .stop: isOver = true
                case .wait(let next):
                    #expect(before == .running)
                    wait = next
                    floor = now
                    if case .retry(let after?) = verdict { floor = now.advanced(by: after) }
                    #expect(next.deadline.map { $0 >= floor } ?? (verdict == .whenWoken))
                }
            case 5...7:
                let wake = pick([RetryStateMachine.Wake.time, .signal, .demand])
                if wake == .time, let end = wait?.end { now = max(now, end) }
                switch machine.endWait(wait?.id ?? 99, by: wake, at: now, random: random) {
                case .ignore: break
                case .stop: isOver = true
                case .wait(let next):
                    #expect(next.deadline.map { $0 > now && $0 <= max(floor, now.advanced(by: .seconds(3))) } == true)
                    wait = next
                case .attempt(let index):
                    attempts += 1
                    #expect(index == attempts - 1)
                    #expect(wake == .demand || now >= floor, "no attempt before the server wants one")
                }
            case 8:
                let action = pick(
                    [
                        { $0.demandAttempt(at: now) }, { $0.reschedule(nil, at: now) },
                        { $0.reschedule(.seconds(20), at: now) },
                    ] as [(inout RetryStateMachine) -> RetryStateMachine.WaitAction]
                )(&machine)
                switch action {
                case .ignore(let phase): #expect(phase == before && before != .waiting)
                case .attempt: attempts += 1
                case .wait(let next): (wait, floor) = (next, now)
                case .stop: isOver = true
                }
            default:
                if Int.random(in: 0..<8, using: &generator) == 0 {
                    _ = machine.end()
                    isOver = true
                }
            }
            #expect(attempts <= max(policy.maxAttempts, 1))
            if machine.phase == .waiting, let limit = policy.maximumDuration {
                #expect(
                    wait?.end.map { $0 <= self.at(0).advanced(by: limit + firstStart) } == true,
                    "a wait has no end"
                )
            }
            if isOver { #expect(machine.phase == .finished) }
        }
    }

    /// A machine with a running first attempt.
    ///
    /// The last attempt may begin 100 seconds later.
    private func limited(_ change: (inout RetryPolicy) -> Void = { _ in }) -> RetryStateMachine {
        var policy = RetryPolicy.fixed(.seconds(60), maxAttempts: 100, jitter: .full)
        policy.maximumDuration = .seconds(100)
        change(&policy)
        var machine = RetryStateMachine(policy)
        _ = machine.start(at: self.at(0))
        return machine
    }

    private func wait(_ action: RetryStateMachine.FailureAction) throws -> RetryStateMachine.Wait {
        guard case .wait(let wait) = action else { throw Flaky() }
        return wait
    }

    @Test func `CO-37 a wait for a wake-up ends at the limit`() throws {
        var machine = self.limited()
        let wait = try self.wait(machine.recordFailure(.whenWoken, at: self.at(10), random: 0))

        #expect(wait.deadline == nil)
        #expect(wait.end == self.at(100))
        #expect(machine.endWait(wait.id, by: .time, at: self.at(100), random: 0) == .stop(.timeExhausted))
        #expect(machine.phase == .finished)
    }

    @Test func `CO-37 a time that serves as a wake-up begins an attempt before the limit`() throws {
        var machine = self.limited()
        let wait = try self.wait(machine.recordFailure(.whenWoken, at: self.at(10), random: 0))

        #expect(machine.endWait(wait.id, by: .time, at: self.at(99), random: 0) == .attempt(1))
    }

    @Test(arguments: [0, 0.5, 1])
    func `CO-37 a wake-up one second before the limit begins an attempt`(random: Double) throws {
        var machine = self.limited()
        let wait = try self.wait(machine.recordFailure(.whenWoken, at: self.at(10), random: 0))

        switch machine.endWait(wait.id, by: .signal, at: self.at(99), random: random) {
        case .attempt(let index): #expect(index == 1 && random == 0)
        case .wait(let next):
            let deadline = try #require(next.deadline)
            #expect(deadline < self.at(100))
            #expect(machine.endWait(next.id, by: .time, at: deadline, random: random) == .attempt(1))
        case .ignore, .stop: Issue.record("no attempt")
        }
    }

    @Test func `CO-37 a demand after the limit or a wait beyond the limit ends the retries`() throws {
        var machine = self.limited()
        _ = try self.wait(machine.recordFailure(.whenWoken, at: self.at(10), random: 0))
        #expect(machine.demandAttempt(at: self.at(101)) == .stop(.timeExhausted))
        #expect(machine.demandAttempt(at: self.at(101)) == .ignore(.finished))

        machine = self.limited()
        _ = try self.wait(machine.recordFailure(.whenWoken, at: self.at(10), random: 0))
        #expect(machine.reschedule(.seconds(91), at: self.at(10)) == .stop(.timeExhausted))
        #expect(machine.phase == .finished)

        machine = self.limited()
        _ = try self.wait(machine.recordFailure(.whenWoken, at: self.at(10), random: 0))
        guard case .wait(let parked) = machine.reschedule(nil, at: self.at(20)) else { throw Flaky() }
        #expect(parked.end == self.at(100))
    }

    @Test(arguments: [0, 0.5, 1])
    func `CO-37 a random delay is drawn from the remaining time, once`(random: Double) throws {
        var machine = self.limited()
        let first = try self.wait(machine.recordFailure(.retry(retryAfter: nil), at: self.at(70), random: random))
        let deadline = try #require(first.deadline)
        #expect(deadline < self.at(100))
        #expect(machine.endWait(first.id, by: .time, at: deadline, random: random) == .attempt(1))

        #expect(machine.recordFailure(.retry(retryAfter: nil), at: deadline, random: 0) == .stop(.timeExhausted))
    }

    @Test func `CO-37 a delay that cannot be shorter than the remaining time ends the retries`() {
        for jitter in [RetryPolicy.Jitter.none, .equal] {
            var machine = self.limited { $0.jitter = jitter }
            #expect(machine.recordFailure(.retry(retryAfter: nil), at: self.at(75), random: 0) == .stop(.timeExhausted))
        }
        var machine = self.limited()
        #expect(
            machine.recordFailure(.retry(retryAfter: .seconds(31)), at: self.at(70), random: 0) == .stop(.timeExhausted)
        )
    }
}
