public import Foundation

#if canImport(FoundationNetworking)
public import FoundationNetworking
#endif

/// A query of Apollo 1.
public protocol GraphQLQuery: Sendable {
    /// The data.
    associatedtype Data: Sendable
}

/// An error in a response of a GraphQL server.
public struct GraphQLError: Error, Sendable {
    /// The text.
    public let message: String?

    /// Makes an error.
    public init(message: String?) { self.message = message }
}

/// A result of a query.
public struct GraphQLResult<Data: Sendable>: Sendable {
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
public protocol ApolloClientProtocol: AnyObject {
    /// Sends a query.
    func fetch<Query: GraphQLQuery>(
        query: Query,
        cachePolicy: CachePolicy,
        resultHandler: @escaping (Result<GraphQLResult<Query.Data>, any Error>) -> Void
    ) -> any Cancellable
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
