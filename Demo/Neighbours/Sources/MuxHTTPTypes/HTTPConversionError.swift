public import Foundation

/// A message that one of the two libraries cannot represent.
///
/// The description contains neither values of fields nor parts of a URL, and is safe to log.
public enum HTTPConversionError: Error, Sendable, Hashable {
    /// The method is not a token (RFC 9110, section 9.1).
    case invalidMethod

    /// The scheme, the authority and the path do not form an absolute URL with a host.
    case invalidURL

    /// The URL contains a user name or a password (RFC 9110, section 4.2.4).
    case userInformation

    /// The status is not a number from 0 to 999.
    case invalidStatus(Int)

    /// The field's name is not a token, or the value contains a control character except the tab.
    case invalidField(name: String)

    /// The message has more than 65,534 fields.
    case tooManyFields(count: Int)
}

extension HTTPConversionError: LocalizedError, CustomStringConvertible {
    /// The description.
    public var errorDescription: String? { self.description }

    /// A sentence without secrets.
    public var description: String {
        switch self {
        case .invalidMethod: "The method of the request is not valid."
        case .invalidURL: "The scheme, the authority and the path of the request do not form a valid URL."
        case .userInformation: "The URL of the request contains user information."
        case .invalidStatus(let code): "The status \(code) is not a number from 0 to 999."
        case .invalidField(let name):
            "The header field “\(Self.printable(name))” has an invalid character in the name or the value."
        case .tooManyFields(let count): "The message has \(count) header fields; at most 65534 are possible."
        }
    }

    /// The visible ASCII characters of a name, at most 100.
    private static func printable(_ name: String) -> String {
        String(name.filter { ("!"..."~").contains($0) }.prefix(100))
    }
}
