package import Foundation
package import MuxKit

/// The state of one exchange while its answer arrives, and the decisions about it: pure, and the same for every transport.
package struct HTTPExchangeStateMachine: Sendable {
    private let method: HTTPMethod
    /// The largest body that is accepted, in bytes; `nil` for any size.
    private let sizeLimit: Int?
    private var reply: HTTPReply?
    /// The body's length as announced; `nil` if it was not, if the body arrives decoded, or if there is none.
    private var expected: Int?
    /// How many bytes of the body have arrived.
    private var received = 0

    package init(_ method: HTTPMethod, sizeLimit: Int?) {
        self.method = method
        self.sizeLimit = sizeLimit
    }

    /// Whether the head has arrived.
    package var isHeadReceived: Bool { self.reply != nil }

    /// The codings of RFC 9112, section 7, beside `chunked`.
    private static let transferCodings: Set<String> = ["gzip", "x-gzip", "deflate", "compress", "x-compress"]

    /// The head of an answer has arrived.
    ///
    /// - Returns: Why to give up: the announced lengths are none or differ (RFC 9112, section 6.3), or beyond the limit; or there is a
    ///   transfer coding or another protocol (101) that was not asked for. An unknown coding is passed on as it is, up to the
    ///   end of the connection.
    package mutating func received(_ reply: HTTPReply) -> HTTPError? {
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
        let isIdentity = ["", "identity"].contains(reply.headers[.contentEncoding]?.lowercased() ?? "")
        guard self.method != .head, reply.status != 204, reply.status != 304, isIdentity, !isChunked else { return nil }
        self.expected = length
        guard let sizeLimit, length > sizeLimit else { return nil }
        return .bodyTooLarge(limit: sizeLimit)
    }

    /// Whether the whole body has arrived, or there is none; `false` if its length was not announced.
    package var isComplete: Bool {
        guard let reply else { return false }
        return self.expected.map { self.received >= $0 } ?? (self.method == .head || [204, 304].contains(reply.status))
    }

    /// A part of the body has arrived.
    package mutating func received(count: Int) { self.received += count }

    /// How an exchange failed, in terms that do not depend on the transport.
    package enum Failure: Sendable {
        /// The connection ended early.
        case closed(any Error)
        case other(HTTPError)
    }

    /// The exchange has ended, with an error or without.
    package func ended(_ failure: Failure?) -> Result<HTTPReply, HTTPError> {
        switch (failure, self.reply) {
        // `URLSession` on Linux reports a short body as an unknown error; the lengths say what it was.
        case (.other(.transport(.unreachable(let error), _))?, _): .failure(self.truncation ?? .unreachable(error))
        case (.other(let error)?, _): .failure(error)
        // The server ended the connection after a whole answer, without having read the whole request.
        case (.closed?, let reply?) where self.isComplete: .success(reply)
        case (.closed(let error)?, nil): .failure(.transport(.closedWithoutAnswer(error)))
        case (.closed?, _?): .failure(.truncated(expected: self.expected, received: self.received))
        case (nil, nil): .failure(.notHTTP)
        case (nil, let reply?): self.truncation.map { .failure($0) } ?? .success(reply)
        }
    }

    private var truncation: HTTPError? {
        guard let expected, self.received < expected else { return nil }
        return .truncated(expected: expected, received: self.received)
    }
}

/// One exchange between a transport, which produces the answer on a thread of its own, and the task of its caller, which consumes it.
///
/// Between the two is a bounded buffer. The caller is resumed once for all that has arrived.
package final class HTTPExchange: Sendable {
    /// The limits of an exchange.
    package struct Limits: Sendable {
        /// How long the server may be silent.
        let silence: Duration
        /// How long the call may take in all.
        let deadline: Duration?
        /// When the call must have ended.
        let end: Moment
        /// The largest body that is accepted, in bytes; `nil` for any size.
        let body: Int?
        /// The number of the session in which the call began.
        var session: UInt64

        package init(silence: Duration, deadline: Duration?, body: Int?, from start: Moment, session: UInt64 = 0) {
            self.silence = silence
            self.deadline = deadline
            self.end = deadline.map { start.advanced(by: $0) } ?? .distantFuture
            self.body = body
            self.session = session
        }
    }

    /// What has arrived since the consumer looked last.
    private struct News: Sendable {
        var head: HTTPReply?
        var pieces: [Data] = []
        var outcome: Result<HTTPReply, any Error>?

        var isEmpty: Bool { self.head == nil && self.pieces.isEmpty && self.outcome == nil }
    }

    private struct State: Sendable {
        var machine: HTTPExchangeStateMachine
        var news = News()
        /// The bytes in `news`.
        var bufferedCount = 0
        /// The producer stopped because the buffer was full.
        var isPaused = false
        /// No more is taken from the producer.
        var hasEnded = false
        /// Why the caller leaves, whether or not the producer has ended.
        var leaving: (any Error)?
        /// Whether it is up to the server to go on, rather than to a place for a connection or to the request's own body.
        var isServersTurn = true
        var hasProducerEnded = false
        var lastSign: Moment
        var consumer: CheckedContinuation<News, Never>?
    }

    /// The producer stops at this many bytes.
    package static let capacity = 256 << 10

    private let state: Locked<State>
    package let limits: Limits
    private let time: TimeSource

    package init(_ call: ValidatedCall, _ limits: Limits, _ time: TimeSource) {
        let machine = HTTPExchangeStateMachine(call.method, sizeLimit: limits.body)
        self.state = Locked(State(machine: machine, lastSign: time.now))
        self.limits = limits
        self.time = time
    }

    // MARK: - For the producer, on its thread

    /// Whether nothing is taken any more.
    package var hasEnded: Bool { self.state.withLock { $0.hasEnded } }

    /// Whether the producer said that it has ended.
    package var hasProducerEnded: Bool { self.state.withLock { $0.hasProducerEnded } }

    /// Whether the whole answer has arrived, as far as its lengths say.
    package var isComplete: Bool { self.state.withLock { $0.machine.isComplete } }

    /// Whether the head of the answer has arrived.
    package var isHeadReceived: Bool { self.state.withLock { $0.machine.isHeadReceived } }

    /// The connection showed a sign of life.
    package func showedLife() {
        let now = self.time.now
        self.state.withLock { $0.lastSign = now }
    }

    /// Sets whether the client waits for the server; only then does silence count.
    package func setServersTurn(_ isServersTurn: Bool) {
        let now = self.time.now
        self.state.withLock { state in
            state.isServersTurn = isServersTurn
            state.lastSign = now
        }
    }

    /// The head of the answer has arrived.
    ///
    /// - Returns: Whether to go on.
    package func received(head: HTTPReply) -> Bool {
        let now = self.time.now
        return self.state.withLock { state -> Bool in
            guard !state.hasEnded else { return false }
            state.lastSign = now
            if let error = state.machine.received(head) {
                Self.end(&state, .failure(error))
                return false
            }
            state.news.head = head
            return true
        }
    }

    /// What becomes of a piece of the body.
    package enum Verdict: Sendable {
        case taken
        /// The buffer is full; the producer is told when to deliver the piece again.
        case paused
        case ended
    }

    /// A piece of the body has arrived.
    ///
    /// - Parameters:
    ///   - bytes: The piece.
    ///   - canKeep: Whether the producer can keep the piece; otherwise a full buffer takes it, and says once that it is full.
    /// - Returns: What the producer does next.
    package func received(_ bytes: Data, canKeep: Bool = true) -> Verdict {
        let now = self.time.now
        return self.state.withLock { state -> Verdict in
            guard !state.hasEnded else { return .ended }
            state.lastSign = now
            let isFull = state.bufferedCount >= Self.capacity
            let pauses = isFull && !state.isPaused
            if isFull { state.isPaused = true }
            if isFull, canKeep { return .paused }
            state.machine.received(count: bytes.count)
            state.news.pieces.append(bytes)
            state.bufferedCount += bytes.count
            return pauses ? .paused : .taken
        }
    }

    /// The exchange has ended, with an error or without.
    package func ended(_ failure: HTTPExchangeStateMachine.Failure?, trailers: HTTPHeaders = [:]) {
        self.state.withLock { state in
            state.hasProducerEnded = true
            guard !state.hasEnded else { return }
            Self.end(
                &state,
                state.machine.ended(failure).map { reply in
                    var reply = reply
                    reply.trailers = trailers
                    return reply
                }.mapError { $0 }
            )
        }
        self.flush()
    }

    /// The exchange has ended with an error that is none of HTTP's, such as a cancellation; without effect if it had ended before.
    package func ended(by error: any Error) {
        self.state.withLock { state in
            state.hasProducerEnded = true
            if !state.hasEnded { Self.end(&state, .failure(error)) }
        }
        self.flush()
    }

    /// Resumes the consumer if there is something for it.
    package func flush() {
        let resumption = self.state.withLock { state -> (CheckedContinuation<News, Never>, News)? in
            guard !state.news.isEmpty, let consumer = state.consumer else { return nil }
            state.consumer = nil
            return (consumer, Self.take(&state))
        }
        if let (consumer, news) = resumption { consumer.resume(returning: news) }
    }

    // MARK: - For the consumer

    /// Passes what a producer delivers to a sink.
    ///
    /// - Parameters:
    ///   - sink: Takes the answer.
    ///   - start: Starts the producer.
    /// - Returns: The head of the answer, once the body is complete.
    /// - Throws: ``HTTPError``, what the sink threw, or `CancellationError`.
    package func run(
        into sink: any HTTPSink,
        start: (HTTPExchange) throws -> any HTTPProducer
    ) async throws -> HTTPReply {
        try Task.checkCancellation()
        let producer = try start(self)
        let timer = self.startTimer()
        defer {
            timer.cancel()
            self.state.withLock { $0.hasEnded = true }
            producer.stop()
        }
        return try await withTaskCancellationHandler {
            while true {
                let (news, wasPaused) = await self.news()
                if let head = news.head { try await sink.receive(head: head) }
                if !news.pieces.isEmpty {
                    try await sink.receive(Self.joined(news.pieces))
                    try self.check()
                }
                if let outcome = news.outcome {
                    let reply = try outcome.get()
                    // The timer may be late.
                    if let deadline = self.limits.deadline, self.limits.end <= self.time.now {
                        throw HTTPError.transport(.deadlineExceeded(after: deadline))
                    }
                    return reply
                }
                if wasPaused { producer.resume() }
            }
        } onCancel: {
            self.abandon(CancellationError())
        }
    }

    /// Ends the exchange at once, for a reason that is not the producer's.
    package func abandon(_ error: any Error) {
        self.state.withLock { state in
            if state.leaving == nil { state.leaving = error }
            guard !state.hasEnded else { return }
            state.news = News()
            Self.end(&state, .failure(error))
        }
        self.flush()
    }

    /// Throws the reason for which the caller leaves, if there is one: for work between two pieces.
    package func check() throws {
        if let error = self.state.withLock({ $0.leaving }) { throw error }
    }

    private func news() async -> (News, wasPaused: Bool) {
        let now = self.time.now
        let news = await withCheckedContinuation { continuation in
            let news = self.state.withLock { state -> News? in
                guard state.news.isEmpty else { return Self.take(&state) }
                state.consumer = continuation
                // Only from here on can the server be silent.
                state.lastSign = max(state.lastSign, now)
                return nil
            }
            if let news { continuation.resume(returning: news) }
        }
        let wasPaused = self.state.withLock { state -> Bool in
            defer { state.isPaused = false }
            return state.isPaused
        }
        return (news, wasPaused)
    }

    /// One piece, for a sink may go to another thread with each.
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
        }
        return state.news
    }

    private static func end(_ state: inout State, _ outcome: Result<HTTPReply, any Error>) {
        state.hasEnded = true
        state.news.outcome = outcome
    }

    // MARK: - Time

    private func startTimer() -> Task<Void, Never> {
        TaskLauncher()(name: "mux.http.limits") { [weak self, time] in
            while let pause = self?.timeLeft() {
                guard (try? await time.sleep(for: pause)) != nil else { return }
            }
        }
    }

    /// The time until a limit is exceeded if nothing arrives; `nil`, after the consumer was told, if that has passed.
    private func timeLeft() -> Duration? {
        let now = self.time.now
        let (lastSign, isWaiting) = self.state.withLock { ($0.lastSign, $0.consumer != nil && $0.isServersTurn) }
        if self.limits.end <= now, let deadline = self.limits.deadline {
            self.abandon(HTTPError.transport(.deadlineExceeded(after: deadline)))
            return nil
        }
        // A slow consumer, or one that waits for a place, is no silence of the server's.
        let silence = isWaiting ? lastSign.advanced(by: self.limits.silence).duration(since: now) : self.limits.silence
        guard silence > .zero else {
            self.abandon(HTTPError.timedOut(after: self.limits.silence))
            return nil
        }
        return min(silence, self.limits.end.duration(since: now))
    }
}

/// What a transport runs for one exchange.
package protocol HTTPProducer: Sendable {
    /// There is room in the buffer again.
    func resume()

    /// Ends the exchange, if it has not ended; the connection follows a moment later.
    func stop()
}
