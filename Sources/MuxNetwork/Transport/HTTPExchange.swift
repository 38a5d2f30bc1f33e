package import Foundation
package import MuxKit

/// The state machine for the response of one exchange; has no side effects.
package struct HTTPExchangeStateMachine: Sendable {
    private let method: HTTPMethod
    /// The maximum value of ``expected``; `nil` for no limit.
    ///
    /// The sink limits the size of a body without an ``expected`` length.
    private let sizeLimit: Int?
    private var reply: HTTPReply?
    /// The announced length of the body; `nil` without a `Content-Length`, with a content coding or a
    /// transfer coding, or without a body.
    private var expected: Int?
    /// The number of received bytes of the body.
    private var received = 0

    package init(_ method: HTTPMethod, sizeLimit: Int?) {
        self.method = method
        self.sizeLimit = sizeLimit
    }

    package var isHeadReceived: Bool { self.reply != nil }

    /// The transfer codings of RFC 9112, section 7, except `chunked`.
    private static let transferCodings: Set<String> = ["gzip", "x-gzip", "deflate", "compress", "x-compress"]

    /// Processes the head of a response.
    ///
    /// A response with only unknown transfer codings is accepted: the body is passed on without decoding.
    ///
    /// - Returns: The reason to abort; otherwise `nil`. Reasons are:
    ///
    ///   - an invalid `Content-Length`, or several different lengths (RFC 9112, section 6.3), without a
    ///     transfer coding;
    ///   - an announced length above the limit;
    ///   - a known transfer coding other than `chunked`, or any other coding in addition to `chunked`;
    ///   - status 101, because no request asks for another protocol;
    ///   - a second head.
    package mutating func receive(head reply: HTTPReply) -> HTTPError? {
        guard self.reply == nil, reply.status != 101 else { return .notHTTP }
        self.reply = reply
        let values = reply.headers.values(of: .contentLength).flatMap {
            $0.split(separator: ",", omittingEmptySubsequences: false)
        }
        let lengths = values.map { HTTPGrammar.number(HTTPGrammar.trimmed($0)).flatMap { Int(exactly: $0) } }
        let codings = reply.headers.values(of: "Transfer-Encoding").flatMap { $0.split(separator: ",") }
            .map { HTTPGrammar.trimmed($0).lowercased() }.filter { $0 != "identity" }
        let isChunked = !codings.isEmpty
        let others = Set(codings).subtracting(["chunked"])
        let areOnlyUnknown = !codings.contains("chunked") && others.isDisjoint(with: Self.transferCodings)
        guard others.isEmpty || areOnlyUnknown else { return .notHTTP }
        guard let first = lengths.first else { return nil }
        guard let length = first, lengths.allSatisfy({ $0 == length }) else { return isChunked ? nil : .notHTTP }
        guard self.method != .head, reply.status != 204, reply.status != 304, reply.headers.isIdentityCoded, !isChunked
        else { return nil }
        self.expected = length
        guard let sizeLimit, length > sizeLimit else { return nil }
        return .bodyTooLarge(limit: sizeLimit)
    }

    /// Whether the response is known to be complete: the announced number of bytes has arrived, or the method
    /// or the status excludes a body.
    package var isComplete: Bool {
        guard let reply else { return false }
        return self.expected.map { self.received >= $0 } ?? (self.method == .head || [204, 304].contains(reply.status))
    }

    package mutating func receive(count: Int) { self.received += count }

    /// Returns the outcome at the end of the exchange.
    ///
    /// - Parameter failure: The failure; `nil` without a failure. After the head of the response,
    ///   ``HTTPError/TransportFailure/closedWithoutResponse(_:)`` reports an early end of the connection.
    /// - Returns: The response, or the error for the caller.
    package func outcome(after failure: (any Error)?) -> Result<HTTPReply, any Error> {
        switch (failure, self.reply) {
        // `URLSession` on Linux reports a short body as an unknown error; the lengths reveal the truncation.
        case (HTTPError.transport(.unreachable(let error), _)?, _):
            .failure(self.truncation ?? HTTPError.unreachable(error))
        // For example, the server closed the connection before the server had read the whole request.
        case (HTTPError.transport(.closedWithoutResponse, _)?, let reply?) where self.isComplete: .success(reply)
        case (HTTPError.transport(.closedWithoutResponse, _)?, _?):
            .failure(HTTPError.truncated(expected: self.expected, received: self.received))
        // Drops the associated value `request`: `naming(_:)` later sets the name of the caller's request.
        case (HTTPError.transport(.closedWithoutResponse(let error), _)?, nil):
            .failure(HTTPError.transport(.closedWithoutResponse(error)))
        case (let failure?, _): .failure(failure)
        case (nil, nil): .failure(HTTPError.notHTTP)
        case (nil, let reply?): self.truncation.map { .failure($0) } ?? .success(reply)
        }
    }

    private var truncation: HTTPError? {
        guard let expected, self.received < expected else { return nil }
        return .truncated(expected: expected, received: self.received)
    }
}

/// One exchange between a transport and a caller.
///
/// The transport produces the response, on any thread; the caller's task consumes the response.
///
/// A full buffer pauses the producer. One resumption of the caller delivers all bytes that have arrived.
package final class HTTPExchange: Sendable {
    /// The limits of the exchanges of one call.
    package struct Limits: Sendable {
        /// The maximum silence of the server.
        let silence: Duration
        /// The maximum total duration of the call; `nil` for no limit.
        let deadline: Duration?
        /// The time of the deadline before ``excluded`` is added.
        private let earliestEnd: Moment
        /// The time that does not count towards the deadline; `nil` without a deadline.
        ///
        /// All copies of the limits of a call share the time.
        private let excluded: Locked<Duration>?
        /// The maximum announced length of the body in bytes; `nil` for no limit.
        let body: Int?
        /// The number of the call's session (``ValidatedTransport/session``), or `.max` if the session had
        /// ended before the exchange.
        var session: UInt64

        package init(silence: Duration, deadline: Duration?, body: Int?, from start: Moment, session: UInt64 = 0) {
            self.silence = silence
            self.deadline = deadline
            self.earliestEnd = deadline.map { start.advanced(by: $0) } ?? .distantFuture
            self.excluded = deadline.map { _ in Locked(.zero) }
            self.body = body
            self.session = session
        }

        /// The time of the deadline, with the excluded times; the distant future without a deadline.
        var end: Moment {
            guard let excluded else { return self.earliestEnd }
            return self.earliestEnd.advanced(by: excluded.withLock(\.self))
        }

        /// Excludes a time from the deadline, such as a wait for a token; no effect without a deadline.
        func exclude(_ time: Duration) { self.excluded?.withLock { $0 += time } }
    }

    /// The data that has arrived since the consumer's last read.
    private struct News: Sendable {
        var head: HTTPReply?
        var pieces: [Data] = []
        var outcome: Result<HTTPReply, any Error>?
        /// Whether the producer was paused at the time of the read.
        var wasPaused = false

        var isEmpty: Bool { self.head == nil && self.pieces.isEmpty && self.outcome == nil }
    }

    private struct State: Sendable {
        var machine: HTTPExchangeStateMachine
        var news = News()
        /// The number of bytes in `news`.
        var bufferedCount = 0
        /// Whether the producer is paused because the buffer was full.
        var isPaused = false
        /// Whether further data of the producer is ignored.
        var hasEnded = false
        /// The error of the first ``HTTPExchange/abandon(_:)``, even if the exchange had already ended.
        var abandonError: (any Error)?
        /// Whether the client waits for the server, and not for a connection or for the body of the request.
        var isWaitingForServer = true
        var hasProducerEnded = false
        /// The start of the measured silence.
        var lastActivity: Moment
        /// The waiting consumer; resumed only by ``HTTPExchange/flush()``, outside the lock.
        var consumer: CheckedContinuation<News, Never>?
    }

    /// The number of buffered bytes at which the producer is paused.
    package static let capacity = 256 << 10

    private let state: Locked<State>
    package let limits: Limits
    private let time: TimeSource

    package init(_ call: ValidatedCall, _ limits: Limits, _ time: TimeSource) {
        let machine = HTTPExchangeStateMachine(call.method, sizeLimit: limits.body)
        self.state = Locked(State(machine: machine, lastActivity: time.now))
        self.limits = limits
        self.time = time
    }

    // MARK: - For the producer

    /// Whether further data of the producer is ignored.
    package var hasEnded: Bool { self.state.withLock { $0.hasEnded } }

    /// Whether the producer has reported the end of the exchange.
    package var hasProducerEnded: Bool { self.state.withLock { $0.hasProducerEnded } }

    /// See ``HTTPExchangeStateMachine/isComplete``.
    package var isComplete: Bool { self.state.withLock { $0.machine.isComplete } }

    package var isHeadReceived: Bool { self.state.withLock { $0.machine.isHeadReceived } }

    /// Records activity of the connection: the measurement of silence restarts.
    package func recordActivity() {
        let now = self.time.now
        self.state.withLock { $0.lastActivity = now }
    }

    /// Sets whether the client waits for the server; silence counts only during such a wait.
    package func setWaitingForServer(_ isWaitingForServer: Bool) {
        let now = self.time.now
        self.state.withLock { state in
            state.isWaitingForServer = isWaitingForServer
            state.lastActivity = now
        }
    }

    /// Processes the head of the response; the next ``flush()`` resumes the consumer.
    ///
    /// - Returns: Whether the producer may continue.
    package func receive(head: HTTPReply) -> Bool {
        let now = self.time.now
        return self.state.withLock { state -> Bool in
            guard !state.hasEnded else { return false }
            state.lastActivity = now
            if let error = state.machine.receive(head: head) {
                Self.end(&state, .failure(error))
                return false
            }
            state.news.head = head
            return true
        }
    }

    /// The buffer's reply to a piece of the body.
    package enum Verdict: Sendable {
        case taken
        /// The buffer is full: the producer waits for ``HTTPProducer/resume()``.
        ///
        /// With `canKeep`, the buffer has not taken the piece: after the wait, the producer delivers the
        /// piece again.
        case paused
        /// The exchange has ended: the producer stops.
        case ended
    }

    /// Processes a piece of the body; the next ``flush()`` resumes the consumer.
    ///
    /// - Parameters:
    ///   - bytes: The piece.
    ///   - canKeep: Whether the producer can keep the piece. If `false`, a full buffer takes the piece as
    ///     well; the first such call of a pause returns `paused`, further calls return `taken`.
    /// - Returns: The next step of the producer.
    package func receive(_ bytes: Data, canKeep: Bool = true) -> Verdict {
        let now = self.time.now
        return self.state.withLock { state -> Verdict in
            guard !state.hasEnded else { return .ended }
            state.lastActivity = now
            let isFull = state.bufferedCount >= Self.capacity
            let pauses = isFull && !state.isPaused
            if isFull { state.isPaused = true }
            if isFull, canKeep { return .paused }
            state.machine.receive(count: bytes.count)
            state.news.pieces.append(bytes)
            state.bufferedCount += bytes.count
            return pauses ? .paused : .taken
        }
    }

    /// Ends the exchange, with or without a failure; if the exchange has ended before, only sets
    /// ``hasProducerEnded``.
    ///
    /// - Parameters:
    ///   - failure: The failure, as for ``HTTPExchangeStateMachine/outcome(after:)``.
    ///   - trailers: The trailer fields of the response.
    package func end(with failure: (any Error)?, trailers: HTTPHeaders = [:]) {
        self.state.withLock { state in
            state.hasProducerEnded = true
            guard !state.hasEnded else { return }
            Self.end(
                &state,
                state.machine.outcome(after: failure).map { reply in
                    var reply = reply
                    reply.trailers = trailers
                    return reply
                }
            )
        }
        self.flush()
    }

    /// Resumes a waiting consumer if data or the outcome is available.
    package func flush() {
        let resumption = self.state.withLock { state -> (CheckedContinuation<News, Never>, News)? in
            guard !state.news.isEmpty, let consumer = state.consumer else { return nil }
            state.consumer = nil
            return (consumer, Self.take(&state))
        }
        if let (consumer, news) = resumption { consumer.resume(returning: news) }
    }

    // MARK: - For the consumer

    /// Starts a producer and passes its data to a sink.
    ///
    /// - Parameters:
    ///   - sink: Receives the response.
    ///   - start: Starts the producer.
    /// - Returns: The head of the response with the trailers, after the end of the body.
    /// - Throws: The failure of the exchange or of `start`; the error of the sink; `CancellationError`.
    package func run(
        into sink: any HTTPSink,
        start: (HTTPExchange) throws -> any HTTPProducer
    ) async throws -> HTTPReply {
        try Task.checkCancellation()
        let producer = try start(self)
        let timer = self.startTimer()
        defer {
            timer?.cancel()
            self.state.withLock { $0.hasEnded = true }
            producer.stop()
        }
        return try await withTaskCancellationHandler {
            while true {
                let news = await self.news()
                if let head = news.head { try await sink.receive(head: head) }
                if !news.pieces.isEmpty {
                    try await sink.receive(Self.joined(news.pieces))
                    try self.throwIfAbandoned()
                }
                if let outcome = news.outcome {
                    let reply = try outcome.get()
                    // The timer may be late: an exceeded deadline is detected here, too.
                    if let deadline = self.limits.deadline, self.limits.end <= self.time.now {
                        throw HTTPError.transport(.deadlineExceeded(after: deadline))
                    }
                    return reply
                }
                if news.wasPaused { producer.resume() }
            }
        } onCancel: {
            self.abandon(CancellationError())
        }
    }

    /// Ends the exchange for a reason outside the producer, such as a cancellation, and drops the buffered
    /// data.
    ///
    /// If the exchange has ended before, the method only records the error for ``throwIfAbandoned()``.
    package func abandon(_ error: any Error) {
        self.state.withLock { state in
            if state.abandonError == nil { state.abandonError = error }
            guard !state.hasEnded else { return }
            state.news = News()
            Self.end(&state, .failure(error))
        }
        self.flush()
    }

    /// Throws the error of the first ``abandon(_:)``, if any, even after the end of the exchange.
    package func throwIfAbandoned() throws {
        if let error = self.state.withLock({ $0.abandonError }) { throw error }
    }

    private func news() async -> News {
        let now = self.time.now
        return await withCheckedContinuation { continuation in
            let news = self.state.withLock { state -> News? in
                guard state.news.isEmpty else { return Self.take(&state) }
                state.consumer = continuation
                // Silence starts here: before, the consumer was busy and did not wait for the server.
                state.lastActivity = max(state.lastActivity, now)
                return nil
            }
            if let news { continuation.resume(returning: news) }
        }
    }

    /// Joins the pieces, because a sink may switch threads for each piece.
    private static func joined(_ pieces: [Data]) -> Data {
        guard let first = pieces.first, pieces.count > 1 else { return pieces.first ?? Data() }
        var bytes = first
        bytes.reserveCapacity(pieces.reduce(0) { $0 + $1.count })
        for piece in pieces.dropFirst() { bytes.append(piece) }
        return bytes
    }

    private static func take(_ state: inout State) -> News {
        defer {
            state.news = News()
            state.bufferedCount = 0
            state.isPaused = false
        }
        state.news.wasPaused = state.isPaused
        return state.news
    }

    private static func end(_ state: inout State, _ outcome: Result<HTTPReply, any Error>) {
        state.hasEnded = true
        state.news.outcome = outcome
    }

    // MARK: - Time

    private func startTimer() -> ScheduledAction? {
        self.timeLeft().map { left in
            self.time.schedule(name: "mux.http.limits", after: left) { [weak self] in self?.timeLeft() }
        }
    }

    /// Aborts the exchange if a limit has passed.
    ///
    /// - Returns: The shortest time until a limit can pass; `nil` after an abort.
    private func timeLeft() -> Duration? {
        let now = self.time.now
        let (lastActivity, isWaiting) = self.state.withLock {
            ($0.lastActivity, $0.consumer != nil && $0.isWaitingForServer)
        }
        if self.limits.end <= now, let deadline = self.limits.deadline {
            self.abandon(HTTPError.transport(.deadlineExceeded(after: deadline)))
            return nil
        }
        // Time in which the client does not wait for the server is not silence of the server.
        let silence =
            isWaiting ? lastActivity.advanced(by: self.limits.silence).duration(since: now) : self.limits.silence
        guard silence > .zero else {
            self.abandon(HTTPError.timedOut(after: self.limits.silence))
            return nil
        }
        return min(silence, self.limits.end.duration(since: now))
    }
}

/// The transport's side of one exchange.
package protocol HTTPProducer: Sendable {
    /// Continues after a pause: the buffer has room.
    func resume()

    /// Ends the work for the exchange, unless the work has ended; called once, even after a complete
    /// response.
    func stop()
}
