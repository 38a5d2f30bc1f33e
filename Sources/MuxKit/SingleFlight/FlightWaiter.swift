/// One who waits for a flight, whatever it brings: nothing here is generic, so waiting costs little.
///
/// A waiter is in one machine, and is taken out of it by whoever tells it, under the engine's lock; or it was told when it
/// came. So it is told exactly once.
@usableFromInline
package struct FlightWaiter: Sendable {
    /// A ``FlightAnswer``.
    @usableFromInline package typealias Answer = any AnyObject & Sendable

    @usableFromInline
    enum Address: Sendable {
        /// A caller that waits for this flight alone.
        case caller(LeanContinuation<Answer>)
        /// A part of what a caller waits for.
        case part(FlightGathering.Part)
    }

    @usableFromInline let address: Address

    @inlinable
    init(_ continuation: LeanContinuation<Answer>) { self.address = .caller(continuation) }

    init(_ part: FlightGathering.Part) { self.address = .part(part) }

    /// Tells the caller what it gets; to be called once.
    @usableFromInline
    func resume(with answer: Answer) {
        switch self.address {
        case .caller(let continuation): continuation.resume(returning: answer)
        case .part(let part): part.resume(with: answer)
        }
    }

    /// Tells many callers the same, in their order.
    @usableFromInline
    static func resume(_ waiters: [FlightWaiter], with answer: Answer) {
        for waiter in waiters { waiter.resume(with: answer) }
    }

    /// Suspends a caller until it is told what it gets, which may happen before it is suspended.
    ///
    /// - Parameters:
    ///   - isolation: Where the caller runs, and goes on running.
    ///   - arrive: Settles what the caller gets, or who will tell it; called once, where the caller runs. Has to look whether
    ///     the caller's task is cancelled, under a lock that `leave` takes, too.
    ///   - leave: Called when the caller's task is cancelled; sees to it that a caller that has arrived is told.
    /// - Returns: A ``FlightAnswer``.
    @inlinable
    package static func answer(
        isolation: isolated (any Actor)? = #isolation,
        arrive: (FlightWaiter) -> Void,
        onCancel leave: @Sendable () -> Void
    ) async -> Answer {
        await withTaskCancellationHandler {
            // Without this the closure would run on the pool, not where the caller runs (Swift 6.3.1).
            _ = isolation
            return await LeanContinuation.wait { arrive(FlightWaiter($0)) }
        } onCancel: {
            leave()
        }
    }

    /// What ends with a wait; rare.
    @usableFromInline
    package final class WaitCleanup: Sendable {
        /// What was noted of the wait, for the caller works for a flight.
        let wait: WaitForGraph.WaitID?
        /// What ends the caller's patience.
        let timer: Task<Void, Never>?

        @usableFromInline
        init(wait: WaitForGraph.WaitID?, timer: Task<Void, Never>?) {
            self.wait = wait
            self.timer = timer
        }

        @usableFromInline
        func run() {
            self.timer?.cancel()
            if let wait { WaitForGraph.end(wait) }
        }
    }
}

/// What a caller of a flight gets; all who wait for one flight share it.
@usableFromInline
package final class FlightAnswer<Landing: Sendable>: Sendable {
    @usableFromInline let result: Result<Landing, any Error>

    @inlinable
    init(_ result: Result<Landing, any Error>) { self.result = result }
}

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
