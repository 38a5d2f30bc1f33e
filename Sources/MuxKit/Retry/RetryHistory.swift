/// What the attempts of one retry met: bounded, so that an endless retry does not fill the memory.
struct RetryHistory: Sendable {
    static let limit = 100

    private(set) var attempts: [RetryError.Attempt] = []
    private(set) var lastError: (any Error)?

    mutating func add(_ failure: RetryFailure, began: Duration) {
        self.add(
            RetryError.Attempt(index: failure.attempt, began: began, ended: failure.elapsed, error: failure.error)
        )
    }

    private mutating func add(_ attempt: RetryError.Attempt) {
        if self.attempts.count == Self.limit { self.attempts.removeFirst() }
        self.attempts.append(attempt)
        self.lastError = attempt.error ?? self.lastError
    }

    func error(_ reason: RetryError.Reason) -> RetryError {
        RetryError(reason, attempts: self.attempts, lastError: self.lastError)
    }
}
