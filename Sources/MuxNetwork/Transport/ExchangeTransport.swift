import Foundation
package import MuxKit

/// A transport over another HTTP client, with a closure that performs one exchange.
///
/// ```swift
/// let transport = ExchangeTransport { call, sink in
///     let response = try await client.open(call.method, call.url, call.headers.fields, call.body)
///     try await sink.receive(head: HTTPReply(status: response.status, headers: response.headers))
///     for try await piece in response.pieces { try await sink.receive(piece) }
///     return response.trailers
/// }
/// ```
///
/// The transport validates calls, follows redirections (``HTTPRedirects``), removes interim responses, and
/// limits time and size. If the caller's sink is slow, a buffer fills. While the buffer is full,
/// `sink.receive(_:)` suspends the closure: the closure reads no further, and the server slows down.
///
/// **Silence**, which ``HTTPTransportConfiguration/timeout`` limits, is the time in which the caller's sink
/// is idle and the closure passes on no part of the response. A wait for a piece of a streamed request body
/// does not count as silence of the server. The sending of a body in memory and the wait for a connection do
/// count. Each interim response that the closure passes to the sink, and each piece of a streamed request
/// body, restarts the measurement.
///
/// **Tasks of the closure.** The closure sends the request unchanged, once, and passes the response to the
/// sink while the response arrives. Redirections, cookies, cached responses and retries of the client must be
/// switched off. The transport does not decode content codings. If the client decodes, the closure keeps
/// `Content-Encoding` or removes `Content-Length`, which is the encoded length. The closure applies the
/// options for connections: ``HTTPTransportConfiguration/connectionsPerHost`` and
/// ``HTTPTransportConfiguration/usesProxies``.
///
/// **Errors.** An error type of the client becomes ``HTTPError/TransportFailure/unreachable(_:)``, as
/// described at ``HTTPTransport``. The closure may throw an ``HTTPError/TransportFailure`` instead. For a
/// connection that ended early the closure throws
/// ``HTTPError/TransportFailure/closedWithoutResponse(_:)``, before or after the head of the response. After
/// the head, the transport throws ``HTTPError/TransportFailure/truncated(expected:received:)`` instead, or
/// returns the response if the response is complete. A body without a content coding that is shorter than
/// announced is an error even if the closure returns without an error.
///
/// **Cancellation.** After a cancellation or an exceeded limit, the caller resumes at once, or as soon as a
/// running call of the caller's sink returns. Then the closure's task is cancelled, and the sink of the
/// closure throws `CancellationError` instead of accepting a further part of the final response.
public final class ExchangeTransport: HTTPTransport, ValidatedTransport {
    /// Performs one exchange: sends the call, passes the response to the sink, and returns the trailer
    /// fields.
    public typealias Exchange =
        @Sendable @concurrent (_ call: HTTPCall, _ sink: any HTTPSink) async throws -> HTTPHeaders

    package let options: HTTPTransportConfiguration
    package let time: TimeSource
    private let exchange: Exchange

    /// Makes a transport.
    ///
    /// - Parameters:
    ///   - configuration: The limits of the transport.
    ///   - clock: Measures the time-outs.
    ///   - exchange: Performs one exchange, in a separate task on the concurrent pool.
    public init(
        _ configuration: HTTPTransportConfiguration = .init(),
        clock: any Clock<Duration> = ContinuousClock(),
        _ exchange: @escaping Exchange
    ) {
        self.options = configuration
        self.time = TimeSource(clock)
        self.exchange = exchange
    }

    package func perform(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        try self.options.requireSupportedCertificates()
        let exchange = HTTPExchange(call, limits, self.time)
        return try await exchange.run(into: sink) { ExchangeProducer($0, call.call, self.exchange) }
    }
}

/// Runs the closure of one exchange, and is the closure's sink.
private final class ExchangeProducer: HTTPProducer, HTTPSink {
    private let url: URL
    private let exchange: HTTPExchange
    private let state = Locked(State())

    private struct State: Sendable {
        var task: Task<Void, Never>?
        /// Whether ``resume()`` was called since the last wait, so the buffer may have room.
        var hasRoom = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    init(_ exchange: HTTPExchange, _ call: HTTPCall, _ perform: @escaping ExchangeTransport.Exchange) {
        self.url = call.url
        self.exchange = exchange
        let task = TaskLauncher()(name: "mux.http.exchange") {
            do {
                exchange.end(with: nil, trailers: try await perform(Self.watched(call, exchange), self))
            } catch {
                exchange.end(with: HTTPError.transportError(for: error))
            }
        }
        self.state.withLock { $0.task = task }
    }

    func resume() {
        let waiting = self.state.withLock { state in
            defer { state.waiting = [] }
            state.hasRoom = true
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }

    func stop() {
        self.resume()
        self.state.withLock(\.task)?.cancel()
    }

    private func waitForRoom() async {
        await withCheckedContinuation { continuation in
            let hasRoom = self.state.withLock { state in
                defer { state.hasRoom = false }
                if !state.hasRoom { state.waiting.append(continuation) }
                return state.hasRoom
            }
            if hasRoom { continuation.resume() }
        }
    }

    func receive(head: HTTPReply) throws {
        guard head.status >= 200 || head.status == 101 else { return self.exchange.recordActivity() }
        var head = head
        head.url = head.url ?? self.url
        let goesOn = self.exchange.receive(head: head)
        self.exchange.flush()
        guard goesOn else { throw CancellationError() }
    }

    func receive(_ bytes: Data) async throws {
        while true {
            switch self.exchange.receive(bytes) {
            case .taken: return self.exchange.flush()
            case .paused: await self.waitForRoom()
            case .ended: throw CancellationError()
            }
        }
    }

    /// Returns the call; a streamed body is wrapped in a ``WatchedBody``.
    private static func watched(_ call: HTTPCall, _ exchange: HTTPExchange) -> HTTPCall {
        guard case .stream(let stream)? = call.body else { return call }
        var call = call
        let watched = HTTPCall.BodyStream(length: stream.length) { WatchedBody(base: stream, exchange: exchange) }
        call.body = .stream(watched)
        return call
    }
}

/// A streamed request body; while a client waits for a piece of the body, silence is not measured.
///
/// An error of the body ends the exchange, even if the client ignores the error.
private struct WatchedBody: AsyncSequence, Sendable {
    let base: HTTPCall.BodyStream
    let exchange: HTTPExchange

    struct Iterator: AsyncIteratorProtocol {
        var base: HTTPCall.BodyStream.Iterator
        let exchange: HTTPExchange

        mutating func next() async throws -> Data? { try await self.next(isolation: #isolation) }

        mutating func next(isolation actor: isolated (any Actor)?) async throws -> Data? {
            self.exchange.setWaitingForServer(false)
            defer { self.exchange.setWaitingForServer(true) }
            do {
                return try await self.base.next(isolation: actor)
            } catch {
                // After a cancellation of this task, the error is no failure: a client that needs no further
                // piece may cancel the task that reads the body.
                if !Task.isCancelled {
                    let isCancelled = error is CancellationError
                    self.exchange.abandon(isCancelled ? error : HTTPError.preparation(.encoding(error)))
                }
                throw error
            }
        }
    }

    func makeAsyncIterator() -> Iterator { Iterator(base: self.base.makeAsyncIterator(), exchange: self.exchange) }
}
