/// Decides the next step after a failed attempt and after a wait: a wait, another attempt, or the end.
package struct RetryStateMachine: Sendable {
    /// A decision about a failure; the limits of the policy can still end the retry.
    package enum Verdict: Sendable, Equatable {
        /// No further attempt.
        case never
        /// Another attempt after the policy's delay or an early wake-up, but not before the end of
        /// `retryAfter`.
        ///
        /// After a demand or a replacement of the wait, the attempt may start before the end of `retryAfter`.
        case retry(retryAfter: Duration?)
        /// Another attempt after this delay or an early wake-up.
        case after(Duration)
        /// Another attempt at a wake-up.
        case whenWoken
    }

    /// The cause of the end of a wait.
    package enum Wake: Sendable, Equatable {
        /// The deadline or the limit of the wait, or ``RetrySignal/WakeUp/after(_:)``.
        case time
        /// An event that may end many waits at once.
        case signal
        /// A demand for the next attempt, such as ``RetrySignal/retryNow()``.
        case demand
    }

    /// One wait for the next attempt.
    package struct Wait: Sendable, Equatable {
        package let id: UInt64
        /// The planned start of the next attempt; `nil` if only a wake-up starts the attempt.
        package let deadline: Moment?
        /// The time at which a wait without a deadline ends the retry; `nil` for no limit, or with a
        /// deadline.
        let limit: Moment?
        /// The earliest start of the next attempt, except after a demand.
        ///
        /// The end of a `Retry-After`, or otherwise a time at or before the start of the wait.
        let floor: Moment

        /// The end of the wait if no wake-up occurs: ``deadline`` or ``limit``; `nil` for never.
        package var end: Moment? { self.deadline ?? self.limit }
    }

    /// The phase of a retry; the raw value is the text for a log.
    package enum Phase: String, Sendable {
        /// The first attempt has not begun.
        case unstarted
        /// An attempt is running.
        case running
        /// The retry waits for the next attempt.
        case waiting
        /// The retry has ended.
        case finished
    }

    private let policy: RetryPolicy
    package private(set) var phase = Phase.unstarted
    /// The current or last wait; `nil` before the first wait.
    private var lastWait: Wait?
    private var startedAt = Moment.distantPast
    /// Whether a delay was drawn from the remaining time until ``latestStart``.
    ///
    /// This happens only once: repeated draws would get ever shorter.
    private var wasCut = false

    /// The index of the current or last attempt; 0 before the first attempt.
    package private(set) var index = 0

    package init(_ policy: RetryPolicy) { self.policy = policy }

    /// The time since the first attempt began.
    package func elapsed(at now: Moment) -> Duration {
        self.phase == .unstarted ? .zero : max(now.duration(since: self.startedAt), .zero)
    }

    /// Whether `wait` is the current wait.
    package func isWaiting(_ wait: Wait) -> Bool { self.phase == .waiting && self.lastWait == wait }

    // MARK: - Events

    /// Begins the first attempt.
    ///
    /// - Returns: `false` if the retry has begun or ended before.
    package mutating func start(at now: Moment) -> Bool {
        guard self.phase == .unstarted else { return false }
        self.startedAt = now
        self.phase = .running
        return true
    }

    package enum FailureAction: Sendable, Equatable {
        /// No attempt is running.
        case ignore
        /// Begin this wait.
        case wait(Wait)
        /// End the retry.
        case stop(RetryError.Reason)
    }

    /// Ends the current attempt with a failure; `random`, from 0 to 1, selects the delay.
    package mutating func recordFailure(_ verdict: Verdict, at now: Moment, random: Double) -> FailureAction {
        guard self.phase == .running else { return .ignore }
        let action = self.action(after: verdict, at: now, random: random)
        if case .stop = action { self.phase = .finished }
        return action
    }

    private mutating func action(after verdict: Verdict, at now: Moment, random: Double) -> FailureAction {
        guard verdict == .never || self.index + 1 < max(self.policy.maxAttempts, 1) else {
            return .stop(.attemptsExhausted)
        }
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
            wait = self.beginWait(until: now.advanced(by: max(drawn, pause)), floor: now.advanced(by: pause))
        case .after(let delay):
            wait = self.beginWait(until: now.advanced(by: max(delay, .zero)), floor: now)
        case .whenWoken:
            wait = self.beginWait(until: nil, floor: now)
        }
        return wait.map(FailureAction.wait) ?? .stop(.timeExhausted)
    }

    /// The policy's delay before the next attempt; `nil` if a second delay would have to be shortened.
    private mutating func drawnDelay(at now: Moment, random: Double) -> Duration? {
        let next = self.index + 1
        let left = self.timeLeft(at: now)
        if let left, left < self.policy.delay(beforeAttempt: next) {
            guard !self.wasCut else { return nil }
            self.wasCut = true
        }
        return self.policy.delay(beforeAttempt: next, below: left, random: random)
    }

    /// Begins a wait; `nil`, without a wait, if the next attempt would begin after ``latestStart``.
    private mutating func beginWait(until deadline: Moment?, floor: Moment) -> Wait? {
        if let limit = self.latestStart, max(deadline ?? floor, floor) > limit { return nil }
        return self.enter(until: deadline, floor: floor)
    }

    /// The latest start of an attempt; `nil` for no limit.
    private var latestStart: Moment? { self.policy.maximumDuration.map { self.startedAt.advanced(by: $0) } }

    /// The time until ``latestStart``; negative after ``latestStart``; `nil` for no limit.
    private func timeLeft(at now: Moment) -> Duration? { self.latestStart.map { $0.duration(since: now) } }

    private mutating func enter(until deadline: Moment?, floor: Moment) -> Wait {
        let limit = deadline == nil ? self.latestStart : nil
        let id = self.lastWait.map { $0.id + 1 } ?? 0
        let wait = Wait(id: id, deadline: deadline, limit: limit, floor: floor)
        self.phase = .waiting
        self.lastWait = wait
        return wait
    }

    package enum WaitAction: Sendable, Equatable {
        /// The retry does not wait, or is in another wait; the payload is the current phase.
        case ignore(Phase)
        /// End the wait and make the attempt with this index.
        case attempt(Int)
        /// Replace the current wait with this wait.
        case wait(Wait)
        /// End the wait and the retry.
        case stop(RetryError.Reason)
    }

    /// Ends the wait with the given id, or replaces the wait by a further wait.
    ///
    /// - Parameters:
    ///   - id: The id of the wait.
    ///   - wake: The cause.
    ///   - now: The current time.
    ///   - random: From 0 to 1; selects the delay after a signal.
    /// - Returns: The next step. ``WaitAction/wait(_:)`` is the random delay after a signal, or the rest of a
    ///   `Retry-After`; the caller lets only demands end this wait early.
    package mutating func endWait(_ id: UInt64, by wake: Wake, at now: Moment, random: Double) -> WaitAction {
        guard self.phase == .waiting, let wait = self.lastWait, wait.id == id else { return .ignore(self.phase) }
        let next = self.nextStart(after: wait, wake, at: now, random: random)
        let isOver = wake == .time && wait.limit.map { $0 <= now } ?? false
        if isOver || self.latestStart.map({ $0 < next }) ?? false {
            self.phase = .finished
            return .stop(.timeExhausted)
        }
        guard next <= now else { return .wait(self.enter(until: next, floor: wait.floor)) }
        self.index += 1
        self.phase = .running
        return .attempt(self.index)
    }

    private func nextStart(after wait: Wait, _ wake: Wake, at now: Moment, random: Double) -> Moment {
        switch wake {
        case .demand: return now
        case .time: return max(wait.floor, now)
        case .signal:
            let left = self.timeLeft(at: now)
            let jitter = RetryPolicy.Jitter.full.applied(to: self.policy.wakeJitter, below: left, random: random)
            // A signal does not delay the attempt beyond the deadline.
            let delayed = now.advanced(by: jitter)
            return max(min(delayed, max(wait.deadline ?? delayed, now)), wait.floor)
        }
    }

    /// Demands the next attempt now; after ``latestStart``, the demand ends the retry.
    package mutating func demandAttempt(at now: Moment) -> WaitAction {
        guard let wait = self.lastWait else { return .ignore(self.phase) }
        return self.endWait(wait.id, by: .demand, at: now, random: 0)
    }

    /// Replaces the current wait by a wait for `delay`, or until a wake-up if `delay` is `nil`.
    ///
    /// The new wait may end before the end of a `Retry-After`. If the new wait would end after
    /// ``latestStart``, the retry ends.
    package mutating func reschedule(_ delay: Duration?, at now: Moment) -> WaitAction {
        guard self.phase == .waiting else { return .ignore(self.phase) }
        let deadline = delay.map { now.advanced(by: max($0, .zero)) }
        if let wait = self.beginWait(until: deadline, floor: now) { return .wait(wait) }
        self.phase = .finished
        return .stop(.timeExhausted)
    }

    package enum EndAction: Sendable, Equatable {
        /// The retry had already ended.
        case ignore
        /// The retry was not waiting.
        case nothing
        /// End the wait.
        case stopWaiting
    }

    /// Ends the retry, such as after a success or a cancellation.
    package mutating func end() -> EndAction {
        defer { self.phase = .finished }
        switch self.phase {
        case .unstarted, .running: return .nothing
        case .waiting: return .stopWaiting
        case .finished: return .ignore
        }
    }
}
