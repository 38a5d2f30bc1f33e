package import Foundation

/// Identifies one version of a resource: RFC 9110, section 8.8.
///
/// The case names are keys on disk: after a rename, stored responses are unreadable.
package enum HTTPValidator: Sendable, Hashable, Codable {
    /// The unchanged entity tag, including quotation marks, if any.
    case entityTag(String)
    /// The unchanged text of `Last-Modified`.
    case lastModified(String)

    /// The validator of a response: the entity tag, even without quotation marks, otherwise a valid
    /// `Last-Modified`; `nil` without both.
    package init?(_ headers: HTTPHeaders, receivedAt: Date) {
        if let tag = headers[.eTag].map({ HTTPGrammar.trimmed($0) }), Self.isEntityTag(tag) || Self.isBareTag(tag) {
            self = .entityTag(tag)
        } else if let text = headers[.lastModified], HTTPDate.parse(text, now: receivedAt) != nil {
            self = .lastModified(HTTPGrammar.trimmed(text))
        } else {
            return nil
        }
    }

    /// Makes a validator from its stored ``text``; `nil` for an invalid text.
    package init?(_ text: String) {
        if Self.isEntityTag(text) {
            self = .entityTag(text)
        } else if HTTPDate.parse(text, now: Date(timeIntervalSince1970: 0)) != nil, HTTPGrammar.isFieldValue(text) {
            self = .lastModified(text)
        } else if Self.isBareTag(text) {
            self = .entityTag(text)
        } else {
            return nil
        }
    }

    /// The validator as a string for storage.
    package var text: String {
        switch self {
        case .entityTag(let text), .lastModified(let text): text
        }
    }

    /// The header field of a conditional request: RFC 9110, section 13.1.
    package var condition: HTTPHeaders.Field {
        switch self {
        case .entityTag(let text): .init(name: .ifNoneMatch, value: text)
        case .lastModified(let text): .init(name: .ifModifiedSince, value: text)
        }
    }

    /// Whether a 304 with `headers` is for this version: RFC 9111, section 4.3.4.
    ///
    /// A 304 without the field of this validator is for this version. Entity tags are compared weakly, as for
    /// `If-None-Match`. Times are compared byte for byte, because a server that has restored an older version
    /// also responds with a 304 to `If-Modified-Since`.
    package func isMet(by headers: HTTPHeaders) -> Bool {
        switch self {
        case .entityTag(let own): headers[.eTag].map { Self.isWeaklyEqual(own, HTTPGrammar.trimmed($0)) } ?? true
        case .lastModified(let own): headers[.lastModified].map { own == HTTPGrammar.trimmed($0) } ?? true
        }
    }

    /// Whether a 304, or a response to HEAD, with `headers` may update a stored response of this version: RFC
    /// 9111, sections 4.3.4 and 4.3.5.
    ///
    /// A 304 with a strong tag does not update a response with a weak tag, or with a tag without quotation
    /// marks. The caller has checked that the response is for this version: here only the strength is
    /// compared.
    package func isUpdated(by headers: HTTPHeaders) -> Bool {
        guard case .entityTag(let own) = self, let other = headers[.eTag].map({ HTTPGrammar.trimmed($0) }) else {
            return true
        }
        return Self.isStrongTag(own) || !Self.isStrongTag(other)
    }

    /// Whether two entity tags are equal apart from their strength: RFC 9110, section 8.8.3.2.
    static func isWeaklyEqual(_ a: String, _ b: String) -> Bool {
        let tag = self.opaque(a)
        return !tag.isEmpty && tag == self.opaque(b)
    }

    private static func opaque(_ tag: String) -> Substring { tag.hasPrefix("W/") ? tag.dropFirst(2) : tag[...] }

    /// Whether `text` is a strong entity tag: RFC 9110, section 8.8.1.
    package static func isStrongTag(_ text: String) -> Bool { !text.hasPrefix("W/") && self.isEntityTag(text) }

    /// Whether `text` is a tag without quotation marks.
    ///
    /// Some servers send such invalid tags, and accept the tags if sent back unchanged. A bare tag does not
    /// count as strong, so the cache never requests the rest of a response with such a tag.
    private static func isBareTag(_ text: String) -> Bool {
        !text.isEmpty && text != "*" && text != "W/"
            && text.utf8.allSatisfy { $0 != 0x22 && $0 != 0x2c && ((0x21...0x7e).contains($0) || $0 >= 0x80) }
    }

    /// Whether `text` is a valid entity tag: RFC 9110, section 8.8.3.
    private static func isEntityTag(_ text: String) -> Bool {
        let bytes = Array(self.opaque(text).utf8)
        guard bytes.count >= 2, bytes.first == UInt8(ascii: "\""), bytes.last == UInt8(ascii: "\"") else {
            return false
        }
        return bytes[1..<(bytes.count - 1)].allSatisfy { $0 == 0x21 || (0x23...0x7e).contains($0) || $0 >= 0x80 }
    }
}
