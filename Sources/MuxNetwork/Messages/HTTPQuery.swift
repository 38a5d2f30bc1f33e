/// The parameters of a URL's query, or the fields of a form: in order, and a name may occur more than once.
///
/// ```swift
/// var query: HTTPQuery = ["q": "a+b & c", "tag": "one", "tag": "two"]     // q=a%2Bb%20%26%20c&tag=one&tag=two
/// query.append("page", page.map(String.init))                             // nothing if there is none
/// ```
///
/// All but the unreserved characters of RFC 3986, section 2.3, are percent-encoded, `+` included. Its description contains names
/// and no values.
public struct HTTPQuery: Sendable, Hashable {
    /// One parameter.
    public struct Item: Sendable, Hashable {
        /// The name.
        public var name: String { didSet { self.original = nil } }

        /// The value; `nil` for a name that stands alone, without `=`.
        public var value: String? { didSet { self.original = nil } }

        /// The text in the URL that it comes from, if it has not been changed since.
        fileprivate var original: String?

        /// Makes a parameter.
        public init(_ name: String, _ value: String?) {
            self.name = name
            self.value = value
        }

        /// Whether name and value are the same, in whatever encoding.
        public static func == (a: Item, b: Item) -> Bool { a.name == b.name && a.value == b.value }

        /// Hashes name and value.
        public func hash(into hasher: inout Hasher) {
            hasher.combine(self.name)
            hasher.combine(self.value)
        }
    }

    /// The parameters in order.
    public var items: [Item]

    /// The parameters of a list.
    public init(_ items: [Item] = []) { self.items = items }

    /// Reads a query or a form, without the question mark.
    ///
    /// Invalid encodings are taken literally. `+` is a blank, as in forms.
    public init(parsing text: String) {
        self.items = text.utf8.split(separator: UInt8(ascii: "&")).map { pair in
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            let texts = parts.map { PercentEncoding.decode(Substring($0), plusIsBlank: true) }
            return Item(texts.first ?? "", texts.count > 1 ? texts[1] : nil)
        }
    }

    /// The query of a URL, which is kept byte for byte as long as nothing is changed.
    init(keeping text: String) {
        let pairs = text.isEmpty ? [] : text.split(separator: "&", omittingEmptySubsequences: false)
        self.items = pairs.map { pair in
            var item = HTTPQuery(parsing: String(pair)).items.first ?? Item("", nil)
            item.original = String(pair)
            return item
        }
    }

    /// Whether there are no parameters.
    public var isEmpty: Bool { self.items.isEmpty }

    /// The value of the first parameter of a name; `nil` if there is none, or it stands alone.
    public subscript(name: String) -> String? { self.items.first { $0.name == name }?.value }

    /// Adds a parameter at the end, or nothing if there is no value.
    public mutating func append(_ name: String, _ value: String?) {
        if let value { self.items.append(Item(name, value)) }
    }

    /// The parameters of both, in order.
    public static func + (a: HTTPQuery, b: HTTPQuery) -> HTTPQuery { HTTPQuery(a.items + b.items) }

    /// The text of the query, without the question mark; empty if there are no parameters.
    public var encoded: String {
        self.items.map { item in
            if let original = item.original { return original }
            let name = PercentEncoding.encode(item.name)
            return item.value.map { "\(name)=\(PercentEncoding.encode($0))" } ?? name
        }.joined(separator: "&")
    }
}

extension HTTPQuery: ExpressibleByDictionaryLiteral, ExpressibleByArrayLiteral {
    /// The parameters of a literal, in its order; a name may occur more than once.
    public init(dictionaryLiteral elements: (String, String)...) { self.items = elements.map { Item($0.0, $0.1) } }

    /// The parameters of a literal.
    public init(arrayLiteral elements: Item...) { self.items = elements }
}

extension HTTPQuery: RedactedDescription {
    /// The names of the parameters.
    public var description: String { "[\(self.items.map(\.name).joined(separator: ", "))]" }
}

extension HTTPQuery.Item: RedactedDescription {
    /// The name of the parameter.
    public var description: String { self.name }
}
