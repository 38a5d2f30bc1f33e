package import Foundation

/// Parses the responses of a token endpoint.
///
/// Understands RFC 6749, section 5, and the deviations of large providers. An access token without a readable
/// lifetime, scope or token type is usable; a token that is bound to a key is not usable. A refusal ends a
/// session, and therefore requires an explicit error of the server: see ``OAuthFailure``.
package enum OAuthReply {
    /// The maximum size of a parsed body, in bytes.
    package static let maximumSize = 1 << 20

    /// The maximum nesting depth of arrays and objects.
    package static let maximumDepth = 64

    /// Parses the tokens in `reply`.
    ///
    /// - Parameters:
    ///   - reply: The complete response.
    ///   - sentAt: The time of the request. The lifetime is counted from this time, because the server issues
    ///     the token later.
    ///   - now: The arrival time of the response.
    /// - Returns: The tokens.
    /// - Throws: ``OAuthError``.
    package static func tokens(_ reply: HTTPReply, sentAt: Date, now: Date) throws(OAuthError) -> OAuthTokens {
        let status = HTTPStatus(reply.status)
        let retryAfter = reply.headers.retryAfter(now: now)
        // For these statuses the body is ignored: the error page of a proxy must not end a session.
        if [408, 425, 429].contains(reply.status) || (500...599).contains(reply.status) {
            throw .unavailable(status, retryAfter: retryAfter)
        }
        let isSuccess = (200...299).contains(reply.status)
        let fields = self.fields(reply.body)
        if isSuccess, let fields, let tokens = try self.tokens(fields, status, sentAt: sentAt) { return tokens }
        let failure = fields.map { OAuthFailure($0, isSuccess: isSuccess) }
        if failure?.verdict == .tryLater { throw .unavailable(status, retryAfter: retryAfter) }
        guard isSuccess || (400...499).contains(reply.status) else { throw .malformed(status, .status) }
        if let refusal = failure?.refusal(status) {
            guard refusal.refusesGrant || refusal.code.isOfStandard || retryAfter == nil else {
                throw .unavailable(status, retryAfter: retryAfter)
            }
            throw .refused(refusal)
        }
        if !isSuccess, retryAfter != nil { throw .unavailable(status, retryAfter: retryAfter) }
        guard failure != nil else { throw .malformed(status, .notAnObject) }
        throw .malformed(status, .field(isSuccess ? "access_token" : "error"))
    }

    // MARK: - RFC 6749, section 5.1

    /// The tokens in the fields of a success; `nil` without a valid access token.
    private static func tokens(
        _ fields: [String: JSONValue],
        _ status: HTTPStatus,
        sentAt: Date
    ) throws(OAuthError) -> OAuthTokens? {
        guard case .string(let access)? = fields["access_token"], self.isToken(access) else { return nil }
        guard self.isUsable(type: fields["token_type"]) else { throw .malformed(status, .tokenType) }
        let rest = fields.filter { $0.key != "access_token" && $0.key != "refresh_token" }
        let token = OAuthTokens.AccessToken(
            access,
            expiresAt: self.lifetime(fields["expires_in"]).map { sentAt.addingTimeInterval($0) },
            scopes: self.scopes(fields["scope"]),
            fields: rest
        )
        return OAuthTokens(access: token, refresh: try self.refreshToken(fields["refresh_token"], status))
    }

    /// Whether a text is a token: printable ASCII, not only spaces (RFC 6749, appendices A.12 and A.17).
    private static func isToken(_ text: String) -> Bool {
        text.utf8.contains { $0 != 0x20 } && text.utf8.allSatisfy { (0x20...0x7e).contains($0) }
    }

    /// Whether a token of this type can be sent as a bearer token.
    ///
    /// Providers omit the type, or write proprietary names (`user`, `User Access Token`) for bearer tokens. A
    /// token bound to a key is useless without the key. `N_A` marks a token that is not an access token (RFC
    /// 8693, section 2.2.1).
    private static func isUsable(type: JSONValue?) -> Bool {
        guard case .string(let type)? = type else { return true }
        return !["mac", "dpop", "pop", "hok", "n_a"].contains(HTTPGrammar.trimmed(type).lowercased())
    }

    /// The new refresh token; `nil` to keep the previous refresh token.
    ///
    /// - Throws: ``OAuthError/malformed(_:_:)`` unless the field is a token, absent, a blank text, `null` or
    ///   `false`.
    private static func refreshToken(_ field: JSONValue?, _ status: HTTPStatus) throws(OAuthError) -> String? {
        switch field {
        case nil, .null?, .bool(false)?: return nil
        case .string(let text)? where HTTPGrammar.trimmed(text).isEmpty: return nil
        case .string(let text)? where self.isToken(text): return text
        default: throw .malformed(status, .field("refresh_token"))
        }
    }

    /// The lifetime in seconds, at most ``HTTPDeltaSeconds/greatest``; `nil` without a positive number.
    private static func lifetime(_ field: JSONValue?) -> TimeInterval? {
        let seconds: Double? =
            switch field {
            case .integer(let number)?: Double(number)
            case .number(let number)?: number
            case .string(let text)?: self.number(HTTPGrammar.trimmed(text))
            default: nil
            }
        guard let seconds, seconds.isFinite, seconds > 0 else { return nil }
        return min(seconds, TimeInterval(HTTPDeltaSeconds.greatest))
    }

    /// The decimal number in `text`; `nil` for any other text, even if `Double` accepts the text: `inf` or
    /// `0x10`.
    private static func number(_ text: String) -> Double? {
        text.utf8.allSatisfy { (48...57).contains($0) || [43, 45, 46, 69, 101].contains($0) } ? Double(text) : nil
    }

    /// The scopes in a text or an array; `nil` for any other field.
    ///
    /// Some providers use commas as separators.
    private static func scopes(_ field: JSONValue?) -> [String]? {
        switch field {
        case .string(let text)?:
            let parts = text.split(separator: " ")
            return (parts.count == 1 ? text.split(separator: ",") : parts).map { String($0) }
        case .array(let values)?:
            return values.compactMap { if case .string(let text) = $0 { text } else { nil } }
        default: return nil
        }
    }

    // MARK: - JSON

    /// A field; the value is `nil` if ``JSONValue`` cannot represent the value, such as a number that is too
    /// large.
    private struct Field: Decodable {
        let value: JSONValue?

        init(from decoder: any Decoder) throws {
            self.value = try? decoder.singleValueContainer().decode(JSONValue.self)
        }
    }

    /// The fields of a JSON object, without values that ``JSONValue`` cannot represent; `nil` if `body` is
    /// not an object, too large or too deep.
    private static func fields(_ body: Data) -> [String: JSONValue]? {
        guard body.count <= self.maximumSize, self.depth(of: body) <= self.maximumDepth else { return nil }
        return (try? JSONDecoder().decode([String: Field].self, from: body))?.compactMapValues(\.value)
    }

    /// The nesting depth of arrays and objects, measured without recursion before the recursive decoding.
    private static func depth(of body: Data) -> Int {
        var (depth, deepest) = (0, 0)
        var (isText, isEscaped) = (false, false)
        for byte in body {
            switch byte {
            case _ where isEscaped: isEscaped = false
            case UInt8(ascii: "\\") where isText: isEscaped = true
            case UInt8(ascii: "\""): isText.toggle()
            case _ where isText: break
            case UInt8(ascii: "["), UInt8(ascii: "{"):
                depth += 1
                deepest = max(deepest, depth)
            case UInt8(ascii: "]"), UInt8(ascii: "}"): depth -= 1
            default: break
            }
        }
        return deepest
    }
}

/// The error in a response without tokens: RFC 6749, section 5.2, and the formats of large providers.
///
/// - Some providers send the error code in an object, in an array, in another field (`status`, `errorType`),
///   or as a sentence. Some providers send an error with status 200.
/// - The grant is refused if an error code means a refusal, or if a sentence calls the refresh token invalid,
///   expired or similar.
/// - An error code about the client or the scope is a mistake of the app, regardless of the sentence.
/// - A sentence about a request limit is not a refusal.
struct OAuthFailure: Sendable {
    /// The consequence for the session.
    enum Verdict: Sendable, Equatable {
        /// The grant is permanently refused: the user must sign in again.
        case refused
        /// The server is temporarily unavailable.
        case tryLater
        /// Any other error: a mistake of the app, or an unknown error.
        case other
    }

    /// The value of `error`, if a text.
    private var error: String?
    /// The texts from fields that can contain an error code.
    private var codes: [String] = []
    /// The texts from fields that can contain a sentence about the error.
    private var texts: [String] = []
    private var uri: String?

    private(set) var verdict = Verdict.other

    /// Reads the fields of a reply.
    ///
    /// - Parameters:
    ///   - fields: The fields.
    ///   - isSuccess: Whether the status is 2xx. A text in a field such as `status` may then be no error
    ///     code: such texts count only if `error` or `errors` has a value, or if ``verdict`` is not
    ///     ``Verdict/other``.
    init(_ fields: [String: JSONValue], isSuccess: Bool) {
        if case .string(let text)? = fields["error"] { self.error = HTTPGrammar.trimmed(text) }
        if case .string(let text)? = fields["error_uri"] { self.uri = text }
        self.collect(fields)
        for name in ["error", "errors"] {
            switch fields[name] {
            case .object(let object)?: self.collect(object)
            case .array(let list)?:
                // An error list of a provider is short: the limit bounds the work for other lists.
                for element in list.prefix(20) {
                    if case .string(let text) = element { self.codes.append(text) }
                    if case .object(let object) = element { self.collectListElement(object) }
                }
            default: break
            }
        }
        // Reddit's response to a refused refresh token, without further information.
        let isBareBadRequest =
            fields.count == 2 && fields["error"] == .integer(400) && fields["message"] == .string("Bad Request")
        self.verdict = isBareBadRequest ? .refused : Self.verdict(error: error, codes: codes, texts: texts)
        let hasError = [fields["error"], fields["errors"]].contains { $0 != nil && $0 != .null }
        if isSuccess, !hasError, self.verdict == .other { self.codes = [] }
    }

    private mutating func collect(_ fields: [String: JSONValue]) {
        for name in ["error", "errorType", "error_type", "error_code", "errorCode", "code", "type", "status"] {
            if case .string(let text)? = fields[name] { self.codes.append(HTTPGrammar.trimmed(text)) }
        }
        for name in [
            "error_description", "errorDescription", "error_message", "errorMessage", "errorSummary", "message", "msg",
            "reason", "detail", "description", "errmsg", "error_msg",
        ] {
            if case .string(let text)? = fields[name] { self.texts.append(text) }
        }
    }

    /// Collects an element of a list of errors; several fields of the element can form one statement.
    private mutating func collectListElement(_ fields: [String: JSONValue]) {
        self.collect(fields)
        let parts = ["resource", "field", "code"].compactMap { name -> String? in
            if case .string(let text)? = fields[name] { text } else { nil }
        }
        if parts.count > 1 { self.texts.append(parts.joined(separator: " ")) }
    }

    /// Decides the consequence of the error; the order of the checks matters.
    ///
    /// A code for an unavailable server decides first, then a code of RFC 6749 in `error`. A code about the
    /// client or the scope follows, then other codes, then sentences.
    private static func verdict(error: String?, codes: [String], texts: [String]) -> Verdict {
        let names = Set(codes.map { self.name($0) })
        if !names.isDisjoint(with: self.transientNames) { return .tryLater }
        if let error, let code = OAuthError.Code(rawValue: self.name(error)), code.isOfStandard {
            if code == .invalidGrant { return .refused }
            // Some servers also send `invalid_request` for a refused refresh token.
            if code != .invalidRequest { return .other }
        }
        // A code about the client or the scope is a mistake of the app, even if a sentence mentions the
        // refresh token.
        let subject = self.words(error ?? codes.first ?? "")
        guard self.subjectsOfApps.isDisjoint(with: subject) else { return .other }
        if !names.isDisjoint(with: self.refusedNames) { return .refused }
        let sentences = codes + texts
        guard !self.speaksOfLimits(sentences.flatMap { self.words($0) }) else { return .other }
        return sentences.contains { self.saysRefreshTokenIsBad($0) } ? .refused : .other
    }

    /// The failure as an error; `nil` if the response has no valid error code and does not refuse the grant.
    func refusal(_ status: HTTPStatus) -> OAuthError.Refusal? {
        let isRefused = self.verdict == .refused
        let code = self.codes.lazy.compactMap { OAuthError.Code(rawValue: $0) }.first
        guard let code = code ?? (isRefused ? .invalidGrant : nil) else { return nil }
        var refusal = OAuthError.Refusal(code, explanation: self.texts.first, uri: self.uri, status: status)
        refusal.refusesGrant = isRefused
        return refusal
    }

    // MARK: - Codes

    /// Codes for an invalid grant, or a required sign-in of the user.
    ///
    /// `invalid_token` and similar codes are included: a refresh request contains no other token.
    private static let refusedNames: Set = [
        "invalid_grant", "invalid_token", "expired_token", "token_expired", "token_revoked",
        // OpenID Connect Core, section 3.1.2.6, RFC 9470, and providers with a second factor.
        "interaction_required", "login_required", "consent_required", "account_selection_required", "mfa_required",
        "unmet_authentication_requirements", "insufficient_user_authentication",
    ]

    /// A code in the spelling of the standard, such as `invalid_grant` for `INVALID_GRANT` and
    /// `invalid grant`.
    ///
    /// A text with lower-case letters keeps its case.
    private static func name(_ code: String) -> String {
        let name = code == code.uppercased() ? code.lowercased() : code
        return String(name.map { $0 == " " || $0 == "-" ? "_" : $0 })
    }

    /// Words of error codes that mean a mistake of the app.
    private static let subjectsOfApps: Set = ["client", "secret", "scope", "scopes", "type", "redirect"]

    private static let transientNames: Set = [
        "temporarily_unavailable", "server_error", "slow_down", "service_unavailable", "internal_error",
        "internal_server_error", "internal_failure", "fatal_error", "backend_error", "request_timeout", "timeout",
        "rate_limited", "ratelimited", "rate_limit", "rate_limit_exceeded", "too_many_requests", "too_many_attempts",
        "quota_exceeded", "throttled", "try_again_later",
    ]

    // MARK: - Sentences

    /// The words of a text, in lower case; a capital letter after a small letter begins another word.
    ///
    /// Only the first 1,000 Unicode scalars are examined. An apostrophe is dropped: `isn't` is `isnt`.
    private static func words(_ text: some StringProtocol) -> [String] {
        var words: [String] = []
        var word = ""
        var isLower = false
        for scalar in text.unicodeScalars.prefix(1_000) {
            let isLetter = scalar.properties.isAlphabetic || (48...57).contains(scalar.value)
            if !isLetter && scalar != "'" && scalar != "\u{2019}" || isLower && scalar.properties.isUppercase {
                if !word.isEmpty { words.append(word.lowercased()) }
                word = ""
            }
            if isLetter { word.unicodeScalars.append(scalar) }
            isLower = scalar.properties.isLowercase
        }
        return word.isEmpty ? words : words + [word.lowercased()]
    }

    private static func speaksOfLimits(_ words: [String]) -> Bool {
        words.contains {
            ["limit", "limited", "quota", "temporary", "temporarily"].contains($0) || $0.hasPrefix("throttl")
        }
            || zip(words, words.dropFirst()).contains {
                ($0 == "too" && $1 == "many") || ($0 == "again" && $1 == "later")
            }
    }

    /// Whether a sentence of `text` calls the refresh token invalid, expired, revoked, unknown or used.
    static func saysRefreshTokenIsBad(_ text: String) -> Bool {
        text.split { ".;!?\n".contains($0) }.contains { sentence in
            let words = self.words(sentence)
            return words.indices.contains { index in
                guard let end = self.endOfRefreshToken(at: index, in: words),
                    index == 0 || !self.verbContexts.contains(words[index - 1])
                else { return false }
                return self.isBad(before: words[..<index], then: words[end...]) || self.isBad(after: words[end...])
            }
                // Sentences of X and Shopify about the refresh token.
                || ["value passed for the token was invalid", "requires an active refresh token"].contains {
                    words.joined(separator: " ").contains($0)
                }
        }
    }

    /// The index after `refresh token` at `index`; `nil` without this phrase at `index`.
    private static func endOfRefreshToken(at index: Int, in words: [String]) -> Int? {
        if ["refreshtoken", "refreshtokens"].contains(words[index]) { return index + 1 }
        guard words[index] == "refresh", index + 1 < words.count, ["token", "tokens"].contains(words[index + 1]) else {
            return nil
        }
        return index + 2
    }

    /// Whether a word such as `invalid` before `refresh token` describes the token.
    ///
    /// For example, in `invalid or missing refresh token`.
    private static func isBad(before words: ArraySlice<String>, then next: ArraySlice<String>) -> Bool {
        guard !(next.first.map { self.otherSubjects.contains($0) } ?? false) else { return false }
        let near = words.suffix(3)
        guard let index = near.lastIndex(where: { self.badWords.contains($0) }) else { return false }
        return near[index...].dropFirst().allSatisfy { self.linkWords.contains($0) }
            && !self.negations.contains(near[..<index].last ?? "")
    }

    /// Whether words after `refresh token` call the token bad.
    ///
    /// For example, in `refresh token that was passed is not valid`.
    private static func isBad(after words: ArraySlice<String>) -> Bool {
        let near = Array(words.prefix(10).prefix { !self.otherSubjects.contains($0) })
        for (index, word) in near.enumerated() {
            let next = near.dropFirst(index + 1).prefix(3)
            if self.negations.contains(word) {
                return next.contains { self.goodWords.contains($0) }
            }
            // The adjective can belong to another noun, as in `invalid client secret`.
            let noun = words.dropFirst(index + 1).first
            if self.badWords.contains(word) { return !(noun.map { self.otherNouns.contains($0) } ?? false) }
            if word == "used", index > 0, ["already", "been", "previously"].contains(near[index - 1]) { return true }
        }
        return false
    }

    private static let badWords: Set = [
        "invalid", "expired", "revoked", "incorrect", "unknown", "bad", "unrecognized", "unrecognised", "inactive",
        "reused", "blacklisted", "rejected", "consumed", "malformed", "wrong", "nonexistent",
    ]
    private static let goodWords: Set = [
        "valid", "found", "exist", "exists", "recognized", "recognised", "active", "known", "accepted", "match",
    ]
    private static let negations: Set = ["not", "no", "isnt", "wasnt", "doesnt", "cannot", "cant", "neither"]
    private static let linkWords: Set = [
        "or", "and", "missing", "the", "a", "oauth", "oauth2", "access",
    ]
    /// Words before `refresh token` that make `refresh` a verb: `failed to refresh token`.
    private static let verbContexts: Set = [
        "to", "not", "cannot", "cant", "couldnt", "didnt", "wont", "while", "when",
    ]
    private static let otherNouns: Set = otherSubjects.union([
        "error", "errors", "secret", "credentials", "certificate", "response", "user",
    ])
    /// Words after `refresh token` that make another noun the subject, as in
    /// `refresh token grant is invalid`.
    private static let otherSubjects: Set = [
        "grant", "grants", "type", "flow", "scope", "scopes", "client", "clients", "required", "requires", "missing",
        "must", "rate", "limit", "request", "requests", "parameter", "endpoint", "rotation",
    ]
}
