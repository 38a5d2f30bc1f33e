// Copy this file and ClientCall.swift into an app with Apollo 1.
//
//     nonisolated(unsafe) let client = ApolloClient(url: url)
//     let profile = Multiplexer<Profile>(cacheKey: "Profile") { try await client.value(of: ProfileQuery()) { Profile($0) } }

public import Apollo
import ApolloAPI
import Foundation
public import MuxKit

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

extension Apollo.URLSessionClient.URLSessionClientError: MuxKit.WrappingError {
    /// The error of the URL session.
    public nonisolated var wrappedError: (any Error)? {
        guard case .networkError(_, _, let error) = self else { return nil }
        return error
    }
}

extension Apollo.ResponseCodeInterceptor.ResponseCodeError: MuxKit.WrappingError {
    /// The status.
    public nonisolated var wrappedError: (any Error)? {
        guard case .invalidResponseCode(let response, _) = self else { return nil }
        return response.map { ClientStatusError(status: $0.statusCode) }
    }
}

/// The errors in a response of a GraphQL server; the server has processed the query.
nonisolated struct GraphQLErrors: RetryableError, ConnectivityError {
    let messages: [String]

    var retryAdvice: RetryAdvice { .permanent }
    var isConnectivityFailure: Bool { false }
}

nonisolated extension ApolloClient {
    /// Sends a query without Apollo's own cache, because the multiplexer is the cache.
    ///
    /// - Parameters:
    ///   - query: The query.
    ///   - convert: Makes the value from the data, which are not `Sendable`.
    /// - Returns: The value.
    /// - Throws: `GraphQLErrors` for a response with errors or without data, the error of Apollo, or
    ///   `CancellationError`.
    func value<Query: GraphQLQuery, Value: Sendable>(
        of query: Query,
        _ convert: @escaping @Sendable (Query.Data) throws -> Value
    ) async throws -> Value {
        try await ClientCall<Value>.run { completion in
            nonisolated(unsafe) let call = self.fetch(
                query: query,
                cachePolicy: .fetchIgnoringCacheCompletely,
                queue: .global()
            ) { result in
                completion(
                    Result {
                        let response = try result.get()
                        let messages = (response.errors ?? []).map { $0.message ?? "" }
                        guard let data = response.data, messages.isEmpty else {
                            throw GraphQLErrors(messages: messages)
                        }
                        return try convert(data)
                    }
                )
            }
            return { call.cancel() }
        }
    }
}
