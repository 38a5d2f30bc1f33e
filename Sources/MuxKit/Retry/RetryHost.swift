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
