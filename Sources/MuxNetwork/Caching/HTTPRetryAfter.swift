package import Foundation

/// How long a server wants to be left alone: RFC 9110, section 10.2.3.
package enum HTTPRetryAfter {
    /// The time that the field says, as seconds or as a date; `nil` if it says neither.
    package static func parse(_ text: String?, now: Date) -> Duration? {
        guard let text = text.map({ HTTPGrammar.trimmed($0) }) else { return nil }
        if let seconds = HTTPDeltaSeconds.parse(text) { return .seconds(seconds) }
        guard let time = HTTPDate.parse(text, now: now) else { return nil }
        let seconds = time.timeIntervalSince(now)
        guard seconds > 0 else { return .zero }
        return .milliseconds(Int64(min(seconds, TimeInterval(HTTPDeltaSeconds.greatest)) * 1000))
    }
}
