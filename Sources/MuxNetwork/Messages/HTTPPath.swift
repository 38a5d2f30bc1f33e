/// The path of an endpoint, percent-encoded segment by segment.
///
/// ```swift
/// let template: HTTPPath = "/users/{id}/photos"       // a placeholder, filled by the request: `pathValues`
/// let path: HTTPPath = "/users/\(id)/photos"          // the same, filled at once
/// ```
///
/// A value is a segment or a part of a segment: only slashes of the literal separate segments, and only
/// braces of the literal enclose placeholders. For example, the id `a/b` becomes `/users/a%2Fb/photos`, and
/// the id `{name}` is not a placeholder. A value that makes a segment empty, `.` or `..` causes an error when
/// the URL is built.
public struct HTTPPath: Sendable, Hashable {
    fileprivate enum Part: Sendable, Hashable {
        /// Written by the developer: slashes separate segments, and braces enclose placeholders.
        case literal(String)
        /// A part of one segment, with any characters.
        case value(String)
        /// From a URL: percent-encoded, and kept byte for byte.
        case encoded(String)
    }

    private struct Segment: Sendable {
        var raw = ""
        var encoded = ""
        var hasValue = false
        /// Whether the segment may be empty, because the path comes from a URL.
        var mayBeEmpty = false

        mutating func append(value: String) {
            self.raw += value
            self.encoded += PercentEncoding.encode(value)
            self.hasValue = true
        }

        mutating func append(encoded: Substring) {
            self.raw += PercentEncoding.decode(encoded)
            self.encoded += encoded
            self.mayBeEmpty = true
        }

        mutating func append(literal: String) {
            self.raw += literal
            // RFC 3986, section 3.3, allows further characters in a segment, such as in `/v1/messages:send`.
            self.encoded += PercentEncoding.encode(literal, allowing: PercentEncoding.isPathByte)
        }
    }

    private var parts: [Part]

    fileprivate init(parts: [Part]) { self.parts = parts }

    /// Makes a path from segments, in order; `/` without segments.
    public init(segments: [String]) {
        self.parts = segments.isEmpty ? [.literal("/")] : segments.flatMap { [.literal("/"), .value($0)] }
    }

    /// Makes a path from the percent-encoded path of a URL, which is kept byte for byte; an empty path
    /// becomes `/`.
    init(encoded path: String) { self.parts = [path.hasPrefix("/") ? .encoded(path) : .literal("/")] }

    /// Returns this path followed by `path`, with one slash between the two paths; an empty `path` has no
    /// effect.
    public func appending(_ path: HTTPPath) -> HTTPPath {
        let hasSlash: Bool
        switch path.parts.first(where: { $0 != .literal("") }) {
        case nil: return self
        case .literal(let text)?, .encoded(let text)?: hasSlash = text.hasPrefix("/")
        case .value?: hasSlash = false
        }
        var parts = self.parts
        switch parts.last {
        case .literal(let text)? where text.hasSuffix("/"): parts[parts.count - 1] = .literal(String(text.dropLast()))
        case .encoded(let text)? where text.hasSuffix("/"): parts[parts.count - 1] = .encoded(String(text.dropLast()))
        default: break
        }
        return HTTPPath(parts: parts + (hasSlash ? [] : [.literal("/")]) + path.parts)
    }

    /// The ``debugDescription`` for error texts; `nil` if the path contains values or the path of a URL, but
    /// no literal text except slashes.
    package var template: String? {
        let isKnown = self.parts.contains { part in
            guard case .literal(let text) = part else { return false }
            return text.contains { $0 != "/" }
        }
        let text = self.debugDescription
        return isKnown || text.allSatisfy { $0 == "/" } ? text : nil
    }

    /// Encodes the path.
    ///
    /// - Parameter values: The values of the placeholders.
    /// - Returns: The path.
    /// - Throws: ``HTTPError/PreparationFailure``.
    /// - Complexity: O(*n*), where *n* is the length of the result.
    package func encoded(_ values: [String: String] = [:]) throws(HTTPError.PreparationFailure) -> String {
        var segments = [Segment()]
        var unused = Set(values.keys)
        for part in self.parts {
            switch part {
            case .value(let value): segments[segments.count - 1].append(value: value)
            case .literal(let text): try Self.append(text, values, &unused, to: &segments)
            case .encoded(let text):
                for (index, segment) in text.split(separator: "/", omittingEmptySubsequences: false).enumerated() {
                    if index > 0 { segments.append(Segment()) }
                    segments[segments.count - 1].append(encoded: segment)
                }
            }
        }
        guard segments.count > 1, segments[0].raw.isEmpty else { throw .pathWithoutSlash }
        for (index, segment) in segments.enumerated().dropFirst() {
            // RFC 3986, section 5.2.4: readers of the URL may remove dot segments, encoded or not.
            guard segment.raw != ".", segment.raw != ".." else { throw .dotPathSegment }
            // A path may end with a slash, and the path of a URL may have empty segments. Any other empty
            // segment is a fault: an empty value, or two adjacent slashes.
            let mayBeEmpty = segment.mayBeEmpty || (index == segments.count - 1 && !segment.hasValue)
            guard !segment.raw.isEmpty || mayBeEmpty else {
                throw .emptyPathSegment
            }
        }
        if let name = unused.min() { throw .unusedPathValue(name: name) }
        return segments.map(\.encoded).joined(separator: "/")
    }

    private static func append(
        _ text: String,
        _ values: [String: String],
        _ unused: inout Set<String>,
        to segments: inout [Segment]
    ) throws(HTTPError.PreparationFailure) {
        // Iterates over scalars, because a slash and a combining accent form one character.
        var rest = text.unicodeScalars[...]
        while let scalar = rest.first {
            switch scalar {
            case "/":
                rest.removeFirst()
                segments.append(Segment())
            case "{":
                rest.removeFirst()
                let name = rest.prefix { !["{", "}", "/"].contains($0) }
                rest = rest[name.endIndex...]
                guard rest.popFirst() == "}", !name.isEmpty else { throw .malformedPlaceholder }
                guard let value = values[String(name)] else { throw .missingPathValue(name: String(name)) }
                unused.remove(String(name))
                segments[segments.count - 1].append(value: value)
            default:
                let plain = rest.prefix { $0 != "/" && $0 != "{" }
                rest = rest[plain.endIndex...]
                segments[segments.count - 1].append(literal: String(plain))
            }
        }
    }
}

extension HTTPPath: ExpressibleByStringInterpolation {
    /// Collects the parts of a literal; used by the compiler.
    public struct StringInterpolation: StringInterpolationProtocol, Sendable {
        fileprivate var parts: [Part] = []

        /// Makes an empty interpolation.
        public init(literalCapacity: Int, interpolationCount: Int) {}

        /// Adds a part of the literal.
        public mutating func appendLiteral(_ literal: String) { self.parts.append(.literal(literal)) }

        /// Adds a value to the current segment.
        public mutating func appendInterpolation(_ value: some CustomStringConvertible) {
            self.parts.append(.value(value.description))
        }
    }

    /// Makes a path from a literal; the complete path must begin with a slash.
    public init(stringLiteral literal: String) { self.init(parts: [.literal(literal)]) }

    /// Makes a path from a literal with interpolated values.
    public init(stringInterpolation interpolation: StringInterpolation) { self.init(parts: interpolation.parts) }
}

// Not `CustomStringConvertible`: interpolated into another path, a path would lose its values, and its
// slashes would be encoded.
extension HTTPPath: CustomDebugStringConvertible, CustomReflectable {
    /// A mirror with only ``debugDescription``.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.debugDescription]) }

    /// The path without values: `{}` replaces each interpolated value, and `…` the path of a URL.
    public var debugDescription: String {
        self.parts.map { part in
            switch part {
            case .literal(let text): text
            case .value: "{}"
            case .encoded(let text): ["", "/"].contains(text) ? text : "/…"
            }
        }.joined()
    }
}

/// Percent-encoding (RFC 3986, section 2.1).
package enum PercentEncoding {
    private static let digits = Array("0123456789ABCDEF".utf8)

    /// Whether a byte never needs encoding (RFC 3986, section 2.3).
    package static func isUnreserved(_ byte: UInt8) -> Bool {
        HTTPGrammar.isAlphanumeric(byte) || "-._~".utf8.contains(byte)
    }

    /// Whether a byte needs no encoding in a segment of a path (RFC 3986, section 3.3).
    package static func isPathByte(_ byte: UInt8) -> Bool {
        self.isUnreserved(byte) || self.pathMarks.contains(byte)
    }

    private static let pathMarks = Set("!$&'()*+,;=:@".utf8)

    /// Encodes all bytes that are not allowed.
    package static func encode(_ text: String, allowing isAllowed: (UInt8) -> Bool = Self.isUnreserved) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count)
        for byte in text.utf8 {
            if isAllowed(byte) { bytes.append(byte) } else { bytes += self.escape(byte) }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Encodes all bytes that are not allowed; valid escapes stay unchanged.
    package static func encodeIllegal(_ source: some Collection<UInt8>, allowing isAllowed: (UInt8) -> Bool) -> String {
        let source = Array(source)
        var bytes: [UInt8] = []
        bytes.reserveCapacity(source.count)
        for (index, byte) in source.enumerated() {
            let isKept = self.escaped(in: source, at: index) != nil || isAllowed(byte)
            if isKept { bytes.append(byte) } else { bytes += self.escape(byte) }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Decodes a text; invalid escapes stay unchanged, and invalid UTF-8 becomes replacement characters.
    package static func decode(_ text: some StringProtocol, plusIsBlank: Bool = false) -> String {
        let source = text.utf8.map { plusIsBlank && $0 == UInt8(ascii: "+") ? UInt8(ascii: " ") : $0 }
        return self.replacingEscapes(in: source) { [$0] }
    }

    /// Normalises escapes: unreserved bytes are decoded, other escapes are in upper case (section 6.2.2).
    package static func normalized(_ text: String) -> String {
        guard text.utf8.contains(UInt8(ascii: "%")) else { return text }
        return self.replacingEscapes(in: Array(text.utf8)) { self.isUnreserved($0) ? [$0] : self.escape($0) }
    }

    /// Replaces each valid escape by the result of `replacement` for the escaped byte.
    private static func replacingEscapes(in source: [UInt8], by replacement: (UInt8) -> [UInt8]) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(source.count)
        var index = 0
        while index < source.count {
            if let byte = self.escaped(in: source, at: index) {
                bytes += replacement(byte)
                index += 3
            } else {
                bytes.append(source[index])
                index += 1
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func escape(_ byte: UInt8) -> [UInt8] {
        [UInt8(ascii: "%"), self.digits[Int(byte >> 4)], self.digits[Int(byte & 15)]]
    }

    /// The byte of the escape at `index`; `nil` without a valid escape.
    private static func escaped(in source: [UInt8], at index: Int) -> UInt8? {
        guard source[index] == UInt8(ascii: "%"), index + 2 < source.count, let high = self.digit(source[index + 1]),
            let low = self.digit(source[index + 2])
        else { return nil }
        return high << 4 | low
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
