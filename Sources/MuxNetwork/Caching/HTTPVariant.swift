import Foundation
import MuxKit

/// For which requests a cached value is, and how it is validated, as one text to be stored: RFC 9111, section 4.1.
///
/// The fields that its answer depends on are noted by name, and their values as a digest.
struct HTTPVariant: Sendable, Equatable {
    let validator: HTTPValidator?
    /// The fields that `Vary` names, but for those that are the same in all requests of a client.
    let names: [HTTPHeaders.Name]
    private let digest: String

    /// The variant of an answer.
    ///
    /// - Parameters:
    ///   - validator: Its validator.
    ///   - names: The fields that `Vary` names.
    ///   - fields: The fields of the request, without those of a token: whose answers those are says the session.
    init(_ validator: HTTPValidator?, varying names: [HTTPHeaders.Name], in fields: HTTPHeaders) {
        self.validator = validator
        // The transport sets it, and undoes the coding.
        self.names = names.filter { $0 != .acceptEncoding || fields[$0] != nil }
        self.digest = Self.digest(self.names, in: fields)
    }

    /// The variant that was stored as ``text``.
    init(_ text: String) {
        let parts = text.split(separator: Self.separator, maxSplits: 2, omittingEmptySubsequences: false)
        self.validator = HTTPValidator(String(parts[0]))
        self.names = parts.count < 3 ? [] : parts[1].split(separator: ",").map { .init(stringLiteral: String($0)) }
        self.digest = parts.count < 3 ? "" : String(parts[2])
    }

    /// The variant as text; `nil` if there is nothing to store.
    var text: String? {
        guard !self.names.isEmpty else { return self.validator?.text }
        let names = self.names.map(\.canonical).joined(separator: ",")
        return [self.validator?.text ?? "", names, self.digest].joined(separator: String(Self.separator))
    }

    /// Whether it is for a request with these fields.
    func isSelected(by fields: HTTPHeaders) -> Bool { self.digest == Self.digest(self.names, in: fields) }

    /// Whether the variant that was stored as `text` depends on more than the URL.
    static func isVarying(_ text: String) -> Bool { text.utf8.contains(Self.separator.asciiValue ?? 0) }

    /// No byte of a validator, and of no name.
    private static let separator: Character = "\u{1f}"

    /// Whether it depends on credentials among these fields, of which nothing may be stored, not even a digest.
    func dependsOnCredentials(in fields: HTTPHeaders) -> Bool {
        let credentials = HTTPTransportOptions().credentialHeaders.map { HTTPHeaders.Name(stringLiteral: $0) }
        return self.names.contains { credentials.contains($0) && fields[$0] != nil }
    }

    private static func digest(_ names: [HTTPHeaders.Name], in fields: HTTPHeaders) -> String {
        guard !names.isEmpty else { return "" }
        let values = StoredAnswer.selecting(names, in: fields)
            .map { "\($0.key.canonical):\($0.value ?? "\u{0}")" }
            .sorted()
        return SHA256.text(SHA256.hash(values.joined(separator: "\n")))
    }
}
