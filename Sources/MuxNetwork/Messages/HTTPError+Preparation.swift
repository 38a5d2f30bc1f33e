public import Foundation
import MuxKit

extension HTTPError {
    /// The reason of an invalid request.
    ///
    /// Descriptions contain names of placeholders and header fields, without values.
    @nonexhaustive
    public enum PreparationFailure: Error, Sendable {
        /// The scheme is neither `http` nor `https`.
        case unsupportedScheme(HTTPHost.Scheme)

        /// The URL is relative, or has no scheme for another reason.
        case missingScheme

        /// The URL has no host.
        case missingHost

        /// The host is neither a name in ASCII nor an address, or includes other parts of a URL.
        case invalidHost

        /// The URL contains user information: a name before the host, with or without a password (RFC 3986,
        /// section 3.2.1).
        case userInfo

        /// The port is not a number from 1 to 65535.
        case invalidPort

        /// The path does not begin with a slash.
        case pathWithoutSlash

        /// A segment of the path is empty, possibly because of an empty value.
        case emptyPathSegment

        /// A segment of the path is `.` or `..`.
        case dotPathSegment

        /// The path has a placeholder with this name, without a value.
        case missingPathValue(name: String)

        /// A value has this name, but the path has no placeholder with the name.
        case unusedPathValue(name: String)

        /// The path has a placeholder without a name or a closing brace.
        case malformedPlaceholder

        /// The parts do not form a valid URL.
        case invalidURL

        /// The method is not a token.
        case invalidMethod

        /// The name of a header field is not a token, or the value contains a line break or another control
        /// character.
        case invalidHeader(name: String)

        /// Only the transport may set the header field with this name; see ``HTTPHeaders/Name/framing``.
        case framingHeader(name: String)

        /// The transport does not support the option with this name.
        case unsupportedOption(name: String)

        /// The request has a body, but the method does not allow a body.
        case bodyNotAllowed(HTTPMethod)

        /// The boundary of a multipart body is not valid: RFC 2046, section 5.1.1.
        case invalidBoundary

        /// The boundary of a multipart body occurs in its data.
        case boundaryInData

        /// The body could not be encoded.
        case encoding(any Error)
    }
}

extension HTTPError.PreparationFailure {
    /// The failure for a URL that is not absolute, or has no supported scheme.
    static func flaw(of url: URL) -> HTTPError.PreparationFailure {
        guard let text = url.scheme else { return .missingScheme }
        guard let scheme = HTTPHost.Scheme(rawValue: text) else { return .invalidURL }
        guard scheme.defaultPort != nil else { return .unsupportedScheme(scheme) }
        return url.host()?.isEmpty ?? true ? .missingHost : .invalidURL
    }
}

extension HTTPError.PreparationFailure: LocalizedError, RedactedDescription {
    /// A text for users, without secrets.
    public var errorDescription: String? { self.description }

    /// A text for users, without secrets.
    public var description: String {
        switch self {
        case .unsupportedScheme(let scheme): "Only http and https can be requested, not \(scheme)."
        case .missingScheme:
            "The address of the request has no scheme: it has to begin with https:// and the name of a host."
        case .missingHost: "The address of the request has no host."
        case .invalidHost: "The host of the request is not valid."
        case .userInfo:
            "The address of the request has the name of a user in it. Send names and passwords in a header field."
        case .invalidPort: "The port of the request is not valid."
        case .pathWithoutSlash: "The path of the request does not begin with a slash."
        case .emptyPathSegment: "A part of the request's path is empty."
        case .dotPathSegment: "The path of the request leads elsewhere."
        case .missingPathValue(let name): "The path of the request lacks a value for \(ErrorText.quoted(name))."
        case .unusedPathValue(let name):
            "The path of the request has no place for the value of \(ErrorText.quoted(name))."
        case .malformedPlaceholder: "The path of the request has a placeholder that does not end."
        case .invalidURL: "The address of the request is not valid."
        case .invalidMethod: "The method of the request is not valid."
        case .invalidHeader(let name):
            "The header field \(ErrorText.quoted(name)) has a character that cannot be sent, in its name or its value."
        case .framingHeader(let name):
            "The request must not set the header field \(ErrorText.quoted(name)); the transport does."
        case .unsupportedOption(let name): "The transport does not support the option \(name)."
        case .bodyNotAllowed(let method): "A \(method) request has no body."
        case .invalidBoundary: "The boundary of the request's parts is not valid."
        case .boundaryInData: "The boundary of the request's parts occurs in their data."
        case .encoding(let error): "The request could not be encoded. \(error.sentence)"
        }
    }
}
