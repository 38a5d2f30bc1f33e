/// The ordered parameters of a URL's query, or the fields of a form; a name may occur several times.
///
/// ```swift
/// var query: HTTPQuery = ["q": "a+b & c", "tag": "one", "tag": "two"] // q=a%2Bb%20%26%20c&tag=one&tag=two
/// query.append("page", page.map(String.init))                         // no effect if `nil`
/// ```
///
/// All characters except the unreserved characters of RFC 3986, section 2.3, are percent-encoded, including
/// `+`. A parameter of an ``HTTPEndpoint`` that was made from a URL is kept as written, unless the name or
/// the value is set later. The description contains only the names, and `…` instead of the name of a
/// parameter without a value.
public struct HTTPQuery: Sendable, Hashable {
    /// One parameter.
    public struct Item: Sendable, Hashable {
        /// The name.
        public var name: String { didSet { self.original = nil } }

        /// The value; `nil` for a name without `=`.
        public var value: String? { didSet { self.original = nil } }

        /// The unchanged text from a URL; `nil` for other parameters, and after a change.
        fileprivate var original: String?

        /// Makes a parameter.
        public init(_ name: String, _ value: String?) {
            self.name = name
            self.value = value
        }

        /// Whether both names and both values are equal, in any encoding.
        public static func == (a: Item, b: Item) -> Bool { a.name == b.name && a.value == b.value }

        /// Hashes the name and the value.
        public func hash(into hasher: inout Hasher) {
            hasher.combine(self.name)
            hasher.combine(self.value)
        }
    }

    /// The parameters in order.
    public var items: [Item]

    /// Makes a query with the parameters of a list.
    public init(_ items: [Item] = []) { self.items = items }

    /// Parses a query or a form, without the question mark.
    ///
    /// Invalid escapes are kept as text. `+` is decoded as a space, as in forms. An empty part before, after
    /// or between `&` is no parameter.
    public init(parsing text: String) {
        self.items = text.utf8.split(separator: UInt8(ascii: "&")).map { pair in
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            let texts = parts.map { PercentEncoding.decode(Substring($0), plusIsBlank: true) }
            return Item(texts.first ?? "", texts.count > 1 ? texts[1] : nil)
        }
    }

    /// Parses the query of a URL; unchanged parameters are encoded to the same bytes.
    init(keeping text: String) {
        let pairs = text.isEmpty ? [] : text.split(separator: "&", omittingEmptySubsequences: false)
        self.items = pairs.map { pair in
            var item = HTTPQuery(parsing: String(pair)).items.first ?? Item("", nil)
            item.original = String(pair)
            return item
        }
    }

    /// Whether the query has no parameters.
    public var isEmpty: Bool { self.items.isEmpty }

    /// The value of the first parameter with the name; `nil` without such a parameter, or if the parameter
    /// has no value.
    public subscript(name: String) -> String? { self.items.first { $0.name == name }?.value }

    /// Appends a parameter; no effect if `value` is `nil`.
    public mutating func append(_ name: String, _ value: String?) {
        if let value { self.items.append(Item(name, value)) }
    }

    /// The parameters of `a`, then the parameters of `b`.
    public static func + (a: HTTPQuery, b: HTTPQuery) -> HTTPQuery { HTTPQuery(a.items + b.items) }

    /// The text of the query, without the question mark; empty without parameters.
    public var encoded: String {
        self.items.map { item in
            if let original = item.original { return original }
            let name = PercentEncoding.encode(item.name)
            return item.value.map { "\(name)=\(PercentEncoding.encode($0))" } ?? name
        }.joined(separator: "&")
    }
}

extension HTTPQuery: ExpressibleByDictionaryLiteral, ExpressibleByArrayLiteral {
    /// Makes a query with the parameters of a literal, in order; a name may occur several times.
    public init(dictionaryLiteral elements: (String, String)...) { self.items = elements.map { Item($0.0, $0.1) } }

    /// Makes a query with the parameters of a literal.
    public init(arrayLiteral elements: Item...) { self.items = elements }
}

extension HTTPQuery: RedactedDescription {
    /// The descriptions of the parameters.
    public var description: String { "[\(self.items.map(\.description).joined(separator: ", "))]" }
}

extension HTTPQuery.Item: RedactedDescription {
    /// The name of the parameter; `…` for a parameter without a value, because such a name may be a secret.
    public var description: String { self.value == nil ? "…" : self.name }
}
