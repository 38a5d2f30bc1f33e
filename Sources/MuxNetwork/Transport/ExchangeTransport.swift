import Foundation
package import MuxKit

/// A transport over another HTTP client, given as a closure that performs one exchange.
///
/// ```swift
/// let transport = ExchangeTransport { call, sink in
///     let answer = try await client.open(call.method, call.url, call.headers.fields, call.body)
///     try await sink.receive(head: HTTPReply(status: answer.status, headers: answer.headers))
///     for try await piece in answer.pieces { try await sink.receive(piece) }
///     return answer.trailers
/// }
/// ```
///
/// What is the same for every client is done here: calls are validated, redirections followed (``HTTPRedirects``), interim answers left
/// out, and the limits of time and size kept. A sink that is slow holds up the closure, and the closure the server.
///
/// **Silence** is the time in which the closure waits for the next piece of the answer. The server is not silent while the closure waits
/// for a piece of a streamed body; but it is while a body in memory is sent, or a connection is awaited, unless an interim answer is passed on.
///
/// **What the closure does.** It sends the request as it is, once, and passes the answer to the sink while it arrives. Redirections,
/// cookies, stored answers and retries of the client are switched off. Of the options it keeps those that concern connections:
/// ``HTTPTransportOptions/connectionsPerHost`` and ``HTTPTransportOptions/usesProxies``.
///
/// **Errors.** What the client throws is ``HTTPError/TransportFailure/unreachable(_:)``, as ``HTTPTransport`` says, unless the closure
/// throws a ``HTTPError/TransportFailure``. For a connection that ended early it throws
/// ``HTTPError/TransportFailure/closedWithoutAnswer(_:)``, whether or not an answer had begun: one that had is
/// ``HTTPError/TransportFailure/truncated(expected:received:)``, or complete by its length. A body with fewer bytes than announced is
/// truncated even if the closure returns.
///
/// **Cancellation.** A caller leaves at once, when it is cancelled or a limit is exceeded; then the closure's task is cancelled, and its
/// next call of the sink throws `CancellationError`.
public final class ExchangeTransport: HTTPTransport, ValidatedTransport {
    /// Performs one exchange: sends the call, passes the answer to the sink, and returns the fields after the body.
    public typealias Exchange =
        @Sendable @concurrent (_ call: HTTPCall, _ sink: any HTTPSink) async throws -> HTTPHeaders

    package let options: HTTPTransportOptions
    package let time: TimeSource
    private let exchange: Exchange

    /// Makes a transport.
    ///
    /// - Parameters:
    ///   - options: Its limits.
    ///   - clock: Measures its time-outs.
    ///   - exchange: Performs one exchange, in a task of its own on the concurrent pool.
    public init(
        _ options: HTTPTransportOptions = .init(),
        clock: any Clock<Duration> = ContinuousClock(),
        _ exchange: @escaping Exchange
    ) {
        self.options = options
        self.time = TimeSource(clock)
        self.exchange = exchange
    }

    package func perform(
        _ call: ValidatedCall,
        _ exchange: HTTPExchange,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        try self.options.requireSystemCertificates()
        return try await exchange.run(into: sink) { ExchangeProducer($0, call.call, self.exchange) }
    }
}

/// Runs the closure of one exchange; its sink.
private final class ExchangeProducer: HTTPProducer, HTTPSink {
    private let url: URL
    private let exchange: HTTPExchange
    private let state = Locked(State())

    private struct State: Sendable {
        var task: Task<Void, Never>?
        /// The buffer may have room again.
        var hasRoom = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    init(_ exchange: HTTPExchange, _ call: HTTPCall, _ perform: @escaping ExchangeTransport.Exchange) {
        self.url = call.url
        self.exchange = exchange
        let task = TaskLauncher()(name: "mux.http.exchange") {
            do {
                exchange.ended(nil, trailers: try await perform(Self.watched(call, exchange), self))
            } catch {
                self.failed(error)
            }
        }
        self.state.withLock { $0.task = task }
    }

    private func failed(_ error: any Error) {
        switch HTTPError.ended(by: error) {
        case HTTPError.transport(.closedWithoutAnswer(let error), _): self.exchange.ended(.closed(error))
        case let error as HTTPError: self.exchange.ended(.other(error))
        case let error: self.exchange.ended(by: error)
        }
    }

    func resume() {
        let waiting = self.state.withLock { state in
            defer { state.waiting = [] }
            state.hasRoom = true
            return state.waiting
        }
        for call in waiting { call.resume() }
    }

    func stop() {
        self.resume()
        self.state.withLock(\.task)?.cancel()
    }

    private func waitForRoom() async {
        await withCheckedContinuation { call in
            let hasRoom = self.state.withLock { state in
                defer { state.hasRoom = false }
                if !state.hasRoom { state.waiting.append(call) }
                return state.hasRoom
            }
            if hasRoom { call.resume() }
        }
    }

    func receive(head: HTTPReply) throws {
        guard head.status >= 200 || head.status == 101 else { return self.exchange.showedLife() }
        var head = head
        head.url = head.url ?? self.url
        guard self.exchange.received(head: head) else {
            self.exchange.flush()
            throw CancellationError()
        }
        self.exchange.flush()
    }

    func receive(_ bytes: Data) async throws {
        while true {
            switch self.exchange.received(bytes) {
            case .taken: return self.exchange.flush()
            case .paused: await self.waitForRoom()
            case .ended: throw CancellationError()
            }
        }
    }

    /// The call with a body that says whose turn it is, and whose failure ends the exchange whatever the client makes of it.
    private static func watched(_ call: HTTPCall, _ exchange: HTTPExchange) -> HTTPCall {
        guard case .stream(let stream)? = call.body else { return call }
        var call = call
        let watched = HTTPCall.BodyStream(length: stream.length) { WatchedBody(base: stream, exchange: exchange) }
        call.body = .stream(watched)
        return call
    }
}

/// A body while a client reads it: the server is not silent while the next piece is made.
private struct WatchedBody: AsyncSequence, Sendable {
    let base: HTTPCall.BodyStream
    let exchange: HTTPExchange

    struct Iterator: AsyncIteratorProtocol {
        var base: HTTPCall.BodyStream.Iterator
        let exchange: HTTPExchange

        mutating func next() async throws -> Data? { try await self.next(isolation: #isolation) }

        mutating func next(isolation actor: isolated (any Actor)?) async throws -> Data? {
            self.exchange.setServersTurn(false)
            defer { self.exchange.setServersTurn(true) }
            do {
                return try await self.base.next(isolation: actor)
            } catch {
                // A client that needs no more of the body cancels its reader.
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
