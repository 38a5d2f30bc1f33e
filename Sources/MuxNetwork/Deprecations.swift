// swift-format-ignore-file: AlwaysUseLowerCamelCase
// Names from Moose and similar layers. A declaration with the same name in a client's module takes
// precedence. Common names, such as `NetworkManager` and `ObjectMapper`, are not declared here and stay free
// for clients.

extension HTTPMethod {
    /// Moose's spelling of ``get``.
    @available(*, deprecated, renamed: "get")
    public static var GET: HTTPMethod { .get }

    /// Moose's spelling of ``head``.
    @available(*, deprecated, renamed: "head")
    public static var HEAD: HTTPMethod { .head }

    /// Moose's spelling of ``post``.
    @available(*, deprecated, renamed: "post")
    public static var POST: HTTPMethod { .post }

    /// Moose's spelling of ``put``.
    @available(*, deprecated, renamed: "put")
    public static var PUT: HTTPMethod { .put }

    /// Moose's spelling of ``patch``.
    @available(*, deprecated, renamed: "patch")
    public static var PATCH: HTTPMethod { .patch }

    /// Moose's spelling of ``delete``.
    @available(*, deprecated, renamed: "delete")
    public static var DELETE: HTTPMethod { .delete }

    /// Moose's spelling of ``options``.
    @available(*, deprecated, renamed: "options")
    public static var OPTIONS: HTTPMethod { .options }
}

extension HTTPHost {
    /// Moose's spelling of ``HTTPHost/init(_:)``.
    @available(*, deprecated, renamed: "init(_:)")
    public static func specific(_ text: String) -> HTTPHost { HTTPHost(text) }
}

/// Moose's name of ``HTTPHeaders/Name``.
@available(*, deprecated, renamed: "HTTPHeaders.Name")
public typealias HTTPHeaderKey = HTTPHeaders.Name

/// Moose's name of ``HTTPMediaType``.
@available(*, deprecated, renamed: "HTTPMediaType")
public typealias HTTPMimeType = HTTPMediaType

/// Moose's name of ``HTTPStatus``.
@available(*, deprecated, renamed: "HTTPStatus")
public typealias HTTPStatusCode = HTTPStatus

/// Moose's name of ``HTTPMultipart``.
@available(*, deprecated, renamed: "HTTPMultipart")
public typealias HTTPMultipartData = HTTPMultipart

/// Moose's name of ``HTTPToken``.
@available(*, deprecated, renamed: "HTTPToken")
public typealias TokenRepresentable = HTTPToken

/// Moose's name of ``HTTPAuthenticator``.
@available(*, deprecated, renamed: "HTTPAuthenticator")
public typealias NetworkAuthentificator = HTTPAuthenticator

/// Moose's name of ``HTTPClient/Configuration``.
@available(*, deprecated, renamed: "HTTPClient.Configuration")
public typealias NetworkSessionConfiguration = HTTPClient.Configuration

/// Moose's name of ``HTTPError``.
@available(*, deprecated, renamed: "HTTPError")
public typealias NetworkSessionFailure = HTTPError
