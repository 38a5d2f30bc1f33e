import Foundation
import MuxKit
public import MuxNetwork

/// A transport without a network, with responses from a closure or a script; records its calls.
///
/// ```swift
/// let transport = ScriptedTransport([.status(503), .json(user), .failure(URLError(.timedOut))])
/// let client = HTTPClient(transport: transport)
/// ```
///
/// **Cancellation.** Only the closure reacts to a cancellation; ``cancelledCount`` counts the requests that
/// threw `CancellationError`.
public final class ScriptedTransport: HTTPTransport {
    private struct State: Sendable {
        var calls: [HTTPCall] = []
        var running = 0
        var maximum = 0
        var cancelled = 0
    }

    private let response: @Sendable @concurrent (HTTPCall, Int) async throws -> HTTPReply
    private let state = Locked(State())
    private let started = Tally()

    /// Makes a transport with responses from a closure.
    ///
    /// - Parameter response: Receives the request and its number, counted from 1.
    public init(_ response: @escaping @Sendable @concurrent (_ call: HTTPCall, _ number: Int) async throws -> HTTPReply)
    {
        self.response = response
    }

    /// Makes a transport with a script.
    ///
    /// - Parameters:
    ///   - script: The outcomes of the first requests, in order.
    ///   - thereafter: The response to every later request; if `nil`, later requests throw an error with the
    ///     number of the request.
    public convenience init(_ script: [Result<HTTPReply, any Error>], thereafter: HTTPReply? = nil) {
        self.init { _, number in
            if number <= script.count { return try script[number - 1].get() }
            guard let thereafter else { throw ScriptEnded(call: number) }
            return thereafter
        }
    }

    /// The requests so far, in order.
    public var calls: [HTTPCall] { self.state.withLock { $0.calls } }

    /// The greatest number of concurrent requests.
    public var maximumConcurrency: Int { self.state.withLock { $0.maximum } }

    /// The number of requests that threw `CancellationError`.
    public var cancelledCount: Int { self.state.withLock { $0.cancelled } }

    /// Returns the response of the closure.
    ///
    /// - Throws: An error from the closure.
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
            return try await self.response(call, number)
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

/// The outcomes of a ``ScriptedTransport``.
extension Result where Success == HTTPReply, Failure == any Error {
    /// A response with this status and without a body.
    public static func status(_ status: Int, headers: HTTPHeaders = [:]) -> Self {
        .success(HTTPReply(status: status, headers: headers))
    }

    /// A response with a value as JSON, encoded as a JSON body of `HTTPBody`; a failure with the encoder's
    /// error if the value is not encodable.
    public static func json(_ value: some Encodable, status: Int = 200, headers: HTTPHeaders = [:]) -> Self {
        Result {
            var reply = HTTPReply(status: status, headers: headers, body: try HTTPBody.encoder().encode(value))
            reply.headers["Content-Type"] = reply.headers["Content-Type"] ?? "application/json"
            return reply
        }
    }
}
