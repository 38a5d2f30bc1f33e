/// One task's wait for the answers of many flights: one continuation and a count, however many there are.
@usableFromInline
final class FlightGathering: Sendable {
    /// One of the answers, as a flight knows it.
    @usableFromInline
    final class Part: Sendable {
        private let gathering: FlightGathering
        private let index: Int

        fileprivate init(_ gathering: FlightGathering, _ index: Int) {
            self.gathering = gathering
            self.index = index
        }

        func resume(with answer: FlightWaiter.Answer) { self.gathering.answered(self.index, answer) }
    }

    private struct State: Sendable {
        var answers: [FlightWaiter.Answer?]
        var missingCount: Int
        /// What ends with a part's wait, by its index.
        var cleanups: [Int: FlightWaiter.WaitCleanup] = [:]
        var continuation: LeanContinuation<Void>?
    }

    private let state: Locked<State>

    private init(count: Int) {
        self.state = Locked(State(answers: Array(repeating: nil, count: count), missingCount: count))
    }

    /// Suspends a caller until all its parts are answered, which may happen before it is suspended.
    ///
    /// - Parameters:
    ///   - isolation: Where the caller runs, and goes on running.
    ///   - count: How many parts there are; at least 1.
    ///   - arrive: Settles what a part gets, or what will answer it; called once for each, where the caller runs. Has to look
    ///     whether the caller's task is cancelled, under a lock that `leave` takes, too. Returns what ends with the part's wait.
    ///   - arrived: Called when all have arrived.
    ///   - leave: Called when the caller's task is cancelled; sees to it that the parts that have arrived are answered.
    /// - Returns: The answers, in the order of the parts.
    static func answers(
        isolation: isolated (any Actor)? = #isolation,
        count: Int,
        arrive: (Int, FlightWaiter) -> FlightWaiter.WaitCleanup?,
        arrived: () -> Void,
        onCancel leave: @Sendable () -> Void
    ) async -> [FlightWaiter.Answer?] {
        let gathering = FlightGathering(count: count)
        await withTaskCancellationHandler {
            _ = isolation
            await LeanContinuation<Void>.wait { continuation in
                gathering.state.withLock { $0.continuation = continuation }
                for index in 0..<count {
                    let cleanups = arrive(index, FlightWaiter(Part(gathering, index)))
                    if let cleanups { gathering.note(cleanups, index) }
                }
                arrived()
            }
        } onCancel: {
            leave()
        }
        return gathering.state.withLock { $0.answers }
    }

    /// Keeps what ends with a part's wait, or ends it now if the part is answered already.
    private func note(_ cleanups: FlightWaiter.WaitCleanup, _ index: Int) {
        let isAnswered = self.state.withLock { state -> Bool in
            if state.answers[index] != nil { return true }
            state.cleanups[index] = cleanups
            return false
        }
        if isAnswered { cleanups.run() }
    }

    private func answered(_ index: Int, _ answer: FlightWaiter.Answer) {
        let (cleanups, continuation) = self.state.withLock {
            state -> (FlightWaiter.WaitCleanup?, LeanContinuation<Void>?) in
            state.answers[index] = answer
            state.missingCount -= 1
            let cleanups = state.cleanups.removeValue(forKey: index)
            guard state.missingCount == 0 else { return (cleanups, nil) }
            defer { state.continuation = nil }
            return (cleanups, state.continuation)
        }
        cleanups?.run()
        continuation?.resume(returning: ())
    }
}
