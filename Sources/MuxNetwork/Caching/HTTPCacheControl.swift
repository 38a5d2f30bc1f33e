import MuxKit

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
        for directive in HTTPDirective.list(text) {
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
}

/// The directives of a request's `Cache-Control` field: RFC 9111, section 5.2.1, and RFC 5861, section 4.
struct HTTPRequestCacheControl: Sendable, Equatable {
    /// The age up to which a stored answer will do (5.2.1.1).
    var maxAge: Duration?
    /// For how long it must stay fresh (5.2.1.3).
    var minFresh: Duration?
    /// For how long it may have been stale (5.2.1.2); without an argument, for any time.
    var maxStale: Duration?
    /// For how long it may have been stale, where the server cannot answer.
    var staleIfError: Duration?
    /// Only an answer that the server has validated (5.2.1.4).
    var noCache = false
    /// Neither request nor answer may be stored (5.2.1.5).
    var noStore = false
    /// Only a stored answer, or else status 504 (5.2.1.7).
    var onlyIfCached = false

    /// Reads a field, or several that were joined by commas; an argument that is no number counts as the strictest one.
    init(_ text: String?) {
        guard let text else { return }
        for directive in HTTPDirective.list(text) {
            let seconds = HTTPDeltaSeconds.parse(directive.argument).map { Duration.seconds($0) }
            switch directive.name {
            case "max-age":
                // Two that differ say nothing but that the server is to be asked.
                if let maxAge, maxAge != seconds ?? .zero { self.noCache = true }
                self.maxAge = min(self.maxAge ?? .longest, seconds ?? .zero)
            case "min-fresh": self.minFresh = max(self.minFresh ?? .zero, seconds ?? .longest)
            // The strictest of several counts.
            case "max-stale":
                let tolerated = directive.argument == nil ? .longest : seconds ?? .zero
                self.maxStale = min(self.maxStale ?? .longest, tolerated)
            case "stale-if-error": self.staleIfError = min(self.staleIfError ?? .longest, seconds ?? .zero)
            case "no-cache": self.noCache = true
            case "no-store": self.noStore = true
            case "only-if-cached": self.onlyIfCached = true
            default: break
            }
        }
    }
}

extension Duration {
    /// Longer than any time that a header field can say.
    static let longest = Duration.seconds(HTTPDeltaSeconds.greatest)
}

/// One element of a list whose elements are names, with or without an argument.
struct HTTPDirective: Sendable, Equatable {
    /// In lower case.
    var name: String
    /// Without its quotation marks.
    var argument: String?

    /// The elements of a list; separators within quotation marks do not separate: RFC 9110, sections 5.6.1 and 5.6.4.
    ///
    /// Without a mark for each there are none, so that a lost one does not hide what follows, perhaps on another line.
    ///
    /// - Parameters:
    ///   - text: The list.
    ///   - separator: What stands between two elements.
    /// - Returns: The elements.
    /// - Complexity: O(*n*).
    static func list(_ text: String, separatedBy separator: Unicode.Scalar = ",") -> [HTTPDirective] {
        let separator = UInt8(ascii: separator)
        let elements = self.list(text, separator, hasQuotes: true)
        return elements ?? self.list(text, separator, hasQuotes: false) ?? []
    }

    /// - Returns: The elements; `nil` if a quotation mark is missing.
    private static func list(_ text: String, _ separator: UInt8, hasQuotes: Bool) -> [HTTPDirective]? {
        var directives: [HTTPDirective] = []
        var name: [UInt8] = []
        var argument: [UInt8]?
        var (isQuoted, isEscaped) = (false, false)
        func end() {
            let key = HTTPGrammar.trimmed(String(decoding: name, as: UTF8.self)).lowercased()
            let value = argument.map { HTTPGrammar.trimmed(String(decoding: $0, as: UTF8.self)) }
            if !key.isEmpty { directives.append(HTTPDirective(name: key, argument: value)) }
            (name, argument) = ([], nil)
        }
        for byte in text.utf8 {
            if isEscaped {
                argument?.append(byte)
                isEscaped = false
            } else if isQuoted, byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else if hasQuotes, byte == UInt8(ascii: "\""), argument != nil {
                isQuoted.toggle()
            } else if byte == separator, !isQuoted {
                end()
            } else if byte == UInt8(ascii: "="), argument == nil {
                argument = []
            } else if argument != nil {
                argument?.append(byte)
            } else {
                name.append(byte)
            }
        }
        guard !isQuoted else { return nil }
        end()
        return directives
    }
}

extension HTTPDirective {
    /// The elements of a list as they are, separated by commas that are not within quotation marks: RFC 9110, section 5.6.1.
    ///
    /// - Complexity: O(*n*).
    static func elements(of text: String) -> [String] {
        var elements: [String] = []
        var element: [UInt8] = []
        var (isQuoted, isEscaped) = (false, false)
        func end() {
            let trimmed = HTTPGrammar.trimmed(String(decoding: element, as: UTF8.self))
            if !trimmed.isEmpty { elements.append(trimmed) }
            element = []
        }
        for byte in text.utf8 {
            if byte == UInt8(ascii: ","), !isQuoted {
                end()
                continue
            }
            element.append(byte)
            if isEscaped {
                isEscaped = false
            } else if isQuoted, byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else if byte == UInt8(ascii: "\"") {
                isQuoted.toggle()
            }
        }
        end()
        return elements
    }
}
