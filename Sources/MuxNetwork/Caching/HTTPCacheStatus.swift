/// The handling of a request by a cache: one member of the field `Cache-Status`, RFC 9211.
///
/// ```swift
/// if response.cacheStatus?.isHit == true { … }
/// ```
public struct HTTPCacheStatus: Sendable, Hashable, CustomStringConvertible {
    /// The reason for forwarding a request to the server: RFC 9211, section 2.2.
    ///
    /// The set is open.
    public struct Forward: RawRepresentable, Sendable, Hashable {
        /// The reason as in the field.
        public let rawValue: String

        /// Makes a reason from its name in the field.
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The cache does not handle such requests.
        public static let bypass = Self(rawValue: "bypass")
        /// The request method requires a request to the server.
        public static let method = Self(rawValue: "method")
        /// No response is stored for the URL.
        public static let uriMiss = Self(rawValue: "uri-miss")
        /// The stored responses of the URL are for requests with other header fields (`Vary`).
        public static let varyMiss = Self(rawValue: "vary-miss")
        /// The request does not permit the stored response, such as with `Cache-Control: no-cache`.
        public static let request = Self(rawValue: "request")
        /// The stored response is stale.
        public static let stale = Self(rawValue: "stale")
        /// The stored response does not provide all requested bytes.
        public static let partial = Self(rawValue: "partial")
    }

    /// The name of the cache; ``ownName`` for this library's cache.
    public var cache: String

    /// Whether the response came from the cache, without forwarding the request to the server.
    public var isHit = false

    /// The reason why the request needed the server; `nil` if not given, as for a hit.
    ///
    /// A request with a reason is not always forwarded: see ``isCollapsed`` and the status 504 of
    /// `only-if-cached`.
    public var forward: Forward?

    /// The status of the server's response, such as 304; `nil` if not given, usually because this response
    /// has the same status.
    public var forwardStatus: Int?

    /// Whether the cache stores the server's response.
    ///
    /// A sink receives the head before the body. In this head, `true` means that the cache stores the
    /// response if the body arrives completely and is within the limits.
    public var isStored = false

    /// Whether the response came from an exchange of another request.
    public var isCollapsed = false

    /// The remaining lifetime of the response, zero or negative for a stale response; `nil` if not given.
    public var timeToLive: Duration?

    /// Additional information from the cache.
    public var detail: String?

    /// The name of this library's cache.
    public static let ownName = "MuxKit"

    init(forward: Forward? = nil) {
        self.cache = Self.ownName
        self.forward = forward
        self.isHit = forward == nil
    }

    /// Reads one member of the field; `nil` without the name of a cache.
    ///
    /// Unknown parameters, and parameters with invalid values, are ignored.
    public init?(_ text: String) {
        // The name of the cache is parsed as an argument, because the parser reads quoted text only in
        // arguments.
        let parts = HTTPDirective.list("name=\(text)", separatedBy: ";")
        guard let name = parts.first?.argument, !name.isEmpty else { return nil }
        self.cache = name
        for part in parts.dropFirst() {
            let isTrue = part.argument == nil || part.argument == "?1"
            switch part.name {
            case "hit": self.isHit = isTrue
            case "fwd": self.forward = part.argument.map { Forward(rawValue: $0) }
            case "fwd-status": self.forwardStatus = part.argument.flatMap { Int($0) }
            case "stored": self.isStored = isTrue
            case "collapsed": self.isCollapsed = isTrue
            case "ttl":
                self.timeToLive = part.argument.flatMap { Int64($0) }.map { .seconds($0) }
            case "detail": self.detail = part.argument
            default: break
            }
        }
    }

    /// The member as in the field: RFC 9211, section 2.
    public var description: String {
        var text = self.cache == Self.ownName ? Self.ownName : HTTPGrammar.quotedIfNeeded(self.cache)
        text.reserveCapacity(48)  // one allocation for the usual members
        if self.isHit { text += "; hit" }
        if let forward { text += "; fwd=\(HTTPGrammar.quotedIfNeeded(forward.rawValue))" }
        if let forwardStatus { text += "; fwd-status=\(forwardStatus)" }
        if self.isStored { text += "; stored" }
        if self.isCollapsed { text += "; collapsed" }
        if let timeToLive {
            text += "; ttl="
            text += String(timeToLive.components.seconds)
        }
        if let detail { text += "; detail=\(HTTPGrammar.quotedIfNeeded(detail))" }
        return text
    }
}

extension HTTPHeaders {
    /// The handling by all caches between server and client, starting with the cache nearest to the server:
    /// RFC 9211.
    public var cacheStatuses: [HTTPCacheStatus] {
        self.values(of: .cacheStatus).flatMap { HTTPDirective.elements(of: $0) }.compactMap { HTTPCacheStatus($0) }
    }
}

extension HTTPHeaders.Name {
    /// The handling of the request by caches: RFC 9211.
    public static let cacheStatus: Self = "Cache-Status"
}

extension HTTPResponse {
    /// The handling of the request by this library's cache; `nil` if no cache of this library handled the
    /// request.
    ///
    /// For other caches between server and client, see ``HTTPHeaders/cacheStatuses``.
    public var cacheStatus: HTTPCacheStatus? {
        self.headers.cacheStatuses.last { $0.cache == HTTPCacheStatus.ownName }
    }
}
