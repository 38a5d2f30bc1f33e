import Foundation
import MuxKit

/// One exchange with the server: sends the request, then passes the response to the caller and into the
/// cache.
///
/// Runs on the task of the first caller, or of a background revalidation. The flight ends with the exchange,
/// or earlier by ``endUnstored(_:)`` or the end of the session.
struct CacheExchange: Sendable {
    let cache: ResponseCache
    let request: CacheableRequest
    var forward: CacheForward
    let name: ResponseCache.FlightName
    let flight: FlightID
    let limits: HTTPExchange.Limits
    /// Receives the outcome before the flight ends; called again at the end of the exchange if
    /// ``endUnstored(_:)`` has ended the flight earlier.
    var reportOutcome: @Sendable (Result<HTTPReply, any Error>) -> Void = { _ in }

    /// Performs the exchange.
    ///
    /// - Returns: The head of the response, after the end of the body.
    /// - Throws: The error of the exchange if no stored response replaces the error; the error of the sink,
    ///   or of ``ResponseCache/deliver(_:_:to:into:)``.
    func run(into sink: any HTTPSink) async throws -> HTTPReply {
        var landed = ResponseCache.Landed.again
        self.cache.runningExchanges.withLock { $0.recordStart(of: self.request.resource) }
        defer {
            self.cache.runningExchanges.withLock { $0.recordEnd(of: self.request.resource) }
            self.cache.land(landed, self.flight, of: self.name)
        }
        do {
            let reply = try await self.run(into: sink, &landed)
            self.reportOutcome(.success(reply))
            return reply
        } catch {
            self.reportOutcome(.failure(error))
            throw error
        }
    }

    /// Sends the request until a response is usable; only the first request has a condition or a range of
    /// the cache.
    private func run(into sink: any HTTPSink, _ landed: inout ResponseCache.Landed) async throws -> HTTPReply {
        var exchange = self
        self.cache.tell(.fetchStarted)
        while true {
            let caching = CachingSink(exchange, sink)
            let end: CachingSink.End
            do {
                end = await caching.finish(try await self.cache.send(try exchange.call, self.limits, into: caching))
            } catch {
                await caching.discard()
                guard !caching.asksAgain else {
                    exchange.forward.askPlainly()
                    continue
                }
                if case HTTPError.authentication? = error as? HTTPError {
                    // The waiters may have other tokens.
                    landed = .notShared
                } else if !caching.hasSinkFailed, !Self.concernsCaller(error) {
                    landed = .unavailable(error)
                }
                self.cache.tell(.fetchFailed, because: MuxEvent.Reason(of: error))
                return try await self.failed(error, caching, into: sink)
            }
            var failure: MuxEvent.Reason?
            do {
                switch end {
                case .forwarded(let reply, let response):
                    self.cache.tell(.fetched)
                    landed = response.map { .stored($0) } ?? .notShared
                    return reply
                case .validated(let response, let status):
                    let hit = CacheHit(response, at: self.cache.now)
                    let reply = try await self.cache.deliver(hit, status, to: self.request, into: sink)
                    self.cache.tell(.fetched)
                    landed = status.isStored ? .stored(response) : .notShared
                    return reply
                case .failed(let hit, let status):
                    failure = .status(status)
                    // If the body is missing (`Gone`), the request is sent again, and the caller gets the
                    // response of the server, even an error.
                    (exchange.forward.fallback, exchange.forward.toleratesFailure) = (nil, false)
                    let reason = self.forward.reason
                    let reply = try await self.cache.deliverStale(hit, reason, status, to: self.request, into: sink)
                    self.cache.tell(.fetchFailed, because: failure)
                    landed = .failed(status)
                    return reply
                case .askAgain: break
                }
            } catch {
                guard error is BodyFolder.Gone else {
                    self.cache.tell(.fetchFailed, because: failure ?? MuxEvent.Reason(of: error))
                    throw error
                }
            }
            exchange.forward.askPlainly()
        }
    }

    /// Whether an error has a cause in the call of this caller: waiters then try again.
    private static func concernsCaller(_ error: any Error) -> Bool {
        switch error as? HTTPError {
        case .transport(.bodyTooLarge, _), .preparation: true
        default: error.isAbort
        }
    }

    /// Handles a failed exchange: delivers a stored response or a 504, or throws `error`.
    private func failed(
        _ error: any Error,
        _ caching: CachingSink,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        // The server may have processed the request: the safe assumption is a changed resource.
        if caching.hasSent, !self.request.call.method.isSafe, !self.request.call.isQuery {
            await self.cache.invalidate(self.request.resource, by: self.name)
        }
        guard !caching.hasSinkFailed, !caching.hasForwarded else { throw error }
        return try await self.cache.deliverUnreached(self.forward, error, to: self.request, into: sink)
    }

    /// The request to send: unchanged, with a condition, or for the missing part.
    private var call: ValidatedCall {
        get throws(HTTPError) {
            var headers = self.request.call.call.headers
            if let validator = self.forward.storedToValidate?.freshness.validator {
                headers[validator.condition.name] = validator.condition.value
                // RFC 9111, section 4.3.1: both conditions, for servers that support only one.
                if let time = self.forward.storedToValidate?.headers[.lastModified], HTTPGrammar.isFieldValue(time),
                    HTTPDate.parse(time, now: self.cache.now.date) != nil
                {
                    headers[.ifModifiedSince] = time
                }
            } else if let completed = self.forward.storedToComplete, let tag = completed.strongTag {
                headers[.range] = "bytes=\(completed.count)-"
                headers[.ifRange] = tag
            } else {
                return self.request.call
            }
            return try self.request.call.replacing(headers)
        }
    }

    // MARK: - For the sink

    /// The effect of a response, determined from its head.
    enum Meaning: Sendable {
        /// The response goes to the caller, and is stored if a response to store is given.
        case response(StoredResponse?)
        /// The stored response is current; with `isUpdated`, the value has the fields of the 304.
        ///
        /// A strong tag does not update a response with a weak tag: RFC 9111, section 4.3.4.
        case notModified(StoredResponse, isUpdated: Bool)
        /// The second value, a new part, completes the first value, a stored part: RFC 9111, section 3.4.
        case rest(of: StoredResponse, StoredResponse)
        /// The server reports an error, and this stored response replaces the error.
        case failure(CacheHit)
        /// The response does not fit the condition or range that the cache added: the request is sent again
        /// without the added condition or range.
        case askAgain
    }

    /// The time of sending a request, and the request's number in the order of sending.
    struct Sending: Sendable {
        let moment: Moment
        let number: UInt64
    }

    /// Returns the current time, and the number of a request that is sent now.
    func beginSending() -> Sending {
        Sending(moment: self.cache.repository.time.now, number: self.cache.engine.nextID())
    }

    func meaning(of reply: HTTPReply, _ sent: Sending) -> Meaning {
        if let stored = self.forward.storedToValidate, reply.status == 304 {
            // After a redirection, another resource may have the same validator.
            guard self.request.resource(of: reply) == self.request.resource,
                let validator = stored.freshness.validator, validator.isMet(by: reply.headers)
            else { return .askAgain }
            let isUpdated = validator.isUpdated(by: reply.headers)
            return .notModified(isUpdated ? self.validated(stored, by: reply, sent) : stored, isUpdated: isUpdated)
        }
        if self.forward.toleratesFailure, let fallback = self.forward.fallback,
            StaleIfError.statuses.contains(HTTPStatus(reply.status))
        {
            return .failure(fallback)
        }
        guard let completed = self.forward.storedToComplete, reply.status != 200 else {
            return .response(self.stored(reply, sent))
        }
        guard reply.status == 206, let range = reply.headers[.contentRange].flatMap({ ContentRange($0)?.inMemory }),
            range.places.lowerBound == completed.count, range.total == range.places.upperBound + 1,
            let rest = self.stored(reply, sent, isRest: true), rest.strongTag == completed.strongTag
        else { return .askAgain }
        return .rest(of: completed, rest)
    }

    private func stored(_ reply: HTTPReply, _ sent: Sending, isRest: Bool = false) -> StoredResponse? {
        let now = self.cache.now
        var response = StoredResponse(
            reply,
            to: self.request,
            isRest: isRest,
            at: now,
            delay: now.moment.duration(since: sent.moment),
            heuristicLimit: self.cache.settings.heuristicLimit
        )
        response?.sent = sent.number
        return response
    }

    private func validated(_ stored: StoredResponse, by reply: HTTPReply, _ sent: Sending) -> StoredResponse {
        let now = self.cache.now
        var validated = stored.validated(
            by: reply,
            for: self.request,
            at: now,
            delay: now.moment.duration(since: sent.moment),
            heuristicLimit: self.cache.settings.heuristicLimit
        )
        validated.sent = sent.number
        return validated
    }

    var reason: HTTPCacheStatus.Forward { self.forward.reason }
    /// Whether the response to HEAD is compared with a stored response: RFC 9111, section 4.3.5.
    var isComparedWithStored: Bool { self.forward.storedToCompare != nil }

    /// A spool for the body of `reply`: in memory only if the response depends on credentials.
    nonisolated(nonsending) func spool(for reply: HTTPReply) async -> BodySpool? {
        let names = StoredResponse.storedNames(reply.headers) ?? []
        let isTransient = StoredResponse.areCredentials(names, of: self.request)
        return await self.cache.spool(for: reply, usesFiles: !isTransient)
    }

    /// Obeys `Clear-Site-Data`.
    ///
    /// - Returns: Whether the response has a `Clear-Site-Data` field that requests the removal.
    nonisolated(nonsending) func clearOrigin(_ reply: HTTPReply) async -> Bool {
        guard ClearedOrigins.isRequested(by: reply.headers) else { return false }
        await self.cache.clearOrigin(of: self.request.resource(of: reply), by: self.name)
        return true
    }

    /// Ends the flight with a response that cannot be stored: the waiters get
    /// ``ResponseCache/Landed/notShared``.
    func endUnstored(_ reply: HTTPReply) {
        self.reportOutcome(.success(reply))
        self.cache.land(.notShared, self.flight, of: self.name)
    }

    /// Removes the files of a response that cannot be stored.
    nonisolated(nonsending) func drop(_ response: StoredResponse) async { await self.cache.removeFiles(of: [response]) }

    /// - Returns: Whether the response is stored.
    nonisolated(nonsending) func store(_ response: StoredResponse) async -> Bool {
        var response = response
        response.completed = self.cache.engine.nextID()
        return await self.cache.store(response, for: self.request, self.flight, of: self.name)
    }

    /// Removes or marks the stored responses that `reply` replaces, although `reply` is not stored.
    nonisolated(nonsending) func supersede(by reply: HTTPReply, _ sent: Sending) async {
        let now = self.cache.now.date
        let date = reply.headers[.date].flatMap { HTTPDate.parse($0, now: now) }
        let order = ResponseOrder(date: date, sent: sent.number, completed: self.cache.engine.nextID())
        guard let response = SupersedingResponse(reply, to: self.request, order, at: now) else { return }
        await self.cache.supersede(by: response, of: self.name)
    }

    /// Stores the validated response with the updates of a 304.
    nonisolated(nonsending) func storeValidated(_ response: StoredResponse) async -> Bool {
        guard let former = self.forward.storedToValidate else { return false }
        return await self.replace(former, by: response)
    }

    /// Stores an update of a stored response; removes the stored response if the update forbids the storage.
    private nonisolated(nonsending) func replace(_ former: StoredResponse, by response: StoredResponse) async -> Bool {
        var response = response
        response.completed = self.cache.engine.nextID()
        guard response.freshness.isKept else {
            await self.cache.supersede(by: SupersedingResponse(response, to: self.request), of: self.name)
            return false
        }
        return await self.cache.store(response, replacing: former, for: self.request, self.flight, of: self.name)
    }

    /// Applies the effects of a response on stored responses: RFC 9111, sections 4.3.5 and 4.4.
    nonisolated(nonsending) func applyEffects(_ reply: HTTPReply, _ sent: Sending) async {
        let call = self.request.call
        guard call.method.isSafe || call.isQuery else {
            for resource in InvalidationInterceptor.resources(changedBy: call, reply) {
                await self.cache.invalidate(resource.text, by: self.name)
            }
            return
        }
        guard let stored = self.forward.storedToCompare, reply.status < 500, !SupersedingResponse.isNeutral(reply)
        else { return }
        guard self.request.resource(of: reply) == self.request.resource, stored.isDescribed(by: reply) else {
            return await self.cache.invalidate(self.request.resource)
        }
        guard stored.freshness.validator?.isUpdated(by: reply.headers) ?? true else { return }
        // With `no-store` in the response to HEAD, the stored response is removed.
        _ = await self.replace(stored, by: self.validated(stored, by: reply, sent))
    }
}
