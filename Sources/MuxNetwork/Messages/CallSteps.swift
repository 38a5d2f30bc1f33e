/// The steps of a client below its cache: token, retry, `Retry-After`, invalidation.
///
/// A cache runs the steps for each exchange with the server, so a stored response needs neither a token nor a
/// connection.
protocol CallSteps: AnyObject, Sendable {
    /// Identifies the tokens of the client in the `Vary` key of a stored response; `nil` without tokens.
    var credentials: String? { get }

    /// The steps without a token.
    var withoutToken: any CallSteps { get }

    /// Runs the steps for a call.
    ///
    /// - Parameters:
    ///   - call: The call without the token.
    ///   - rules: The rules of a cache.
    ///   - exchange: Sends the call to the server; called for each attempt.
    /// - Returns: The response of the last attempt.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch`, or `CancellationError`.
    nonisolated(nonsending) func send(
        _ call: ValidatedCall,
        _ rules: CallRules,
        exchange: (ValidatedCall) async throws -> HTTPReply
    ) async throws -> HTTPReply
}

/// The rules of a cache for the steps of one exchange.
struct CallRules {
    /// Whether the session of the call continues, so a token belongs to the session.
    var isCurrent: () -> Bool = { true }
    /// Whether the cache uses a stored response in place of this outcome, so a retry is needless.
    var isReplaced: (Result<HTTPReply, any Error>) -> Bool = { _ in false }
}
