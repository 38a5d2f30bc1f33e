package import Foundation

/// How long the value of an answer may be used: RFC 9111 for a private cache, and RFC 5861.
package struct HTTPFreshness: Sendable, Equatable, Codable {
    /// Whether the value may be cached.
    package var isKept = true
    /// How old the value was when it arrived (RFC 9111, section 4.2.3).
    package var age = Duration.zero
    /// Whether a stale value may never be used without the server's consent, not even to answer an error.
    package var mustRevalidate = false
    /// For how long it is fresh from now on; `nil` if the server does not say.
    package var timeToLive: Duration?
    /// For how long it had been stale when it arrived.
    package var overdue = Duration.zero
    /// How long after that it may be served while it is renewed; `nil` if the server does not say.
    package var staleWhileRevalidate: Duration?
    /// How long after that it may be served in place of an error; `nil` if the server does not say.
    package var staleIfError: Duration?
    /// The validator for a conditional request.
    package var validator: HTTPValidator?

    /// The server does not say anything.
    package init() {}

    /// A limit for the time since its lifetime ended, of one for the time since it arrived; `nil` if there is none.
    func granted(_ limit: Duration?) -> Duration? {
        limit.flatMap { $0 > .zero ? $0 + self.overdue : nil }
    }

    /// Whether the times are possible ones, in what was read from disk.
    var isSound: Bool {
        [self.age, self.overdue, self.timeToLive, self.staleWhileRevalidate, self.staleIfError].compactMap(\.self)
            .allSatisfy { (.zero ... .longest).contains($0) }
    }

    /// An answer with the times that count for its age.
    package struct Answer: Sendable {
        package var method: HTTPMethod
        package var status: HTTPStatus
        package var headers: HTTPHeaders
        /// When it arrived, by the wall clock.
        package var receivedAt: Date
        /// The time from the request to the answer.
        package var delay: Duration

        package init(
            method: HTTPMethod = .get,
            status: HTTPStatus = .ok,
            headers: HTTPHeaders,
            receivedAt: Date,
            delay: Duration = .zero
        ) {
            self.method = method
            self.status = status
            self.headers = headers
            self.receivedAt = receivedAt
            self.delay = delay
        }
    }

    private static let notKept: HTTPFreshness = {
        var freshness = HTTPFreshness()
        freshness.isKept = false
        return freshness
    }()

    /// The freshness of an answer.
    ///
    /// - Parameters:
    ///   - answer: A complete answer to a request that had no cached value, or a 304 that may lack what has not changed.
    ///   - heuristicLimit: The longest freshness that is derived from the last change alone.
    /// - Returns: The freshness.
    package static func of(_ answer: Answer, heuristicLimit: Duration) -> HTTPFreshness {
        let control = HTTPCacheControl(answer.headers[.cacheControl])
        guard self.mayBeKept(answer, control) else { return self.notKept }
        var freshness = HTTPFreshness()
        freshness.validator = HTTPValidator(answer.headers, receivedAt: answer.receivedAt)
        freshness.age = self.age(answer)
        freshness.mustRevalidate = control.mustRevalidate || control.noCache
        // 4.1: `Vary: *` matches no later request. 5.2.2.4: `no-cache` requires validation.
        if control.noCache || StoredAnswer.selectingNames(answer.headers) == nil {
            freshness.timeToLive = .zero
            freshness.staleWhileRevalidate = .zero
            freshness.staleIfError = .zero
            return freshness
        }
        let lifetime = self.lifetime(answer, control, heuristicLimit)
        freshness.timeToLive = lifetime.map { max($0 - freshness.age, .zero) }
        // An answer that arrives stale has used up a part of what is granted beyond its lifetime.
        let overdue = max(freshness.age - (lifetime ?? .zero), .zero)
        freshness.overdue = overdue
        func granted(_ seconds: Int64?) -> Duration? { seconds.map { max(.seconds($0) - overdue, .zero) } }
        freshness.staleWhileRevalidate = control.mustRevalidate ? .zero : granted(control.staleWhileRevalidate)
        freshness.staleIfError = control.mustRevalidate ? .zero : granted(control.staleIfError)
        return freshness
    }

    // MARK: - Keeping

    /// RFC 9110, section 15.1, without 206: a part is not the whole.
    private static let heuristicallyCacheable: Set<HTTPStatus> = [
        200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501,
    ]

    /// RFC 9111, section 3.
    private static func mayBeKept(_ answer: Answer, _ control: HTTPCacheControl) -> Bool {
        guard answer.method == .get || answer.method == .head, answer.status != .partialContent else { return false }
        let isUnderstood = self.heuristicallyCacheable.contains(answer.status) || answer.status == .notModified
        if control.mustUnderstand { return isUnderstood }
        guard !control.noStore else { return false }
        let isExplicit = control.maxAge != nil || answer.headers[.expires] != nil || control.isPublicOrPrivate
        return isUnderstood || isExplicit
    }

    // MARK: - Freshness

    /// RFC 9111, section 4.2.1; `nil` without a lifetime and a last change.
    private static func lifetime(_ answer: Answer, _ control: HTTPCacheControl, _ limit: Duration) -> Duration? {
        if let maxAge = control.maxAge { return .seconds(maxAge) }
        let date = self.date(answer)
        if let expires = answer.headers[.expires] {
            // 5.3: an invalid time, such as "0", is in the past.
            guard let time = HTTPDate.parse(expires, now: answer.receivedAt) else { return .zero }
            return HTTPDeltaSeconds.duration(time.timeIntervalSince(date))
        }
        // 4.2.2: a tenth of the time since the last change.
        guard let changed = answer.headers[.lastModified].flatMap({ HTTPDate.parse($0, now: answer.receivedAt) }) else {
            return nil
        }
        return min(HTTPDeltaSeconds.duration(date.timeIntervalSince(changed) / 10), limit)
    }

    /// RFC 9111, section 4.2.3.
    private static func age(_ answer: Answer) -> Duration {
        let apparent = HTTPDeltaSeconds.duration(answer.receivedAt.timeIntervalSince(self.date(answer)))
        // 5.1: the first of a list counts, unless it is no number.
        let first = answer.headers[.age].flatMap { $0.split(separator: ",").first }.map { HTTPGrammar.trimmed($0) }
        let said =
            Duration.seconds(HTTPDeltaSeconds.parse(first) ?? 0)
            + min(max(answer.delay, .zero), .seconds(HTTPDeltaSeconds.greatest))
        return max(apparent, said)
    }

    /// When the answer was generated; without a `Date` (RFC 9110, section 6.6.1), when it arrived.
    private static func date(_ answer: Answer) -> Date {
        answer.headers[.date].flatMap { HTTPDate.parse($0, now: answer.receivedAt) } ?? answer.receivedAt
    }
}
