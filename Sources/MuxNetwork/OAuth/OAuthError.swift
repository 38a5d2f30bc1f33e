public import Foundation
public import MuxKit

/// Why an authorization server issued no tokens.
///
/// Only ``refused(_:)`` with ``OAuthError/Refusal/refusesGrant`` counts as a refusal of the refresh token (`BadDependencyError`) and ends
/// the session. Descriptions and mirrors contain the error code and the server's own sentence, and nothing else that was sent or
/// received; neither of them, if it quotes what was sent. Cancellation is always `CancellationError`.
@nonexhaustive
public enum OAuthError: Error, Sendable {
    /// The server refused.
    case refused(OAuthError.Refusal)

    /// The server cannot answer now: status 408, 425, 429 or 5xx, or a code such as `temporarily_unavailable`, `server_error` or
    /// `slow_down` with any status, or a 4xx without a known code but with `Retry-After`. Transient, but not before `retryAfter` if that
    /// is known.
    case unavailable(HTTPStatus, retryAfter: Duration?)

    /// The answer is neither tokens nor an error of the standard.
    case malformed(HTTPStatus, Fault)

    /// The server was not reached, or the exchange broke off.
    case transport(any Error)

    /// The address is no `https` URL, and is no `http` URL on this machine, or has a fragment (RFC 6749, section 3.2);
    /// nothing was sent.
    case insecureEndpoint

    /// The client's identifier, its secret or a parameter is not valid; nothing was sent.
    case invalidParameter(name: String)

    /// The redirection does not belong to the authorization that was asked for (RFC 6749, section 10.12), or comes from another
    /// server (RFC 9207, section 2.4), or is not whole.
    case foreignRedirect(OAuthError.RedirectFault)

    /// The sign-in brought no refresh token.
    case noRefreshToken

    /// What is wrong with a redirection.
    @nonexhaustive
    public enum RedirectFault: Sendable, Hashable {
        /// It leads to another address than ``OAuthAuthorization/redirectURI``.
        case address
        /// A parameter is there more than once (RFC 6749, section 3.1).
        case repeatedParameter
        /// There is no `state`.
        case missingState
        /// The `state` is not ``OAuthAuthorization/state``: the redirection is of another sign-in, or forged.
        case otherState
        /// There is no `iss`, and ``OAuthAuthorization/issuer`` asks for one.
        case missingIssuer
        /// The `iss` is not ``OAuthAuthorization/issuer``.
        case otherIssuer
        /// The `error` is no code of an error.
        case malformedError
        /// There is neither a `code` nor an `error`.
        case missingCode

        /// What is wrong, in a sentence.
        var words: String {
            switch self {
            case .address: "The redirection leads to another address than the one of this sign-in."
            case .repeatedParameter: "The redirection has a parameter more than once."
            case .missingState: "The redirection does not say to which sign-in it belongs (state)."
            case .otherState: "The redirection belongs to another sign-in: its state is not the one that was sent."
            case .missingIssuer: "The redirection does not name the issuer (iss)."
            case .otherIssuer: "The redirection names another issuer (iss) than the one that was asked."
            case .malformedError: "The error of the redirection is not a valid code."
            case .missingCode: "The redirection brings no code."
            }
        }
    }

    /// What is wrong with an answer.
    @nonexhaustive
    public enum Fault: Sendable, Hashable {
        /// It is not a JSON object, or is too large.
        case notAnObject
        /// This field is missing, or not valid.
        case field(String)
        /// The token is bound to a key (`DPoP`, `MAC`), so it cannot be used as a bearer token (RFC 6749, section 7.1).
        case tokenType
        /// The status is neither a success nor a failure.
        case status

        /// What is wrong, as the end of a sentence.
        var words: String {
            switch self {
            case .notAnObject: "it is no JSON object"
            case .field(let name): "its \(name) is missing or not valid"
            case .tokenType: "the token is bound to a key and is no bearer token"
            case .status: "the status is neither a success nor a failure"
            }
        }
    }
}

extension OAuthError {
    /// The error of an authorization server that refused: RFC 6749, section 5.2.
    ///
    /// Its description contains the code, and what a token endpoint explains.
    public struct Refusal: Sendable, Hashable {
        /// The error code.
        public var code: OAuthError.Code

        /// A text for developers, if the server sent one.
        public var explanation: String?

        /// A page about the error, if the server sent its address.
        public var uri: String?

        /// The status of the answer; `nil` if the refusal came with a redirection.
        public var status: HTTPStatus?

        /// Whether the grant, such as the refresh token or the code, is refused for good, so that only a sign-in helps.
        ///
        /// `true` for ``OAuthError/Code/invalidGrant``, and for the replies of a token endpoint that say the same in other words:
        /// see the article "Sign-in".
        public var refusesGrant: Bool

        /// Whether the explanation quotes what was sent, so that it is in no description.
        package var isExplanationPrivate: Bool {
            get { self.privacy.value }
            set { self.privacy.value = newValue }
        }
        private var privacy = Aside(false)

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
    /// The code, and the explanation if it holds nothing secret.
    public var description: String { self.code.rawValue + (self.words.map { ": \($0)" } ?? "") }

    /// The explanation, in one line, if it may be shown; one that came with a redirection may not, since that is a query.
    fileprivate var words: String? {
        guard let explanation, self.status != nil, !self.isExplanationPrivate else { return nil }
        return ErrorText.line(explanation)
    }
}

extension OAuthError: BadDependencyError {
    /// Whether the server refused the refresh token itself.
    public var isBadDependency: Bool {
        guard case .refused(let refusal) = self else { return false }
        return refusal.refusesGrant
    }
}

extension OAuthError: ConnectivityError {
    /// Whether the server was not reached, or is unavailable.
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
    /// Transient where the server is unavailable; for ``transport(_:)``, that of the underlying error; otherwise permanent.
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
    /// A text for people, without anything secret.
    public var errorDescription: String? {
        switch self {
        case .refused(let refusal):
            ErrorText.ended("The sign-in server refused (\(refusal.code))" + (refusal.words.map { ": \($0)" } ?? ""))
        case .unavailable(let status, let time):
            "The sign-in server cannot answer now (status \(status.code))."
                + (time.map { " It asks for a pause of \(ErrorText.time($0))." } ?? "")
        case .malformed(let status, let fault):
            "The sign-in server's answer, with status \(status.code), makes no sense: \(fault.words)."
        case .transport(let error): "The sign-in server could not be reached. \(error.sentence)"
        case .insecureEndpoint:
            "The address of the sign-in server is not safe: it has to begin with https, and to have no fragment."
        case .invalidParameter(let name): "The sign-in's \(name) cannot be sent."
        case .foreignRedirect(let fault): fault.words
        case .noRefreshToken: "The sign-in server gave no refresh token."
        }
    }

    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// The same as ``errorDescription``.
    public var debugDescription: String { self.description }
}

extension OAuthError {
    /// Why an authorization server refused: RFC 6749, sections 4.1.2.1 and 5.2.
    ///
    /// An open set: `OAuthError.Code(rawValue: "interaction_required")` is a code, too.
    public struct Code: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
        /// The code as it was sent.
        public let rawValue: String

        /// The code of this name; `nil` if it is empty or has a character that codes may not have.
        public init?(rawValue: String) {
            let isInOrder = rawValue.utf8.allSatisfy { (0x20...0x7e).contains($0) && $0 != 0x22 && $0 != 0x5c }
            guard !rawValue.isEmpty, rawValue.utf8.count <= 256, isInOrder else { return nil }
            self.rawValue = rawValue
        }

        private init(known code: String) { self.rawValue = code }

        /// A parameter is missing, invalid or there twice.
        public static let invalidRequest = Self(known: "invalid_request")
        /// The client is unknown, or its authentication failed.
        public static let invalidClient = Self(known: "invalid_client")
        /// The code or the refresh token is no longer valid, which ends a session.
        public static let invalidGrant = Self(known: "invalid_grant")
        /// The client may not do this.
        public static let unauthorizedClient = Self(known: "unauthorized_client")
        /// The server does not support the type of the grant.
        public static let unsupportedGrantType = Self(known: "unsupported_grant_type")
        /// The scope is unknown, or exceeds what was granted.
        public static let invalidScope = Self(known: "invalid_scope")
        /// The person, or the server, refused.
        public static let accessDenied = Self(known: "access_denied")
        /// The server does not support the type of the answer.
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
