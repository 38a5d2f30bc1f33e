/// The steps of a client below its cache, which add a token to a call and renew a refused token.
///
/// A cache runs the steps for each exchange with the server, so the use of a stored response needs neither a
/// token nor a connection.
protocol CallSteps: AnyObject, Sendable {
    /// The identity of the credentials that the steps add, known before the token.
    var credentials: CredentialsIdentity { get }

    /// Runs the steps for a call.
    ///
    /// - Parameters:
    ///   - call: The call without the token.
    ///   - isCurrent: Whether the session of the call continues. After its end, a token may belong to the
    ///     next session.
    ///   - exchange: Sends the call to the server. The result `nil` means that the server has refused the
    ///     token: the steps renew the token, and call `exchange` once more. If `mayRefuse` is `false`,
    ///     `exchange` does not return `nil`.
    /// - Returns: The response.
    /// - Throws: The error of `exchange`; ``HTTPError/authentication(_:)``; another ``HTTPError`` for an
    ///   invalid header field of the token; `CancellationError`.
    nonisolated(nonsending) func send(
        _ call: ValidatedCall,
        isCurrent: () -> Bool,
        exchange: (_ call: ValidatedCall, _ mayRefuse: Bool) async throws -> HTTPReply?
    ) async throws -> HTTPReply
}

/// The identity of a call's credentials before the token is known, for the `Vary` key of stored responses.
struct CredentialsIdentity: Sendable {
    /// Identifies the authenticator.
    let authenticator: String
    /// The names of the header fields that may contain the credentials, as far as known.
    let names: Set<HTTPHeaders.Name>
}
