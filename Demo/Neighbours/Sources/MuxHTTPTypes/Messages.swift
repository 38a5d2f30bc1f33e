public import Foundation
public import HTTPTypes
public import MuxNetwork

extension HTTPTypes.HTTPRequest {
    /// Makes a request of swift-http-types from a call.
    ///
    /// The fragment of the URL is not kept, and neither are the body, the time limits and the template of the
    /// path, because the type has no place for them.
    ///
    /// - Parameter call: The call.
    /// - Throws: ``HTTPConversionError`` for a method that is not a token, for a URL that is not an absolute
    ///   URL with a host, for a URL with user information, and for a field: see
    ///   ``HTTPTypes/HTTPFields/init(_:credentials:)``.
    public init(_ call: HTTPCall) throws(HTTPConversionError) {
        guard let method = Method(call.method) else { throw .invalidMethod }
        let url = call.url.absoluteURL
        // The initializer of swift-http-types traps at a URL without a scheme, and ignores the user.
        guard let scheme = url.scheme, !scheme.isEmpty, let host = url.host(), !host.isEmpty else { throw .invalidURL }
        guard url.user() == nil, url.password() == nil else { throw .userInformation }
        let fields = try HTTPFields(call.headers, credentials: call.credentialHeaders)
        self.init(method: method, url: url, headerFields: fields)
    }
}

extension HTTPCall {
    /// Makes a call from a request of swift-http-types.
    ///
    /// The result contains all fields of the request. The library sends no call with a framing field, such as
    /// `Content-Length` (`HTTPHeaders.Name.framing`). Fields that header compression must not index
    /// (`.disallow`) count as credentials: see `HTTPCall.credentialHeaders`.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - body: The body; `nil` without a body.
    /// - Throws: ``HTTPConversionError`` for a request whose scheme, authority and path are not exactly the
    ///   parts of a URL, such as a path without a slash, a path with a `#` or an illegal character, and an
    ///   authority with user information; for `OPTIONS *` and `CONNECT`.
    public init(_ request: HTTPTypes.HTTPRequest, body: HTTPCall.Body? = nil) throws(HTTPConversionError) {
        guard let scheme = request.scheme, let authority = request.authority, let path = request.path else {
            throw .invalidURL
        }
        guard !authority.contains("@") else { throw .userInformation }
        // Without these conditions, a part of the path could become a part of the host.
        guard request.method != .connect, !scheme.isEmpty, path.hasPrefix("/"), !path.contains("#"), !authority.isEmpty,
            !authority.contains(where: { "/?#\\".contains($0) }), let url = request.url,
            url.absoluteString == "\(scheme)://\(authority)\(path)"
        else { throw .invalidURL }
        self.init(method: request.method.rawValue, url: url, headers: HTTPHeaders(request.headerFields), body: body)
        for field in request.headerFields where field.indexingStrategy == .disallow {
            self.credentialHeaders.insert(field.name.rawName)
        }
    }
}

extension HTTPTypes.HTTPResponse {
    /// Makes a response of swift-http-types from a transport's reply, without the body and the trailers.
    ///
    /// The reason phrase is empty: the library does not keep the phrase.
    ///
    /// - Parameter reply: The reply.
    /// - Throws: ``HTTPConversionError`` for a status outside of 0 to 999, and for a field: see
    ///   ``HTTPTypes/HTTPFields/init(_:credentials:)``.
    public init(_ reply: HTTPReply) throws(HTTPConversionError) {
        guard (0...999).contains(reply.status) else { throw .invalidStatus(reply.status) }
        self.init(status: Status(code: reply.status), headerFields: try HTTPFields(reply.headers))
    }
}

extension HTTPReply {
    /// Makes a reply from a response of swift-http-types, without the reason phrase.
    ///
    /// - Parameters:
    ///   - response: The response.
    ///   - body: The body, decoded from the content codings of the response.
    ///   - trailers: The trailer fields.
    ///   - url: The URL of the response.
    public init(
        _ response: HTTPTypes.HTTPResponse,
        body: Data = Data(),
        trailers: HTTPFields = [:],
        url: URL? = nil
    ) {
        self.init(
            status: response.status.code,
            headers: HTTPHeaders(response.headerFields),
            body: body,
            trailers: HTTPHeaders(trailers),
            url: url
        )
    }
}
