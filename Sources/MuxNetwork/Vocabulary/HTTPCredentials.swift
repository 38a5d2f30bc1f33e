import Foundation

/// What stands in an `Authorization` field: a scheme and its data.
///
/// ```swift
/// HTTPCredentials.bearer("x").headerValue                                    // "Bearer x"
/// HTTPCredentials.basic(user: "Aladdin", password: "open sesame")            // "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
/// ```
///
/// Its description shows the scheme only.
public struct HTTPCredentials: Sendable, Hashable {
    /// How they are presented.
    public var scheme: HTTPAuthScheme

    /// What is presented: a token, or parameters.
    public var value: String

    /// Describes credentials of any scheme.
    public init(scheme: HTTPAuthScheme, value: String) {
        self.scheme = scheme
        self.value = value
    }

    /// A token that opens the door to whoever has it: RFC 6750, section 2.1.
    public static func bearer(_ token: String) -> HTTPCredentials { .init(scheme: .bearer, value: token) }

    /// Name and password in UTF-8: RFC 7617, section 2.
    ///
    /// - Returns: The credentials; `nil` if the name contains a colon, which the scheme cannot say.
    public static func basic(user: String, password: String) -> HTTPCredentials? {
        guard !user.utf8.contains(UInt8(ascii: ":")) else { return nil }
        return .init(scheme: .basic, value: Data("\(user):\(password)".utf8).base64EncodedString())
    }

    /// The field's value: scheme, one blank, data.
    public var headerValue: String { "\(self.scheme.rawValue) \(self.value)" }
}

extension HTTPCredentials: CustomStringConvertible, CustomReflectable {
    /// The scheme.
    public var description: String { "\(self.scheme.rawValue) …" }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
