import MuxKit

/// The steps of a client between a request and its transport.
///
/// - With a cache: retry, invalidation, cache, token with renewal after a 401; the cache obeys `Retry-After`.
///   If ``TokenStep/isBelowCache`` is `false`, the token comes first. Retries begin above the cache, because
///   another attempt cannot replace a response that the cache has begun to pass on.
/// - Without a cache: token with renewal after a 401, retry, `Retry-After`, invalidation.
struct ClientChain: Sendable {
    let configuration: HTTPClient.Configuration
    let time: TimeSource
    let transport: any HTTPTransport
    let invalidation: InvalidationInterceptor
    private let cache: ResponseCache?
    private let retryAfter: RetryAfterInterceptor
    /// `nil` without an authenticator.
    private let token: TokenStep?

    init(
        _ configuration: HTTPClient.Configuration,
        _ transport: (any HTTPTransport)?,
        _ authenticator: (any HTTPAuthenticator)?,
        _ cache: ResponseCache?
    ) {
        self.configuration = configuration
        self.time = TimeSource(configuration.clock)
        self.transport = cache ?? transport ?? .system(configuration.transport)
        self.cache = cache
        self.invalidation = InvalidationInterceptor(time: self.time)
        self.retryAfter = RetryAfterInterceptor(time: self.time, wallTime: configuration.wallTime)
        self.token = authenticator.map { TokenStep($0) }
    }

    /// Sends a call.
    ///
    /// - Parameters:
    ///   - call: The call without the token.
    ///   - usesAuthenticator: Whether the call gets the token of the authenticator.
    /// - Returns: The response of the last attempt.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch`, or `CancellationError`.
    func send(_ call: ValidatedCall, usesAuthenticator: Bool) async throws -> HTTPReply {
        var call = call
        // All attempts, and a token, belong to the session in which the call began.
        call.session = self.cache?.session
        guard usesAuthenticator, let token else { return try await self.sendWithRetries(call) }
        if self.cache != nil, token.isBelowCache {
            call.steps = token
            return try await self.retryingTokenFailures { try await self.sendWithRetries(call) }
        }
        return try await self.retryingTokenFailures {
            try await token.send(call, isCurrent: { true }) { call, mayRefuse in
                let reply = try await self.sendWithRetries(call)
                return mayRefuse && HTTPResponse(request: call.call, reply: reply).refusesToken ? nil : reply
            }
        }
    }

    /// Retries a failure to get a token according to the policy, for a call with any method.
    ///
    /// Any method is safe to retry: no request was sent, or the last response refused the token (401).
    private func retryingTokenFailures(_ send: () async throws -> HTTPReply) async throws -> HTTPReply {
        guard let policy = self.configuration.retry else { return try await send() }
        let loop = RetryLoop(policy, time: self.time)
        return try await loop.runPlainly { _ -> Result<HTTPReply, any Error> in
            do {
                return .success(try await send())
            } catch HTTPError.authentication(let error) {
                throw HTTPError.authentication(error)
            } catch {
                return .failure(error)
            }
        }.get()
    }

    /// Sends a call, and sends the call again after a transient failure if the configuration permits.
    private func sendWithRetries(_ call: ValidatedCall) async throws -> HTTPReply {
        guard let policy = self.configuration.retry, policy.repeatsUnsafeWork || call.call.isRepeatable else {
            return try await self.attempt(call)
        }
        // A stored response is no evidence about the host, so the retry budget must not count the response.
        if let reply = self.cache?.reply(for: call) { return reply }
        let host = RetryPolicy.Host(call.origin.host, budget: self.configuration.retryBudget)
        let loop = RetryLoop(policy, host: host, time: self.time)
        // The response of the last attempt if the policy retries its status; returned if no attempt follows.
        var refused: HTTPReply?
        do {
            return try await loop.run { _ in
                refused = nil
                do {
                    let reply = try await self.attempt(call)
                    guard policy.retriedStatuses.contains(reply.status) else { return .output(reply) }
                    refused = reply
                    return .failure(HTTPError.status(.init(HTTPResponse(request: call.call, reply: reply))), .pass)
                } catch HTTPError.authentication(let error) {
                    // No evidence about the host: no request was sent, or the server has refused the token.
                    return .impossible(.refused, HTTPError.authentication(error))
                }
            }
        } catch let error as RetryError {
            if case MuxError.repositoryMismatch? = error.lastError { throw MuxError.repositoryMismatch }
            if let refused { return refused }
            if let last = error.lastError as? HTTPError { throw last }
            return try await self.withoutServer(call, because: .transport(.unreachable(error)))
        }
    }

    /// Responds to a call without a request to the host: returns a stored response, fresh or stale, or a 504
    /// if the stored response must be validated.
    ///
    /// - Throws: `error` if the cache has no response to the call.
    private func withoutServer(_ call: ValidatedCall, because error: HTTPError) async throws -> HTTPReply {
        guard self.cache != nil, call.method.isSafe else { throw error }
        var call = call
        // The cache calls the closure only before a request to the server.
        call.admit = { (_) throws(HTTPError) in throw error }
        return try await self.attempt(call)
    }

    /// Sends a call once; with a cache, the cache obeys `Retry-After`, because a stored response needs no
    /// pause.
    private func attempt(_ call: ValidatedCall) async throws -> HTTPReply {
        let send = { (call: ValidatedCall) async throws -> HTTPReply in
            try await self.invalidation.send(call) { try await self.transport.exchange(call) }
        }
        return self.cache == nil ? try await self.retryAfter.send(call, next: send) : try await send(call)
    }
}

/// Adds the token of an authenticator to calls, and reports a refused token to the authenticator once.
final class TokenStep: CallSteps {
    /// Whether the authenticator has a session or is a `DependencyRunner`: the cache then uses stored
    /// responses without a token.
    ///
    /// Any other authenticator may have a different token for each call, so each call gets its token before
    /// the lookup in the cache.
    let isBelowCache: Bool

    private let authenticator: any HTTPAuthenticator
    private let identity: AuthenticatorIdentity

    init(_ authenticator: any HTTPAuthenticator) {
        self.authenticator = authenticator
        self.isBelowCache = authenticator.sessionRepository != nil || authenticator is any DependencyRunner
        self.identity = AuthenticatorRegistry.shared.identity(of: authenticator)
    }

    var credentials: CredentialsIdentity { self.identity.credentials }

    nonisolated(nonsending) func send(
        _ call: ValidatedCall,
        isCurrent: () -> Bool,
        exchange: (_ call: ValidatedCall, _ mayRefuse: Bool) async throws -> HTTPReply?
    ) async throws -> HTTPReply {
        let hasSession = self.authenticator.sessionRepository != nil
        var wasRefused = false
        let result: Result<HTTPReply, any Error>
        do {
            result = try await self.authenticator.authorized { token in
                // An error of the exchange is returned, not thrown: a thrown error counts as a failure to get
                // a token.
                do {
                    // Checked after the wait for the token: the token may belong to the next session.
                    guard !hasSession || isCurrent() else { throw HTTPError.authentication(MuxError.sessionEnded) }
                    let headers = token.headers
                    let authorized = try call.authorized(by: headers)
                    self.identity.note(headers)
                    guard let reply = try await exchange(authorized, !wasRefused) else {
                        wasRefused = true
                        return .badDependency
                    }
                    return .output(.success(reply))
                } catch {
                    return .output(.failure(error))
                }
            }
        } catch {
            throw error.isCancellation ? CancellationError() : HTTPError.authentication(error)
        }
        return try result.get()
    }
}

/// The identity of an authenticator, with the names of the authenticator's credential fields.
///
/// All clients of a runner share the identity.
private final class AuthenticatorIdentity: Sendable {
    private let name: String
    private let names: Locked<Set<HTTPHeaders.Name>>

    init(_ number: Int) {
        self.name = "authenticator \(number)"
        let names = HTTPTransportConfiguration().credentialHeaders.map { HTTPHeaders.Name(stringLiteral: $0) }
        self.names = Locked(Set(names))
    }

    var credentials: CredentialsIdentity {
        CredentialsIdentity(authenticator: self.name, names: self.names.withLock(\.self))
    }

    /// Records the names of a token's header fields.
    func note(_ headers: HTTPHeaders) { self.names.withLock { $0.formUnion(headers.fields.map(\.name)) } }
}

/// The identities of the authenticators of a process.
private final class AuthenticatorRegistry: Sendable {
    private struct Entry: Sendable {
        weak var runner: (any Actor)?
        let identity: AuthenticatorIdentity
    }

    private struct State: Sendable {
        var count = 0
        var entries: [ObjectIdentifier: Entry] = [:]
        /// The number of entries at which entries of released runners are removed.
        var limit = 64
    }

    static let shared = AuthenticatorRegistry()
    private let state = Locked(State())

    /// The identity of an authenticator: constant for an actor, such as a runner.
    ///
    /// Any other authenticator gets a new identity from each call.
    func identity(of authenticator: any HTTPAuthenticator) -> AuthenticatorIdentity {
        let runner = authenticator as? any Actor
        // Released outside the lock: each reference may be the last.
        var living: [any Actor] = []
        defer { withExtendedLifetime(living) {} }
        return self.state.withLock { state in
            if let runner, let entry = state.entries[ObjectIdentifier(runner)], entry.runner === runner {
                return entry.identity
            }
            state.count += 1
            let identity = AuthenticatorIdentity(state.count)
            guard let runner else { return identity }
            if state.entries.count >= state.limit {
                state.entries = state.entries.filter { _, entry in
                    guard let runner = entry.runner else { return false }
                    living.append(runner)
                    return true
                }
                state.limit = max(64, state.entries.count * 2)
            }
            state.entries[ObjectIdentifier(runner)] = Entry(runner: runner, identity: identity)
            return identity
        }
    }
}
