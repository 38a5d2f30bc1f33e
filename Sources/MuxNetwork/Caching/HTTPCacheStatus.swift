/// What a cache did with a request: one member of the field `Cache-Status`, RFC 9211.
///
/// ```swift
/// if response.cacheStatus?.isHit == true { … }
/// ```
public struct HTTPCacheStatus: Sendable, Hashable, CustomStringConvertible {
    /// Why a request went on to the server: RFC 9211, section 2.2.
    ///
    /// An open set.
    public struct Forward: RawRepresentable, Sendable, Hashable {
        /// The reason as the field says it.
        public let rawValue: String

        /// The reason of this name.
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The request is none that the cache handles.
        public static let bypass = Self(rawValue: "bypass")
        /// The method requires it.
        public static let method = Self(rawValue: "method")
        /// Nothing is stored for the URL.
        public static let uriMiss = Self(rawValue: "uri-miss")
        /// What is stored for the URL is for requests with other header fields (`Vary`).
        public static let varyMiss = Self(rawValue: "vary-miss")
        /// The request asks for it.
        public static let request = Self(rawValue: "request")
        /// What is stored is stale.
        public static let stale = Self(rawValue: "stale")
        /// What is stored is a part that does not suffice.
        public static let partial = Self(rawValue: "partial")
    }

    /// The name of the cache; that of this library is ``ownName``.
    public var cache: String

    /// Whether the answer came from the cache, without a request to the server.
    public var isHit = false

    /// Why the request went on to the server; `nil` for a hit.
    public var forward: Forward?

    /// The status with which the server answered, where it is another than that of the answer, such as 304.
    public var forwardStatus: Int?

    /// Whether the server's answer is stored, if its body arrives whole and is not too long.
    public var isStored = false

    /// Whether the request was answered with what another one fetched at the same time.
    public var isCollapsed = false

    /// How long the answer stays fresh; negative once it is stale.
    public var timeToLive: Duration?

    /// What else the cache says.
    public var detail: String?

    /// The name of this library's cache.
    public static let ownName = "MuxKit"

    init(forward: Forward? = nil) {
        self.cache = Self.ownName
        self.forward = forward
        self.isHit = forward == nil
    }

    /// Reads one member of the field; `nil` if it names no cache.
    ///
    /// Parameters that are not known, or have values that are not valid, are left out.
    public init?(_ text: String) {
        // As an argument, so that a quoted name is read as any quoted text.
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

    /// The member as it stands in the field: RFC 9211, section 2.
    public var description: String {
        var text = HTTPGrammar.quotedIfNeeded(self.cache)
        if self.isHit { text += "; hit" }
        if let forward { text += "; fwd=\(HTTPGrammar.quotedIfNeeded(forward.rawValue))" }
        if let forwardStatus { text += "; fwd-status=\(forwardStatus)" }
        if self.isStored { text += "; stored" }
        if self.isCollapsed { text += "; collapsed" }
        if let timeToLive { text += "; ttl=\(timeToLive.components.seconds)" }
        if let detail { text += "; detail=\(HTTPGrammar.quotedIfNeeded(detail))" }
        return text
    }
}

extension HTTPHeaders {
    /// What the caches on the way did, that nearest to the server first: RFC 9211.
    public var cacheStatuses: [HTTPCacheStatus] {
        self.values(of: .cacheStatus).flatMap { HTTPDirective.elements(of: $0) }.compactMap { HTTPCacheStatus($0) }
    }
}

extension HTTPHeaders.Name {
    /// What the caches on the way did: RFC 9211.
    public static let cacheStatus: Self = "Cache-Status"
}

extension HTTPResponse {
    /// What the cache of this library did with the request; `nil` where the client's transport has none.
    ///
    /// For those of others on the way, see ``HTTPHeaders/cacheStatuses``.
    public var cacheStatus: HTTPCacheStatus? {
        self.headers.cacheStatuses.last { $0.cache == HTTPCacheStatus.ownName }
    }
}
