import Foundation
import MuxKit
import Synchronization

/// An HTTP cache in one repository: stored responses, exchanges with the server, and shared exchanges
/// (flights).
final class ResponseCache: SessionCounter {
    typealias Engine = FlightEngine<FlightName, Landed, State>
    typealias Now = StoredResponse.Now

    /// The name of a flight: requests with equal names share an exchange.
    struct FlightName: Hashable, Sendable {
        /// The URL, as ``HTTPResourceName/text``.
        let resource: String
        /// The request's values of the `Vary` fields of one stored response of the URL; empty without such
        /// fields, and for an exchange that is not shared.
        let variant: String
        /// A unique number for an exchange that is not shared; otherwise 0.
        var uniqueNumber: UInt64 = 0
        /// The session number of the calls: `HTTPExchange.Limits.session`.
        let session: UInt64
    }

    /// The result of an exchange for its waiters.
    enum Landed: Sendable {
        /// The stored response.
        case stored(StoredResponse)
        /// The exchange failed; see ``deliverUnreached(_:_:to:into:)``.
        case unavailable(any Error)
        /// The server responded with this error status, and a stored response was used.
        case failed(Int)
        /// The waiter gets no response from this exchange, and joins no further exchange.
        case notShared
        /// The exchange has no result for its waiters, for example after the cancellation of its caller; each
        /// waiter tries again.
        case again
    }

    /// A background revalidation of a stored response, before its start.
    struct Renewal: Sendable {
        let request: CacheableRequest
        let stale: StoredResponse
    }

    /// The state under the engine's lock.
    struct State: Sendable {
        var statistics = MuxRepository.Statistics()
        /// The parameters of background revalidations that have not begun.
        var renewals: [FlightName: Renewal] = [:]
        /// The pauses after failed background revalidations.
        var pauses: [FlightName: FailurePause] = [:]
    }

    /// The configuration of the wrapped transport; the defaults for a custom transport.
    let options: HTTPTransportConfiguration
    /// The names of credential fields in ``options`` that are not default names.
    private let ownCredentialHeaders: Set<String>
    let time: TimeSource
    /// Whether the observer receives hits.
    private let tellsHits: Bool
    let engine: Engine
    /// The number of the current session; changes only under the lock of ``engine``.
    ///
    /// The end of one session increases the number several times.
    private let sessionCount = Atomic(0)
    let base: any HTTPTransport
    let retryAfter: RetryAfterInterceptor
    let settings: CachingTransport.Configuration
    let repository: MuxRepository
    /// Refuses calls of an account if the wrapped transport is a cache of another repository.
    private let choice: RepositoryChoice
    let responses: MultiplexerMap<String, StoredResponses>
    /// The folder of long bodies; `nil` without a `cacheKey`.
    let folder: BodyFolder?
    let cleared: ClearedOrigins
    /// The running exchanges.
    ///
    /// The lock is held while a response is stored, and while exchanges are fenced, as by
    /// ``fence(except:_:)``. Therefore a fenced exchange stores no response.
    ///
    /// Lock order: this lock first, then the lock of ``engine`` or ``responses``.
    let runningExchanges = Locked(RunningExchanges())

    init(
        _ base: any HTTPTransport,
        _ options: CachingTransport.Configuration,
        _ repository: MuxRepository,
        _ fileSystem: any FileSystem
    ) {
        self.base = base
        self.settings = options
        self.repository = repository
        self.choice = RepositoryChoice(given: repository, ofDependency: (base as? ResponseCache)?.repository)
        let validated = base as? any ValidatedTransport
        self.options = validated?.options ?? HTTPTransportConfiguration()
        self.ownCredentialHeaders = self.options.credentialHeaders.subtracting(
            HTTPTransportConfiguration().credentialHeaders
        )
        self.time = validated?.time ?? repository.time
        self.retryAfter = RetryAfterInterceptor(time: repository.time, wallTime: repository.wallTime)
        self.tellsHits = repository.observer?.observesHits ?? false
        let cleared = ClearedOrigins(options.cacheKey, repository)
        self.cleared = cleared
        let cacheKey = options.cacheKey.map { MultiplexerMap<String, StoredResponses>.CacheKey($0) }
        var persistence = cacheKey?.persistence
        // A removal of all responses of the origin makes older entries on disk stale.
        persistence?.changedAt = { resource in
            let time = cleared.time(of: ClearedOrigins.origin(of: resource.key))
            let age = time.map { HTTPDeltaSeconds.duration(repository.wallTime().timeIntervalSince($0)) }
            return age.map { repository.time.now.advanced(by: .zero - $0) }
        }
        self.responses = MultiplexerMap(
            // The map is only a store: ``CacheableRequest`` decides about the use of a response, and
            // exchanges store the responses.
            policy: MuxPolicy(
                timeToLive: .longest,
                maximumCount: nil,
                maximumCost: .init(options.memoryLimit) { (responses: StoredResponses) in responses.memoryCost }
            ),
            repository: repository,
            persistence: persistence,
            fetch: .value { _ in throw CancellationError() }
        )
        self.folder = options.cacheKey.map { key in
            BodyFolder(
                options.directory.map { StoreFolder($0) } ?? repository.folder(.bodies, for: key),
                limit: Int64(options.diskLimit),
                fileSystem: fileSystem,
                problems: repository.problems
            )
        }
        let engineOptions = Engine.Options(name: "mux.http", linger: nil, wouldDeadlock: MuxError.wouldDeadlock)
        self.engine = Engine(State(), engineOptions, time: repository.time, spawn: repository.spawn)
        self.engine.setWork { [weak self] name, flight in await self?.renew(name, flight) }
        repository.attach(self)
    }

    var session: UInt64 { UInt64(self.sessionCount.load(ordering: .acquiring)) }

    /// Counts an ended session; the caller holds the lock of ``engine``.
    func countSession() { self.sessionCount.wrappingAdd(1, ordering: .releasing) }

    var now: Now { Now(moment: self.repository.time.now, date: self.repository.wallTime()) }

    /// Whether both caches store long bodies in the same folder.
    func hasFolder(of other: ResponseCache) -> Bool {
        self.folder.map { !$0.root.isEmpty && $0.root == other.folder?.root } ?? false
    }

    // MARK: - Requests

    /// The stored response to a call, if usable at once from memory; `nil` if ``perform(_:_:into:)`` must
    /// handle the call.
    ///
    /// A redirection (300 to 399) is not returned: only the sink of ``perform(_:_:into:)`` follows
    /// redirections.
    func storedReply(for call: ValidatedCall) -> HTTPReply? {
        let request = CacheableRequest(call)
        guard request.kind != .other, CallSession.of(call.call)?.isCurrent ?? true,
            call.session.map({ $0 == self.session }) ?? true,
            let stored = self.responses.requestedValue(key: request.resource),
            case .use(let hit) = request.decision(stored.responses, at: self.now), !hit.revalidates,
            !(300...399).contains(hit.response.status), case .memory(let body) = hit.response.body
        else { return nil }
        self.recordUse(of: hit)
        let hasBody = call.method != .head && !hit.isNotModified
        return self.reply(hit, .init(), body: hasBody ? hit.places.map { body.piece($0) } ?? body : Data())
    }

    /// Responds to a call with a stored response, with a response of the server, or with status 504.
    @concurrent
    func perform(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        let request = CacheableRequest(call.addingCredentialHeaders(self.ownCredentialHeaders))
        var limits = limits
        let session = CallSession.of(call.call)
        if call.steps != nil || session?.isOfAccount ?? false { try self.choice.check(nil, name: "CachingTransport") }
        // No session has the number `.max`: a call of an ended session gets no stored response, and the
        // response is not stored.
        if let session, !session.isCurrent { limits.session = .max }
        var waits = 0
        // `false` after a missing file: the request then uses no response with a file, so the loop ends.
        var hasFiles = true
        // Each request counts at most once as a hit, a join or a miss, even if the loop repeats. Requests of
        // kind `.other` are not counted.
        var isCounted = request.kind == .other
        while true {
            var stored = request.kind == .other ? [] : await self.stored(request.resource)
            if !hasFiles { stored.removeAll { $0.fileName != nil } }
            // Read after the suspension, in which the session may have ended.
            if self.session != limits.session { stored = [] }
            switch request.decision(stored, at: self.now, staleLimit: self.settings.staleLimit) {
            case .refuse:
                if !isCounted { self.tell(.missed) }
                return try await self.refuse(.request, into: sink)
            case .use(let hit):
                if hit.revalidates { try await self.startRenewal(of: hit, for: request, in: limits.session) }
                do {
                    let reply = try await self.deliver(hit, .init(), to: request, into: sink)
                    if isCounted { self.tellIfStale(hit) } else { self.recordUse(of: hit) }
                    return reply
                } catch is BodyFolder.Gone {
                    self.forget(hit.response, of: request.resource)
                    hasFiles = false
                } catch {
                    if !isCounted { self.recordUse(of: hit) }
                    throw error
                }
            case .forward(var forward):
                // Parts are combined in memory. A content that is too long for memory, or has an unknown
                // length, is requested completely.
                let total = forward.storedToComplete?.part?.total ?? .max
                if total > self.settings.memoryBodyLimit { forward.storedToComplete = nil }
                // After three shared exchanges without a usable result, the request is sent in its own
                // exchange.
                let isShared = forward.isShared && forward.storedToComplete == nil && waits < 3
                let name = FlightName(
                    resource: request.resource,
                    variant: isShared ? request.flightVariant(stored) : "",
                    uniqueNumber: isShared ? 0 : self.engine.nextID(),
                    session: limits.session
                )
                let landing = try await self.enter(name, limits, counts: !isCounted)
                isCounted = true
                switch landing {
                case .lead(let flight):
                    // The opening removes the files of earlier sessions, even if no long body arrives.
                    if let folder { try? await self.open(folder) }
                    let exchange = CacheExchange(
                        cache: self,
                        request: request,
                        forward: forward,
                        name: name,
                        flight: flight,
                        limits: limits
                    )
                    return try await exchange.run(into: sink)
                case .output(let landed):
                    waits += 1
                    if let reply = try await self.share(landed, request, forward, into: sink) { return reply }
                    // After `notShared`, or a selected response that is not usable, another shared exchange
                    // would hardly help: the request joins no further exchange. A later `+= 1` must not
                    // overflow.
                    switch landed {
                    case .notShared: waits = .max - 1
                    case .stored(let response) where response.isSelected(by: request.selectingFields): waits = .max - 1
                    case .stored, .unavailable, .failed, .again: break
                    }
                }
            }
        }
    }

    /// Waits for the flight `name`, or starts the flight as the leader.
    ///
    /// The limit of silence and the deadline of the call limit the wait; at the limit, the result is
    /// ``Landed/notShared``.
    private nonisolated(nonsending) func enter(
        _ name: FlightName,
        _ limits: HTTPExchange.Limits,
        counts: Bool
    ) async throws -> Engine.Landing {
        let limit = min(limits.silence, limits.end.duration(since: self.time.now))
        var met: MuxEvent.Kind?
        let landing = try await self.engine.enter(
            name,
            leads: true,
            decide: { _ in .flyNoLonger(than: limit) { _, _, _, _ in .success(.notShared) } },
            joined: { _, _ in met = .joined },
            left: { _ in met = .missed },
            arrived: { if counts, let met { self.tell(met) } }
        )
        if counts, case .lead = landing { self.tell(.missed) }
        return landing
    }

    /// Responds to a request with the result of a shared exchange.
    ///
    /// - Returns: The head of the response; `nil` if the request must continue, for example because each use
    ///   of the response requires validation (RFC 9111, section 4).
    /// - Throws: The error of the exchange, or an error of ``deliver(_:_:to:into:)`` other than
    ///   ``BodyFolder/Gone``.
    private nonisolated(nonsending) func share(
        _ landed: Landed,
        _ request: CacheableRequest,
        _ forward: CacheForward,
        into sink: any HTTPSink
    ) async throws -> HTTPReply? {
        do {
            switch landed {
            case .stored(let response):
                guard case .use(let hit) = request.decision([response], at: self.now), !hit.revalidates else {
                    return nil
                }
                var status = HTTPCacheStatus(forward: forward.reason)
                status.isCollapsed = true
                let reply = try await self.deliver(hit, status, to: request, into: sink)
                self.tellIfStale(hit)
                return reply
            case .unavailable(let error):
                return try await self.deliverUnreached(forward, error, to: request, into: sink)
            case .failed(let status):
                guard forward.toleratesFailure, let fallback = forward.fallback else { return nil }
                return try await self.deliverStale(fallback, forward.reason, status, to: request, into: sink)
            case .notShared, .again: return nil
            }
        } catch is BodyFolder.Gone {
            return nil
        }
    }

    // MARK: - Responses from the cache

    /// The response to a request from the cache: RFC 9111, section 4, and RFC 9110, sections 15.3.7 and
    /// 15.4.5.
    private func reply(_ hit: CacheHit, _ cacheStatus: HTTPCacheStatus, body: Data = Data()) -> HTTPReply {
        let response = hit.response
        var (status, headers) = (response.status, response.headers(age: hit.age))
        if hit.isNotModified {
            status = 304
            for name in [HTTPHeaders.Name.contentLength, .contentType, .contentEncoding] { headers[name] = nil }
        } else if let places = hit.places {
            let first = response.part?.first ?? 0
            let total = (response.part == nil ? response.count : response.part?.total).map { String($0) } ?? "*"
            let (start, end) = (first + places.lowerBound, first + places.upperBound - 1)
            status = 206
            headers[.contentRange] = "bytes \(start)-\(end)/\(total)"
            headers[.contentLength] = String(places.count)
        }
        var cacheStatus = cacheStatus
        cacheStatus.timeToLive = hit.timeToLive
        headers.append(cacheStatus.description, for: .cacheStatus)
        return HTTPReply(status: status, headers: headers, body: body, url: response.url)
    }

    /// Passes a stored response to `sink`.
    ///
    /// - Throws: ``BodyFolder/Gone``, before any call of `sink`, if the body is missing or unreadable; an
    ///   ``HTTPError`` if the file becomes unreadable later; the error of the sink.
    nonisolated(nonsending) func deliver(
        _ hit: CacheHit,
        _ status: HTTPCacheStatus,
        to request: CacheableRequest,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        let reply = self.reply(hit, status)
        // A background revalidation reads no body: only the presence of a file is checked.
        let hasBody = request.call.method != .head && !hit.isNotModified && !(sink is DroppingSink)
        let places = hasBody ? hit.places ?? 0..<hit.response.count : 0..<0
        switch hit.response.body {
        case .memory(let data):
            try await sink.receive(head: reply)
            if !places.isEmpty { try await sink.receive(places.count == data.count ? data : data.piece(places)) }
        case .none: throw BodyFolder.Gone()
        case .file(let name):
            guard let folder else { throw BodyFolder.Gone() }
            do { try await self.open(folder) } catch { throw BodyFolder.Gone() }
            let count = hit.response.count
            let (file, first) = try await BlockingWork.run {
                Result { try folder.read(name, count: count, piece: places) }
            }.get()
            try await sink.receive(head: reply)
            var (place, piece) = (places.lowerBound, first)
            while !piece.isEmpty {
                try await sink.receive(piece)
                place += piece.count
                let rest = place..<places.upperBound
                do {
                    piece = try await BlockingWork.run { Result { try folder.piece(of: file, name, at: rest) } }.get()
                } catch {
                    self.forget(hit.response, of: request.resource)
                    throw HTTPError.transport(
                        .truncated(expected: places.count, received: place - places.lowerBound)
                    )
                }
            }
        }
        return reply
    }

    /// Responds to a request whose exchange failed: RFC 9111, sections 4.2.4 and 5.2.2.2.
    ///
    /// If the server could not be reached, a permitted stored response is delivered, or status 504 if the
    /// stored response has `must-revalidate` or `no-cache`.
    ///
    /// - Throws: `error` if no response is delivered; another error of ``deliver(_:_:to:into:)``.
    nonisolated(nonsending) func deliverUnreached(
        _ forward: CacheForward,
        _ error: any Error,
        to request: CacheableRequest,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        // A custom transport may throw other errors, which become an ``HTTPError``.
        let isUnreached = (HTTPError.transportError(for: error) as? any ConnectivityError)?.isConnectivityFailure
        guard isUnreached == true else { throw error }
        if let fallback = forward.fallback {
            do {
                return try await self.deliverStale(fallback, forward.reason, nil, to: request, into: sink)
            } catch is BodyFolder.Gone {
                throw error
            }
        }
        guard forward.demandsServer else { throw error }
        return try await self.refuse(.stale, into: sink)
    }

    /// Responds with a stored response, usually stale, in place of an error of the server or the connection:
    /// RFC 5861, section 4.
    ///
    /// - Parameters:
    ///   - hit: The stored response.
    ///   - reason: The reason for the request to the server.
    ///   - forwardStatus: The status of the server; `nil` without a response.
    ///   - request: The request.
    ///   - sink: Receives the stored response.
    /// - Returns: The head of the stored response.
    /// - Throws: The errors of ``deliver(_:_:to:into:)``.
    nonisolated(nonsending) func deliverStale(
        _ hit: CacheHit,
        _ reason: HTTPCacheStatus.Forward,
        _ forwardStatus: Int?,
        to request: CacheableRequest,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        var status = HTTPCacheStatus(forward: reason)
        status.forwardStatus = forwardStatus
        let reply = try await self.deliver(hit, status, to: request, into: sink)
        self.tellIfStale(hit)
        return reply
    }

    /// Responds with status 504: RFC 9111, sections 5.2.1.7 and 5.2.2.2.
    private nonisolated(nonsending) func refuse(
        _ reason: HTTPCacheStatus.Forward,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        let reply = HTTPReply(status: 504, headers: [.cacheStatus: HTTPCacheStatus(forward: reason).description])
        try await sink.receive(head: reply)
        return reply
    }

    // MARK: - Counting

    var statistics: MuxRepository.Statistics { self.engine.withState { $0.statistics } }

    var gauges: MuxRepository.Gauges { MuxRepository.Gauges(self.engine) }

    /// Counts and reports a hit, and reports the use of a stale response.
    private func recordUse(of hit: CacheHit) {
        self.tell(.hit)
        self.tellIfStale(hit)
    }

    private func tellIfStale(_ hit: CacheHit) {
        if hit.timeToLive < .zero { self.tell(.servedStale) }
    }

    /// Counts an event, and reports the event to the observer; an observer may ignore hits.
    func tell(_ kind: MuxEvent.Kind, because reason: MuxEvent.Reason? = nil) {
        self.engine.withState { state in
            switch kind {
            case .hit: state.statistics.hits += 1
            case .joined: state.statistics.joins += 1
            case .missed: state.statistics.misses += 1
            case .servedStale: state.statistics.staleServed += 1
            case .fenceDropped: state.statistics.fenceDrops += 1
            case .fetchStarted: state.statistics.fetches += 1
            case .fetchFailed: state.statistics.failures += 1
            default: break
            }
        }
        guard kind != .hit || self.tellsHits, let observer = self.repository.observer else { return }
        let cacheKey = self.settings.cacheKey
        observer.tell(MuxEvent(kind, name: cacheKey ?? "CachingTransport", cacheKey: cacheKey, reason: reason))
    }
}

extension ResponseCache: ValidatedTransport {
    var admitsCalls: Bool { true }
}

extension Data {
    /// The bytes at `places`, counted from the first byte.
    fileprivate func piece(_ places: Range<Int>) -> Data {
        Data(self.dropFirst(places.lowerBound).prefix(places.count))
    }
}
