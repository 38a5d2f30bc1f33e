import Foundation
import MuxKit

/// One request on its way to the server, and its answer on the way to the caller and into the cache.
///
/// Runs on the caller's task. It ends its flight in any case: with the answer, if that is stored, or so that others ask for themselves.
struct CacheExchange: Sendable {
    private let cache: ResponseCache
    private let request: CacheableRequest
    private var forward: CacheForward
    private let name: ResponseCache.FlightName
    private let flight: FlightID
    private let limits: HTTPExchange.Limits

    init(
        _ cache: ResponseCache,
        _ request: CacheableRequest,
        _ forward: CacheForward,
        _ name: ResponseCache.FlightName,
        _ flight: FlightID,
        _ limits: HTTPExchange.Limits
    ) {
        self.cache = cache
        self.request = request
        self.forward = forward
        self.name = name
        self.flight = flight
        self.limits = limits
    }

    /// Performs the exchange.
    ///
    /// - Returns: The head of the answer, once the body is complete.
    /// - Throws: What the transport or the sink threw.
    func run(into sink: any HTTPSink) async throws -> HTTPReply {
        var exchange = self
        var landed = ResponseCache.Landed.again
        defer { self.cache.land(landed, self.flight, of: self.name) }
        self.cache.tell(.fetchStarted)
        while true {
            let caching = CachingSink(exchange, sink)
            let end: CachingSink.End
            do {
                end = try await caching.finish(try await self.cache.send(try exchange.call, self.limits, into: caching))
            } catch {
                await caching.discard()
                guard !caching.asksAgain else {
                    exchange.forward.askPlainly()
                    continue
                }
                if !caching.sinkFailed, !Self.concernsCaller(error) { landed = .unavailable(error) }
                self.cache.tell(.fetchFailed, because: MuxEvent.Reason(of: error))
                return try await self.failed(error, caching, into: sink)
            }
            switch end {
            case .answered(let reply, let answer):
                self.cache.tell(.fetched)
                landed = answer.map { .stored($0) } ?? .alone
                return reply
            case .validated(let answer, let status):
                do {
                    let reply = try await self.deliver(answer, status, into: sink)
                    self.cache.tell(.fetched)
                    landed = status.isStored ? .stored(answer) : .alone
                    return reply
                } catch is BodyFolder.Gone {
                    exchange.forward.askPlainly()
                } catch {
                    self.cache.tell(.fetchFailed, because: MuxEvent.Reason(of: error))
                    throw error
                }
            case .failed(let fallback, let status):
                do {
                    let reply = try await self.cache.deliverStale(fallback, to: self.request, into: sink)
                    self.cache.tell(.fetchFailed, because: .status(status))
                    landed = .failed
                    return reply
                } catch is BodyFolder.Gone {
                    (exchange.forward.fallback, exchange.forward.toleratesFailure) = (nil, false)
                    exchange.forward.askPlainly()
                } catch {
                    self.cache.tell(.fetchFailed, because: .status(status))
                    throw error
                }
            case .askAgain: exchange.forward.askPlainly()
            }
        }
    }

    /// Whether an error says nothing to others who wait for the same.
    private static func concernsCaller(_ error: any Error) -> Bool {
        if HTTPError.isCancellation(error) { return true }
        switch error as? HTTPError {
        case .transport(.deadlineExceeded, _), .transport(.timedOut, _), .transport(.bodyTooLarge, _), .preparation:
            return true
        default: return false
        }
    }

    /// The exchange has failed: answers with what is stored, or throws `error`.
    private func failed(
        _ error: any Error,
        _ caching: CachingSink,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        // The request may have arrived: stale is the safe assumption.
        if !self.request.call.method.isSafe { await self.cache.invalidate(self.request.name, by: self.name) }
        guard !caching.sinkFailed, !caching.hasForwarded else { throw error }
        return try await self.cache.deliverUnreached(self.forward, error, to: self.request, into: sink)
    }

    /// The request as it is sent: with a condition, or for the part that is missing.
    private var call: ValidatedCall {
        get throws(HTTPError) {
            var call = self.request.call.call
            if let validator = self.forward.validated?.freshness.validator {
                call.headers[validator.condition.name] = validator.condition.value
                // RFC 9111, section 4.3.1: both, for servers that know one of them.
                if let time = self.forward.validated?.headers[.lastModified], HTTPGrammar.isFieldValue(time),
                    HTTPDate.parse(time, now: self.cache.now.date) != nil
                {
                    call.headers[.ifModifiedSince] = time
                }
            } else if let completed = self.forward.completed, let tag = completed.strongTag {
                call.headers[.range] = "bytes=\(completed.count)-"
                call.headers[.ifRange] = tag
            } else {
                return self.request.call
            }
            return try ValidatedCall(call)
        }
    }

    // MARK: - For the sink

    /// What the head of an answer means.
    enum Meaning: Sendable {
        /// It goes on to the caller, and is stored if there is an answer to store.
        case answer(StoredAnswer?)
        /// What is stored has not changed.
        case notModified(StoredAnswer)
        /// What is stored is completed by the body: RFC 9111, section 3.4.
        case rest(of: StoredAnswer, StoredAnswer)
        /// The server cannot answer, and a stale answer will do.
        case failure(CacheHit)
        /// It is about another version than the one that was asked about.
        case askAgain
    }

    private static let failures: Set<Int> = [500, 502, 503, 504]

    func meaning(of reply: HTTPReply, sentAt sent: Moment) -> Meaning {
        let now = self.cache.now
        let delay = now.moment.duration(since: sent)
        if let stored = self.forward.validated, reply.status == 304 {
            guard stored.freshness.validator?.isMet(by: reply.headers) ?? false else { return .askAgain }
            return .notModified(
                stored.validated(
                    by: reply,
                    for: self.request,
                    at: now,
                    delay: delay,
                    heuristicLimit: self.cache.heuristicLimit
                )
            )
        }
        if self.forward.toleratesFailure, let fallback = self.forward.fallback, Self.failures.contains(reply.status) {
            return .failure(fallback)
        }
        if let completed = self.forward.completed {
            guard reply.status == 206 else { return reply.status == 200 ? self.plain(reply, now, delay) : .askAgain }
            guard let range = reply.headers[.contentRange].flatMap({ HTTPContentRange($0) }),
                range.places.lowerBound == completed.count, range.total == range.places.upperBound + 1,
                let rest = StoredAnswer(
                    reply,
                    StoredAnswer.Part(first: completed.count, total: range.total),
                    self.request,
                    HTTPFreshness.Answer(headers: reply.headers, receivedAt: now.date, delay: delay),
                    at: now,
                    self.cache.heuristicLimit
                ),
                rest.strongTag == completed.strongTag
            else { return .askAgain }
            return .rest(of: completed, rest)
        }
        return self.plain(reply, now, delay)
    }

    private func plain(_ reply: HTTPReply, _ now: StoredAnswer.Now, _ delay: Duration) -> Meaning {
        .answer(
            StoredAnswer(reply, to: self.request, at: now, delay: delay, heuristicLimit: self.cache.heuristicLimit)
        )
    }

    var moment: Moment { self.cache.time.now }
    var reason: HTTPCacheStatus.Forward { self.forward.reason }
    /// Whether the answer says something of one that is stored: it is one to HEAD.
    var describes: Bool { self.forward.described != nil }

    nonisolated(nonsending) func spool(for reply: HTTPReply) async -> BodySpool? {
        await self.cache.spool(for: reply)
    }

    /// The answer cannot be stored: those who wait ask for themselves.
    func isNotStored() { self.cache.land(.alone, self.flight, of: self.name) }

    /// The body is of no use.
    nonisolated(nonsending) func drop(_ answer: StoredAnswer) async { await self.cache.removeFiles(of: [answer]) }

    nonisolated(nonsending) func store(_ answer: StoredAnswer) async -> Bool {
        await self.cache.store(answer, for: self.request, self.flight, of: self.name, self.limits)
    }

    /// Stores what a 304 has made of the answer that was validated.
    nonisolated(nonsending) func storeValidated(_ answer: StoredAnswer) async -> Bool {
        guard let former = self.forward.validated else { return false }
        guard answer.freshness.isKept else {
            self.cache.forget(former, of: self.request.name)
            return false
        }
        return await self.cache.store(
            answer,
            replacing: former,
            for: self.request,
            self.flight,
            of: self.name,
            self.limits
        )
    }

    /// Notes what an answer says of other answers: RFC 9111, sections 4.3.5 and 4.4.
    nonisolated(nonsending) func noted(_ reply: HTTPReply, sentAt sent: Moment) async {
        let call = self.request.call
        guard call.method.isSafe else {
            for resource in InvalidationInterceptor.resources(changedBy: call, reply) {
                await self.cache.invalidate(resource.text, by: self.name)
            }
            return
        }
        guard let stored = self.forward.described, reply.status < 500 else { return }
        guard stored.isDescribed(by: reply) else { return await self.cache.invalidate(self.request.name) }
        let now = self.cache.now
        let validated = stored.validated(
            by: reply,
            for: self.request,
            at: now,
            delay: now.moment.duration(since: sent),
            heuristicLimit: self.cache.heuristicLimit
        )
        _ = await self.cache.store(
            validated,
            replacing: stored,
            for: self.request,
            self.flight,
            of: self.name,
            self.limits
        )
    }

    private nonisolated(nonsending) func deliver(
        _ answer: StoredAnswer,
        _ status: HTTPCacheStatus,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        let hit = CacheHit(
            answer: answer,
            age: answer.freshness.age,
            timeToLive: answer.freshness.timeToLive ?? .zero
        )
        return try await self.cache.deliver(hit, status, to: self.request, into: sink)
    }
}

/// Passes an answer on to the caller, and keeps a copy.
final class CachingSink: HTTPSink {
    enum End: Sendable {
        /// The caller has the answer, whose head this is; it is stored, or not.
        case answered(HTTPReply, StoredAnswer?)
        /// The caller is to get what is stored.
        case validated(StoredAnswer, HTTPCacheStatus)
        /// The same, since the server answered with this status.
        case failed(CacheHit, Int)
        case askAgain
    }

    /// Ends an exchange whose answer is of no use.
    private struct OfNoUse: Error {}

    private struct State: Sendable {
        var meaning: CacheExchange.Meaning?
        var reply: HTTPReply?
        var spool: BodySpool?
        var hasForwarded = false
        var sinkFailed = false
    }

    private let exchange: CacheExchange
    private let sent: Moment
    private let sink: any HTTPSink
    private let state = Locked(State())

    init(_ exchange: CacheExchange, _ sink: any HTTPSink) {
        self.exchange = exchange
        self.sent = exchange.moment
        self.sink = sink
    }

    var hasForwarded: Bool { self.state.withLock { $0.hasForwarded } }
    var sinkFailed: Bool { self.state.withLock { $0.sinkFailed } }

    var asksAgain: Bool {
        self.state.withLock { state in
            if case .askAgain? = state.meaning { true } else { false }
        }
    }

    func receive(head: HTTPReply) async throws {
        let meaning = self.exchange.meaning(of: head, sentAt: self.sent)
        self.state.withLock { $0.meaning = meaning }
        switch meaning {
        case .notModified, .failure: break
        case .askAgain: throw OfNoUse()
        case .answer(let answer):
            let isKept = answer.map { $0.body != .none } ?? false
            let spool = isKept ? await self.exchange.spool(for: head) : nil
            if !isKept, let answer { _ = await self.exchange.store(answer) }
            if spool == nil, !self.exchange.describes { self.exchange.isNotStored() }
            var status = HTTPCacheStatus(forward: self.exchange.reason)
            status.isStored = spool != nil
            var reply = head
            reply.headers.append(status.description, for: .cacheStatus)
            self.state.withLock { $0.spool = spool }
            try await self.pass(reply)
        case .rest(let stored, _):
            guard case .memory(let data) = stored.body else { throw OfNoUse() }
            var reply = head
            reply.status = 200
            reply.headers = StoredAnswer.updated(stored.headers, by: head.headers)
            reply.headers[.contentRange] = nil
            reply.headers[.contentLength] = nil
            var status = HTTPCacheStatus(forward: .partial)
            status.forwardStatus = 206
            status.isStored = true
            reply.headers.append(status.description, for: .cacheStatus)
            let spool = await self.exchange.spool(for: head)
            self.state.withLock { $0.spool = spool }
            try await self.pass(reply)
            try await self.passing { try await self.sink.receive(data) }
        }
    }

    func receive(_ bytes: Data) async throws {
        switch self.state.withLock({ $0.meaning }) {
        case .answer, .rest: break
        case .notModified, .failure, .askAgain, nil: return
        }
        await self.keep(bytes)
        try await self.passing { try await self.sink.receive(bytes) }
    }

    private func pass(_ reply: HTTPReply) async throws {
        self.state.withLock { state in
            state.reply = reply
            state.hasForwarded = true
        }
        try await self.passing { try await self.sink.receive(head: reply) }
    }

    private func passing(_ body: () async throws -> Void) async throws {
        do {
            try await body()
        } catch {
            self.state.withLock { $0.sinkFailed = true }
            throw error
        }
    }

    /// Keeps a copy of a piece; without room, the answer is passed on and not stored.
    private func keep(_ bytes: Data) async {
        // Taken out, so that its bytes are not copied.
        let taken = self.state.withLock { state in
            defer { state.spool = nil }
            return state.spool
        }
        guard var spool = taken else { return }
        do {
            try await spool.append(bytes)
            self.state.withLock { [spool] in $0.spool = spool }
        } catch {
            await spool.discard()
            self.exchange.isNotStored()
        }
    }

    func discard() async {
        let spool = self.state.withLock { state in
            let spool = state.spool
            state.spool = nil
            return spool
        }
        await spool?.discard()
    }

    /// The exchange is complete, and its answer stored if it may be.
    func finish(_ head: HTTPReply) async throws -> End {
        let state = self.state.withLock { $0 }
        var reply = state.reply ?? head
        reply.trailers = head.trailers
        switch state.meaning {
        case .askAgain: return .askAgain
        // A transport that hands no head on.
        case nil: return .answered(reply, nil)
        case .failure(let fallback): return .failed(fallback, head.status)
        case .notModified(let answer):
            var status = HTTPCacheStatus(forward: self.exchange.reason)
            status.forwardStatus = 304
            status.isStored = await self.exchange.storeValidated(answer)
            return .validated(answer, status)
        case .answer(let answer):
            await self.exchange.noted(head, sentAt: self.sent)
            return .answered(reply, await self.complete(answer, state.spool))
        case .rest(let stored, let rest):
            guard let rest = await self.completed(rest, state.spool) else { return .answered(reply, nil) }
            guard let whole = stored.combined(with: rest, limit: .max) else {
                await self.exchange.drop(rest)
                return .answered(reply, nil)
            }
            return .answered(reply, await self.exchange.store(whole) ? whole : nil)
        }
    }

    private func complete(_ answer: StoredAnswer?, _ spool: BodySpool?) async -> StoredAnswer? {
        guard let answer, let complete = await self.completed(answer, spool) else { return nil }
        return await self.exchange.store(complete) ? complete : nil
    }

    /// The answer with its body.
    private func completed(_ answer: StoredAnswer, _ spool: BodySpool?) async -> StoredAnswer? {
        guard let spool, let body = await spool.finish() else { return nil }
        var answer = answer
        answer.body = body
        answer.count = spool.count
        guard answer.part == nil || answer.isWholePart else {
            await self.exchange.drop(answer)
            return nil
        }
        return answer
    }
}

extension StoredAnswer {
    /// Whether a part has as many bytes as it says.
    var isWholePart: Bool {
        guard let range = self.headers[.contentRange].flatMap({ HTTPContentRange($0) }) else { return false }
        return range.places.count == self.count
    }
}
