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
/// ``url(path:query:)`` validates the endpoint.
public struct HTTPEndpoint: Sendable, Hashable {
    /// The scheme.
    public var scheme: HTTPHost.Scheme

    /// The server.
    public var host: HTTPHost

    /// The path, which may have placeholders.
    public var path: HTTPPath

    /// The fixed query parameters, which precede the parameters of a request.
    public var query: HTTPQuery

    /// Makes an endpoint.
    ///
    /// - Parameters:
    ///   - scheme: The scheme, ignored with the host ``HTTPHost/base``.
    ///   - host: The server; by default the server of ``HTTPClient/baseURL``. The path and the query of the
    ///     base URL then precede `path` and `query`.
    ///   - path: The path, which may have placeholders.
    ///   - query: The fixed query parameters, which precede the parameters of a request.
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

    /// Makes an endpoint from a URL, for example as a base: `try HTTPEndpoint(url).appending("/users/{id}")`.
    ///
    /// ``url(path:query:)`` keeps the path and the query byte for byte, but throws for a path with a dot
    /// segment. An empty path becomes `/`. The fragment and the question mark of an empty query are removed.
    ///
    /// - Throws: ``HTTPError/PreparationFailure`` if `url` is not an absolute `http` or `https` URL, contains
    ///   user information, or has an invalid host or port.
    public init(_ url: URL) throws(HTTPError.PreparationFailure) {
        guard let scheme = url.scheme.flatMap({ HTTPHost.Scheme(rawValue: $0) }), scheme.defaultPort != nil,
            let host = HTTPHost(url)
        else { throw .failure(of: url) }
        guard url.user() == nil, url.password() == nil else { throw .userInfo }
        self.scheme = scheme
        self.host = host
        self.path = HTTPPath(encoded: url.path(percentEncoded: true))
        self.query = url.query(percentEncoded: true).map { HTTPQuery(keeping: $0) } ?? []
        _ = try self.host.authority()
    }

    /// Returns this endpoint with a longer path and further query parameters.
    ///
    /// - Parameters:
    ///   - path: The suffix of the path.
    ///   - query: The parameters to append to the parameters of this endpoint.
    /// - Returns: The longer endpoint.
    public func appending(_ path: HTTPPath, query: HTTPQuery = []) -> HTTPEndpoint {
        var place = self
        place.path = self.path.appending(path)
        place.query = self.query + query
        return place
    }

    /// Builds the URL.
    ///
    /// - Parameters:
    ///   - values: A value for each placeholder of the path, and no other values. Each value becomes a
    ///     segment or a part of a segment.
    ///   - query: The parameters to append to the parameters of the endpoint.
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

// Not `CustomStringConvertible`, so an endpoint cannot be interpolated into a path.
extension HTTPEndpoint: CustomDebugStringConvertible, CustomReflectable {
    /// A mirror with only ``debugDescription``.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.debugDescription]) }

    /// The scheme, the host, the path without values, and the names of the parameters with a value:
    /// `https://api.domain.com/users/{id}?key=…`.
    ///
    /// `…` replaces the name of a parameter without a value, because such a name may be a secret. With the
    /// host ``HTTPHost/base``, the text has neither scheme nor host.
    public var debugDescription: String {
        let names = self.query.items.map { $0.value == nil ? "…" : "\($0.name)=…" }.joined(separator: "&")
        let server = self.host == .base ? "" : "\(self.scheme)://\(self.host)"
        return "\(server)\(self.path)" + (names.isEmpty ? "" : "?\(names)")
    }
}
