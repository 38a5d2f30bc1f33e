package import Foundation

/// Reads the answers of a token endpoint.
package enum OAuthReply {
    /// The largest answer that is read, in bytes.
    package static let maximumSize = 1 << 20

    /// Reads the tokens in `reply`.
    ///
    /// - Parameters:
    ///   - reply: The complete answer.
    ///   - sentAt: When the request was sent, from which the lifetime counts, so that it is never overestimated.
    ///   - now: When the answer arrived.
    /// - Returns: The tokens.
    /// - Throws: ``OAuthError``.
    package static func tokens(_ reply: HTTPReply, sentAt: Date, now: Date) throws(OAuthError) -> OAuthTokens {
        let status = HTTPStatus(reply.status)
        if self.isTransient(reply) { throw .unavailable(status, retryAfter: reply.retryAfter(now: now)) }
        switch reply.status {
        case 200...299: return try self.tokens(self.fields(reply), status, sentAt: sentAt)
        case 400...499: throw .refused(try self.refusal(self.fields(reply), status))
        default: throw .malformed(status, .status)
        }
    }

    /// Whether the failure is transient: by the status alone, for a proxy's error page must not end a session, or by the error code,
    /// with any status.
    private static func isTransient(_ reply: HTTPReply) -> Bool {
        if [408, 429].contains(reply.status) || (500...599).contains(reply.status) { return true }
        guard case .text(let name)? = (try? self.fields(reply))?["error"] else { return false }
        return OAuthError.Code(rawValue: name)?.isTransient ?? false
    }

    // MARK: - RFC 6749, section 5.1

    private static func tokens(
        _ fields: [String: Field],
        _ status: HTTPStatus,
        sentAt: Date
    ) throws(OAuthError) -> OAuthTokens {
        guard case .text(let access)? = fields["access_token"], self.isToken(access) else {
            throw .malformed(status, .field("access_token"))
        }
        guard case .text(let type)? = fields["token_type"] else { throw .malformed(status, .field("token_type")) }
        guard type.lowercased() == "bearer" else { throw .malformed(status, .tokenType) }
        let expiresAt: Date?
        switch fields["expires_in"] {
        case nil, .null?: expiresAt = nil
        case let field?:
            guard let seconds = field.seconds else { throw .malformed(status, .field("expires_in")) }
            expiresAt = sentAt.addingTimeInterval(seconds)
        }
        let refresh = try self.optionalText("refresh_token", in: fields, status)
        if let refresh, !self.isToken(refresh) { throw .malformed(status, .field("refresh_token")) }
        let scopes = try self.optionalText("scope", in: fields, status)?.split(separator: " ").map { String($0) }
        return OAuthTokens(access: .init(access, expiresAt: expiresAt, scopes: scopes), refresh: refresh)
    }

    /// RFC 6749, appendices A.12 and A.17: printable ASCII, at least one character.
    private static func isToken(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x20...0x7e).contains($0) }
    }

    // MARK: - RFC 6749, section 5.2

    private static func refusal(_ fields: [String: Field], _ status: HTTPStatus) throws(OAuthError)
        -> OAuthError.Refusal
    {
        guard case .text(let name)? = fields["error"], let code = OAuthError.Code(rawValue: name) else {
            throw .malformed(status, .field("error"))
        }
        func text(_ name: String) -> String? {
            guard case .text(let text)? = fields[name] else { return nil }
            return text
        }
        return OAuthError.Refusal(code, explanation: text("error_description"), uri: text("error_uri"), status: status)
    }

    // MARK: - Fields

    private enum Field: Decodable, Sendable {
        case text(String)
        case number(Double)
        case null
        case other

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            if container.decodeNil() {
                self = .null
            } else if let text = try? container.decode(String.self) {
                self = .text(text)
            } else if let number = try? container.decode(Double.self) {
                self = .number(number)
            } else {
                self = .other
            }
        }

        /// A number of seconds, bounded; some servers send it as text.
        var seconds: TimeInterval? {
            let number: Double? =
                switch self {
                case .number(let number): number
                case .text(let text): text.utf8.allSatisfy { (48...57).contains($0) } ? Double(text) : nil
                case .null, .other: nil
                }
            guard let number, number.isFinite, number >= 0 else { return nil }
            return min(number, TimeInterval(HTTPDeltaSeconds.greatest))
        }
    }

    private static func fields(_ reply: HTTPReply) throws(OAuthError) -> [String: Field] {
        guard reply.body.count <= self.maximumSize,
            let fields = try? JSONDecoder().decode([String: Field].self, from: reply.body)
        else { throw .malformed(HTTPStatus(reply.status), .notAnObject) }
        return fields
    }

    private static func optionalText(
        _ name: String,
        in fields: [String: Field],
        _ status: HTTPStatus
    ) throws(OAuthError) -> String? {
        switch fields[name] {
        case nil, .null?: return nil
        case .text(let text)?: return text
        case .number?, .other?: throw .malformed(status, .field(name))
        }
    }
}
