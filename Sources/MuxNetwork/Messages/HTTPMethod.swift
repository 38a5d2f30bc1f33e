/// A request's method: RFC 9110, section 9.
///
/// An open set: `HTTPMethod(rawValue: "PURGE")` is a method, too. Names are case-sensitive.
public struct HTTPMethod: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The method's name, such as `GET`.
    public let rawValue: String

    /// The method of this name; `nil` if it is not a token (RFC 9110, section 9.1).
    public init?(rawValue: String) {
        guard HTTPGrammar.isToken(rawValue) else { return nil }
        self.rawValue = rawValue
    }

    private init(known name: String) { self.rawValue = name }

    /// Transfers the present state of a resource.
    public static let get = Self(known: "GET")
    /// The same as ``get``, without the body.
    public static let head = Self(known: "HEAD")
    /// Has the resource process the body.
    public static let post = Self(known: "POST")
    /// Replaces the resource with the body.
    public static let put = Self(known: "PUT")
    /// Changes the resource as described: RFC 5789.
    public static let patch = Self(known: "PATCH")
    /// Removes the resource.
    public static let delete = Self(known: "DELETE")
    /// Asks for the resource's methods.
    public static let options = Self(known: "OPTIONS")
    /// Returns the request as it arrived.
    public static let trace = Self(known: "TRACE")
    /// Asks a proxy for a tunnel.
    public static let connect = Self(known: "CONNECT")

    private static let safe: Set<Self> = [.get, .head, .options, .trace]
    private static let bodiless: Set<Self> = [.get, .head, .trace, .connect]

    /// Whether it only reads: RFC 9110, section 9.2.1; `false` for an unknown method.
    public var isSafe: Bool { Self.safe.contains(self) }

    /// Whether sending it again has no further effect: RFC 9110, section 9.2.2; `false` for an unknown method.
    public var isIdempotent: Bool { self.isSafe || self == .put || self == .delete }

    /// Whether a body has defined semantics.
    public var allowsBody: Bool { !Self.bodiless.contains(self) }

    /// The method's name.
    public var description: String { self.rawValue }
}

extension HTTPMethod: ExpressibleByStringLiteral {
    /// The method of this name, for constants: `static let purge: HTTPMethod = "PURGE"`.
    ///
    /// Sending a request with a literal that is not a token throws ``HTTPError/PreparationFailure/invalidMethod``.
    public init(stringLiteral name: String) { self.rawValue = name }
}
