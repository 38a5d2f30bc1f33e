public import Foundation
public import MuxKit

/// An error of a request to an authorization server.
///
/// - Only ``refused(_:)`` with ``OAuthError/Refusal/refusesGrant`` counts as a refusal of the refresh token
///   (`BadDependencyError`) and ends the session.
/// - Descriptions and mirrors contain only the following values of a response: the status, the time of
///   `Retry-After`, the error code and the explanation of the server. The endpoint omits an explanation that
///   quotes a sent secret, and replaces a code that quotes a sent secret with a standard code.
/// - After a cancellation of the caller's task, the error is `CancellationError` instead of an
///   ``OAuthError``.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum OAuthError: Error, Sendable {
    /// The server refused the request.
    case refused(OAuthError.Refusal)

    /// The server is temporarily unavailable.
    ///
    /// Thrown for:
    /// - status 408, 425, 429 or 5xx;
    /// - a code such as `temporarily_unavailable`, `server_error` or `slow_down`, with any status, in a
    ///   response without tokens;
    /// - status 4xx with `Retry-After`, or status 2xx with `Retry-After` and an error code; but not for an
    ///   error code of RFC 6749, section 5.2, and not for a refusal of the grant.
    ///
    /// The error is transient; `retryAfter`, if known, delays a retry.
    case unavailable(HTTPStatus, retryAfter: Duration?)

    /// The response contains neither usable tokens nor a recognised error, or the status is not expected.
    case malformed(HTTPStatus, Fault)

    /// The transport failed: for example, the server was not reached, or the exchange was interrupted.
    case transport(any Error)

    /// The endpoint is unsafe; no request was sent.
    ///
    /// The URL is neither an `https` URL nor an `http` URL on this machine, or has a fragment (RFC 6749,
    /// section 3.2).
    case insecureEndpoint

    /// A parameter name is repeated; no request was sent.
    case invalidParameter(name: String)

    /// The redirection is not valid, or belongs to another authorization or server.
    ///
    /// See RFC 6749, section 10.12, and RFC 9207, section 2.4.
    case foreignRedirect(OAuthError.RedirectFault)

    /// The sign-in returned no refresh token.
    case noRefreshToken

    /// The fault of a redirection.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum RedirectFault: Sendable, Hashable {
        /// The address differs from ``OAuthAuthorization/redirectURI``.
        case address
        /// A parameter is repeated (RFC 6749, section 3.1).
        case repeatedParameter
        /// The `state` is missing.
        case missingState
        /// The `state` differs from ``OAuthAuthorization/state``: the redirection belongs to another sign-in,
        /// or is forged.
        case otherState
        /// The `iss` is missing, although ``OAuthAuthorization/issuer`` requires `iss`.
        case missingIssuer
        /// The `iss` differs from ``OAuthAuthorization/issuer``.
        case otherIssuer
        /// The `error` is not a valid error code.
        case malformedError
        /// The `error` is missing, and the `code` is missing or empty.
        case missingCode

        /// The fault as a sentence.
        var words: String {
            switch self {
            case .address: "The redirection leads to another URL than the redirect URI."
            case .repeatedParameter: "A parameter of the redirection is repeated."
            case .missingState: "The redirection has no parameter state."
            case .otherState: "The redirection belongs to another sign-in: the parameter state differs."
            case .missingIssuer: "The redirection has no issuer (parameter iss)."
            case .otherIssuer: "The issuer of the redirection (parameter iss) differs from the expected issuer."
            case .malformedError: "The error code of the redirection is not valid."
            case .missingCode: "The redirection has no authorization code."
            }
        }
    }

    /// The fault of a response.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Fault: Sendable, Hashable {
        /// The body is not a JSON object, or is too large (more than 1 MiB) or too deep (more than 64
        /// levels).
        case notAnObject
        /// This field is missing or invalid.
        case field(String)
        /// The token is bound to a key (`DPoP`, `MAC`), and unusable as a bearer token (RFC 6749, section
        /// 7.1).
        case tokenType
        /// The status is neither a success (2xx) nor a failure, such as the status of a redirection.
        case status

        /// The fault as the end of a sentence.
        var words: String {
            switch self {
            case .notAnObject: "the body is not a JSON object, or is too large or too deep"
            case .field(let name): "the field \(name) is missing or not valid"
            case .tokenType: "the token is bound to a key and is not a bearer token"
            case .status: "the status is neither a success nor a failure"
            }
        }
    }
}

extension OAuthError {
    /// A refusal by an authorization server: RFC 6749, section 5.2.
    ///
    /// The description contains the code, and the explanation of a token endpoint, unless the explanation
    /// quotes a sent secret.
    public struct Refusal: Sendable, Hashable {
        /// The error code.
        public var code: OAuthError.Code

        /// The server's text for developers; `nil` if absent.
        public var explanation: String?

        /// The address of a page about the error; `nil` if absent.
        public var uri: String?

        /// The status of the response; `nil` for a refusal in a redirection.
        public var status: HTTPStatus?

        /// Whether the grant, such as the refresh token or the code, is permanently refused and a new sign-in
        /// is required.
        ///
        /// `true` for ``OAuthError/Code/invalidGrant``, and for equivalent provider-specific responses of a
        /// token endpoint: see the article "Sign-in".
        public var refusesGrant: Bool

        /// Whether the explanation quotes a sent secret; descriptions then omit the explanation.
        package var isExplanationPrivate: Bool {
            get { self.privacy.value }
            set { self.privacy.value = newValue }
        }
        private var privacy = IgnoredInEquality(false)

        /// Makes a refusal.
        public init(_ code: OAuthError.Code, explanation: String? = nil, uri: String? = nil, status: HTTPStatus? = nil)
        {
            self.code = code
            self.explanation = explanation
            self.uri = uri
            self.status = status
            self.refusesGrant = code == .invalidGrant
        }
    }
}

extension OAuthError.Refusal: RedactedDescription {
    /// The code, and the explanation unless private.
    public var description: String { self.code.rawValue + (self.words.map { ": \($0)" } ?? "") }

    /// The explanation, in one line; `nil` if private, or from a redirection, where the text is part of a
    /// query.
    fileprivate var words: String? {
        guard let explanation, self.status != nil, !self.isExplanationPrivate else { return nil }
        return ErrorText.line(explanation)
    }
}

extension OAuthError: BadDependencyError {
    /// Whether the server refused the grant, such as the refresh token.
    public var isBadDependency: Bool {
        guard case .refused(let refusal) = self else { return false }
        return refusal.refusesGrant
    }
}

extension OAuthError: ConnectivityError {
    /// Whether the server was not reached, or is temporarily unavailable.
    public var isConnectivityFailure: Bool {
        switch self {
        case .unavailable: true
        case .transport(let error): SilenceableError.isSilenceable(error)
        case .refused(let refusal): refusal.code.isTransient
        default: false
        }
    }
}

extension OAuthError: RetryableError {
    /// The advice: transient for an unavailable server or a transient code, otherwise permanent.
    ///
    /// ``transport(_:)`` has the advice of the underlying error.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .unavailable(_, let retryAfter): RetryAdvice(isTransient: true, retryAfter: retryAfter)
        case .transport(let error): .of(error)
        case .refused(let refusal): refusal.code.isTransient ? .transient : .permanent
        case .malformed, .insecureEndpoint, .invalidParameter, .foreignRedirect, .noRefreshToken: .permanent
        }
    }
}

extension OAuthError: ClassifiedError {
    package var classification: ErrorClassification? {
        switch self {
        case .refused where self.isBadDependency: .reason(.refused)
        case .refused(let refusal): refusal.status.map { .reason(.status($0.code)) }
        case .unavailable(let status, _): .reason(.status(status.code))
        case .malformed: .reason(.decoding)
        case .transport(let error): .sameAs(error)
        case .insecureEndpoint, .invalidParameter, .foreignRedirect, .noRefreshToken: nil
        }
    }
}

extension OAuthError: LocalizedError, RedactedDescription, CustomDebugStringConvertible {
    /// A text for the user.
    public var errorDescription: String? {
        switch self {
        case .refused(let refusal):
            ErrorText.ended(
                "The sign-in server refused the request (\(refusal.code))" + (refusal.words.map { ": \($0)" } ?? "")
            )
        case .unavailable(let status, let time):
            "The sign-in server is unavailable (status \(status.code))."
                + (time.map { " Try again after \(ErrorText.time($0))." } ?? "")
        case .malformed(let status, let fault):
            "The response of the sign-in server (status \(status.code)) is not valid: \(fault.words)."
        case .transport(let error): ErrorText.joined("The request to the sign-in server failed.", error)
        case .insecureEndpoint:
            """
            The URL of the sign-in server is not safe. The URL must begin with https:// (or http:// on this machine) and have no \
            fragment.
            """
        case .invalidParameter(let name): "The parameter \(name) of the request to the sign-in server is repeated."
        case .foreignRedirect(let fault): fault.words
        case .noRefreshToken: "The response of the sign-in server has no refresh token."
        }
    }

    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// The same as ``errorDescription``.
    public var debugDescription: String { self.description }
}

extension OAuthError {
    /// An error code of an authorization server: RFC 6749, sections 4.1.2.1 and 5.2.
    ///
    /// An open set: `OAuthError.Code(rawValue: "interaction_required")` is also a code.
    public struct Code: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
        /// The code as sent by the server.
        public let rawValue: String

        /// Makes a code; `nil` for an empty text, more than 256 bytes, or a forbidden character.
        public init?(rawValue: String) {
            let isInOrder = rawValue.utf8.allSatisfy { (0x20...0x7e).contains($0) && $0 != 0x22 && $0 != 0x5c }
            guard !rawValue.isEmpty, rawValue.utf8.count <= 256, isInOrder else { return nil }
            self.rawValue = rawValue
        }

        private init(known code: String) { self.rawValue = code }

        /// A parameter is missing, invalid or repeated.
        public static let invalidRequest = Self(known: "invalid_request")
        /// The client is unknown, or its authentication failed.
        public static let invalidClient = Self(known: "invalid_client")
        /// The code or the refresh token is not valid, or no longer valid; a refused refresh token ends the
        /// session.
        public static let invalidGrant = Self(known: "invalid_grant")
        /// The client is not permitted to use the grant type.
        public static let unauthorizedClient = Self(known: "unauthorized_client")
        /// The server does not support the grant type.
        public static let unsupportedGrantType = Self(known: "unsupported_grant_type")
        /// The scope is unknown, or exceeds the granted scope.
        public static let invalidScope = Self(known: "invalid_scope")
        /// The user or the server refused.
        public static let accessDenied = Self(known: "access_denied")
        /// The server does not support the response type.
        public static let unsupportedResponseType = Self(known: "unsupported_response_type")
        /// The server failed unexpectedly.
        public static let serverError = Self(known: "server_error")
        /// The server is busy.
        public static let temporarilyUnavailable = Self(known: "temporarily_unavailable")

        /// Whether the failure is transient, with any status: RFC 6749, section 4.1.2.1.
        package var isTransient: Bool { self == .serverError || self == .temporarilyUnavailable }

        /// Whether RFC 6749, section 5.2, defines the code.
        var isOfStandard: Bool {
            [
                .invalidRequest, .invalidClient, .invalidGrant, .unauthorizedClient, .unsupportedGrantType,
                .invalidScope,
            ].contains(self)
        }

        /// The code.
        public var description: String { self.rawValue }
    }
}
