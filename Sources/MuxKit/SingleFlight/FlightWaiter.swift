/// A caller that waits for a flight.
///
/// The waiter is not generic, which keeps waiting cheap. A waiter is in at most one machine. The engine
/// resumes each waiter exactly once, outside the lock, while the waiter is in no machine.
@usableFromInline
package struct FlightWaiter: Sendable, Hashable {
    /// A ``FlightAnswer``.
    @usableFromInline package typealias Answer = any AnyObject & Sendable

    private enum Address: Sendable {
        /// A caller that waits only for this flight.
        case caller(LeanContinuation<Answer>)
        /// A caller that waits for several flights.
        case gathering(FlightGathering)
        /// No caller: a placeholder.
        case left
    }

    /// Identifies the waiter within its engine.
    @usableFromInline package let ticket: Ticket
    private let address: Address

    @usableFromInline
    init(_ ticket: Ticket, _ continuation: LeanContinuation<Answer>) {
        self.ticket = ticket
        self.address = .caller(continuation)
    }

    @usableFromInline
    package init(_ ticket: Ticket, partOf gathering: FlightGathering) {
        self.ticket = ticket
        self.address = .gathering(gathering)
    }

    /// Makes the placeholder that stays in a ``WaiterQueue`` after a waiter has left.
    init(leftWith ticket: Ticket) {
        self.ticket = ticket
        self.address = .left
    }

    /// Whether this is the placeholder of a waiter that has left.
    var hasLeft: Bool {
        guard case .left = self.address else { return false }
        return true
    }

    @usableFromInline
    package static func == (a: FlightWaiter, b: FlightWaiter) -> Bool {
        a.ticket == b.ticket && a.hasLeft == b.hasLeft
    }

    @usableFromInline
    package func hash(into hasher: inout Hasher) { hasher.combine(self.ticket) }

    /// Answers the caller; to be called once.
    @usableFromInline
    func resume(with answer: Answer) {
        switch self.address {
        case .caller(let continuation): continuation.resume(returning: answer)
        case .gathering(let gathering): gathering.storeAnswer(answer, of: self.ticket)
        case .left: break
        }
    }

    /// Suspends a caller until its answer; an answer may come before the suspension.
    ///
    /// The closures capture only the caller and the isolation, so that a waiting task needs no second block
    /// of memory.
    ///
    /// - Parameters:
    ///   - caller: The caller.
    ///   - isolation: The caller's isolation, in which the caller arrives and continues.
    /// - Returns: A ``FlightAnswer``.
    @inlinable
    package static func answer<Caller: ArrivingFlightCaller>(
        to caller: Caller,
        isolation: isolated (any Actor)? = #isolation
    ) async -> Answer {
        await withTaskCancellationHandler {
            await Self.wait(of: caller, isolation: isolation) { caller.arrive($0, mayBeginHere: isolation == nil) }
        } onCancel: {
            caller.leave()
        }
    }

    /// As ``answer(to:isolation:)``, for a caller that arrives by a closure.
    ///
    /// - Parameters:
    ///   - caller: The caller.
    ///   - isolation: The caller's isolation, in which the caller arrives and continues.
    ///   - arrive: See ``ArrivingFlightCaller/arrive(_:mayBeginHere:)``.
    /// - Returns: A ``FlightAnswer``.
    @inlinable
    package static func answer<Caller: FlightCaller>(
        to caller: Caller,
        isolation: isolated (any Actor)? = #isolation,
        arrive: (FlightWaiter) -> Void
    ) async -> Answer {
        await withTaskCancellationHandler {
            await Self.wait(of: caller, isolation: isolation, arrive)
        } onCancel: {
            caller.leave()
        }
    }

    @inlinable
    @inline(__always)
    static func wait<Caller: FlightCaller>(
        of caller: Caller,
        isolation: isolated (any Actor)?,
        _ arrive: (FlightWaiter) -> Void
    ) async -> Answer {
        guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else {
            return await LeanContinuation.wait { arrive(FlightWaiter(caller.ticket, $0)) }
        }
        return await withTaskPriorityEscalationHandler {
            _ = isolation  // a closure has the isolation of its context only if the closure uses the parameter
            return await LeanContinuation.wait { arrive(FlightWaiter(caller.ticket, $0)) }
        } onPriorityEscalated: { _, priority in
            caller.raise(to: priority)
        }
    }

    /// The cleanup after a wait; most waits need no cleanup.
    @usableFromInline
    package final class WaitCleanup: Sendable {
        /// The wait in the ``WaitForGraph``.
        let wait: WaitForGraph.WaitID?
        /// The timer of the caller's wait limit.
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

/// A caller that waits for a flight.
@usableFromInline
package protocol FlightCaller: AnyObject, Sendable {
    var ticket: Ticket { get }

    /// Called when the caller's task is cancelled: answers the waiter if the waiter has arrived and is not
    /// answered yet.
    func leave()

    /// Called when the priority of the caller's task is escalated during the wait.
    func raise(to priority: TaskPriority)
}

/// A ``FlightCaller`` whose object contains the data for its arrival.
@usableFromInline
package protocol ArrivingFlightCaller: FlightCaller {
    /// Answers the waiter or adds the waiter to a machine; called once, in the caller's isolation.
    ///
    /// Must check whether the caller's task is cancelled, under a lock that ``FlightCaller/leave()`` takes,
    /// too: `leave` may run before the arrival, and is not called again.
    ///
    /// - Parameters:
    ///   - waiter: The waiter of the caller.
    ///   - mayBeginHere: Whether a flight may begin on the caller's thread: the caller has no isolation.
    func arrive(_ waiter: FlightWaiter, mayBeginHere: Bool)
}

extension FlightEngine {
    /// A caller that waits for the flight of a key.
    @usableFromInline
    final class Caller: FlightCaller {
        @usableFromInline let ticket: Ticket
        private let engine: FlightEngine
        private let key: Key

        @usableFromInline
        init(_ engine: FlightEngine, _ key: Key, _ ticket: Ticket? = nil) {
            self.ticket = ticket ?? engine.nextID()
            self.engine = engine
            self.key = key
        }

        @usableFromInline
        func leave() { self.engine.leave(self.ticket, self.key) }

        @usableFromInline
        func raise(to priority: TaskPriority) { self.engine.raise(self.ticket, self.key, to: priority) }
    }
}

/// The answer to a caller; several callers of a flight may share an answer.
@usableFromInline
package final class FlightAnswer<Landing: Sendable>: Sendable {
    @usableFromInline let result: Result<Landing, any Error>

    @inlinable
    init(_ result: Result<Landing, any Error>) { self.result = result }
}

/// The wait of one task for the answers of several flights.
///
/// Counts the missing answers, so that the task is suspended once per group of waiters, not once per answer.
@usableFromInline
package final class FlightGathering: Sendable {
    private struct State: Sendable {
        /// In the order of tickets.
        var answers: [FlightWaiter.Answer?]
        /// The number of waiters that ``addWaiters(_:resuming:whenMissing:)`` has added and that have no
        /// answer yet.
        var missingCount = 0
        /// The greatest number of missing answers at which the caller is resumed.
        var mostMissing = 0
        var cleanups: [Ticket: FlightWaiter.WaitCleanup] = [:]
        var continuation: LeanContinuation<Void>?
    }

    private let state: Locked<State>
    private let first: Ticket

    /// Makes a wait for `count` answers with consecutive tickets.
    @usableFromInline
    package init(first: Ticket, count: Int) {
        self.first = first
        self.state = Locked(State(answers: Array(repeating: nil, count: count)))
    }

    /// Suspends a caller until all of its waiters are answered; answers may come before the suspension.
    ///
    /// - Parameters:
    ///   - first: The ticket of the first waiter; the tickets of further waiters follow.
    ///   - count: The number of waiters.
    ///   - limit: The maximum number of waiters without an answer, at least 1. After each group of arrivals,
    ///     the next waiters arrive when at most half of the maximum is without an answer.
    ///   - isolation: The caller's isolation, in which the caller continues.
    ///   - arrive: See ``ArrivingFlightCaller/arrive(_:mayBeginHere:)``; called once for each waiter, with
    ///     the index. Returns the cleanup after the wait.
    ///   - arrived: Called after each group of arrivals; the flag tells whether the group is the last.
    ///   - leave: Called once when the caller's task is cancelled, possibly before any arrival; must answer
    ///     all waiters that have arrived and are not answered yet.
    ///   - raise: Called when the priority of the caller's task is escalated during the wait.
    /// - Returns: The answers, in the order of tickets.
    @inlinable
    static func answers(
        first: Ticket,
        count: Int,
        atOnce limit: Int,
        isolation: isolated (any Actor)? = #isolation,
        arrive: (Int, FlightWaiter) -> FlightWaiter.WaitCleanup?,
        arrived: (_ areLast: Bool) -> Void,
        onCancel leave: @Sendable () -> Void,
        onEscalation raise: @Sendable (TaskPriority) -> Void
    ) async -> [FlightWaiter.Answer?] {
        let gathering = FlightGathering(first: first, count: count)
        await withEscalationHandler(raise) {
            await withTaskCancellationHandler {
                _ = isolation
                var next = 0
                while next < count {
                    let end = next + min(count - next, limit - gathering.missingCount)
                    await LeanContinuation<Void>.wait { continuation in
                        gathering.addWaiters(
                            end - next,
                            resuming: continuation,
                            whenMissing: end < count ? limit / 2 : 0
                        )
                        for index in next..<end {
                            let ticket = first &+ Ticket(index)
                            let cleanup = arrive(index, FlightWaiter(ticket, partOf: gathering))
                            if let cleanup { gathering.storeCleanup(cleanup, of: ticket) }
                        }
                        arrived(end == count)
                    }
                    next = end
                }
            } onCancel: {
                leave()
            }
        }
        return gathering.answers
    }

    /// The number of waiters without an answer.
    @usableFromInline var missingCount: Int { self.state.withLock { $0.missingCount } }

    /// Adds `count` waiters, and resumes `continuation` when at most `mostMissing` waiters are without an
    /// answer.
    @usableFromInline
    func addWaiters(_ count: Int, resuming continuation: LeanContinuation<Void>, whenMissing mostMissing: Int) {
        self.state.withLock { state in
            state.continuation = continuation
            state.missingCount += count
            state.mostMissing = mostMissing
        }
    }

    /// The answers, in the order of tickets.
    @usableFromInline var answers: [FlightWaiter.Answer?] { self.state.withLock { $0.answers } }

    private func index(of ticket: Ticket) -> Int { Int(truncatingIfNeeded: ticket &- self.first) }

    /// Keeps a cleanup until the waiter with `ticket` is answered, or runs the cleanup of an answered waiter.
    @usableFromInline
    func storeCleanup(_ cleanup: FlightWaiter.WaitCleanup, of ticket: Ticket) {
        let isAnswered = self.state.withLock { state -> Bool in
            if state.answers[self.index(of: ticket)] != nil { return true }
            state.cleanups[ticket] = cleanup
            return false
        }
        if isAnswered { cleanup.run() }
    }

    fileprivate func storeAnswer(_ answer: FlightWaiter.Answer, of ticket: Ticket) {
        let (cleanup, continuation) = self.state.withLock {
            state -> (FlightWaiter.WaitCleanup?, LeanContinuation<Void>?) in
            state.answers[self.index(of: ticket)] = answer
            state.missingCount -= 1
            let cleanup = state.cleanups.isEmpty ? nil : state.cleanups.removeValue(forKey: ticket)
            guard state.missingCount <= state.mostMissing else { return (cleanup, nil) }
            defer { state.continuation = nil }
            return (cleanup, state.continuation)
        }
        cleanup?.run()
        continuation?.resume(returning: ())
    }
}
