import Foundation
import MuxKit

/// The requests of a cache to its server.
extension ResponseCache {
    /// Performs one exchange with the server: runs the call's steps, which add a token, and sends the
    /// request.
    ///
    /// The steps may send the request again with another token.
    ///
    /// - Throws: The error of ``ValidatedCall/admit``, before any step;
    ///   ``HTTPError/TransportFailure/serverBusy(retryAfter:)``; the error of a step, of the transport or of
    ///   the sink.
    nonisolated(nonsending) func send(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: CachingSink
    ) async throws -> HTTPReply {
        try call.admit?(call.origin)
        guard let steps = call.steps else { return try await self.attempt(call, limits, into: sink) }
        var call = call
        call.steps = nil
        // The time in the steps, such as a wait for a token, does not count towards the deadline.
        var waiting = self.time.now
        let isCurrent = { self.session == limits.session }
        return try await steps.send(call, isCurrent: isCurrent) { call, mayRefuse in
            limits.exclude(self.time.now.duration(since: waiting))
            defer { waiting = self.time.now }
            guard mayRefuse else { return try await self.attempt(call, limits, into: sink) }
            let refusable = RefusableSink(call.call, sink)
            do {
                let reply = try await self.attempt(call, limits, into: refusable)
                return refusable.isRefused ? nil : reply
            } catch  where refusable.isRefused && !error.isAbort {
                return nil
            }
        }
    }

    /// Sends one request, unless the origin has asked for a pause (`Retry-After`).
    private nonisolated(nonsending) func attempt(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: any AttemptSink
    ) async throws -> HTTPReply {
        try await self.retryAfter.send(call) { call in
            sink.attemptBegins()
            return try await self.exchange(call, limits, into: sink)
        }
    }

    private nonisolated(nonsending) func exchange(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        var limits = limits
        if let base = self.base as? ResponseCache {
            // The cache below has other session numbers; no session has the number `.max`.
            limits.session = limits.session == self.session ? base.session : .max
        }
        if let base = self.base as? any ValidatedTransport, CachingTransport.endsInSystemTransport(base) {
            return try await base.perform(call, limits, into: sink)
        }
        // The transport may contain another cache, which needs the session of the call.
        let session =
            CallSession.of(call.call) ?? CallSession(self.repository, isOfAccount: false, self, number: limits.session)
        let sent = call.attaching(session)
        return try await CallSession.$current.withValue(session) {
            guard let base = self.base as? any ValidatedTransport else {
                return try await self.base.stream(sent.call, into: sink)
            }
            return try await base.perform(sent, limits, into: sink)
        }
    }

    /// Ends the flight of an exchange; without effect on waiters if the flight has ended already.
    func land(_ landed: Landed, _ flight: FlightID, of name: FlightName) {
        self.engine.land(flight, of: name, failed: false) { _, _ in
            .success(landed)
        } always: { state in
            // Removes a revalidation that was requested while this flight ran.
            state.renewals[name] = nil
        }
    }
}

/// Discards the response of a background revalidation.
struct DroppingSink: HTTPSink {
    func receive(head: HTTPReply) {}
    func receive(_ bytes: Data) {}
}
