package import Foundation
package import MuxKit

/// Obeys `Retry-After`: sends no request to an origin during the pause that a 403, 429 or 503 demands, at
/// most for an hour.
///
/// RFC 9110, section 10.2.3; RFC 6585, section 4. During the pause, a request to the origin fails with
/// ``HTTPError/TransportFailure/serverBusy(retryAfter:)``, and so does a request that a transport of this
/// module redirects to the origin.
package final class RetryAfterInterceptor: Sendable {
    private let time: TimeSource
    private let wallTime: @Sendable () -> Date
    /// The end of the pause of each origin.
    private let pauses = Locked<[HTTPOrigin: Moment]>([:])

    package init(time: TimeSource, wallTime: @escaping @Sendable () -> Date) {
        self.time = time
        self.wallTime = wallTime
    }

    /// Runs `next`, which sends `call`, unless requests to the origin are paused.
    ///
    /// - Throws: ``HTTPError/TransportFailure/serverBusy(retryAfter:)``, or the error of `next`.
    package func send(_ call: ValidatedCall, next: (ValidatedCall) async throws -> HTTPReply) async throws -> HTTPReply
    {
        try self.admit(call.origin)
        var call = call
        call.admit = { [weak self] (origin) throws(HTTPError) in try self?.admit(origin) }
        let reply = try await next(call)
        self.recordPause(reply, call)
        return reply
    }

    /// Throws during the pause of `origin`.
    private func admit(_ origin: HTTPOrigin) throws(HTTPError) {
        let now = self.time.now
        let pause = self.pauses.withLock { pauses -> Duration? in
            guard let end = pauses[origin] else { return nil }
            guard end <= now else { return end.duration(since: now) }
            pauses[origin] = nil
            return nil
        }
        if let pause { throw .transport(.serverBusy(retryAfter: pause)) }
    }

    /// Records the pause of a response; after a redirection, for the origin of the response.
    private func recordPause(_ reply: HTTPReply, _ call: ValidatedCall) {
        guard [403, 429, 503].contains(reply.status), let origin = reply.url.map({ HTTPOrigin($0) }) ?? call.origin,
            let pause = reply.headers.retryAfter(now: self.wallTime()), pause > .zero
        else { return }
        let now = self.time.now
        let end = now.advanced(by: min(pause, FailurePause.longestRetryAfter))
        self.pauses.withLock { pauses in
            pauses = pauses.filter { $0.value > now }
            pauses[origin] = max(pauses[origin] ?? .distantPast, end)
        }
    }

    /// The number of recorded pauses.
    package var count: Int { self.pauses.withLock { $0.count } }
}
