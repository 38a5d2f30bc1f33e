package import Foundation

/// How long the value of an answer may be used: RFC 9111 for a private cache, and RFC 5861.
package struct HTTPFreshness: Sendable, Equatable {
    /// Whether the value may be cached.
    package var isKept = true
    /// For how long it is fresh from now on; `nil` if the server does not say.
    package var timeToLive: Duration?
    /// How long after that it may be served while it is renewed; `nil` if the server does not say.
    package var staleWhileRevalidate: Duration?
    /// How long after that it may be served in place of an error; `nil` if the server does not say.
    package var staleIfError: Duration?
    /// The validator for a conditional request.
    package var validator: HTTPValidator?

    /// The server does not say anything.
    package init() {}

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
        // 4.1: `Vary: *` matches no later request. 5.2.2.4: `no-cache` requires validation.
        let variesAlways = answer.headers[.vary].map {
            $0.split(separator: ",").contains { HTTPGrammar.trimmed($0) == "*" }
        }
        if control.noCache || variesAlways == true {
            freshness.timeToLive = .zero
            freshness.staleWhileRevalidate = .zero
            freshness.staleIfError = .zero
            return freshness
        }
        let lifetime = self.lifetime(answer, control, heuristicLimit)
        let left = lifetime.map { $0 - self.age(answer) }
        freshness.timeToLive = left.map { max($0, .zero) }
        // An answer that arrives stale has used up a part of what is granted beyond its lifetime.
        let used = max(.zero - (left ?? .zero), .zero)
        func granted(_ seconds: Int64?) -> Duration? { seconds.map { max(.seconds($0) - used, .zero) } }
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

/// The directives of a response's `Cache-Control` field that a private cache obeys: RFC 9111, section 5.2.2, and RFC 5861.
package struct HTTPCacheControl: Sendable, Equatable {
    /// The response may not be cached (5.2.2.5).
    package var noStore = false
    /// Every use needs validation (5.2.2.4), also where the directive names fields.
    package var noCache = false
    /// No use once it is stale (5.2.2.2).
    package var mustRevalidate = false
    /// Only caches that know the status may cache it, even with `no-store` (5.2.2.3).
    package var mustUnderstand = false
    /// It does not change while it is fresh (RFC 8246).
    package var isImmutable = false
    /// The response may be cached explicitly (5.2.2.7, 5.2.2.9).
    package var isPublicOrPrivate = false
    /// Seconds for which it is fresh (5.2.2.1); zero if the value is invalid (4.2.1).
    package var maxAge: Int64?
    /// Seconds for which it may be used while it is renewed (RFC 5861, section 3).
    package var staleWhileRevalidate: Int64?
    /// Seconds for which it may be used in place of an error (RFC 5861, section 4).
    package var staleIfError: Int64?

    /// Reads a field, or several that were joined by commas; unknown directives are ignored (5.2.3).
    package init(_ text: String?) {
        guard let text else { return }
        for directive in Self.directives(text) {
            switch directive.name {
            case "no-store": self.noStore = true
            case "no-cache": self.noCache = true
            case "must-revalidate": self.mustRevalidate = true
            case "must-understand": self.mustUnderstand = true
            case "immutable": self.isImmutable = true
            case "public", "private": self.isPublicOrPrivate = true
            // The first of two counts (4.2.1).
            case "max-age": self.maxAge = self.maxAge ?? HTTPDeltaSeconds.parse(directive.argument) ?? 0
            case "stale-while-revalidate":
                let seconds = HTTPDeltaSeconds.parse(directive.argument) ?? 0
                self.staleWhileRevalidate = self.staleWhileRevalidate ?? seconds
            case "stale-if-error":
                self.staleIfError = self.staleIfError ?? HTTPDeltaSeconds.parse(directive.argument) ?? 0
            default: break  // s-maxage and proxy-revalidate are for shared caches (5.2.2.8, 5.2.2.10)
            }
        }
    }

    private struct Directive {
        var name: String
        var argument: String?
    }

    /// The elements of the list; commas within quotation marks do not separate: RFC 9110, sections 5.6.1 and 5.6.4.
    private static func directives(_ text: String) -> [Directive] {
        var directives: [Directive] = []
        var name: [UInt8] = []
        var argument: [UInt8]?
        var (isQuoted, isEscaped) = (false, false)
        func end() {
            let key = HTTPGrammar.trimmed(String(decoding: name, as: UTF8.self)).lowercased()
            let value = argument.map { HTTPGrammar.trimmed(String(decoding: $0, as: UTF8.self)) }
            if !key.isEmpty { directives.append(Directive(name: key, argument: value)) }
            (name, argument) = ([], nil)
        }
        for byte in text.utf8 {
            if isEscaped {
                argument?.append(byte)
                isEscaped = false
            } else if isQuoted, byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else if byte == UInt8(ascii: "\""), argument != nil {
                isQuoted.toggle()
            } else if byte == UInt8(ascii: ","), !isQuoted {
                end()
            } else if byte == UInt8(ascii: "="), argument == nil {
                argument = []
            } else if argument != nil {
                argument?.append(byte)
            } else {
                name.append(byte)
            }
        }
        end()
        return directives
    }
}
