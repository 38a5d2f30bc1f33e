import MuxKit
import Synchronization

/// The steps of a client between its cache and its transport: token, renewal of the token after a 401, retry,
/// `Retry-After`, invalidation.
///
/// Without a cache, the client runs the steps itself.
final class ClientChain: CallSteps {
    let invalidation: InvalidationInterceptor
    let credentials: String?

    private let configuration: HTTPClient.Configuration
    private let time: TimeSource
    private let retryAfter: RetryAfterInterceptor
    private let authenticator: (any HTTPAuthenticator)?

    init(
        _ configuration: HTTPClient.Configuration,
        time: TimeSource,
        retryAfter: RetryAfterInterceptor,
        invalidation: InvalidationInterceptor,
        authenticator: (any HTTPAuthenticator)?
    ) {
        self.configuration = configuration
        self.time = time
        self.retryAfter = retryAfter
        self.invalidation = invalidation
        self.authenticator = authenticator
        self.credentials = authenticator.map { _ in
            "client \(Self.clientCount.wrappingAdd(1, ordering: .relaxed).newValue)"
        }
    }

    private static let clientCount = Atomic(0)

    var withoutToken: any CallSteps {
        guard self.authenticator != nil else { return self }
        return ClientChain(
            self.configuration,
            time: self.time,
            retryAfter: self.retryAfter,
            invalidation: self.invalidation,
            authenticator: nil
        )
    }

    // A failure to get a token is retried by the policy, because no request was sent.
    nonisolated(nonsending) func send(
        _ call: ValidatedCall,
        _ rules: CallRules,
        exchange: (ValidatedCall) async throws -> HTTPReply
    ) async throws -> HTTPReply {
        guard let authenticator else { return try await self.retried(call, rules, exchange) }
        guard let policy = self.configuration.retry else {
            return try await self.authorized(call, by: authenticator, rules, exchange).get()
        }
        let loop = RetryLoop(policy, time: self.time)
        return try await loop.runPlainly { _ in
            do {
                return try await self.authorized(call, by: authenticator, rules, exchange)
            } catch  where rules.isReplaced(.failure(error)) {
                return .failure(error)
            }
        }.get()
    }

    /// Sends a call with a token, and once more with a new token after a 401.
    ///
    /// - Returns: The outcome of the exchange.
    /// - Throws: The failure to get a token.
    private nonisolated(nonsending) func authorized(
        _ call: ValidatedCall,
        by authenticator: any HTTPAuthenticator,
        _ rules: CallRules,
        _ exchange: (ValidatedCall) async throws -> HTTPReply
    ) async throws -> Result<HTTPReply, any Error> {
        var wasRefused = false
        do {
            return try await authenticator.authorized { token in
                // An error of the exchange is an output for the authenticator, because the token is not the
                // cause.
                do {
                    // The token may belong to the next session.
                    guard rules.isCurrent() else { throw HTTPError.authentication(MuxError.sessionEnded) }
                    let reply = try await self.retried(try call.authorized(by: token.headers), rules, exchange)
                    guard reply.status == 401, !wasRefused else { return .output(.success(reply)) }
                    wasRefused = true
                    return .badDependency
                } catch {
                    return .output(.failure(error))
                }
            }
        } catch {
            throw error.isCancellation ? CancellationError() : HTTPError.authentication(error)
        }
    }

    /// Sends a call, again after a transient failure if the configuration permits.
    private nonisolated(nonsending) func retried(
        _ call: ValidatedCall,
        _ rules: CallRules,
        _ exchange: (ValidatedCall) async throws -> HTTPReply
    ) async throws -> HTTPReply {
        guard let policy = self.configuration.retry, policy.repeatsUnsafeWork || call.method.isIdempotent else {
            return try await self.attempt(call, exchange)
        }
        let host = RetryPolicy.Host(call.origin.host, budget: self.configuration.retryBudget)
        var refused: HTTPReply?
        do {
            return try await retry(policy, on: host, clock: self.configuration.clock) {
                _ -> Result<HTTPReply, any Error> in
                refused = nil
                do {
                    let reply = try await self.attempt(call, exchange)
                    guard policy.retriedStatuses.contains(reply.status), !rules.isReplaced(.success(reply)) else {
                        return .success(reply)
                    }
                    refused = reply
                    throw HTTPError.status(.init(HTTPResponse(request: call.call, reply: reply)))
                } catch  where refused == nil && rules.isReplaced(.failure(error)) {
                    return .failure(error)
                }
            }.get()
        } catch let error as RetryError {
            if case MuxError.repositoryMismatch? = error.lastError { throw MuxError.repositoryMismatch }
            if let refused { return refused }
            // Without an attempt, the budget admits no request to the host.
            throw error.lastError as? HTTPError ?? HTTPError.transport(.unreachable(error))
        }
    }

    private nonisolated(nonsending) func attempt(
        _ call: ValidatedCall,
        _ exchange: (ValidatedCall) async throws -> HTTPReply
    ) async throws -> HTTPReply {
        try await self.retryAfter.send(call) { call in
            try await self.invalidation.send(call) { try await exchange(call) }
        }
    }
}
