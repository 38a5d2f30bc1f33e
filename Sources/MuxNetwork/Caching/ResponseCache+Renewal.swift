import MuxKit

/// Revalidation in the background: RFC 5861, section 3.
extension ResponseCache {
    /// Requests a background revalidation, for which the caller does not wait.
    ///
    /// No revalidation starts while a shared exchange with the same name runs, or before the end of the pause
    /// after failed revalidations (``FailurePause``). Other requests may wait for the result of the
    /// revalidation.
    nonisolated(nonsending) func startRenewal(
        of hit: CacheHit,
        for request: CacheableRequest,
        in session: UInt64
    ) async throws {
        let name = FlightName(
            resource: request.resource,
            variant: request.flightVariant([hit.response]),
            session: session
        )
        let now = self.repository.time.now
        guard !self.engine.isInFlight(name), self.engine.withState({ $0.pauses[name]?.isOver(at: now) ?? true })
        else { return }
        _ = try await self.engine.enter(
            name,
            decide: { state in
                state.renewals[name] = Renewal(request: request, stale: hit.response)
                return .answerAndFly(.again)
            },
            joined: { _, _ in }
        )
    }

    /// Performs the revalidation of a flight that ``startRenewal(of:for:in:)`` has started.
    func renew(_ name: FlightName, _ flight: FlightID) async {
        let renewal = self.engine.withState { $0.renewals.removeValue(forKey: name) }
        guard self.engine.beginWork(flight, of: name, { _, _, _, _ in }) else { return }
        guard let renewal else { return self.land(.again, flight, of: name) }
        let options = self.options
        let limits = HTTPExchange.Limits(
            silence: renewal.request.call.call.timeout ?? options.timeout,
            deadline: options.deadline,
            body: self.settings.bodyLimit,
            from: self.time.now,
            session: name.session
        )
        var forward = CacheForward(reason: .stale)
        if renewal.stale.freshness.validator != nil { forward.storedToValidate = renewal.stale }
        if renewal.request.call.method == .head { forward.storedToCompare = renewal.stale }
        var exchange = CacheExchange(
            cache: self,
            request: renewal.request,
            forward: forward,
            name: name,
            flight: flight,
            limits: limits
        )
        // The exchange can report an outcome twice: the first outcome counts.
        let hasEnded = Locked(false)
        exchange.reportOutcome = { result in
            let isFirst = hasEnded.withLock { hasEnded in
                defer { hasEnded = true }
                return !hasEnded
            }
            if isFirst { self.recordRenewal(of: name, result) }
        }
        _ = try? await exchange.run(into: DroppingSink())
    }

    /// Records the outcome of a renewal, before the flight ends: a failure, except a cancellation, delays the
    /// next renewal.
    private func recordRenewal(of name: FlightName, _ result: Result<HTTPReply, any Error>) {
        let retryAfter: Duration?
        switch result {
        case .success(let reply) where Self.isRenewed(reply):
            return self.engine.withState { $0.pauses[name] = nil }
        case .success(let reply): retryAfter = reply.headers.retryAfter(now: self.repository.wallTime())
        case .failure(let error) where error.isCancellation: return
        case .failure(let error): retryAfter = RetryAdvice.of(error).retryAfter
        }
        let (now, first) = (self.repository.time.now, self.settings.errorBackoff)
        self.engine.withState { state in
            if state.pauses.count >= Self.pauseCleanupThreshold {
                state.pauses = state.pauses.filter { !$0.value.isOver(at: now) }
            }
            state.pauses[name, default: FailurePause()].failed(at: now, first: first, retryAfter: retryAfter)
        }
    }

    /// Whether the server has confirmed the stored response, or has sent a new response.
    ///
    /// Server errors and neutral responses (``SupersedingResponse/isNeutral(_:)``) do not count.
    private static func isRenewed(_ reply: HTTPReply) -> Bool {
        let own = reply.headers.cacheStatuses.last { $0.cache == HTTPCacheStatus.ownName }
        return own?.forwardStatus == 304 || (reply.status < 500 && !SupersedingResponse.isNeutral(reply))
    }

    /// The number of pauses at which the next failure removes finished pauses.
    private static let pauseCleanupThreshold = 1_000
}
