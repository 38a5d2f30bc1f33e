package import Foundation

/// What a server's answer says about how long its value may be used: RFC 9111 for a private cache, and RFC 5861.
package struct HTTPFreshness: Sendable, Equatable {
    /// Whether the value may be kept at all.
    package var isKept = true
    /// For how long it is fresh from now on; `nil` if the server left that to us.
    package var timeToLive: Duration?
    /// How long after that it may answer at once while it is renewed; `nil` if the server left that to us.
    package var staleWhileRevalidate: Duration?
    /// How long after that it may answer for a failed fetch; `nil` if the server left that to us.
    package var staleIfError: Duration?
    /// What a conditional request has to name.
    package var validator: HTTPValidator?

    /// The server left everything to us.
    package init() {}

    /// An answer with the times that count for its age.
    package struct Answer: Sendable {
        package var method: HTTPMethod
        package var status: HTTPStatus
        package var headers: HTTPHeaders
        /// When it arrived.
        package var receivedAt: Date
        /// How long it was under way.
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

    /// Reads an answer.
    ///
    /// - Parameters:
    ///   - answer: A complete answer to a request that had no cached value, or a 304 that may lack what has not changed.
    ///   - heuristicLimit: The longest time for which a value is taken for fresh of which only the last change is known.
    /// - Returns: What it says.
    package static func of(_ answer: Answer, heuristicLimit: Duration) -> HTTPFreshness {
        let control = HTTPCacheControl(answer.headers[.cacheControl])
        guard self.mayBeKept(answer, control) else { return self.notKept }
        var freshness = HTTPFreshness()
        freshness.validator = HTTPValidator(answer.headers, receivedAt: answer.receivedAt)
        // 4.1: what depends on everything matches no later request. 5.2.2.4: nor may this answer one by itself.
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
        // What is stale already has used up some of what is granted beyond.
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

    /// RFC 9111, section 4.2.1; `nil` if nobody said and nothing hints.
    private static func lifetime(_ answer: Answer, _ control: HTTPCacheControl, _ limit: Duration) -> Duration? {
        if let maxAge = control.maxAge { return .seconds(maxAge) }
        let date = self.date(answer)
        if let expires = answer.headers[.expires] {
            // 5.3: what is no time, such as "0", is in the past.
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
        // 5.1: of a list the first counts, and what is no number does not.
        let first = answer.headers[.age].flatMap { $0.split(separator: ",").first }.map { HTTPGrammar.trimmed($0) }
        let said =
            Duration.seconds(HTTPDeltaSeconds.parse(first) ?? 0)
            + min(max(answer.delay, .zero), .seconds(HTTPDeltaSeconds.greatest))
        return max(apparent, said)
    }

    /// When the answer was made; RFC 9110, section 6.6.1: without a `Date`, when it arrived.
    private static func date(_ answer: Answer) -> Date {
        answer.headers[.date].flatMap { HTTPDate.parse($0, now: answer.receivedAt) } ?? answer.receivedAt
    }
}

/// The directives of a response's `Cache-Control` field that a private cache obeys: RFC 9111, section 5.2.2, and RFC 5861.
package struct HTTPCacheControl: Sendable, Equatable {
    /// Nothing of the response may be kept (5.2.2.5).
    package var noStore = false
    /// Every use needs the server's consent (5.2.2.4); a form that names fields counts as one that names none.
    package var noCache = false
    /// No use once it is stale (5.2.2.2).
    package var mustRevalidate = false
    /// Only caches that know the status may keep it, and they may whatever `no-store` says (5.2.2.3).
    package var mustUnderstand = false
    /// It does not change while it is fresh (RFC 8246).
    package var isImmutable = false
    /// Somebody said that it may be kept (5.2.2.7, 5.2.2.9).
    package var isPublicOrPrivate = false
    /// Seconds for which it is fresh (5.2.2.1); zero if what was said makes no sense (4.2.1).
    package var maxAge: Int64?
    /// Seconds for which it may be used while it is renewed (RFC 5861, section 3).
    package var staleWhileRevalidate: Int64?
    /// Seconds for which it may be used in place of an error (RFC 5861, section 4).
    package var staleIfError: Int64?

    /// Reads a field, or several that were joined by commas; whatever is not understood is left out (5.2.3).
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
            // Where one is there twice, the first counts (4.2.1).
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

    /// What stands between the commas that are not in quotation marks: RFC 9110, sections 5.6.1 and 5.6.4.
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

/// Whole seconds as `max-age` and `Age` say them: RFC 9111, section 1.2.2.
package enum HTTPDeltaSeconds {
    /// What stands for all that is longer.
    package static let greatest: Int64 = 1 << 31

    /// The number that `text` says; `nil` if it is anything but digits.
    package static func parse(_ text: String?) -> Int64? {
        guard let text, !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return min(Int64(text) ?? self.greatest, self.greatest)
    }

    /// A difference between two times, to the millisecond; nothing if it is negative, or no number.
    static func duration(_ seconds: Double) -> Duration {
        guard seconds > 0 else { return .zero }
        return .milliseconds(Int64(min(seconds, Double(self.greatest)) * 1000))
    }
}
