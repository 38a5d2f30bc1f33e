/// The used cases of the error of Alamofire 5.
public enum AFError: Error, Sendable {
    /// The request was cancelled by a call of `cancel`.
    case explicitlyCancelled
    /// The URL is invalid.
    case invalidURL
    /// The URL session failed.
    case sessionTaskFailed(error: any Error)
    /// The response failed validation.
    case responseValidationFailed(reason: ResponseValidationFailureReason)
    /// The response could not be decoded.
    case responseSerializationFailed(reason: ResponseSerializationFailureReason)

    /// The reason of a failed validation.
    public enum ResponseValidationFailureReason: Sendable {
        /// The status is not from 200 to 299.
        case unacceptableStatusCode(code: Int)
    }

    /// The reason of a failed serialization.
    public enum ResponseSerializationFailureReason: Sendable {
        /// The decoder failed.
        case decodingFailed(error: any Error)
    }

    /// The wrapped error.
    public var underlyingError: (any Error)? {
        switch self {
        case .sessionTaskFailed(let error): error
        case .responseSerializationFailed(.decodingFailed(let error)): error
        case .explicitlyCancelled, .invalidURL, .responseValidationFailed: nil
        }
    }

    /// The status of a failed validation.
    public var responseCode: Int? {
        guard case .responseValidationFailed(.unacceptableStatusCode(let code)) = self else { return nil }
        return code
    }
}
