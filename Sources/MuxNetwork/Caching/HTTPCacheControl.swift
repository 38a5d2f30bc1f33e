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
            let seconds = HTTPDeltaSeconds.parse(directive.argument) ?? 0
            switch directive.name {
            case "no-store": self.noStore = true
            case "no-cache": self.noCache = true
            case "must-revalidate": self.mustRevalidate = true
            case "must-understand": self.mustUnderstand = true
            case "immutable": self.isImmutable = true
            case "public", "private": self.isPublicOrPrivate = true
            // The first of several values counts (4.2.1).
            case "max-age": self.maxAge = self.maxAge ?? seconds
            case "stale-while-revalidate": self.staleWhileRevalidate = self.staleWhileRevalidate ?? seconds
            case "stale-if-error": self.staleIfError = self.staleIfError ?? seconds
            default: break  // proxy-revalidate and s-maxage are for shared caches (5.2.2.8, 5.2.2.10)
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
                // Different values contradict each other, so a stored response requires validation.
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

    /// The elements of a list; see ``elements(of:separatedBy:)``.
    ///
    /// - Parameters:
    ///   - text: The list.
    ///   - separator: The character between two elements.
    /// - Returns: The elements.
    /// - Complexity: O(*n*).
    static func list(_ text: String, separatedBy separator: Unicode.Scalar = ",") -> [HTTPDirective] {
        self.elements(of: text, separatedBy: separator).compactMap { element in
            let sign = element.utf8.firstIndex(of: UInt8(ascii: "="))
            let name = HTTPGrammar.trimmed(String(element[..<(sign ?? element.endIndex)])).lowercased()
            guard !name.isEmpty else { return nil }
            return HTTPDirective(name: name, argument: sign.map { self.unquoted(element[$0...].dropFirst()) })
        }
    }

    /// The argument without quotation marks and escapes; unchanged if a closing quotation mark is missing.
    private static func unquoted(_ argument: Substring) -> String {
        var quotes = Quotes()
        let bytes = argument.utf8.filter { !quotes.read($0) }
        return HTTPGrammar.trimmed(quotes.areOpen ? String(argument) : String(decoding: bytes, as: UTF8.self))
    }

    /// The state of a reader inside or outside of quotation marks: RFC 9110, section 5.6.4.
    private struct Quotes {
        private(set) var areOpen = false
        private var isEscaped = false

        /// Reads the next byte.
        ///
        /// - Returns: Whether the byte is a quotation mark that is not escaped, or begins an escape.
        mutating func read(_ byte: UInt8) -> Bool {
            let isMark = !self.isEscaped && byte == UInt8(ascii: "\"")
            self.isEscaped = !self.isEscaped && self.areOpen && byte == UInt8(ascii: "\\")
            if isMark { self.areOpen.toggle() }
            return isMark || self.isEscaped
        }
    }

    /// The unparsed elements of a list; separators inside quotation marks do not count: RFC 9110, sections
    /// 5.6.1 and 5.6.4.
    ///
    /// If a closing quotation mark is missing, all quotation marks are read as plain characters. A missing
    /// mark therefore does not hide later elements, even of another header line.
    ///
    /// - Parameters:
    ///   - text: The list.
    ///   - separator: The character between two elements.
    /// - Returns: The elements without surrounding white space; no empty element.
    /// - Complexity: O(*n*).
    static func elements(of text: String, separatedBy separator: Unicode.Scalar = ",") -> [String] {
        let separator = UInt8(ascii: separator)
        return self.elements(of: text, separator, hasQuotes: true)
            ?? self.elements(of: text, separator, hasQuotes: false) ?? []
    }

    /// - Returns: The elements; `nil` if a closing quotation mark is missing.
    private static func elements(of text: String, _ separator: UInt8, hasQuotes: Bool) -> [String]? {
        var elements: [String] = []
        var element: [UInt8] = []
        var quotes = Quotes()
        func end() {
            let trimmed = HTTPGrammar.trimmed(String(decoding: element, as: UTF8.self))
            if !trimmed.isEmpty { elements.append(trimmed) }
            element = []
        }
        for byte in text.utf8 {
            if byte == separator, !quotes.areOpen {
                end()
            } else {
                element.append(byte)
                if hasQuotes { _ = quotes.read(byte) }
            }
        }
        guard !quotes.areOpen else { return nil }
        end()
        return elements
    }
}
