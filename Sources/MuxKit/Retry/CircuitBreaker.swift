import Foundation

/// Limits the requests to one host: admits or refuses requests, and permits or refuses retries.
///
/// The number of retries is limited to a share of the number of first attempts or to a minimum limit,
/// whichever is greater. The counts of retries and of first attempts are halved after each window. After
/// consecutive failures the breaker opens for a pause, then admits one request as a probe.
package struct CircuitBreaker: Sendable {
    private enum Breaker: Sendable, Equatable {
        /// Requests are admitted; `failures` requests have failed since the last response.
        case closed(failures: Int)
        /// Requests are refused until the time `until`. The next pause has the length `pause`.
        case open(until: Moment, pause: Duration)
        /// One request is the probe; if the probe has not ended by `until`, another request becomes the
        /// probe.
        case probing(ticket: UInt64, pause: Duration, until: Moment)
    }

    private let limits: RetryBudget.Limits
    private var breaker = Breaker.closed(failures: 0)
    private var nextTicket: UInt64 = 0
    private var firsts = 0.0
    private var retries = 0.0
    /// The start of the current window.
    private var window: Moment
    /// The time of the last ``admitRequest(isRetry:at:)`` or ``admitRetry(at:)``.
    package private(set) var lastUsed: Moment

    package init(_ limits: RetryBudget.Limits, at now: Moment) {
        self.limits = limits
        self.window = now
        self.lastUsed = now
    }

    /// Whether the breaker is closed without failures.
    package var isHealthy: Bool { self.breaker == .closed(failures: 0) }

    /// Asks for admission of a request.
    ///
    /// - Returns: The ticket of the request, whose end must be reported; `nil` to refuse the request.
    package mutating func admitRequest(isRetry: Bool, at now: Moment) -> UInt64? {
        self.halveCounts(at: now)
        switch self.breaker {
        case .closed: break
        case .open(let until, let pause), .probing(_, let pause, let until):
            guard now >= until else { return nil }
            let limit = now.advanced(by: max(self.limits.probeLimit, .zero))
            self.breaker = .probing(ticket: self.nextTicket, pause: pause, until: limit)
        }
        if !isRetry { self.firsts += 1 }
        defer { self.nextTicket += 1 }
        return self.nextTicket
    }

    /// Asks for permission of a retry.
    ///
    /// - Returns: Whether the limits permit the retry; a permitted retry is counted.
    package mutating func admitRetry(at now: Moment) -> Bool {
        self.halveCounts(at: now)
        let share = self.limits.share.isNaN ? 0 : max(self.limits.share, 0)
        guard self.retries + 1 <= max(Double(self.limits.minimumRetries), self.firsts * share) else { return false }
        self.retries += 1
        return true
    }

    /// Reports a response to a request.
    package mutating func answered() { self.breaker = .closed(failures: 0) }

    /// Reports a transient error of a request.
    package mutating func failed(_ ticket: UInt64, at now: Moment) {
        switch self.breaker {
        case .closed(let failures):
            let count = failures + 1
            self.breaker = .closed(failures: count)
            if count >= max(self.limits.failuresToOpen, 1) { self.open(for: self.limits.pause, at: now) }
        case .probing(ticket, let pause, _): self.open(for: pause, at: now)
        case .open, .probing: break  // the request began before the pause or the probe
        }
    }

    /// Reports the end of a request without information about the host; after a probe, the next request is
    /// the probe.
    package mutating func abandoned(_ ticket: UInt64, at now: Moment) {
        guard case .probing(ticket, let pause, _) = self.breaker else { return }
        self.breaker = .open(until: now, pause: pause)
    }

    private mutating func open(for pause: Duration, at now: Moment) {
        let pause = max(pause, .zero)
        let next = min(.saturating(seconds: pause.secondsValue * 2), max(self.limits.maximumPause, pause))
        self.breaker = .open(until: now.advanced(by: pause), pause: next)
    }

    /// Notes a use, and halves the counts for each passed window.
    private mutating func halveCounts(at now: Moment) {
        self.lastUsed = now
        let length = max(self.limits.window, .milliseconds(1))
        let passed = now.duration(since: self.window).secondsValue / length.secondsValue
        guard passed >= 1 else { return }
        self.window = now
        let factor = Foundation.pow(0.5, min(passed.rounded(.down), 64))  // at 64, any count is far below 1
        self.firsts *= factor
        self.retries *= factor
    }
}

extension RetryPolicy {
    /// A host with the ``RetryBudget`` of its callers.
    ///
    /// ```swift
    /// let page = try await retry(.web, on: "api.example.com") { _ in try await fetchPage() }
    /// ```
    public struct Host: Sendable, ExpressibleByStringLiteral {
        /// The name in lower case, such as `api.example.com`.
        public let name: String

        /// The budget.
        public let budget: RetryBudget

        /// Names a host.
        ///
        /// - Parameters:
        ///   - name: The name, such as `api.example.com`; case-insensitive.
        ///   - budget: The budget.
        public init(_ name: String, budget: RetryBudget = .shared) {
            self.name = name.lowercased()
            self.budget = budget
        }

        /// Names a host of the shared budget.
        public init(stringLiteral name: String) { self.init(name) }

        /// Reports a response to a request outside of any retry.
        ///
        /// The call closes the breaker and wakes the waits for ``RetrySignal/WakeUp/success(on:)``.
        public func answered() {
            self.withBreaker { breaker, _ in breaker.answered() }
            self.budget.responses.send((), to: self.name)
        }

        private func withBreaker<R: Sendable>(_ body: (inout CircuitBreaker, Moment) -> R) -> R {
            self.budget.withBreaker(of: self.name, body)
        }

        /// One admitted request; its end must be reported.
        struct Admission: Sendable {
            let host: RetryPolicy.Host
            let ticket: UInt64

            func succeeded() { self.host.answered() }

            /// Reports an error of the request.
            ///
            /// A transient error counts against the host. Another error with a status code, or about a bad
            /// dependency, counts as a response. Any other error gives no information about the host.
            func failed(_ error: any Error) {
                let advice = RetryAdvice.of(error)
                if advice.isTransient {
                    self.host.withBreaker { $0.failed(self.ticket, at: $1) }
                } else if advice.status != nil || error.saysBadDependency {
                    self.succeeded()
                } else {
                    self.cancelled()
                }
            }

            func cancelled() { self.host.withBreaker { $0.abandoned(self.ticket, at: $1) } }
        }

        /// Admits a request; `nil` if the breaker refuses the request.
        func admit(isRetry: Bool) -> Admission? {
            self.withBreaker { $0.admitRequest(isRetry: isRetry, at: $1) }.map { Admission(host: self, ticket: $0) }
        }

        /// Whether the budget permits a retry; a permitted retry is counted.
        func permitsRetry() -> Bool { self.withBreaker { $0.admitRetry(at: $1) } }
    }
}

extension [String: CircuitBreaker] {
    /// Makes room for a host in a table of at most `limit` hosts.
    ///
    /// Removes healthy hosts first, in the order of their last use.
    mutating func makeRoom(limit: Int) {
        guard self.count >= limit else { return }
        let order = self.sorted { a, b in
            let (a, b) = (a.value, b.value)
            return a.isHealthy != b.isHealthy ? a.isHealthy : a.lastUsed < b.lastUsed
        }
        // Removes a quarter at a time: many new hosts do not each require a sort.
        for (name, _) in order.prefix(Swift.max(self.count - limit + 1, limit / 4)) { self[name] = nil }
    }
}

extension RetrySignal.WakeUp {
    /// Wakes when the host responds to another request of the same ``RetryBudget``.
    public static func success(on host: RetryPolicy.Host) -> RetrySignal.WakeUp {
        RetrySignal.WakeUp("success", .signal) { _, wake in host.budget.responses.add(to: host.name, wake) }
    }
}
