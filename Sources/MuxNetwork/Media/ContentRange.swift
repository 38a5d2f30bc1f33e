/// The header field `Content-Range` of one range in bytes (RFC 9110, section 14.4).
package struct ContentRange: Sendable, Equatable {
    /// The first and the last byte that are sent; `nil` if there is no such range.
    package var bounds: ClosedRange<Int64>?
    /// How long the whole is; `nil` if the server does not say.
    package var total: Int64?

    package init(bounds: ClosedRange<Int64>?, total: Int64?) {
        self.bounds = bounds
        self.total = total
    }

    /// Reads a field's value; `nil` if it makes no sense.
    package init?(_ field: String) {
        let words = field.split(separator: " ")
        guard words.count == 2, words[0].lowercased() == "bytes" else { return nil }
        let parts = words[1].split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2 else { return nil }
        if parts[1] != "*" {
            guard let total = Self.number(parts[1]) else { return nil }
            self.total = total
        }
        guard parts[0] != "*" else {
            guard self.total != nil else { return nil }
            return
        }
        let ends = parts[0].split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count == 2, let first = Self.number(ends[0]), let last = Self.number(ends[1]), first <= last,
            last < self.total ?? .max
        else { return nil }
        self.bounds = first...last
    }

    /// A number of digits alone; `Int64` itself would take a sign.
    package static func number(_ text: some StringProtocol) -> Int64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return Int64(text)
    }
}
