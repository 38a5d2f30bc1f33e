/// Takes apart `head; name=value; name="quoted value"`: RFC 9110, section 5.6.6.
package struct HTTPParameters: Sendable, Hashable {
    /// What stands before the first semicolon, without blanks around it.
    package let head: String

    /// The parameters' values by their names in lower case.
    package let parameters: [String: String]

    /// What `text` says; `nil` if a parameter has no name, is not closed, or is there twice.
    package init?(_ text: String) {
        var rest = text.utf8[...]
        self.head = HTTPGrammar.trimmed(Substring(Self.take(&rest) { $0 != UInt8(ascii: ";") }))
        var parameters: [String: String] = [:]
        while rest.popFirst() != nil {  // the semicolon
            Self.skipBlanks(&rest)
            if rest.isEmpty || rest.first == UInt8(ascii: ";") { continue }
            let name = String(Substring(Self.take(&rest, while: HTTPGrammar.isTokenByte))).lowercased()
            guard !name.isEmpty, rest.popFirst() == UInt8(ascii: "=") else { return nil }
            let value: String
            if rest.first == UInt8(ascii: "\"") {
                guard let quoted = Self.quoted(&rest) else { return nil }
                value = quoted
            } else {
                value = String(Substring(Self.take(&rest, while: HTTPGrammar.isTokenByte)))
                guard !value.isEmpty else { return nil }
            }
            Self.skipBlanks(&rest)
            guard rest.isEmpty || rest.first == UInt8(ascii: ";") else { return nil }
            guard parameters.updateValue(value, forKey: name) == nil else { return nil }
        }
        self.parameters = parameters
    }

    private static func take(
        _ rest: inout Substring.UTF8View,
        while belongs: (UInt8) -> Bool
    ) -> Substring.UTF8View {
        let taken = rest.prefix(while: belongs)
        rest = rest[taken.endIndex...]
        return taken
    }

    private static func skipBlanks(_ rest: inout Substring.UTF8View) {
        rest = rest.drop { $0 == 32 || $0 == 9 }
    }

    /// RFC 9110, section 5.6.4.
    private static func quoted(_ rest: inout Substring.UTF8View) -> String? {
        rest.removeFirst()
        var bytes: [UInt8] = []
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\""): return String(decoding: bytes, as: UTF8.self)
            case UInt8(ascii: "\\"):
                guard let next = rest.popFirst() else { return nil }
                bytes.append(next)
            default: bytes.append(byte)
            }
        }
        return nil
    }
}
