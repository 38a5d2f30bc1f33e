import Foundation

/// Texts about errors for users and logs: localized descriptions, and otherwise texts without the contents of
/// the error.
package enum ErrorText {
    /// A sentence about an error.
    ///
    /// - Parameter error: Any error.
    /// - Returns: The `errorDescription` of a `LocalizedError`; a description of the problem for a
    ///   cancellation, a POSIX error, or an error of the URL loading system or of Foundation's coders; the
    ///   localized description in the user info of another `NSError`; otherwise only the name of the error
    ///   (``name(of:)``), because any other description may quote a secret.
    package static func sentence(of error: any Error) -> String {
        self.ended(self.words(of: error).trimmingCharacters(in: .whitespacesAndNewlines))
    }

    /// The text with a full stop, unless the text is empty or ends with `.`, `!`, `?` or `…`.
    package static func ended(_ text: String) -> String {
        text.last.map { ".!?…".contains($0) } ?? true ? text : text + "."
    }

    /// `sentence`, then a sentence about `cause`; without `sentence` if the sentence about `cause` contains
    /// `sentence`.
    package static func joined(_ sentence: String, _ cause: any Error) -> String {
        self.joined(sentence, self.sentence(of: cause))
    }

    /// As ``joined(_:_:)``, but with only the first line of the text about `cause`.
    package static func joined(_ sentence: String, firstLineOf cause: any Error) -> String {
        self.joined(sentence, String(self.sentence(of: cause).prefix { !$0.isNewline }))
    }

    /// Both texts, or only `cause` if `cause` contains `sentence`.
    static func joined(_ sentence: String, _ cause: String) -> String {
        cause.contains(sentence) ? cause : "\(sentence) \(cause)"
    }

    /// A readable duration: `20 seconds`, `1.5 seconds`, `2 minutes`, `1 ms`.
    package static func time(_ time: Duration) -> String {
        let (whole, rest) = time.components
        let seconds = abs(Double(whole) + Double(rest) / 1e18)
        let sign = time < .zero ? "-" : ""
        func text(_ number: Double, _ unit: String) -> String {
            let rounded = (number * 10).rounded() / 10
            let digits = rounded == rounded.rounded() ? "\(Int(rounded))" : "\(rounded)"
            return "\(sign)\(digits) \(unit)\(rounded == 1 ? "" : "s")"
        }
        if seconds == 0 { return "0 seconds" }
        if seconds < 0.000_5 { return "less than 1 ms" }
        if seconds < 0.999_5 { return "\(sign)\(Int((seconds * 1_000).rounded())) ms" }
        let rounded = seconds < 9.95 ? seconds : seconds.rounded()
        switch rounded {
        case ..<120: return text(rounded, "second")
        // Below ten minutes, the text keeps the seconds of a limit: 155 seconds is not 2.6 minutes.
        case ..<600 where rounded.truncatingRemainder(dividingBy: 60) != 0: return text(rounded, "second")
        case ..<7_200 where rounded != 3_600: return text(rounded / 60, "minute")
        case ..<172_800: return text(rounded / 3_600, "hour")
        default: return text(rounded / 86_400, "day")
        }
    }

    /// A number with a noun, such as `1 update` and `2 updates`.
    package static func count(_ number: Int, _ thing: String) -> String {
        "\(number) \(thing)\(number == 1 ? "" : "s")"
    }

    /// The first 100 scalars of a name between quotation marks, with invisible scalars as escaped numbers.
    package static func quoted(_ name: String) -> String {
        let scalars = name.unicodeScalars.prefix(100).map { scalar in
            self.isInvisible(scalar) ? "\\u{\(String(scalar.value, radix: 16))}" : String(scalar)
        }
        return "\u{201c}\(scalars.joined())\u{201d}"
    }

    private static func isInvisible(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: true
        default: false
        }
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

    /// The type of an error, with the case if the case has no associated values and the type has no custom
    /// description; the domain and code of an `NSError`.
    package static func name(of error: any Error) -> String {
        let type = type(of: error)
        if type is NSError.Type { return "\((error as NSError).domain) \((error as NSError).code)" }
        let isTold =
            type is any CustomStringConvertible.Type || type is any CustomDebugStringConvertible.Type
            || type is any TextOutputStreamable.Type
        return self.holdsNothing(error) && !isTold ? "\(type).\(error)" : "\(type)"
    }

    /// Whether `value` is an enumeration's case without associated values.
    private static func holdsNothing(_ value: Any) -> Bool {
        let mirror = Mirror(reflecting: value)
        return mirror.displayStyle == .enum && mirror.children.isEmpty
    }

    /// An external text as a single line of at most 300 scalars; `nil` for a blank text.
    package static func line(_ text: String) -> String? {
        let scalars = text.unicodeScalars.prefix(300).map { scalar in
            // Joiners are parts of words: Persian and emoji need joiners.
            let isJoiner = scalar == "\u{200c}" || scalar == "\u{200d}"
            return self.isInvisible(scalar) && !isJoiner ? " " : scalar
        }
        let line = String(String.UnicodeScalarView(scalars)).trimmingCharacters(in: .whitespaces)
        return line.isEmpty ? nil : line
    }

    private static func words(of error: DecodingError) -> String {
        switch error {
        case .keyNotFound(let key, let context):
            "\(self.quoted(key)) is missing\(self.place(context.codingPath))"
        // The pattern matches a text of Foundation; the text is not shown.
        case .valueNotFound(_, let context) where context.debugDescription.contains(" null"):
            "The value\(self.place(context.codingPath)) is null"
        case .valueNotFound(let type, let context):
            "\(self.kind(type, else: "A value of type")) is missing\(self.place(context.codingPath))"
        case .typeMismatch(let type, let context):
            "The value\(self.place(context.codingPath)) is not \(self.kind(type, else: "of type"))"
        case .dataCorrupted(let context)
        where context.codingPath.isEmpty && context.debugDescription == Self.notJSON:
            "The data is not valid JSON"
        case .dataCorrupted(let context):
            "The value\(self.place(context.codingPath)) is not valid"
        @unknown default: "The data cannot be decoded"
        }
    }

    /// The debug description of `JSONDecoder` for invalid JSON.
    private static let notJSON = "The given data was not valid JSON."

    /// The JSON term of an array or a dictionary type; otherwise `words` and the name of the type.
    private static func kind(_ type: Any.Type, else words: String) -> String {
        let name = "\(type)"
        let article = words.first?.isUppercase ?? false ? "An" : "an"
        if name.hasPrefix("Array<") { return "\(article) array" }
        return name.hasPrefix("Dictionary<") ? "\(article) object" : "\(words) \(name)"
    }

    /// The coding path of a problem, such as ` at items[3].name`; the keys of a dictionary are data, and are
    /// not shown.
    private static func place(_ path: [any CodingKey]) -> String {
        // Hidden keys at the end of the path give no information.
        guard let end = path.lastIndex(where: { $0.intValue != nil || self.holdsNothing($0) }) else { return "" }
        var text = ""
        for key in path[...end] {
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

    /// Texts by the codes of the URL loading system.
    private static let loading: [Int: String] = [
        -999: "Loading was cancelled", -1000: "The URL is not valid", -1001: "The server did not respond in time",
        -1002: "The scheme of the URL is not supported", -1003: "The host name could not be resolved",
        -1004: "The connection to the server could not be established", -1005: "The connection was lost",
        -1006: "The host name could not be resolved", -1009: "The device is offline",
        -1011: "The response of the server is not valid", -1018: "Roaming is not allowed",
        -1020: "The use of mobile data is not allowed", -1200: "The connection is not secure",
        -1201: "The server's certificate is not valid at this time", -1202: "The server's certificate is not trusted",
    ]
}

extension Error {
    /// A sentence about the error for a person; see ``ErrorText``.
    package var sentence: String { ErrorText.sentence(of: self) }
}
