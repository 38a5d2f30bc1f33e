public import ApolloAPI
public import Foundation

#if canImport(FoundationNetworking)
public import FoundationNetworking
#endif

/// An error in a response of a GraphQL server.
public struct GraphQLError: Error, Sendable {
    /// The text.
    public let message: String?

    /// Makes an error.
    public init(message: String?) { self.message = message }
}

/// A result of a query.
public struct GraphQLResult<Data> {
    /// The data.
    public let data: Data?
    /// The errors of the server.
    public let errors: [GraphQLError]?

    /// Makes a result.
    public init(data: Data?, errors: [GraphQLError]?) { (self.data, self.errors) = (data, errors) }
}

/// The used policy of Apollo 1.
public enum CachePolicy: Sendable {
    /// Apollo's own cache is not used.
    case fetchIgnoringCacheCompletely
}

/// A running query.
public protocol Cancellable: AnyObject {
    /// Cancels the query.
    func cancel()
}

/// The client of Apollo 1.
open class ApolloClient {
    /// Makes a client.
    public init() {}

    /// Sends a query.
    @discardableResult
    open func fetch<Query: GraphQLQuery>(
        query: Query,
        cachePolicy: CachePolicy = .fetchIgnoringCacheCompletely,
        contextIdentifier: UUID? = nil,
        queue: DispatchQueue = .main,
        resultHandler: ((Result<GraphQLResult<Query.Data>, any Error>) -> Void)? = nil
    ) -> any Cancellable {
        preconditionFailure("A test overrides the method.")
    }
}

/// The URL session client of Apollo 1.
public enum URLSessionClient {
    /// The used cases of its error.
    public enum URLSessionClientError: Error {
        /// The URL session failed.
        case networkError(data: Data, response: HTTPURLResponse?, underlying: any Error)
        /// The client was invalidated.
        case sessionInvalidated
    }
}

/// The interceptor of Apollo 1 that checks the status.
public enum ResponseCodeInterceptor {
    /// The error of the interceptor.
    public enum ResponseCodeError: Error {
        /// The status is not from 200 to 299.
        case invalidResponseCode(response: HTTPURLResponse?, rawData: Data?)
    }
}
