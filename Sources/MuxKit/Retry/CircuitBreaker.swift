/// Decides about one host: whether it may be asked, and whether it may be asked again.
///
/// Pure: time comes in as an argument. Retries are a share of the first attempts, both forgotten by half with each window that
/// passes. A host that only fails is left alone, then one request finds out whether that has passed.
package struct CircuitBreaker: Sendable {
    private enum Breaker: Sendable, Equatable {
        /// The host may be asked; so many requests in a row have failed.
        case closed(failures: Int)
        /// The host is left alone until then. The pause after the next failure is `pause`.
        case open(until: Moment, pause: Duration)
        /// This one request finds out; another one may, if it has not ended by then.
        case probing(ticket: UInt64, pause: Duration, until: Moment)
    }

    private let options: RetryBudget.Options
    private var breaker = Breaker.closed(failures: 0)
    private var nextTicket: UInt64 = 0
    private var firsts = 0.0
    private var retries = 0.0
    private var window: Moment
    /// When it was last asked about.
    package private(set) var lastUsed: Moment

    package init(_ options: RetryBudget.Options, at now: Moment) {
        self.options = options
        self.window = now
        self.lastUsed = now
    }

    /// Whether nothing is known that would matter after a long time.
    package var isHealthy: Bool { self.breaker == .closed(failures: 0) }

    package enum AdmitAction: Sendable, Equatable {
        /// Ask the host, and tell how that ends.
        case ask(ticket: UInt64)
        /// Leave the host alone.
        case refuse
    }

    /// An attempt is to be made.
    package mutating func wanted(isRetry: Bool, at now: Moment) -> AdmitAction {
        self.forget(at: now)
        switch self.breaker {
        case .closed: break
        case .open(let until, let pause):
            guard now >= until else { return .refuse }
            self.probe(pause, at: now)
        case .probing(_, let pause, let until):
            guard now >= until else { return .refuse }
            self.probe(pause, at: now)
        }
        if !isRetry { self.firsts += 1 }
        defer { self.nextTicket += 1 }
        return .ask(ticket: self.nextTicket)
    }

    /// A retry is to be planned.
    ///
    /// - Returns: Whether the host's share permits it; it is taken then.
    package mutating func retryWanted(at now: Moment) -> Bool {
        self.forget(at: now)
        let share = self.options.share.isNaN ? 0 : max(self.options.share, 0)
        guard self.retries + 1 <= max(Double(self.options.minimumRetries), self.firsts * share) else { return false }
        self.retries += 1
        return true
    }

    /// A request was answered: the host works.
    package mutating func answered() { self.breaker = .closed(failures: 0) }

    /// A request failed in a way that may be the host's fault.
    package mutating func failed(_ ticket: UInt64, at now: Moment) {
        switch self.breaker {
        case .closed(let failures):
            let count = failures + 1
            self.breaker = .closed(failures: count)
            if count >= max(self.options.failuresToOpen, 1) { self.open(for: self.options.pause, at: now) }
        case .open: break
        case .probing(ticket, let pause, _): self.open(for: pause, at: now)
        case .probing: break  // it began before the probe did, and says nothing new
        }
    }

    /// A request ended without saying anything about the host.
    package mutating func abandoned(_ ticket: UInt64, at now: Moment) {
        switch self.breaker {
        case .probing(ticket, let pause, _):
            self.breaker = .open(until: now, pause: pause)  // the next one is the probe
        case .closed, .open, .probing: break
        }
    }

    private mutating func probe(_ pause: Duration, at now: Moment) {
        let limit = now.advanced(by: max(self.options.probeLimit, .zero))
        self.breaker = .probing(ticket: self.nextTicket, pause: pause, until: limit)
    }

    private mutating func open(for pause: Duration, at now: Moment) {
        let pause = max(pause, .zero)
        let next = min(.saturating(seconds: pause.secondsValue * 2), max(self.options.maximumPause, pause))
        self.breaker = .open(until: now.advanced(by: pause), pause: next)
    }

    private mutating func forget(at now: Moment) {
        self.lastUsed = now
        let length = max(self.options.window, .milliseconds(1))
        let passed = now.duration(since: self.window).secondsValue / length.secondsValue
        guard passed >= 1 else { return }
        self.window = now
        var count = passed < 64 ? Int(passed) : 64
        while count > 0 {
            self.firsts /= 2
            self.retries /= 2
            count -= 1
        }
    }
}

/// Whom a piece of work asks, and the budget that all share who ask there.
///
/// ```swift
/// let page = try await retry(.web, on: "api.example.com") { _ in try await fetchPage() }
/// ```
public struct RetryHost: Sendable, ExpressibleByStringLiteral {
    /// The name, such as `api.example.com`; without regard to the case of its letters.
    public let name: String

    /// The budget.
    public let budget: RetryBudget

    /// Names a host.
    ///
    /// - Parameters:
    ///   - name: The name, such as `api.example.com`.
    ///   - budget: The budget.
    public init(_ name: String, budget: RetryBudget = .shared) {
        self.name = name.lowercased()
        self.budget = budget
    }

    /// Names a host of the shared budget.
    public init(stringLiteral name: String) { self.init(name) }

    /// Says that the host has answered somebody who used no retry: it works, and attempts that wait for that are woken.
    public func answered() { self.budget.answered(self.name) }

    /// One request that the host is being asked.
    struct Pass: Sendable {
        let host: RetryHost
        let ticket: UInt64

        func succeeded() { self.host.answered() }

        /// It failed: only trouble that may pass is the host's; whoever refuses something works.
        func failed(_ error: any Error) {
            let advice = RetryAdvice.of(error)
            if advice.isTransient {
                self.host.budget.failed(self.host.name, self.ticket)
            } else if advice.status != nil || error.saysBadDependency {
                self.succeeded()
            } else {
                self.cancelled()
            }
        }

        func cancelled() { self.host.budget.abandoned(self.host.name, self.ticket) }
    }

    /// A request to the host; `nil` if it is to be left alone.
    func admit(isRetry: Bool) -> Pass? {
        self.budget.admit(self.name, isRetry: isRetry).map { Pass(host: self, ticket: $0) }
    }

    /// Takes one from the host's share of retries, if there is one.
    func permitsRetry() -> Bool { self.budget.permitsRetry(self.name) }
}

extension RetryWakeUp {
    /// Wakes when the host answers somebody else.
    public static func success(on host: RetryHost) -> RetryWakeUp {
        RetryWakeUp("success", .signal) { _, wake in host.budget.listen(host.name, wake) }
    }
}
