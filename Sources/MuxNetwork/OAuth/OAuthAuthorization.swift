public import Foundation
import MuxKit

/// An authorization request for the user: RFC 6749, section 4.1, with ``PKCE``.
///
/// ```swift
/// guard
///     let authorization = OAuthAuthorization(
///         endpoint: url, client: client, redirectURI: "app:/signed-in", scopes: ["mail"]
///     )
/// else { return }
/// let callback = try await browser.open(authorization.url)
/// let tokens = try await tokenEndpoint.redeem(callback, of: authorization)
/// ```
///
/// Make a new request for each sign-in: the random secret and state must not be used twice.
public struct OAuthAuthorization: Sendable {
    /// The page for the user, to be opened in an external browser instead of a web view of the app (RFC
    /// 8252).
    public let url: URL

    /// The redirection URI.
    public let redirectURI: String

    /// The secret of this authorization.
    public let pkce: PKCE

    /// The random value expected in the redirection, against forged redirections (RFC 6749, section 10.12).
    public let state: String

    /// The server expected in `iss` of the redirection (RFC 9207); `nil` for a server without `iss`.
    public let issuer: String?

    /// Makes a request; `nil` if the endpoint or the redirection URI is not safe or not a valid URL.
    ///
    /// Safe endpoints are `https` URLs, and `http` URLs on this machine, without a fragment. A redirection
    /// URI may also have a private scheme of the app, without a fragment, but no scheme with a meaning to
    /// browsers, such as `javascript`.
    ///
    /// - Parameters:
    ///   - endpoint: The authorization endpoint. The request's parameters replace query parameters of the
    ///     same names.
    ///   - issuer: The server's identifier, exactly as in its metadata (`issuer`, RFC 8414). Every
    ///     redirection must contain this identifier: the code of one server must never reach the token
    ///     endpoint of another (RFC 9207, section 2.4; RFC 9700, section 4.4). Required for an app with more
    ///     than one authorization server; `nil`, the default, for a server without `iss`.
    ///   - client: The app.
    ///   - redirectURI: A registered redirection URI of the app.
    ///   - scopes: The requested scopes; an empty array for the server's default.
    ///   - parameters: Further parameters, such as `prompt`. A parameter that the request sets itself, such
    ///     as `state`, is ignored.
    public init?(
        endpoint: URL,
        issuer: String? = nil,
        client: OAuthClient,
        redirectURI: String,
        scopes: [String] = [],
        parameters: [String: String] = [:]
    ) {
        let (pkce, state) = (PKCE(), PKCE().verifier)
        guard OAuthAddress.isSafeEndpoint(endpoint), OAuthAddress.isSafeRedirection(redirectURI) else { return nil }
        var all = [("response_type", "code"), ("client_id", client.id), ("redirect_uri", redirectURI)]
        if !scopes.isEmpty { all.append(("scope", scopes.joined(separator: " "))) }
        all += [("state", state), ("code_challenge", pkce.challenge), ("code_challenge_method", PKCE.method)]
        let own = Set(all.map(\.0))
        all += parameters.filter { !own.contains($0.key) }.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        let query = all.map { "\(PercentEncoding.encode($0))=\(PercentEncoding.encode($1))" }.joined(separator: "&")
        let base = OAuthAddress.removing(Set(all.map(\.0)), from: endpoint)?.absoluteString
        guard let base, let url = URL(string: base + (base.contains("?") ? "&" : "?") + query) else { return nil }
        self.url = url
        self.issuer = issuer
        self.redirectURI = redirectURI
        self.pkce = pkce
        self.state = state
    }

    /// Returns the code in a redirection: RFC 6749, section 4.1.2.
    ///
    /// - Parameter callback: The complete URL of the redirection.
    /// - Returns: The code; a code is valid for one use.
    /// - Throws: ``OAuthError/refused(_:)`` if the user or the server refused;
    ///   ``OAuthError/foreignRedirect(_:)`` if the redirection does not belong to this authorization, does
    ///   not come from ``issuer``, or is not valid.
    public func code(from callback: URL) throws(OAuthError) -> String {
        var fields: [String: String] = [:]
        guard self.matchesRedirectURI(callback) else { throw .foreignRedirect(.address) }
        for pair in (callback.query(percentEncoded: true) ?? "").split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = PercentEncoding.decode(parts[0], plusIsBlank: true)
            let value = parts.count > 1 ? PercentEncoding.decode(parts[1], plusIsBlank: true) : ""
            guard fields.updateValue(value, forKey: name) == nil else { throw .foreignRedirect(.repeatedParameter) }
        }
        guard fields["state"] == self.state else {
            throw .foreignRedirect(fields["state"] == nil ? .missingState : .otherState)
        }
        // RFC 9207, section 2.4: `iss` is compared byte for byte, before `error` or `code` is read.
        if let issuer {
            guard fields["iss"].map({ $0.utf8.elementsEqual(issuer.utf8) }) == true else {
                throw .foreignRedirect(fields["iss"] == nil ? .missingIssuer : .otherIssuer)
            }
        }
        if let text = fields["error"] {
            guard let code = OAuthError.Code(rawValue: text) else { throw .foreignRedirect(.malformedError) }
            throw .refused(OAuthError.Refusal(code, explanation: fields["error_description"], uri: fields["error_uri"]))
        }
        guard let code = fields["code"], !code.isEmpty else { throw .foreignRedirect(.missingCode) }
        return code
    }

    /// Whether a redirection has the scheme, host, port and path of ``redirectURI``; an empty path counts as
    /// `/`.
    private func matchesRedirectURI(_ callback: URL) -> Bool {
        guard let home = URLReference.url(self.redirectURI, relativeTo: nil) else { return false }
        func place(_ url: URL) -> [String?] {
            let path = url.path(percentEncoded: true)
            let port = HTTPOrigin(url)?.port ?? url.port
            return [url.scheme?.lowercased(), url.host()?.lowercased(), port?.description, path.isEmpty ? "/" : path]
        }
        return place(home) == place(callback)
    }
}

extension OAuthTokenEndpoint {
    /// Exchanges the code in a redirection for tokens.
    ///
    /// - Parameters:
    ///   - callback: The complete URL of the redirection.
    ///   - authorization: The authorization request of the redirection.
    /// - Returns: The tokens.
    /// - Throws: ``OAuthError``, `CancellationError`, or an error of the endpoint's closure `interpretReply`.
    public func redeem(_ callback: URL, of authorization: OAuthAuthorization) async throws -> OAuthTokens {
        let code = try authorization.code(from: callback)
        return try await self.exchange(code: code, redirectURI: authorization.redirectURI, pkce: authorization.pkce)
    }
}

extension OAuthAuthorization: RedactedDescription {
    /// The type's name and the host.
    public var description: String { "OAuthAuthorization(\(self.url.host() ?? ""))" }
}

/// The rules of OAuth for addresses.
enum OAuthAddress {
    /// Whether an endpoint is safe for codes and tokens: RFC 6749, sections 3.1 and 3.2.
    ///
    /// Safe endpoints are absolute `https` URLs, and `http` URLs on this machine (RFC 8252, section 7.3),
    /// without a fragment.
    static func isSafeEndpoint(_ url: URL) -> Bool {
        guard let origin = HTTPOrigin(url), url.fragment() == nil else { return false }
        return origin.isSecure || origin.isLoopback
    }

    /// Whether a redirection is safe for a code: RFC 6749, section 3.1.2, and RFC 9700, section 2.6.
    ///
    /// Safe redirections are safe endpoints, and URLs with a private scheme of the app (RFC 8252, section
    /// 7.1) and without a fragment. A scheme with a meaning to browsers is not private.
    static func isSafeRedirection(_ text: String) -> Bool {
        guard let url = URLReference.url(text, relativeTo: nil), let scheme = url.scheme?.lowercased() else {
            return false
        }
        switch scheme {
        case "http", "https": return self.isSafeEndpoint(url)
        case "javascript", "vbscript", "data", "blob", "about", "file", "filesystem", "view-source", "ws", "wss", "ftp":
            return false
        default: return url.fragment() == nil
        }
    }

    /// The URL without the query parameters of these names; the other parameters stay byte for byte.
    ///
    /// RFC 6749, sections 3.1 and 3.2: an endpoint may have a query, and no parameter may be sent twice.
    static func removing(_ names: Set<String>, from url: URL) -> URL? {
        guard let query = url.query(percentEncoded: true) else { return url }
        let rest = query.split(separator: "&").filter { pair in
            !names.contains(PercentEncoding.decode(pair.prefix { $0 != "=" }, plusIsBlank: true))
        }
        let base = url.absoluteString.prefix { $0 != "?" }
        return URL(string: rest.isEmpty ? String(base) : "\(base)?\(rest.joined(separator: "&"))")
    }
}

/// A secret that binds a code to the requesting app: RFC 7636, with the method `S256`.
///
/// Make a new secret for each authorization. The description does not contain the verifier.
public struct PKCE: Sendable, Hashable {
    /// The secret, sent to the token endpoint with the code.
    public let verifier: String

    /// The value of `code_challenge_method` (section 4.3).
    public static let method = "S256"

    /// Makes a new secret from 32 random bytes, as section 4.1 recommends.
    public init() {
        self.verifier = Base64URL.encode(Data((0..<32).map { _ in UInt8.random(in: .min ... .max) }))
    }

    /// Makes a secret from `verifier`; `nil` unless `verifier` has 43 to 128 unreserved characters (section
    /// 4.1).
    public init?(verifier: String) {
        guard (43...128).contains(verifier.utf8.count), verifier.utf8.allSatisfy({ PercentEncoding.isUnreserved($0) })
        else { return nil }
        self.verifier = verifier
    }

    /// The hash of the secret, sent to the authorization endpoint (section 4.2).
    public var challenge: String { Base64URL.encode(Data(SHA256.hash(self.verifier))) }
}

extension PKCE: CustomStringConvertible, CustomReflectable {
    /// The type's name without the secret.
    public var description: String { "PKCE(…)" }

    /// Empty.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}
