public import Foundation

/// A request of Moya 15.
public protocol TargetType: Sendable {
    /// The path.
    var path: String { get }
}

/// A response of Moya 15.
public final class Response: Sendable {
    /// The status.
    public let statusCode: Int
    /// The body.
    public let data: Data

    /// Makes a response.
    public init(statusCode: Int, data: Data) { (self.statusCode, self.data) = (statusCode, data) }

    /// The response, if its status is from 200 to 299.
    public func filterSuccessfulStatusCodes() throws -> Response {
        guard (200...299).contains(self.statusCode) else { throw MoyaError.statusCode(self) }
        return self
    }

    /// The decoded body.
    public func map<Value: Decodable>(_ type: Value.Type) throws -> Value {
        do { return try JSONDecoder().decode(type, from: self.data) } catch {
            throw MoyaError.objectMapping(error, self)
        }
    }
}

/// The used cases of the error of Moya 15.
public enum MoyaError: Error {
    /// The status is not from 200 to 299.
    case statusCode(Response)
    /// The body could not be decoded.
    case objectMapping(any Error, Response)
    /// Another failure.
    case underlying(any Error, Response?)

    /// The response.
    public var response: Response? {
        switch self {
        case .statusCode(let response), .objectMapping(_, let response): response
        case .underlying(_, let response): response
        }
    }
}

extension MoyaError: CustomNSError {
    /// The wrapped error.
    public var errorUserInfo: [String: Any] {
        switch self {
        case .underlying(let error, _), .objectMapping(let error, _): [NSUnderlyingErrorKey: error]
        case .statusCode: [:]
        }
    }
}

/// A running request.
public protocol Cancellable {
    /// Cancels the request.
    func cancel()
}

/// The client of Moya 15.
open class MoyaProvider<Target: TargetType> {
    /// Makes a client.
    public init() {}

    /// Sends a request.
    @discardableResult
    open func request(
        _ target: Target,
        callbackQueue: DispatchQueue? = .none,
        progress: ((Double) -> Void)? = .none,
        completion: @escaping (Result<Response, MoyaError>) -> Void
    ) -> any Cancellable {
        preconditionFailure("A test overrides the request.")
    }
}
