public import Foundation
import MuxKit

extension HTTPError {
    /// The reason why a request could not be sent.
    ///
    /// A description contains names, such as the name of a placeholder or a header field, but no values. The
    /// description of ``encoding(_:)`` also contains a sentence about the underlying error.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum PreparationFailure: Error, Sendable {
        /// The scheme is neither `http` nor `https`.
        case unsupportedScheme(HTTPHost.Scheme)

        /// The URL has no scheme, for example because the URL is relative.
        case missingScheme

        /// The URL has no host, or the endpoint has neither a host nor a base URL.
        case missingHost

        /// The host is neither a valid name in ASCII nor an address.
        case invalidHost

        /// The URL or the host contains user information: a name before the host, with or without a password
        /// (RFC 3986, section 3.2.1).
        case userInfo

        /// The port is not a number from 1 to 65535, or has a leading zero.
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

        /// The transport does not support the option with this name; `libcurl` stands for an internal option.
        case unsupportedOption(name: String)

        /// The request has a body, but the method does not allow a body.
        case bodyNotAllowed(HTTPMethod)

        /// The boundary of a multipart body violates RFC 2046, section 5.1.1, or contains a space.
        case invalidBoundary

        /// The boundary of a multipart body occurs in the header fields or the data of a part.
        case boundaryInData

        /// The encoder of the body, or a streamed body, failed with this error.
        case encoding(any Error)
    }
}

extension HTTPError.PreparationFailure {
    /// The failure for a URL without a valid host or a supported scheme.
    static func failure(of url: URL) -> HTTPError.PreparationFailure {
        guard let text = url.scheme else { return .missingScheme }
        guard let scheme = HTTPHost.Scheme(rawValue: text) else { return .invalidURL }
        guard scheme.defaultPort != nil else { return .unsupportedScheme(scheme) }
        return url.host()?.isEmpty ?? true ? .missingHost : .invalidURL
    }
}

extension HTTPError.PreparationFailure: LocalizedError, RedactedDescription {
    /// A text for users; see ``HTTPError/PreparationFailure`` for the contents.
    public var errorDescription: String? { self.description }

    /// A text for users; see ``HTTPError/PreparationFailure`` for the contents.
    public var description: String {
        switch self {
        case .unsupportedScheme(let scheme): "The scheme of the URL is \(scheme); only http and https are supported."
        case .missingScheme:
            "The URL of the request has no scheme. A URL begins with https:// and the name of a host."
        case .missingHost: "The URL of the request has no host."
        case .invalidHost: "The host of the request is not valid."
        case .userInfo:
            "The URL of the request contains user information. Send user names and passwords in a header field."
        case .invalidPort: "The port of the request is not valid."
        case .pathWithoutSlash: "The path of the request does not begin with a slash."
        case .emptyPathSegment: "A segment of the path of the request is empty."
        case .dotPathSegment: "The path of the request has a dot segment (“.” or “..”)."
        case .missingPathValue(let name): "The placeholder \(ErrorText.quoted(name)) of the path has no value."
        case .unusedPathValue(let name): "The path of the request has no placeholder \(ErrorText.quoted(name))."
        case .malformedPlaceholder: "The path of the request has a placeholder without a name or a closing brace."
        case .invalidURL: "The URL of the request is not valid."
        case .invalidMethod: "The method of the request is not valid."
        case .invalidHeader(let name):
            "The header field \(ErrorText.quoted(name)) has an invalid character in the name or the value."
        case .framingHeader(let name):
            "The request must not set the header field \(ErrorText.quoted(name)); the transport sets the field."
        case .unsupportedOption(let name): "The transport does not support the option \(name)."
        case .bodyNotAllowed(let method): "A \(method) request must not have a body."
        case .invalidBoundary: "The boundary of the multipart body is not valid."
        case .boundaryInData: "The boundary of the multipart body occurs in the data of a part."
        case .encoding(let error): ErrorText.joined("The body of the request could not be encoded.", error)
        }
    }
}
