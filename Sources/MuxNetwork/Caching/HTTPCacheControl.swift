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
