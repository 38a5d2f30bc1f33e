import Foundation

/// What people and logs are told of an error: its own words where those are meant for people, and never what it holds.
package enum ErrorText {
    /// A sentence about an error.
    ///
    /// - Parameter error: Any error.
    /// - Returns: What a `LocalizedError` says; for an error of the system and of Foundation's coders, what is wrong; for any other its
    ///   type, since its description may quote a secret.
    package static func sentence(of error: any Error) -> String {
        self.ended(self.words(of: error).trimmingCharacters(in: .whitespacesAndNewlines))
    }

    /// The text with a full stop, unless it ends as a sentence does.
    package static func ended(_ text: String) -> String {
        text.last.map { ".!?…".contains($0) } ?? true ? text : text + "."
    }

    private static func words(of error: any Error) -> String {
        if let error = error as? any LocalizedError, let text = error.errorDescription, !text.isEmpty { return text }
        switch error {
        case is CancellationError: return "The task was cancelled"
        case let error as DecodingError: return self.words(of: error)
        case EncodingError.invalidValue(let value, let context):
            return "A value of type \(type(of: value)) cannot be encoded\(self.place(context.codingPath))"
        default: break
        }
        let system = error as NSError
        switch system.domain {
        case "NSURLErrorDomain": return self.loading[system.code] ?? "Loading failed with code \(system.code)"
        case POSIXError.errorDomain: return POSIXErrorText.of(Int32(truncatingIfNeeded: system.code))
        default: return system.userInfo[NSLocalizedDescriptionKey] as? String ?? "The cause is \(self.name(of: error))"
        }
    }

    /// The type of an error, and its case if that holds nothing; domain and code of one of the system.
    package static func name(of error: any Error) -> String {
        let type = type(of: error)
        if type is NSError.Type { return "\((error as NSError).domain) \((error as NSError).code)" }
        let isTold =
            type is any CustomStringConvertible.Type || type is any CustomDebugStringConvertible.Type
            || type is any TextOutputStreamable.Type
        return self.holdsNothing(error) && !isTold ? "\(type).\(error)" : "\(type)"
    }

    /// Whether this is a case of an enumeration, without associated values.
    private static func holdsNothing(_ value: Any) -> Bool {
        let mirror = Mirror(reflecting: value)
        return mirror.displayStyle == .enum && mirror.children.isEmpty
    }

    /// A text of others in one line of at most 300 characters; `nil` if there is nothing to show.
    package static func line(_ text: String) -> String? {
        let scalars = text.unicodeScalars.prefix(300).map { scalar in
            // Joiners are parts of words: Persian and emoji need them.
            if scalar == "\u{200c}" || scalar == "\u{200d}" { return scalar }
            return switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator: " " as Unicode.Scalar
            default: scalar
            }
        }
        let line = String(String.UnicodeScalarView(scalars)).trimmingCharacters(in: .whitespaces)
        return line.isEmpty ? nil : line
    }

    private static func words(of error: DecodingError) -> String {
        switch error {
        case .keyNotFound(let key, let context):
            "\(self.quoted(key)) is missing\(self.place(context.codingPath))"
        case .valueNotFound(let type, let context):
            "A value of type \(type) is missing\(self.place(context.codingPath))"
        case .typeMismatch(let type, let context):
            "What is there is not of type \(type)\(self.place(context.codingPath))"
        case .dataCorrupted(let context):
            "What is there is not valid\(self.place(context.codingPath))"
        @unknown default: "It cannot be decoded"
        }
    }

    /// Where in a text something is wrong, such as `items[3].name`; the keys of a dictionary are data, and not shown.
    private static func place(_ path: [any CodingKey]) -> String {
        guard !path.isEmpty else { return "" }
        var text = ""
        for key in path {
            if let index = key.intValue {
                text += "[\(index)]"
            } else {
                text += (text.isEmpty ? "" : ".") + (self.holdsNothing(key) ? key.stringValue : "…")
            }
        }
        return " at " + String(text.prefix(200))
    }

    private static func quoted(_ key: any CodingKey) -> String {
        self.holdsNothing(key) ? "\u{201c}\(key.stringValue.prefix(100))\u{201d}" : "A key"
    }

    /// By the codes of the URL loading system.
    private static let loading: [Int: String] = [
        -999: "Loading was cancelled", -1000: "The address is not valid", -1001: "The server did not answer in time",
        -1002: "The kind of address is not supported", -1003: "The server's name has no address",
        -1004: "There is no connection to the server", -1005: "The connection was lost",
        -1006: "The server's name has no address", -1009: "The device is offline",
        -1011: "The server's answer makes no sense", -1018: "The network may not be used while roaming",
        -1020: "The network may not be used now", -1200: "The connection is not secure",
        -1201: "The server's certificate has expired", -1202: "The server's certificate is not trusted",
    ]
}

extension Error {
    /// A sentence about the error for a person; see ``ErrorText``.
    package var sentence: String { ErrorText.sentence(of: self) }
}
