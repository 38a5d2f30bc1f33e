/// Decides what follows each attempt: a wait, another attempt, or the end.
///
/// Pure: time and chance come in as arguments.
package struct RetryStateMachine: Sendable {
    /// What has been said about a failure.
    package enum Verdict: Sendable, Equatable {
        /// No other attempt.
        case never
        /// Another attempt after the policy's delay, and not before the server wants one.
        case retry(retryAfter: Duration?)
        /// Another attempt after this time.
        case after(Duration)
        /// Another attempt when something wakes it.
        case whenWoken
    }

    /// What ended a wait.
    package enum Wake: Sendable, Equatable {
        /// Time.
        case time
        /// Something that wakes many at once.
        case signal
        /// Somebody who wants this very attempt, now.
        case demand
    }

    /// One wait for the next attempt.
    package struct Wait: Sendable, Equatable {
        /// Names this wait among those of the machine.
        package let id: UInt64
        /// When the attempt begins by itself; `nil` if something has to wake it.
        package let deadline: Moment?
        /// When a wait without a deadline ends without an attempt; `nil` for never.
        let limit: Moment?
        /// Before this no signal ends it.
        let floor: Moment

        /// When it ends by itself, with an attempt or without one; `nil` for never.
        package var end: Moment? { self.deadline ?? self.limit }
    }

    private enum State: Sendable, Equatable {
        /// The first attempt has not begun.
        case ready
        /// An attempt is being made.
        case running
        /// The next attempt is waited for.
        case waiting(Wait)
        /// It is over.
        case over
    }

    /// Names the state for a log.
    package enum Phase: String, Sendable {
        /// The first attempt has not begun.
        case unstarted
        /// An attempt is being made.
        case running
        /// The next attempt is waited for.
        case waiting
        /// It is over.
        case finished
    }

    private let policy: RetryPolicy
    private var state = State.ready
    private var nextID: UInt64 = 0
    private var startedAt = Moment.distantPast
    /// Whether a delay was drawn from the time that was left.
    ///
    /// It happens once: more of them would come ever faster.
    private var wasCut = false

    /// The index of the present attempt, or of the last one.
    package private(set) var index = 0

    package init(_ policy: RetryPolicy) { self.policy = policy }

    /// Where it stands.
    package var phase: Phase {
        switch self.state {
        case .ready: .unstarted
        case .running: .running
        case .waiting: .waiting
        case .over: .finished
        }
    }

    /// How long it is since the first attempt began.
    package func elapsed(at now: Moment) -> Duration {
        switch self.state {
        case .ready: .zero
        case .running, .waiting, .over: max(now.duration(since: self.startedAt), .zero)
        }
    }

    /// Whether that wait has neither ended nor been replaced.
    package func isWaiting(_ wait: Wait) -> Bool { self.state == .waiting(wait) }

    // MARK: - What happened

    /// The first attempt is to begin.
    ///
    /// - Returns: Whether it does.
    package mutating func started(at now: Moment) -> Bool {
        switch self.state {
        case .ready:
            self.startedAt = now
            self.state = .running
            return true
        case .running, .waiting, .over:
            return false
        }
    }

    package enum FailureAction: Sendable, Equatable {
        /// No attempt is being made.
        case ignore
        /// Wait.
        case wait(Wait)
        /// End.
        case stop(RetryError.Reason)
    }

    /// The present attempt has failed.
    ///
    /// `random`, from 0 to 1, selects the delay.
    package mutating func failed(_ verdict: Verdict, at now: Moment, random: Double) -> FailureAction {
        switch self.state {
        case .ready, .waiting, .over: return .ignore
        case .running: break
        }
        let action = self.answer(to: verdict, at: now, random: random)
        if case .stop = action { self.state = .over }
        return action
    }

    private mutating func answer(to verdict: Verdict, at now: Moment, random: Double) -> FailureAction {
        guard verdict != .never else { return .stop(.refused) }
        guard self.index + 1 < max(self.policy.maxAttempts, 1) else { return .stop(.attemptsExhausted) }
        let wait: Wait?
        switch verdict {
        case .never:
            return .stop(.refused)
        case .retry(let retryAfter):
            let pause = retryAfter ?? .zero
            guard pause <= self.policy.maximumRetryAfter || retryAfter == nil else {
                return .stop(.retryAfterTooLong(pause))
            }
            guard let drawn = self.drawnDelay(at: now, random: random) else { return .stop(.timeExhausted) }
            wait = self.wait(until: now.advanced(by: max(drawn, pause)), floor: now.advanced(by: pause))
        case .after(let delay):
            wait = self.wait(until: now.advanced(by: max(delay, .zero)), floor: now)
        case .whenWoken:
            wait = self.wait(until: nil, floor: now)
        }
        return wait.map(FailureAction.wait) ?? .stop(.timeExhausted)
    }

    /// The policy's delay before the next attempt; `nil` if there is no time for another one.
    private mutating func drawnDelay(at now: Moment, random: Double) -> Duration? {
        let next = self.index + 1
        let left = self.timeLeft(at: now)
        if let left, left < self.policy.delay(beforeAttempt: next) {
            guard !self.wasCut else { return nil }
            self.wasCut = true
        }
        return self.policy.delay(beforeAttempt: next, below: left, random: random)
    }

    /// Begins a wait; `nil` if the next attempt would begin too late.
    private mutating func wait(until deadline: Moment?, floor: Moment) -> Wait? {
        if let limit = self.latestStart, max(deadline ?? floor, floor) > limit { return nil }
        return self.enter(until: deadline, floor: floor)
    }

    /// No attempt begins later than this.
    private var latestStart: Moment? { self.policy.maximumDuration.map { self.startedAt.advanced(by: $0) } }

    /// How long it is until ``latestStart``; negative after it.
    private func timeLeft(at now: Moment) -> Duration? { self.latestStart.map { $0.duration(since: now) } }

    private mutating func enter(until deadline: Moment?, floor: Moment) -> Wait {
        let limit = deadline == nil ? self.latestStart : nil
        let wait = Wait(id: self.nextID, deadline: deadline, limit: limit, floor: floor)
        self.nextID += 1
        self.state = .waiting(wait)
        return wait
    }

    package enum WakeAction: Sendable, Equatable {
        /// That wait is over already.
        case ignore
        /// Make the attempt with this index.
        case attempt(Int)
        /// Wait a little longer, for time only.
        case settle(Wait)
        /// End.
        case stop(RetryError.Reason)
    }

    /// Something has ended the wait with that id; `random`, from 0 to 1, selects how long an early wake-up is put off.
    package mutating func woken(_ id: UInt64, by wake: Wake, at now: Moment, random: Double) -> WakeAction {
        switch self.state {
        case .ready, .running, .over: return .ignore
        case .waiting(let wait):
            guard wait.id == id else { return .ignore }
            let next = self.nextStart(after: wait, wake, at: now, random: random)
            let isOver = wake == .time && wait.limit.map { $0 <= now } ?? false
            if isOver || self.latestStart.map({ $0 < next }) ?? false {
                self.state = .over
                return .stop(.timeExhausted)
            }
            guard next <= now else {
                return .settle(self.enter(until: next, floor: wait.floor))
            }
            self.index += 1
            self.state = .running
            return .attempt(self.index)
        }
    }

    private func nextStart(after wait: Wait, _ wake: Wake, at now: Moment, random: Double) -> Moment {
        switch wake {
        case .demand: return now
        case .time: return max(wait.floor, now)
        case .signal:
            let left = self.timeLeft(at: now)
            let jitter = RetryJitter.full.applied(to: self.policy.wakeJitter, below: left, random: random)
            let put = now.advanced(by: jitter)
            return max(min(put, max(wait.deadline ?? put, now)), wait.floor)
        }
    }

    package enum DemandAction: Sendable, Equatable {
        /// Nothing is waited for.
        case ignore(Phase)
        /// Call the wait off and make the attempt with this index.
        case attempt(Int)
        /// Call the wait off and wait so instead.
        case wait(Wait)
        /// Call the wait off and end.
        case stop(RetryError.Reason)
    }

    /// The next attempt is demanded now.
    package mutating func demanded(at now: Moment) -> DemandAction {
        switch self.state {
        case .ready, .running, .over: return .ignore(self.phase)
        case .waiting:
            if let limit = self.latestStart, limit < now {
                self.state = .over
                return .stop(.timeExhausted)
            }
            self.index += 1
            self.state = .running
            return .attempt(self.index)
        }
    }

    /// Another wait is demanded in place of the present one: for that long, or with `nil` until something wakes it.
    package mutating func rescheduled(_ delay: Duration?, at now: Moment) -> DemandAction {
        switch self.state {
        case .ready, .running, .over: return .ignore(self.phase)
        case .waiting:
            let deadline = delay.map { now.advanced(by: max($0, .zero)) }
            if let wait = self.wait(until: deadline, floor: now) { return .wait(wait) }
            self.state = .over
            return .stop(.timeExhausted)
        }
    }

    package enum EndAction: Sendable, Equatable {
        /// It was over already.
        case ignore
        /// The first attempt never began.
        case nothing
        /// An attempt is being made: have it stop.
        case stopAttempt
        /// Call the wait off.
        case stopWaiting
    }

    /// The present attempt has succeeded, or nobody wants another.
    package mutating func ended() -> EndAction {
        defer { self.state = .over }
        switch self.state {
        case .ready: return .nothing
        case .running: return .stopAttempt
        case .waiting: return .stopWaiting
        case .over: return .ignore
        }
    }
}
