public import Foundation

/// A JSON Web Token; only the expiry is read: RFC 7519, section 4.1.4.
///
/// ```swift
/// let token = try JSONWebToken(text)
/// token.expiry        // the `exp` claim
/// ```
///
/// The signature is **not verified**: the receiving server verifies the signature. The description does not
/// contain the token.
public struct JSONWebToken: HTTPToken, Hashable {
    /// The token in compact form.
    public let text: String

    /// The `exp` claim; `nil` without this claim.
    public let expiry: Date?

    /// Reads a token in compact form: RFC 7519, section 3.
    ///
    /// A token has three parts of base64url, of which only the last part may be empty; the second part is a
    /// JSON object.
    ///
    /// - Throws: ``JSONWebToken/ParsingError``.
    public init(_ text: String) throws(JSONWebToken.ParsingError) {
        let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3 else { throw .notThreeParts }
        let data = parts.map { Base64URL.decode(Substring($0)) }
        // An unsecured token has an empty signature: RFC 7519, section 6.
        guard !data.contains(nil), !parts[0].isEmpty, !parts[1].isEmpty, let claims = data[1] else {
            throw .notBase64URL
        }
        guard let object = try? JSONDecoder().decode([String: Claim].self, from: claims) else { throw .noClaims }
        switch object["exp"].map(\.value) {
        case nil: self.expiry = nil
        case .integer(let seconds)??: self.expiry = Date(timeIntervalSince1970: Double(seconds))
        case .number(let seconds)?? where seconds.isFinite: self.expiry = Date(timeIntervalSince1970: seconds)
        default: throw .invalidExpiry
        }
        self.text = text
    }

    /// A claim of any type; the value is `nil` if it cannot be decoded, such as a number beyond `Double`.
    private struct Claim: Decodable {
        let value: JSONValue?

        init(from decoder: any Decoder) { self.value = try? JSONValue(from: decoder) }
    }

    /// The token as a bearer token: RFC 6750, section 2.1.
    public var headers: HTTPHeaders { self.text.headers }
}

extension JSONWebToken: Codable {
    /// Reads a token from its text.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        try self.init(try container.decode(String.self))
    }

    /// Writes the token's text.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(self.text)
    }
}

extension JSONWebToken: RedactedDescription {
    /// The type's name, without the token.
    public var description: String { "JSONWebToken(…)" }
}

extension JSONWebToken {
    /// A reason why a text is not a JSON Web Token.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum ParsingError: Error, Sendable, Hashable {
        /// The token does not have three parts between dots.
        case notThreeParts

        /// A part is not base64url, or the first or the second part is empty.
        case notBase64URL

        /// The second part is not a JSON object.
        case noClaims

        /// The `exp` claim is not a number.
        case invalidExpiry
    }
}

extension JSONWebToken.ParsingError: LocalizedError, CustomStringConvertible {
    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// A description in one sentence.
    public var errorDescription: String? {
        switch self {
        case .notThreeParts: "The token does not have three parts."
        case .notBase64URL: "A part of the token is not valid base64url."
        case .noClaims: "The claims of the token are not a JSON object."
        case .invalidExpiry: "The expiry of the token (claim exp) is not a number."
        }
    }
}
