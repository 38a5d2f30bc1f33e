// Copy this file and ClientCall.swift into an app with Apollo 1.
//
//     nonisolated(unsafe) let client = ApolloClient(url: url)
//     let profile = Multiplexer<Profile>(cacheKey: "Profile") { Profile(try await client.data(of: ProfileQuery())) }

public import Apollo
import Foundation
public import MuxKit

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

extension Apollo.URLSessionClient.URLSessionClientError: MuxKit.WrappingError {
    /// The error of the URL session.
    public var wrappedError: (any Error)? {
        guard case .networkError(_, _, let error) = self else { return nil }
        return error
    }
}

extension Apollo.ResponseCodeInterceptor.ResponseCodeError: MuxKit.WrappingError {
    /// The status.
    public var wrappedError: (any Error)? {
        guard case .invalidResponseCode(let response, _) = self else { return nil }
        return response.map { ClientStatusError(status: $0.statusCode) }
    }
}

/// The errors in a response of a GraphQL server; the server has processed the query.
struct GraphQLErrors: RetryableError, ConnectivityError {
    let messages: [String]

    var retryAdvice: RetryAdvice { .permanent }
    var isConnectivityFailure: Bool { false }
}

extension ApolloClientProtocol {
    /// Sends a query without Apollo's own cache, because the multiplexer is the cache.
    ///
    /// - Throws: `GraphQLErrors` for a response with errors or without data, the error of Apollo, or
    ///   `CancellationError`.
    func data<Query: GraphQLQuery>(of query: Query) async throws -> Query.Data where Query.Data: Sendable {
        try await ClientCall<Query.Data>.run { completion in
            nonisolated(unsafe) let call = self.fetch(query: query, cachePolicy: .fetchIgnoringCacheCompletely) {
                result in
                completion(
                    Result {
                        let response = try result.get()
                        let messages = (response.errors ?? []).map { $0.message ?? "" }
                        guard let data = response.data, messages.isEmpty else {
                            throw GraphQLErrors(messages: messages)
                        }
                        return data
                    }
                )
            }
            return { call.cancel() }
        }
    }
}
