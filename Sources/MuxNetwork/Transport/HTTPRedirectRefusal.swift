/// Why a redirection was not followed.
@nonexhaustive
public enum HTTPRedirectRefusal: Sendable, Hashable, CustomStringConvertible {
    /// It leads from `https` to something that is not.
    case insecure

    /// It leads to something that is neither `http` nor `https`.
    case unknownScheme

    /// It would carry the request's body to another scheme, host or port.
    case carriesBody

    /// It is one more than this limit.
    case tooMany(limit: Int)

    /// The reason as the end of a sentence.
    public var description: String {
        switch self {
        case .insecure: "it leads from a secure to an insecure place"
        case .unknownScheme: "it leads to something that is not the web"
        case .carriesBody: "it would carry the body to another server"
        case .tooMany(let limit): "there were more than \(limit)"
        }
    }
}
