public import Foundation
public import MuxKit

/// What a client shows to a server to be let in.
///
/// `String` is one, shown as a bearer token; so are ``HTTPCredentials`` and ``JSONWebToken``. A type of one's own says
/// which fields it becomes:
///
/// ```swift
/// struct Key: HTTPToken {
///     var key: String
///     var headers: HTTPHeaders { ["X-Api-Key": self.key] }
/// }
/// ```
public protocol HTTPToken: PerishableDependency {
    /// The header fields that show it; they stay behind when a redirection leads to another scheme, host or port.
    var headers: HTTPHeaders { get }

    /// When it ends; `nil`, the default, if it does not say. A runner renews it before that.
    var expiry: Date? { get }
}

extension HTTPToken {
    /// It does not say.
    public var expiry: Date? { nil }
}

extension String: HTTPToken {
    /// The text as a bearer token: RFC 6750, section 2.1.
    public var headers: HTTPHeaders { HTTPCredentials.bearer(self).headers }
}

extension HTTPCredentials: HTTPToken {
    /// The `Authorization` field: RFC 9110, section 11.6.2.
    public var headers: HTTPHeaders { [.authorization: self.headerValue] }
}
