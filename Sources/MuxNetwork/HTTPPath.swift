/// A path below a base URL, percent-encoded segment by segment.
///
/// ```swift
/// client.get("places/\(id)", as: Place.self)      // "a/b" as an id stays one segment: places/a%2Fb
/// ```
///
/// What is interpolated is one segment, or part of one, whatever characters it holds; only the slashes of the literal
/// itself separate. A path with an empty segment, with `.` or with `..` is not valid, and a client sends none.
public struct HTTPPath: Sendable, Hashable {
    private var segments: [String]

    /// The path of these segments, in order.
    public init(segments: [String]) { self.segments = segments }

    /// The encoded path without a leading slash; `nil` if it is not valid.
    package var encoded: String? {
        guard self.segments.allSatisfy({ !["", ".", ".."].contains($0) }) else { return nil }
        return self.segments.map(Self.encode).joined(separator: "/")
    }

    /// Everything but the unreserved characters of RFC 3986, section 2.3, is encoded.
    private static func encode(_ segment: String) -> String {
        var text = ""
        for byte in segment.utf8 {
            switch byte {
            case 48...57, 65...90, 97...122, 45, 46, 95, 126: text.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                let digits = String(byte, radix: 16, uppercase: true)
                text += digits.utf8.count < 2 ? "%0" + digits : "%" + digits
            }
        }
        return text
    }
}

extension HTTPPath: ExpressibleByStringInterpolation {
    /// Collects a literal's parts; made by the compiler.
    public struct StringInterpolation: StringInterpolationProtocol, Sendable {
        fileprivate var segments = [""]

        /// Begins with nothing.
        public init(literalCapacity: Int, interpolationCount: Int) {}

        /// Adds a part of the literal, whose slashes separate segments.
        public mutating func appendLiteral(_ literal: String) {
            let parts = literal.split(separator: "/", omittingEmptySubsequences: false).map { String($0) }
            self.segments[self.segments.count - 1] += parts.first ?? ""
            self.segments += parts.dropFirst()
        }

        /// Adds a value to the present segment.
        public mutating func appendInterpolation(_ value: some CustomStringConvertible) {
            self.segments[self.segments.count - 1] += value.description
        }
    }

    /// The path of a literal; a slash at its beginning is ignored.
    public init(stringLiteral literal: String) {
        var interpolation = StringInterpolation(literalCapacity: 0, interpolationCount: 0)
        interpolation.appendLiteral(literal)
        self.init(stringInterpolation: interpolation)
    }

    /// The path of a literal with values in it; a slash at its beginning is ignored.
    public init(stringInterpolation interpolation: StringInterpolation) {
        let segments = interpolation.segments
        self.segments = segments.count > 1 && segments[0].isEmpty ? Array(segments.dropFirst()) : segments
    }
}
