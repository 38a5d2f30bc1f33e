import Foundation
import MuxKit

/// The `Vary` fields and the validator of a cached value: RFC 9111, section 4.1.
///
/// The stored ``text`` contains the validator, the names of the `Vary` fields, if any, and a digest of the
/// values of the fields.
struct HTTPVariant: Sendable, Equatable {
    let validator: HTTPValidator?
    /// The fields in `Vary`, without `Accept-Encoding` unless the request sets the field.
    let names: [HTTPHeaders.Name]
    private let digest: String

    /// Makes the variant of a response.
    ///
    /// - Parameters:
    ///   - validator: The validator of the response.
    ///   - names: The fields in `Vary`.
    ///   - fields: The fields of the request, without the fields of a token: all fetches of a multiplexer use
    ///     the same authenticator.
    init(_ validator: HTTPValidator?, varying names: [HTTPHeaders.Name], in fields: HTTPHeaders) {
        self.validator = validator
        // If a request has no `Accept-Encoding`, the transport sets the same value for all requests, and
        // decodes the body.
        self.names = names.filter { $0 != .acceptEncoding || fields[$0] != nil }
        self.digest = Self.digest(self.names, in: fields)
    }

    /// Makes a variant from its stored ``text``.
    init(_ text: String) {
        let parts = text.split(separator: Self.separator, maxSplits: 2, omittingEmptySubsequences: false)
        self.validator = HTTPValidator(String(parts[0]))
        self.names = parts.count < 3 ? [] : parts[1].split(separator: ",").map { .init(stringLiteral: String($0)) }
        self.digest = parts.count < 3 ? "" : String(parts[2])
    }

    /// The variant as a string for storage; `nil` if the variant has neither a validator nor names.
    var text: String? {
        guard !self.names.isEmpty else { return self.validator?.text }
        let names = self.names.map(\.canonical).joined(separator: ",")
        return [self.validator?.text ?? "", names, self.digest].joined(separator: String(Self.separator))
    }

    /// Whether the variant matches a request with `fields`.
    func isSelected(by fields: HTTPHeaders) -> Bool { self.digest == Self.digest(self.names, in: fields) }

    /// Whether the variant stored as `text` depends on more than the URL.
    static func isVarying(_ text: String) -> Bool { text.utf8.contains(Self.separator.asciiValue ?? 0) }

    /// A byte that neither a validator nor a field name contains.
    private static let separator: Character = "\u{1f}"

    /// Whether the variant depends on credentials in `fields`: a digest of credentials may not be stored.
    ///
    /// - Parameters:
    ///   - fields: The header fields of the request.
    ///   - transport: The transport, whose configuration can name further fields with credentials.
    /// - Returns: Whether the variant depends on a present field with credentials.
    func dependsOnCredentials(in fields: HTTPHeaders, of transport: any HTTPTransport) -> Bool {
        let names = HTTPTransportConfiguration().credentialHeaders.union(transport.credentialHeaders)
        let credentials = names.map { HTTPHeaders.Name(stringLiteral: $0) }
        return self.names.contains { credentials.contains($0) && fields[$0] != nil }
    }

    private static func digest(_ names: [HTTPHeaders.Name], in fields: HTTPHeaders) -> String {
        names.isEmpty ? "" : SHA256.text(SHA256.hash(SelectingFields(headers: fields).text(of: names)))
    }
}
