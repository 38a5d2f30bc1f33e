/// Header fields in order, found by their names whatever the case of the letters.
///
/// ```swift
/// var headers: HTTPHeaders = [.accept: "application/json"]
/// headers[.authorization] = "Bearer …"
/// headers.append("gzip", for: .acceptEncoding)
/// ```
///
/// Its description names fields and no values, so it may be logged.
public struct HTTPHeaders: Sendable, Hashable {
    /// One line of a head.
    public struct Field: Sendable, Hashable {
        /// The field's name.
        public var name: HTTPHeaderName

        /// The field's value.
        public var value: String

        /// Describes a field.
        public init(name: HTTPHeaderName, value: String) {
            self.name = name
            self.value = value
        }
    }

    /// The fields in order; one name may occur more than once.
    public private(set) var fields: [Field] = []

    /// No fields.
    public init() {}

    /// The fields of a dictionary, in the order of their names; names that are no tokens are left out.
    public init(_ fields: [String: String]) {
        self.fields = fields.sorted { $0.key < $1.key }.compactMap { name, value in
            HTTPHeaderName(rawValue: name).map { Field(name: $0, value: value) }
        }
    }

    /// Whether there are no fields.
    public var isEmpty: Bool { self.fields.isEmpty }

    /// The value of a field, several lines of one name joined as RFC 9110, section 5.3, says; `nil` if there is none.
    ///
    /// Setting it replaces every line of the name by one, `nil` by none.
    public subscript(name: HTTPHeaderName) -> String? {
        get {
            let values = self.values(of: name)
            // RFC 6265, section 4.2.1: of all lists, that of cookies is not separated by commas.
            return values.isEmpty ? nil : values.joined(separator: name == .cookie ? "; " : ", ")
        }
        set {
            let place = self.fields.firstIndex { $0.name == name }
            self.fields.removeAll { $0.name == name }
            guard let newValue else { return }
            self.fields.insert(Field(name: name, value: newValue), at: place ?? self.fields.count)
        }
    }

    /// The values of all lines of a name, in order.
    public func values(of name: HTTPHeaderName) -> [String] {
        self.fields.filter { $0.name == name }.map(\.value)
    }

    /// Adds a line, beside those of the same name.
    public mutating func append(_ value: String, for name: HTTPHeaderName) {
        self.fields.append(Field(name: name, value: value))
    }

    /// These fields, with those of `other` in place of any of the same names.
    public func merging(_ other: HTTPHeaders) -> HTTPHeaders {
        var merged = self
        for name in Set(other.fields.map(\.name)) { merged[name] = nil }
        merged.fields += other.fields
        return merged
    }

    /// The fields as they go to a transport: each name once.
    package var combined: [String: String] {
        var combined: [String: String] = [:]
        var seen: Set<HTTPHeaderName> = []
        for field in self.fields where seen.insert(field.name).inserted {
            combined[field.name.rawValue] = self[field.name]
        }
        return combined
    }
}

extension HTTPHeaders: ExpressibleByDictionaryLiteral {
    /// The fields of a literal, in its order; a name may occur more than once.
    public init(dictionaryLiteral elements: (HTTPHeaderName, String)...) {
        self.fields = elements.map { Field(name: $0.0, value: $0.1) }
    }
}

extension HTTPHeaders: CustomStringConvertible, CustomReflectable {
    /// The names of the fields.
    public var description: String { "[\(self.fields.map(\.name.rawValue).joined(separator: ", "))]" }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

extension HTTPHeaders.Field: CustomStringConvertible, CustomReflectable {
    /// The name of the field.
    public var description: String { self.name.rawValue }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
