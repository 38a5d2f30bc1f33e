import MuxKit

/// Holds the calls of the code under test until the test answers them.
///
/// ```swift
/// let gate = Gate<Int>()
/// async let value = gate.pass()      // in the code under test
/// await gate.waitForCall(1)          // in the test: the call is held
/// gate.open(returning: 5)
/// ```
///
/// Calls are numbered from 1 in the order of their arrival. Each is answered once; an answer may be given before
/// its call arrives.
///
/// **Cancellation.** A cancelled call throws `CancellationError` at once, unless it ignores cancellation.
public final class Gate<Value: Sendable>: Sendable {
    private typealias Answer = Result<Value, any Error>
    private typealias Continuation = CheckedContinuation<Value, any Error>

    private struct State: Sendable {
        var arrived = 0
        var held: [Int: Continuation] = [:]
        /// Answers whose calls have not arrived.
        var early: [Int: Answer] = [:]
        /// The answer of every call without one of its own.
        var standing: Answer?
        /// Every call before this one has been answered or cancelled.
        var frontier = 1

        func isOpen(_ call: Int) -> Bool {
            call <= self.arrived ? self.held[call] != nil : self.early[call] == nil
        }

        /// The first call, arrived or not, that still needs an answer.
        mutating func nextUnanswered() -> Int {
            while !self.isOpen(self.frontier) { self.frontier += 1 }
            return self.frontier
        }
    }

    private let state = Locked(State())
    private let arrivals = Tally()

    /// A closed gate.
    public init() {}

    /// The number of calls so far.
    public var callCount: Int { self.state.withLock { $0.arrived } }

    /// The number of held calls.
    public var heldCount: Int { self.state.withLock { $0.held.count } }

    /// Arrives as the next call and waits for its answer.
    ///
    /// - Parameter ignoringCancellation: Whether to wait for the answer although the task is cancelled.
    /// - Returns: The value that the test gave.
    /// - Throws: The error that the test gave, or `CancellationError`.
    public func pass(ignoringCancellation: Bool = false) async throws -> Value {
        let ticket = Locked<Int?>(nil)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let (call, answer) = self.state.withLock { state -> (Int, Answer?) in
                    state.arrived += 1
                    let call = state.arrived
                    let answer = state.early.removeValue(forKey: call) ?? state.standing
                    if answer == nil { state.held[call] = continuation }
                    return (call, answer)
                }
                if let answer {
                    continuation.resume(with: answer)
                } else if !ignoringCancellation {
                    ticket.withLock { $0 = call }
                    if Task.isCancelled { self.leave(call) }
                }
                self.arrivals.add()
            }
        } onCancel: {
            if let call = ticket.withLock({ $0 }) { self.leave(call) }
        }
    }

    /// Suspends until call number `call` has arrived; returns early if the task is cancelled.
    public func waitForCall(_ call: Int = 1) async {
        await self.arrivals.reached(call)
    }

    /// Answers a call with a value.
    ///
    /// - Parameters:
    ///   - call: The call's number; without it, the first call that has no answer yet, arrived or not.
    ///   - value: What the call returns.
    /// - Returns: `false` if the call already had an answer or was cancelled.
    @discardableResult
    public func open(_ call: Int? = nil, returning value: Value) -> Bool {
        self.answer(call, .success(value))
    }

    /// Answers a call with an error.
    ///
    /// - Parameters:
    ///   - call: The call's number; without it, the first call that has no answer yet, arrived or not.
    ///   - error: What the call throws.
    /// - Returns: `false` if the call already had an answer or was cancelled.
    @discardableResult
    public func fail(_ call: Int? = nil, with error: any Error) -> Bool {
        self.answer(call, .failure(error))
    }

    /// Answers every held call, and every later one without an answer of its own, with `value`.
    public func openForGood(returning value: Value) {
        let held = self.state.withLock { state -> [Int: Continuation] in
            defer { state.held = [:] }
            state.standing = .success(value)
            return state.held
        }
        for (_, continuation) in held.sorted(by: { $0.key < $1.key }) { continuation.resume(returning: value) }
    }

    private func answer(_ call: Int?, _ answer: Answer) -> Bool {
        let (taken, held) = self.state.withLock { state -> (Bool, Continuation?) in
            let call = call ?? state.nextUnanswered()
            guard state.isOpen(call) else { return (false, nil) }
            if let held = state.held.removeValue(forKey: call) { return (true, held) }
            state.early[call] = answer
            return (true, nil)
        }
        held?.resume(with: answer)
        return taken
    }

    private func leave(_ call: Int) {
        let held = self.state.withLock { $0.held.removeValue(forKey: call) }
        held?.resume(throwing: CancellationError())
    }
}

extension Gate where Value == Void {
    /// Answers a call.
    ///
    /// - Parameter call: The call's number; without it, the first call that has no answer yet, arrived or not.
    /// - Returns: `false` if the call already had an answer or was cancelled.
    @discardableResult
    public func open(_ call: Int? = nil) -> Bool { self.open(call, returning: ()) }
}
