import MuxKit
public import MuxNetwork

/// A test double: a transport that answers as a closure says, without a network, and remembers what it was asked.
///
/// ```swift
/// let transport = ScriptedTransport([.success(HTTPReply(status: 401)), .success(HTTPReply(status: 200))])
/// let client = HTTPClient(transport: transport)
/// ```
///
/// **Cancellation.** Whatever the closure does with it; ``cancelledCount`` counts what it threw because of it.
public final class ScriptedTransport: HTTPTransport {
    private struct State: Sendable {
        var calls: [HTTPCall] = []
        var running = 0
        var maximum = 0
        var cancelled = 0
    }

    private let answer: @Sendable @concurrent (HTTPCall, Int) async throws -> HTTPReply
    private let state = Locked(State())
    private let started = Tally()

    /// A transport with a closure that answers.
    ///
    /// - Parameter answer: Receives the request and its number, beginning with 1.
    public init(_ answer: @escaping @Sendable @concurrent (_ call: HTTPCall, _ number: Int) async throws -> HTTPReply) {
        self.answer = answer
    }

    /// A transport with a script.
    ///
    /// - Parameters:
    ///   - script: The outcomes of the first requests, in order.
    ///   - thereafter: The outcome of every request after those; without it they throw ``ScriptEnded``.
    public convenience init(_ script: [Result<HTTPReply, any Error>], thereafter: HTTPReply? = nil) {
        self.init { _, number in
            if number <= script.count { return try script[number - 1].get() }
            guard let thereafter else { throw ScriptEnded(call: number) }
            return thereafter
        }
    }

    /// What was asked so far, in order.
    public var calls: [HTTPCall] { self.state.withLock { $0.calls } }

    /// How many requests were being answered at the same time, at most.
    public var maximumConcurrency: Int { self.state.withLock { $0.maximum } }

    /// How many requests ended with `CancellationError`.
    public var cancelledCount: Int { self.state.withLock { $0.cancelled } }

    /// Answers a request as the closure says.
    ///
    /// - Throws: What the closure threw.
    public func send(_ call: HTTPCall) async throws -> HTTPReply {
        let number = self.state.withLock { state -> Int in
            state.calls.append(call)
            state.running += 1
            state.maximum = max(state.maximum, state.running)
            return state.calls.count
        }
        defer { self.state.withLock { $0.running -= 1 } }
        self.started.add()
        do {
            return try await self.answer(call, number)
        } catch {
            if error is CancellationError { self.state.withLock { $0.cancelled += 1 } }
            throw error
        }
    }

    /// Suspends until request number `call` has arrived; returns early if the task is cancelled.
    public func waitForCall(_ call: Int = 1) async {
        await self.started.reached(call)
    }
}
