public import Foundation
public import MuxKit

/// A server in memory for tests of an outbox: changes with the same idempotency key are applied once.
///
/// ```swift
/// let server = FakeChangeServer()
/// let outbox = MuxOutbox<Change>("Changes", repository: repository, directory: folder) { change, attempt in
///     try await server.receive(change.text, key: attempt.idempotencyKey)
/// }
/// server.react(.loseResponse, .refuse(status: 409, "The post was deleted."))
/// ```
///
/// For a test over HTTP, let the handler of a ``LoopbackServer`` return ``response(to:)``.
///
/// **Concurrent calls** are safe; each request takes the next reaction.
public final class FakeChangeServer: Sendable {
    /// The reaction to one request.
    ///
    /// Without HTTP, ``FakeChangeServer/receive(_:key:token:)`` throws a ``Failure`` in place of a refusal or
    /// a closed connection. A change is applied only if no change with the same key was applied before.
    public enum Reaction: Sendable {
        /// Applies the change, and responds with 200.
        case confirm
        /// Applies the change, and closes the connection without a response.
        case loseResponse
        /// Closes the connection without applying the change.
        case loseRequest
        /// Refuses the connection: the failure says that the request was not sent. Over HTTP the same as
        /// ``loseRequest``.
        case refuseConnection
        /// Responds with the status and a message, without applying the change.
        case refuse(status: Int, String)
        /// Responds with 503 and `Retry-After`, without applying the change.
        ///
        /// Over HTTP, the duration is rounded down to whole seconds, and the body is empty.
        case busy(retryAfter: Duration)
        /// Applies the change, and responds with 200 when the closure returns.
        case wait(@Sendable @concurrent () async -> Void)
    }

    /// An applied change.
    public struct Applied: Sendable, Hashable {
        /// The content of the request.
        public let content: String
        /// The idempotency key; `nil` without a key.
        public let key: String?
        /// The token of the request; `nil` without a token.
        public let token: String?
    }

    /// The failure of a request.
    public struct Failure: Error, Sendable, Hashable {
        /// The status of the response; `nil` without a response.
        public let status: Int?
        /// The message of the response, or a sentence about the lost or refused connection.
        public let message: String
        fileprivate var retryAfter: Duration?
        fileprivate var mayHaveArrived = true
    }

    private struct State: Sendable {
        var reactions: [Reaction] = []
        var applied: [Applied] = []
        var keys: Set<String> = []
        var running: [String: Int] = [:]
        var overlaps = 0
        var repetitions = 0
    }

    private let state = Locked(State())
    private let requests = Tally()
    private let changes = Tally()
    private let usual: @Sendable (_ content: String, _ key: String?) -> Reaction

    /// Makes a server.
    ///
    /// - Parameter usual: The reaction to a request without a reaction from ``react(_:)``; called only for
    ///   such a request.
    public init(usual: @escaping @Sendable (_ content: String, _ key: String?) -> Reaction = { _, _ in .confirm }) {
        self.usual = usual
    }

    /// Appends reactions: each of the next requests takes the first remaining reaction.
    public func react(_ reactions: Reaction...) { self.state.withLock { $0.reactions += reactions } }

    /// The applied changes, in order.
    public var applied: [Applied] { self.state.withLock { $0.applied } }

    /// The number of requests, with any reaction.
    public var requestCount: Int { self.requests.value }

    /// The number of changes that were not applied because a change with the same key was applied before.
    public var repetitionCount: Int { self.state.withLock { $0.repetitions } }

    /// The number of requests that began during another request with the same key.
    public var overlapCount: Int { self.state.withLock { $0.overlaps } }

    /// Suspends until this number of requests has begun; returns early if the task is cancelled.
    public func waitForRequest(_ count: Int = 1) async { await self.requests.reached(count) }

    /// Suspends until this number of changes is applied; returns early if the task is cancelled.
    public func waitForApplied(_ count: Int = 1) async { await self.changes.reached(count) }

    /// Processes a request.
    ///
    /// - Parameters:
    ///   - content: The content of the change.
    ///   - key: The idempotency key; a change without a key is never a repetition.
    ///   - token: The token of the request.
    /// - Throws: ``Failure``.
    public func receive(_ content: String, key: String?, token: String? = nil) async throws(Failure) {
        let reaction = self.state.withLock { state -> Reaction? in
            if let key {
                if state.running[key, default: 0] > 0 { state.overlaps += 1 }
                state.running[key, default: 0] += 1
            }
            return state.reactions.isEmpty ? nil : state.reactions.removeFirst()
        }
        self.requests.add()
        defer { if let key { self.state.withLock { $0.running[key, default: 0] -= 1 } } }
        let change = Applied(content: content, key: key, token: token)
        switch reaction ?? self.usual(content, key) {
        case .confirm: self.apply(change)
        case .loseResponse:
            self.apply(change)
            throw Failure(status: nil, message: "The connection was lost.")
        case .loseRequest: throw Failure(status: nil, message: "The connection was lost.")
        case .refuseConnection:
            throw Failure(status: nil, message: "The connection was refused.", mayHaveArrived: false)
        case .refuse(let status, let message): throw Failure(status: status, message: message)
        case .busy(let time): throw Failure(status: 503, message: "The server is busy.", retryAfter: time)
        case .wait(let body):
            self.apply(change)
            await body()
        }
    }

    private func apply(_ change: Applied) {
        let isNew = self.state.withLock { state in
            guard change.key.map({ state.keys.insert($0).inserted }) ?? true else {
                state.repetitions += 1
                return false
            }
            state.applied.append(change)
            return true
        }
        if isNew { self.changes.add() }
    }

    /// The response to a request; `Idempotency-Key` and the bearer token may be missing.
    ///
    /// The body of a response to ``Reaction/refuse(status:_:)`` is the message, in plain text.
    public func response(to request: LoopbackServer.Request) async -> LoopbackServer.Response {
        let content = String(decoding: request.body, as: UTF8.self)
        do throws(Failure) {
            try await self.receive(content, key: request.header("Idempotency-Key"), token: request.bearerToken)
            return .text("")
        } catch {
            guard let status = error.status else { return LoopbackServer.Response(steps: [.close]) }
            guard let time = error.retryAfter else { return .text(error.message, status: status) }
            let seconds = "\(time.components.seconds)"
            return LoopbackServer.Response(status: status, headers: ["Retry-After": seconds], body: Data())
        }
    }
}

extension FakeChangeServer.Failure: RetryableError, ConnectivityError, UnsentError {
    /// Transient without a response; otherwise the status decides.
    public var retryAdvice: RetryAdvice {
        RetryAdvice(isTransient: self.status == nil, status: self.status, retryAfter: self.retryAfter)
    }

    /// Whether the server sent no response.
    public var isConnectivityFailure: Bool { self.status == nil }

    package var isUnsentRequest: Bool? { !self.mayHaveArrived }
}

extension FakeChangeServer.Failure: LocalizedError, CustomStringConvertible {
    /// The message.
    public var errorDescription: String? { self.message }

    /// The message.
    public var description: String { self.message }
}
