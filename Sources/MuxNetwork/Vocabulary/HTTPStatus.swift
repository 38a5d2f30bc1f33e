/// A status code: RFC 9110, section 15.
///
/// Total: whatever number a server sends is one.
///
/// ```swift
/// if response.status == .notFound { … }
/// if response.status.kind == .serverError { … }
/// ```
public struct HTTPStatus: RawRepresentable, Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The classes of status codes, by their first digits.
    public enum Kind: Sendable, Hashable {
        /// 1xx: there is more to come.
        case informational

        /// 2xx: it was done.
        case success

        /// 3xx: there is more to do elsewhere.
        case redirection

        /// 4xx: the request was at fault.
        case clientError

        /// 5xx: the server was at fault.
        case serverError

        /// Any other number, which no standard knows.
        case unknown
    }

    /// The number.
    public let rawValue: Int

    /// The status of this number.
    public init(rawValue: Int) { self.rawValue = rawValue }

    /// The status of this number.
    public init(_ code: Int) { self.rawValue = code }

    /// The number.
    public var code: Int { self.rawValue }

    /// The class that the number belongs to.
    public var kind: Kind {
        switch self.rawValue {
        case 100...199: .informational
        case 200...299: .success
        case 300...399: .redirection
        case 400...499: .clientError
        case 500...599: .serverError
        default: .unknown
        }
    }

    /// What the number means in a few words of English; `nil` if the registry of IANA does not know it.
    public var phrase: String? { Self.phrases[self.rawValue] }

    /// Whether the first number is smaller.
    public static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }

    /// Number and phrase, such as "404 Not Found".
    public var description: String { self.phrase.map { "\(self.rawValue) \($0)" } ?? "\(self.rawValue)" }
}

extension HTTPStatus: ExpressibleByIntegerLiteral {
    /// The status of this number.
    public init(integerLiteral code: Int) { self.rawValue = code }
}
