/// The range of bytes in a request: RFC 9110, section 14.1.2.
enum HTTPByteRange: Sendable, Equatable {
    /// All bytes from this position.
    case from(Int)
    /// The bytes at these positions.
    case within(ClosedRange<Int>)
    /// The last bytes: this number of bytes, greater than 0.
    case last(Int)

    /// Reads the field `Range`; `nil` unless the field is one valid range of bytes whose numbers fit in
    /// `Int`.
    init?(_ text: String) {
        let parts = HTTPGrammar.trimmed(text).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].lowercased() == "bytes" else { return nil }
        let ends = parts[1].split(separator: "-", omittingEmptySubsequences: false).map { HTTPGrammar.trimmed($0) }
        guard ends.count == 2 else { return nil }
        let places = ends.map { HTTPGrammar.number($0).flatMap { Int(exactly: $0) } }
        switch (places[0], places[1]) {
        case (let first?, let last?) where first <= last: self = .within(first...last)
        case (let first?, nil) where ends[1].isEmpty: self = .from(first)
        case (nil, let count?) where ends[0].isEmpty && count > 0: self = .last(count)
        default: return nil
        }
    }

    /// The byte positions in a content of length `total`; `nil` if no byte is in the range, or if the
    /// positions cannot be determined without the length.
    func places(in total: Int?) -> Range<Int>? {
        switch self {
        case .from(let first):
            guard let total, first < total else { return nil }
            return first..<total
        case .within(let range):
            guard let total else { return range.upperBound < .max ? Range(range) : nil }
            guard range.lowerBound < total else { return nil }
            return range.lowerBound..<(range.upperBound < total ? range.upperBound + 1 : total)
        case .last(let count):
            guard let total, total > 0 else { return nil }
            return max(0, total - count)..<total
        }
    }
}

/// The header field `Content-Range` of a single byte range (RFC 9110, section 14.4).
package struct ContentRange: Sendable, Equatable {
    /// The first and the last byte; `nil` for an unsatisfied range.
    package var bounds: ClosedRange<Int64>?
    /// The length of the representation; `nil` if unknown.
    package var total: Int64?

    package init(bounds: ClosedRange<Int64>?, total: Int64?) {
        self.bounds = bounds
        self.total = total
    }

    /// Parses a field's value; `nil` if invalid.
    package init?(_ field: String) {
        let words = HTTPGrammar.trimmed(field).split(separator: " ")
        guard words.count == 2, words[0].lowercased() == "bytes" else { return nil }
        let parts = words[1].split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2 else { return nil }
        if parts[1] != "*" {
            guard let total = HTTPGrammar.number(parts[1]) else { return nil }
            self.total = total
        }
        guard parts[0] != "*" else {
            guard self.total != nil else { return nil }
            return
        }
        let ends = parts[0].split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count == 2, let first = HTTPGrammar.number(ends[0]), let last = HTTPGrammar.number(ends[1]),
            first <= last,
            last < self.total ?? .max
        else { return nil }
        self.bounds = first...last
    }

    /// The positions of the bytes, and the length of the representation, for a content in memory.
    ///
    /// `nil` for an unsatisfied range, or if a number exceeds an `Int`.
    var inMemory: (places: ClosedRange<Int>, total: Int?)? {
        guard let bounds, let first = Int(exactly: bounds.lowerBound), let last = Int(exactly: bounds.upperBound)
        else { return nil }
        guard last < .max, self.total ?? 0 <= Int.max else { return nil }
        return (first...last, self.total.map { Int($0) })
    }
}
