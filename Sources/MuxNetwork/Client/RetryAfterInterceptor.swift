package import Foundation
package import MuxKit

/// Sends no request to an origin that answered 429 or 503 with `Retry-After`, until that time has passed.
///
/// RFC 9110, section 10.2.3; RFC 6585, section 4. A request that comes meanwhile fails with
/// ``HTTPError/TransportFailure/serverBusy(retryAfter:)``.
package final class RetryAfterInterceptor: Sendable {
    /// The longest time for which an origin is left alone.
    package static let longestPause = Duration.seconds(3600)

    private let time: TimeSource
    private let wallTime: @Sendable () -> Date
    /// When each origin may be asked again.
    private let pauses = Locked<[HTTPOrigin: Moment]>([:])

    package init(time: TimeSource, wallTime: @escaping @Sendable () -> Date) {
        self.time = time
        self.wallTime = wallTime
    }

    /// Runs `next`, which sends `call`, unless the origin is to be left alone.
    ///
    /// - Throws: ``HTTPError/TransportFailure/serverBusy(retryAfter:)``, or what `next` throws.
    package func send(_ call: ValidatedCall, next: () async throws -> HTTPReply) async throws -> HTTPReply {
        let now = self.time.now
        let pause = self.pauses.withLock { pauses -> Duration? in
            guard let end = pauses[call.origin] else { return nil }
            guard end <= now else { return end.duration(since: now) }
            pauses[call.origin] = nil
            return nil
        }
        if let pause { throw HTTPError.transport(.serverBusy(retryAfter: pause)) }
        let reply = try await next()
        self.note(reply, call)
        return reply
    }

    private func note(_ reply: HTTPReply, _ call: ValidatedCall) {
        guard [429, 503].contains(reply.status), let origin = reply.url.map({ HTTPOrigin($0) }) ?? call.origin,
            let pause = reply.retryAfter(now: self.wallTime()), pause > .zero
        else { return }
        let now = self.time.now
        let end = now.advanced(by: min(pause, Self.longestPause))
        self.pauses.withLock { pauses in
            pauses = pauses.filter { $0.value > now }
            pauses[origin] = max(pauses[origin] ?? .distantPast, end)
        }
    }

    /// How many origins are noted.
    package var count: Int { self.pauses.withLock { $0.count } }
}
