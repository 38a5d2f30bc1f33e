package import Foundation

/// How long a server wants to be left alone: RFC 9110, section 10.2.3.
package enum HTTPRetryAfter {
    /// The time that the field says, as seconds or as a date; `nil` if it says neither.
    ///
    /// - Parameters:
    ///   - text: The value of `Retry-After`.
    ///   - date: The value of `Date` of the same answer. A time of day counts from there: the server's clock may be another.
    ///   - now: What it counts from if there is none.
    /// - Returns: The time, never negative and of 68 years at most.
    package static func parse(_ text: String?, date: String?, now: Date) -> Duration? {
        guard let text = text.map({ HTTPGrammar.trimmed($0) }) else { return nil }
        if let seconds = HTTPDeltaSeconds.parse(text) { return .seconds(seconds) }
        guard let time = HTTPDate.parse(text, now: now) else { return nil }
        let start = date.flatMap { HTTPDate.parse($0, now: now) } ?? now
        return HTTPDeltaSeconds.duration(time.timeIntervalSince(start))
    }
}

extension HTTPReply {
    /// How long the server wants to be left alone, if it said so.
    package func retryAfter(now: Date) -> Duration? {
        HTTPRetryAfter.parse(self.header("Retry-After"), date: self.header("Date"), now: now)
    }
}
