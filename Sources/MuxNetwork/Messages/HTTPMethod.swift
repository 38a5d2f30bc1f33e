/// The method of a request (RFC 9110, section 9).
///
/// The set is open: `HTTPMethod(rawValue: "PURGE")` is a method, too. Names are case-sensitive.
public struct HTTPMethod: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The method's name, such as `GET`.
    public let rawValue: String

    /// Makes a method; `nil` if the name is not a token (RFC 9110, section 9.1).
    public init?(rawValue: String) {
        guard HTTPGrammar.isToken(rawValue) else { return nil }
        self.rawValue = rawValue
    }

    private init(known name: String) { self.rawValue = name }

    /// Transfers the current state of a resource.
    public static let get = Self(known: "GET")
    /// The same as ``get``, without the body.
    public static let head = Self(known: "HEAD")
    /// Lets the resource process the body.
    public static let post = Self(known: "POST")
    /// Replaces the resource with the body.
    public static let put = Self(known: "PUT")
    /// Changes the resource as described by the body: RFC 5789.
    public static let patch = Self(known: "PATCH")
    /// Removes the resource.
    public static let delete = Self(known: "DELETE")
    /// Requests the communication options of the resource, such as the supported methods.
    public static let options = Self(known: "OPTIONS")
    /// Requests a copy of the request as received by the server.
    public static let trace = Self(known: "TRACE")
    /// Requests a tunnel from a proxy.
    public static let connect = Self(known: "CONNECT")

    private static let safe: Set<Self> = [.get, .head, .options, .trace]
    private static let bodiless: Set<Self> = [.get, .head, .trace, .connect]

    /// Whether the method only reads (RFC 9110, section 9.2.1); `false` for an unknown method.
    public var isSafe: Bool { Self.safe.contains(self) }

    /// Whether a repetition of the request has no further effect (RFC 9110, section 9.2.2).
    ///
    /// `false` for an unknown method.
    public var isIdempotent: Bool { self.isSafe || self == .put || self == .delete }

    /// Whether an ``HTTPRequest`` with this method may have a body; `false` for GET, HEAD, TRACE and CONNECT.
    public var allowsBody: Bool { !Self.bodiless.contains(self) }

    /// The method's name.
    public var description: String { self.rawValue }
}

extension HTTPMethod: ExpressibleByStringLiteral {
    /// Makes a method from a literal, for constants: `static let purge: HTTPMethod = "PURGE"`.
    ///
    /// If the literal is not a token, sending a request throws
    /// ``HTTPError/PreparationFailure/invalidMethod``.
    public init(stringLiteral name: String) { self.rawValue = name }
}
