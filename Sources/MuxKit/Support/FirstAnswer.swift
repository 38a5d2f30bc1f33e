/// An answer that one task waits for and several may give: the first one counts.
package final class FirstAnswer<Answer: Sendable>: Sendable {
    private enum State: Sendable {
        case open(CheckedContinuation<Answer, Never>?)
        case answered(Answer)
    }

    private let state = Locked(State.open(nil))

    package init() {}

    /// Answers, unless that has happened already.
    package func give(_ answer: Answer) {
        let waiter = self.state.withLock { state -> CheckedContinuation<Answer, Never>? in
            guard case .open(let waiter) = state else { return nil }
            state = .answered(answer)
            return waiter
        }
        waiter?.resume(returning: answer)
    }

    /// Suspends until there is an answer; for one task.
    package nonisolated(nonsending) func wait() async -> Answer {
        await withCheckedContinuation { continuation in
            let answer = self.state.withLock { state -> Answer? in
                if case .answered(let answer) = state { return answer }
                state = .open(continuation)
                return nil
            }
            if let answer { continuation.resume(returning: answer) }
        }
    }
}
