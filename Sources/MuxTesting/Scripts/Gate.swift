import MuxKit

/// Holds the calls of the code under test until the test provides their results.
///
/// ```swift
/// let gate = Gate<Int>()
/// async let value = gate.pass()      // in the code under test
/// await gate.waitForCall(1)          // in the test: the call is held
/// gate.open(returning: 5)
/// ```
///
/// Calls are numbered from 1 in the order of their arrival. Each call gets exactly one result; the test may
/// provide the result before the arrival of the call.
///
/// **Cancellation.** A held call throws `CancellationError` at once if its task is cancelled, unless
/// `ignoringCancellation` is `true`.
public final class Gate<Value: Sendable>: Sendable {
    private typealias Answer = Result<Value, any Error>
    private typealias Continuation = CheckedContinuation<Value, any Error>

    private struct State: Sendable {
        var arrived = 0
        var held: [Int: Continuation] = [:]
        /// Results for calls that have not arrived yet.
        var early: [Int: Answer] = [:]
        /// The result of every call that gets no other result; `nil` before ``Gate/openForGood(returning:)``.
        var standing: Answer?
        /// Every call before the call with this number has a result or was cancelled.
        var frontier = 1

        /// Whether the call has no result: the call is held, or has neither arrived nor an early result.
        func isOpen(_ call: Int) -> Bool {
            call <= self.arrived ? self.held[call] != nil : self.early[call] == nil
        }

        /// The number of the first call without a result, arrived or not.
        mutating func nextUnanswered() -> Int {
            while !self.isOpen(self.frontier) { self.frontier += 1 }
            return self.frontier
        }
    }

    private let state = Locked(State())
    private let arrivals = Tally()

    /// Makes a closed gate.
    public init() {}

    /// The number of calls so far.
    public var callCount: Int { self.state.withLock { $0.arrived } }

    /// The number of held calls.
    public var heldCount: Int { self.state.withLock { $0.held.count } }

    /// Arrives as the next call and waits for the result.
    ///
    /// - Parameter ignoringCancellation: Whether the call waits for the result even if the task is cancelled.
    /// - Returns: The value from the test.
    /// - Throws: The error from the test, or `CancellationError`.
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

    /// Provides the value of a call.
    ///
    /// - Parameters:
    ///   - call: The call's number; `nil` for the first call without a result, arrived or not.
    ///   - value: The value of the call.
    /// - Returns: `false` if the call already had a result or was cancelled.
    @discardableResult
    public func open(_ call: Int? = nil, returning value: Value) -> Bool {
        self.answer(call, .success(value))
    }

    /// Provides the error of a call.
    ///
    /// - Parameters:
    ///   - call: The call's number; `nil` for the first call without a result, arrived or not.
    ///   - error: The error of the call.
    /// - Returns: `false` if the call already had a result or was cancelled.
    @discardableResult
    public func fail(_ call: Int? = nil, with error: any Error) -> Bool {
        self.answer(call, .failure(error))
    }

    /// Provides `value` to every held call, and to every later call that gets no other result.
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
    /// Ends a call.
    ///
    /// - Parameter call: The call's number; `nil` for the first call without a result, arrived or not.
    /// - Returns: `false` if the call already had a result or was cancelled.
    @discardableResult
    public func open(_ call: Int? = nil) -> Bool { self.open(call, returning: ()) }
}
