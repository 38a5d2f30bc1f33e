/// One who waits for a flight, whatever it brings: nothing here is generic, so waiting costs little.
@usableFromInline
package typealias FlightCaller = Guarded<FlightCallerState>

/// What is known of one who waits.
@usableFromInline
package struct FlightCallerState: Sendable {
    /// A ``FlightAnswer``.
    @usableFromInline package typealias Answer = any AnyObject & Sendable

    /// What the caller gets, if it is known.
    @usableFromInline var answer: Answer?
    @usableFromInline var continuation: CheckedContinuation<Answer, Never>?

    @usableFromInline
    init() {}
}

extension FlightCaller {
    /// Tells the caller what it gets; once.
    @usableFromInline
    func resume(with answer: FlightCallerState.Answer) {
        let continuation = self.withLock { state in
            state.answer = answer
            return state.continuation.take()
        }
        continuation?.resume(returning: answer)
    }

    /// Suspends until the caller is told what it gets, which may have happened already.
    ///
    /// - Parameters:
    ///   - isolation: Where the caller runs, and goes on running.
    ///   - leave: Called when the caller's task is cancelled; sees to it that the caller is told.
    /// - Returns: A ``FlightAnswer``.
    @inlinable
    func answer(
        isolation: isolated (any Actor)? = #isolation,
        onCancel leave: @Sendable () -> Void
    ) async -> FlightCallerState.Answer {
        await withTaskCancellationHandler {
            // Without this the closure would run on the pool, not where the caller runs (Swift 6.3.1).
            _ = isolation
            return await withCheckedContinuation { continuation in
                let answer = self.withLock { state in
                    if state.answer == nil { state.continuation = continuation }
                    return state.answer
                }
                if let answer { continuation.resume(returning: answer) }
            }
        } onCancel: {
            leave()
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

/// A call between its arrival at an engine and its departure.
@usableFromInline
package struct FlightVisit: Sendable {
    /// What the call gets, if that was settled at once.
    @usableFromInline let answer: FlightCallerState.Answer?
    /// Who waits, otherwise.
    @usableFromInline let caller: FlightCaller?
    /// The caller's name in its flight; 0 for one that does not wait.
    @usableFromInline package let ticket: Ticket
    /// What to undo at the departure; rare.
    @usableFromInline let loose: LooseEnds?

    /// A call that is answered at once.
    @usableFromInline
    init(_ answer: FlightCallerState.Answer) {
        self.answer = answer
        self.caller = nil
        self.ticket = 0
        self.loose = nil
    }

    /// A call that waits.
    @usableFromInline
    init(_ caller: FlightCaller, _ ticket: Ticket, _ loose: LooseEnds?) {
        self.answer = nil
        self.caller = caller
        self.ticket = ticket
        self.loose = loose
    }

    /// What ends with a wait.
    @usableFromInline
    package final class LooseEnds: Sendable {
        /// Which flight works for the caller, and which it waits for.
        let wait: (FlightNode, FlightNode)?
        /// What ends the caller's patience.
        let timer: Task<Void, Never>?

        @usableFromInline
        init(wait: (FlightNode, FlightNode)?, timer: Task<Void, Never>?) {
            self.wait = wait
            self.timer = timer
        }

        @usableFromInline
        func tie() {
            self.timer?.cancel()
            if let wait { FlightGraph.end(wait.0, waitsFor: wait.1) }
        }
    }
}
