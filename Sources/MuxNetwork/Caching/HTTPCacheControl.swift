import MuxKit

/// The `Cache-Control` directives of a response for a private cache.
///
/// RFC 9111, section 5.2.2, and RFC 5861.
package struct HTTPCacheControl: Sendable, Equatable {
    /// The response may not be cached (5.2.2.5).
    package var noStore = false
    /// Every use requires validation (5.2.2.4), even if the directive names fields.
    package var noCache = false
    /// A stale response requires validation before reuse (5.2.2.2).
    package var mustRevalidate = false
    /// The response may be cached, even with `no-store`, if the cache knows the status; otherwise the
    /// response may not be cached (5.2.2.3).
    package var mustUnderstand = false
    /// The response does not change during its lifetime (RFC 8246).
    package var isImmutable = false
    /// The response may be cached even if its status is not cacheable by default (5.2.2.7, 5.2.2.9).
    package var isPublicOrPrivate = false
    /// The lifetime in seconds (5.2.2.1); zero for an invalid value (4.2.1).
    package var maxAge: Int64?
    /// The seconds after the lifetime in which the response may be used during a revalidation (RFC 5861,
    /// section 3).
    package var staleWhileRevalidate: Int64?
    /// The seconds after the lifetime in which the response may replace an error (RFC 5861, section 4).
    package var staleIfError: Int64?

    /// Reads a field, or several fields joined by commas; unknown directives are ignored (5.2.3).
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
            // The first of several values counts (4.2.1).
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
    /// The maximum age of a stored response (5.2.1.1).
    var maxAge: Duration?
    /// The minimum remaining lifetime (5.2.1.3).
    var minFresh: Duration?
    /// The maximum time since the end of the lifetime (5.2.1.2); `Duration.longest` without an argument.
    var maxStale: Duration?
    /// The maximum time since the end of the lifetime, for a response in place of an error.
    var staleIfError: Duration?
    /// A stored response requires validation before use (5.2.1.4).
    var noCache = false
    /// Neither the request nor the response may be stored (5.2.1.5).
    var noStore = false
    /// Only a stored response is accepted, otherwise status 504 (5.2.1.7).
    var onlyIfCached = false

    /// Reads a field, or several fields joined by commas.
    ///
    /// An invalid number counts as the strictest argument.
    init(_ text: String?) {
        guard let text else { return }
        for directive in HTTPDirective.list(text) {
            let seconds = HTTPDeltaSeconds.parse(directive.argument).map { Duration.seconds($0) }
            switch directive.name {
            case "max-age":
                // With different values, only a response of the server is certain to be accepted.
                if let maxAge, maxAge != seconds ?? .zero { self.noCache = true }
                self.maxAge = min(self.maxAge ?? .longest, seconds ?? .zero)
            case "min-fresh": self.minFresh = max(self.minFresh ?? .zero, seconds ?? .longest)
            // The strictest of several values counts.
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
    /// The maximum duration of a header field: ``HTTPDeltaSeconds/greatest``.
    static let longest = Duration.seconds(HTTPDeltaSeconds.greatest)
}

/// One element of a list: a name with an optional argument.
struct HTTPDirective: Sendable, Equatable {
    /// The name, in lower case.
    var name: String
    /// The argument, without quotation marks.
    var argument: String?

    /// The elements of a list; separators inside quotation marks do not count: RFC 9110, sections 5.6.1 and
    /// 5.6.4.
    ///
    /// If a closing quotation mark is missing, all quotation marks are read as plain characters. A missing
    /// mark therefore does not hide later elements, even of another header line.
    ///
    /// - Parameters:
    ///   - text: The list.
    ///   - separator: The character between two elements.
    /// - Returns: The elements.
    /// - Complexity: O(*n*).
    static func list(_ text: String, separatedBy separator: Unicode.Scalar = ",") -> [HTTPDirective] {
        let separator = UInt8(ascii: separator)
        let elements = self.list(text, separator, hasQuotes: true)
        return elements ?? self.list(text, separator, hasQuotes: false) ?? []
    }

    /// - Returns: The elements; `nil` if a closing quotation mark is missing.
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
    /// The unparsed elements of a list with commas; commas inside quotation marks do not count: RFC 9110,
    /// section 5.6.1.
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
