package import Foundation

/// The lifetime and reuse rules of a response's value: RFC 9111 for a private cache, and RFC 5861.
///
/// The property names are keys on disk: after a rename, stored responses lose the value or are unreadable.
package struct HTTPFreshness: Sendable, Equatable, Codable {
    /// Whether the value may be cached.
    package var isKept = true
    /// The age of the value at the arrival (RFC 9111, section 4.2.3).
    package var age = Duration.zero
    /// Whether a stale value requires validation before reuse, even if the server fails.
    package var mustRevalidate = false
    /// The remaining lifetime at the arrival; `nil` if unknown.
    package var timeToLive: Duration?
    /// The excess of the age over the lifetime at the arrival; the whole age if the lifetime is unknown.
    ///
    /// Zero for a value that arrives fresh, for `no-cache`, and for a `Vary` with `*` or an invalid name.
    package var overdue = Duration.zero
    /// The time after ``timeToLive`` in which the value may be used during a revalidation; `nil` without the
    /// directive.
    package var staleWhileRevalidate: Duration?
    /// The time after ``timeToLive`` in which the value may replace an error; `nil` without the directive.
    package var staleIfError: Duration?
    /// The validator for a conditional request.
    package var validator: HTTPValidator?

    /// Makes a freshness without information from the server.
    package init() {}

    /// Returns the time from the end of the lifetime to the end of a stale limit, such as ``staleIfError``.
    ///
    /// For a value that arrives stale, `limit` counts from the arrival, so ``overdue`` is added. `nil` if
    /// `limit` is `nil` or zero.
    func limitSinceExpiry(_ limit: Duration?) -> Duration? {
        limit.flatMap { $0 > .zero ? $0 + self.overdue : nil }
    }

    /// Whether the durations, read from disk, are in the possible range.
    var isSound: Bool {
        [self.age, self.overdue, self.timeToLive, self.staleWhileRevalidate, self.staleIfError].compactMap(\.self)
            .allSatisfy { (.zero ... .longest).contains($0) }
    }

    /// A response with the times for the calculation of its age.
    package struct Response: Sendable {
        package var method: HTTPMethod
        package var status: HTTPStatus
        package var headers: HTTPHeaders
        /// The wall-clock time of the arrival.
        package var receivedAt: Date
        /// The time from the request to the response.
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

    /// The freshness of a response.
    ///
    /// - Parameters:
    ///   - response: The response. For a part (206), pass the status of the complete response: a response
    ///     with the status 206 counts as not kept. A 304 is evaluated by its own fields only.
    ///   - heuristicLimit: The maximum heuristic lifetime, which is derived from `Last-Modified` if the
    ///     server sent no lifetime.
    /// - Returns: The freshness; without lifetimes and a validator if ``isKept`` is `false`.
    package static func of(_ response: Response, heuristicLimit: Duration) -> HTTPFreshness {
        let control = HTTPCacheControl(response.headers[.cacheControl])
        var freshness = HTTPFreshness()
        freshness.isKept = self.mayBeKept(response, control)
        guard freshness.isKept else { return freshness }
        freshness.validator = HTTPValidator(response.headers, receivedAt: response.receivedAt)
        freshness.age = self.age(response)
        freshness.mustRevalidate = control.mustRevalidate || control.noCache
        // 4.1: `Vary: *` matches no later request, and an invalid name counts as `*`. 5.2.2.4: `no-cache`
        // requires validation.
        if control.noCache || StoredResponse.selectingNames(response.headers) == nil {
            freshness.timeToLive = .zero
            freshness.staleWhileRevalidate = .zero
            freshness.staleIfError = .zero
            return freshness
        }
        let lifetime = self.lifetime(response, control, heuristicLimit)
        freshness.timeToLive = lifetime.map { max($0 - freshness.age, .zero) }
        // For a response that arrives stale, a part of the stale limits has already passed.
        let overdue = max(freshness.age - (lifetime ?? .zero), .zero)
        freshness.overdue = overdue
        func granted(_ seconds: Int64?) -> Duration? { seconds.map { max(.seconds($0) - overdue, .zero) } }
        freshness.staleWhileRevalidate = control.mustRevalidate ? .zero : granted(control.staleWhileRevalidate)
        freshness.staleIfError = control.mustRevalidate ? .zero : granted(control.staleIfError)
        return freshness
    }

    // MARK: - Keeping

    /// The cacheable statuses of RFC 9110, section 15.1, without 206: a part is not the complete content.
    private static let heuristicallyCacheable: Set<HTTPStatus> = [
        200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501,
    ]

    /// Whether a response may be cached: RFC 9111, section 3.
    private static func mayBeKept(_ response: Response, _ control: HTTPCacheControl) -> Bool {
        guard response.method == .get || response.method == .head, response.status != .partialContent else {
            return false
        }
        // 5.2.2.3: with `must-understand`, the status decides, even with `no-store`.
        let isUnderstood = self.heuristicallyCacheable.contains(response.status) || response.status == .notModified
        if control.mustUnderstand { return isUnderstood }
        guard !control.noStore else { return false }
        let isExplicit = control.maxAge != nil || response.headers[.expires] != nil || control.isPublicOrPrivate
        return isUnderstood || isExplicit
    }

    // MARK: - Freshness

    /// The lifetime: RFC 9111, section 4.2.1; `nil` if the response has neither a lifetime nor a valid
    /// `Last-Modified`.
    private static func lifetime(_ response: Response, _ control: HTTPCacheControl, _ limit: Duration) -> Duration? {
        if let maxAge = control.maxAge { return .seconds(maxAge) }
        let date = self.date(response)
        if let expires = response.headers[.expires] {
            // 5.3: an invalid time, such as "0", is in the past.
            guard let time = HTTPDate.parse(expires, now: response.receivedAt) else { return .zero }
            return HTTPDeltaSeconds.duration(time.timeIntervalSince(date))
        }
        // 4.2.2: a tenth of the time since the last change.
        guard let changed = response.headers[.lastModified].flatMap({ HTTPDate.parse($0, now: response.receivedAt) })
        else {
            return nil
        }
        return min(HTTPDeltaSeconds.duration(date.timeIntervalSince(changed) / 10), limit)
    }

    /// The age at the arrival: RFC 9111, section 4.2.3.
    private static func age(_ response: Response) -> Duration {
        let apparent = HTTPDeltaSeconds.duration(response.receivedAt.timeIntervalSince(self.date(response)))
        // 5.1: the first value of a list counts, unless the value is invalid.
        let first = response.headers[.age].flatMap { $0.split(separator: ",").first }.map { HTTPGrammar.trimmed($0) }
        let said =
            Duration.seconds(HTTPDeltaSeconds.parse(first) ?? 0)
            + min(max(response.delay, .zero), .seconds(HTTPDeltaSeconds.greatest))
        return min(max(apparent, said), .longest)
    }

    /// The field `Date`; without a valid field (RFC 9110, section 6.6.1), the time of the arrival.
    private static func date(_ response: Response) -> Date {
        response.headers[.date].flatMap { HTTPDate.parse($0, now: response.receivedAt) } ?? response.receivedAt
    }
}
