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
