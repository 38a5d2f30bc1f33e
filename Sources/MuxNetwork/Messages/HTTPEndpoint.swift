public import Foundation

/// The target of a request: scheme, host, path, and fixed query parameters.
///
/// ```swift
/// extension HTTPEndpoint {
///     static let user = HTTPEndpoint(scheme: .https, host: "api.domain.com", path: "/users/{id}")
/// }
/// let url = try HTTPEndpoint.user.url(path: ["id": "42"], query: ["fields": "name"])
/// // https://api.domain.com/users/42?fields=name
/// ```
///
/// The building of the URL validates the end point.
public struct HTTPEndpoint: Sendable, Hashable {
    /// The scheme.
    public var scheme: HTTPHost.Scheme

    /// The server.
    public var host: HTTPHost

    /// The path, which may have placeholders.
    public var path: HTTPPath

    /// The query parameters before the parameters of a request.
    public var query: HTTPQuery

    /// Makes an end point.
    ///
    /// - Parameters:
    ///   - scheme: The scheme, ignored with the host ``HTTPHost/base``.
    ///   - host: The server; by default the server of ``HTTPClient/Configuration/baseURL``, whose path
    ///     precedes `path`.
    ///   - path: The path, which may have placeholders.
    ///   - query: The query parameters before the parameters of a request.
    public init(
        scheme: HTTPHost.Scheme = .https,
        host: HTTPHost = .base,
        path: HTTPPath = "/",
        query: HTTPQuery = []
    ) {
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query
    }

    /// Makes the end point of a URL, as a base for others: `try HTTPEndpoint(url).appending("/users/{id}")`.
    ///
    /// `url()` returns the path and the query byte for byte, without a fragment, and without the question
    /// mark of an empty query.
    ///
    /// - Throws: ``HTTPError/PreparationFailure`` if `url` is not an absolute `http` or `https` URL, or
    ///   contains user information.
    public init(_ url: URL) throws(HTTPError.PreparationFailure) {
        guard let scheme = url.scheme.flatMap({ HTTPHost.Scheme(rawValue: $0) }), scheme.defaultPort != nil,
            let host = HTTPHost(url)
        else { throw .flaw(of: url) }
        guard url.user() == nil, url.password() == nil else { throw .userInfo }
        self.scheme = scheme
        self.host = host
        self.path = HTTPPath(encoded: url.path(percentEncoded: true))
        self.query = url.query(percentEncoded: true).map { HTTPQuery(keeping: $0) } ?? []
        _ = try self.host.authority()
    }

    /// Returns an end point below this end point.
    ///
    /// - Parameters:
    ///   - path: The suffix of the path.
    ///   - query: The parameters after the parameters of this end point.
    /// - Returns: The end point.
    public func appending(_ path: HTTPPath, query: HTTPQuery = []) -> HTTPEndpoint {
        var place = self
        place.path = self.path.appending(path)
        place.query = self.query + query
        return place
    }

    /// Builds the URL.
    ///
    /// - Parameters:
    ///   - values: The values of the path's placeholders, without further values; each value becomes a
    ///     segment or a part of a segment.
    ///   - query: The parameters after the parameters of the end point.
    /// - Returns: The URL, percent-encoded.
    /// - Throws: ``HTTPError/PreparationFailure``.
    public func url(path values: [String: String] = [:], query: HTTPQuery = []) throws(HTTPError.PreparationFailure)
        -> URL
    {
        guard self.scheme.defaultPort != nil else { throw .unsupportedScheme(self.scheme) }
        var text = "\(self.scheme.rawValue)://\(try self.host.authority())\(try self.path.encoded(values))"
        let parameters = (self.query + query).encoded
        if !parameters.isEmpty { text += "?\(parameters)" }
        // All parts are encoded: if the URL differs from the text, Foundation has changed the target.
        guard let url = URL(string: text), url.absoluteString == text, HTTPOrigin(url) != nil else {
            throw .invalidURL
        }
        return url
    }
}

// Not `CustomStringConvertible`, so an end point cannot be a value in a path.
extension HTTPEndpoint: CustomDebugStringConvertible, CustomReflectable {
    /// A mirror with only ``debugDescription``.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.debugDescription]) }

    /// The scheme, the host, the path without values, and the names of the parameters:
    /// `https://api.domain.com/users/{id}?key=…`.
    public var debugDescription: String {
        let names = self.query.items.map { $0.value == nil ? "…" : "\($0.name)=…" }.joined(separator: "&")
        return "\(self.scheme)://\(self.host)\(self.path)" + (names.isEmpty ? "" : "?\(names)")
    }
}
