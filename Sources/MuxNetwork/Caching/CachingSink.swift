import Foundation
import MuxKit

/// Receives the responses of several attempts in succession.
protocol AttemptSink: HTTPSink {
    /// Records the start of an attempt.
    func attemptBegins()
}

/// Drops a response that refuses the token, because the call is sent again with another token.
final class RefusableSink: AttemptSink {
    /// Ends the exchange, because the body of the 401 is longer than ``refusalReadLimit``.
    ///
    /// A shorter body is read to its end, so that the connection can be reused.
    private struct Refused: Error {}

    /// The maximum length of the body of a dropped 401 that is read to its end, in bytes.
    private static let refusalReadLimit = 64 << 10
    private let call: HTTPCall
    private let sink: CachingSink
    /// The number of dropped bytes; `nil` if the response does not refuse the token.
    private let dropped = Locked<Int?>(nil)

    init(_ call: HTTPCall, _ sink: CachingSink) { (self.call, self.sink) = (call, sink) }

    var isRefused: Bool { self.dropped.withLock { $0 != nil } }

    func attemptBegins() { self.sink.attemptBegins() }

    func receive(head: HTTPReply) async throws {
        guard HTTPResponse(request: self.call, reply: head).refusesToken else {
            return try await self.sink.receive(head: head)
        }
        self.dropped.withLock { $0 = 0 }
        await self.sink.clear(head)
    }

    func receive(_ bytes: Data) async throws {
        let dropped = self.dropped.withLock { dropped -> Int? in
            dropped = dropped.map { $0 + bytes.count }
            return dropped
        }
        guard let dropped else { return try await self.sink.receive(bytes) }
        if dropped > Self.refusalReadLimit { throw Refused() }
    }
}

/// Passes a response to the caller, and stores a copy.
final class CachingSink: AttemptSink {
    enum End: Sendable {
        /// The caller has received the response.
        ///
        /// The values are the head, and the stored response; `nil` if the response is not stored.
        case forwarded(HTTPReply, StoredResponse?)
        /// The caller gets the stored response, which the server has validated.
        case validated(StoredResponse, HTTPCacheStatus)
        /// The caller gets the stored response, because the server responded with this error status.
        case failed(CacheHit, Int)
        case askAgain
    }

    /// Ends an exchange with a response that is not usable; the request is sent again.
    private struct UnusableResponse: Error {}

    private struct State: Sendable {
        /// The start of the last attempt, or of the exchange before the first attempt.
        var sent: CacheExchange.Sending
        var hasSent = false
        var meaning: CacheExchange.Meaning?
        /// The head of the response that goes to the sink, without this cache's member of `Cache-Status`.
        var head: HTTPReply?
        var status: HTTPCacheStatus?
        var spool: BodySpool?
        /// Whether a response of this exchange had a `Clear-Site-Data` field for the cache.
        var hasCleared = false
    }

    private let exchange: CacheExchange
    private let sink: RecordingSink
    private let state: Locked<State>

    init(_ exchange: CacheExchange, _ sink: any HTTPSink) {
        self.exchange = exchange
        self.sink = RecordingSink(sink)
        self.state = Locked(State(sent: exchange.beginSending()))
    }

    func attemptBegins() {
        let sent = self.exchange.beginSending()
        self.state.withLock { state in
            state.sent = sent
            state.hasSent = true
        }
    }

    /// Whether a request may have reached the server.
    var hasSent: Bool { self.state.withLock { $0.hasSent } }

    /// Obeys `Clear-Site-Data`.
    func clear(_ head: HTTPReply) async {
        if await self.exchange.clearOrigin(head) { self.state.withLock { $0.hasCleared = true } }
    }

    private var sent: CacheExchange.Sending { self.state.withLock { $0.sent } }

    var hasForwarded: Bool { self.state.withLock { $0.head != nil } }
    var hasSinkFailed: Bool { self.sink.failure != nil }

    var asksAgain: Bool {
        self.state.withLock { state in
            if case .askAgain? = state.meaning { true } else { false }
        }
    }

    func receive(head: HTTPReply) async throws {
        let meaning = self.exchange.meaning(of: head, self.sent)
        self.state.withLock { $0.meaning = meaning }
        await self.clear(head)
        switch meaning {
        case .notModified, .failure: break
        case .askAgain: throw UnusableResponse()
        case .response(let response):
            let isKept = response.map { $0.body != .none } ?? false
            let spool = isKept ? await self.exchange.spool(for: head) : nil
            // Without a body, the entry only records that each use needs the server.
            if !isKept, let response {
                _ = await self.exchange.store(response)
            } else if spool == nil {
                await self.exchange.supersede(by: head, self.sent)
            }
            // The flight ends before the body, because waiters need not wait for a response that is not
            // stored. The flight of a HEAD request that may update a stored response continues, because a
            // flight that has ended stores nothing.
            if spool == nil, !self.exchange.isComparedWithStored { self.exchange.endUnstored(head) }
            try await self.pass(head, HTTPCacheStatus(forward: self.exchange.reason), spool)
        case .rest(let stored, _):
            guard case .memory(let data) = stored.body else { throw UnusableResponse() }
            var reply = head
            reply.status = 200
            reply.headers = StoredResponse.updated(stored.headers, by: head.headers)
            reply.headers[.contentRange] = nil
            reply.headers[.contentLength] = nil
            var status = HTTPCacheStatus(forward: .partial)
            status.forwardStatus = 206
            try await self.pass(reply, status, await self.exchange.spool(for: head))
            try await self.sink.receive(data)
        }
    }

    func receive(_ bytes: Data) async throws {
        switch self.state.withLock({ $0.meaning }) {
        case .response, .rest: break
        case .notModified, .failure, .askAgain, nil: return
        }
        await self.spoolPiece(bytes)
        try await self.sink.receive(bytes)
    }

    private func pass(_ head: HTTPReply, _ status: HTTPCacheStatus, _ spool: BodySpool?) async throws {
        var status = status
        status.isStored = spool != nil
        self.state.withLock { [status] in ($0.head, $0.status, $0.spool) = (head, status, spool) }
        try await self.sink.receive(head: Self.reply(head, status))
    }

    private static func reply(_ head: HTTPReply, _ status: HTTPCacheStatus?) -> HTTPReply {
        var reply = head
        if let status { reply.headers.append(status.description, for: .cacheStatus) }
        return reply
    }

    /// The end of an exchange after the response was passed on.
    ///
    /// Unlike the head that the sink got, the final head reports whether the response is stored.
    private static func forwarded(_ state: State, _ head: HTTPReply, _ response: StoredResponse?) -> End {
        var status = state.status
        if response == nil { status?.isStored = false }
        var reply = Self.reply(state.head ?? head, status)
        reply.trailers = head.trailers
        return .forwarded(reply, response)
    }

    /// Stores a copy of a piece; after a failure, such as a body that is too long, the response is only
    /// passed on.
    private func spoolPiece(_ bytes: Data) async {
        // Moved out of the state, to avoid a copy of the bytes.
        guard var spool = self.state.withLock({ $0.spool.take() }) else { return }
        do {
            try await spool.append(bytes)
            self.state.withLock { [spool] in $0.spool = spool }
        } catch {
            await spool.discard()
            guard let reply = self.state.withLock(\.head) else { return }
            await self.exchange.supersede(by: reply, self.sent)
            self.exchange.endUnstored(reply)
        }
    }

    func discard() async {
        await self.state.withLock { $0.spool.take() }?.discard()
    }

    /// Completes the exchange, and stores the response if permitted.
    func finish(_ head: HTTPReply) async -> End {
        let state = self.state.withLock { $0 }
        switch state.meaning {
        case .askAgain: return .askAgain
        // The transport has not called `receive(head:)`.
        case nil:
            await self.exchange.supersede(by: head, self.sent)
            return Self.forwarded(state, head, nil)
        case .failure(let fallback): return .failed(fallback, head.status)
        case .notModified(let response, let isUpdated):
            var status = HTTPCacheStatus(forward: self.exchange.reason)
            status.forwardStatus = 304
            if isUpdated, !state.hasCleared { status.isStored = await self.exchange.storeValidated(response) }
            return .validated(response, status)
        case .response(let response):
            // A response to HEAD that clears the cache does not update a stored response.
            if !(state.hasCleared && self.exchange.isComparedWithStored) {
                await self.exchange.applyEffects(head, self.sent)
            }
            return Self.forwarded(state, head, await self.storeResponse(response, state.spool, head))
        case .rest(let stored, let rest):
            guard let rest = await self.responseWithBody(rest, state.spool) else {
                return Self.forwarded(state, head, nil)
            }
            // No limit: ``ResponseCache/perform(_:_:into:)`` completes only parts of a content that fits in
            // memory.
            guard !state.hasCleared, let whole = stored.combined(with: rest, limit: .max) else {
                await self.exchange.drop(rest)
                return Self.forwarded(state, head, nil)
            }
            return Self.forwarded(state, head, await self.exchange.store(whole) ? whole : nil)
        }
    }

    private func storeResponse(_ response: StoredResponse?, _ spool: BodySpool?, _ head: HTTPReply) async
        -> StoredResponse?
    {
        guard let response, let spool else { return nil }
        guard let complete = await self.responseWithBody(response, spool) else {
            await self.exchange.supersede(by: head, self.sent)
            return nil
        }
        return await self.exchange.store(complete) ? complete : nil
    }

    /// The response with the collected body; `nil` without a complete body, or if the length of a part is
    /// wrong.
    private func responseWithBody(_ response: StoredResponse, _ spool: BodySpool?) async -> StoredResponse? {
        guard let spool, let body = await spool.finish() else { return nil }
        var response = response
        response.body = body
        response.count = spool.count
        let range = response.headers[.contentRange].flatMap { ContentRange($0)?.inMemory }
        guard response.part == nil || range?.places.count == response.count else {
            await self.exchange.drop(response)
            return nil
        }
        // A part with every byte is a complete response. The transport decodes only complete responses, so a
        // part with a content coding stays a part.
        if let part = response.part, part.first == 0, part.total == response.count, !response.isEncoded {
            (response.part, response.status) = (nil, 200)
            response.headers[.contentRange] = nil
            response.headers[.contentLength] = String(response.count)
        }
        return response
    }
}
