/// The error of Get 2.
public enum APIError: Error {
    /// The status is not from 200 to 299.
    case unacceptableStatusCode(Int)
}
