/// How an exchange failed, in terms that do not depend on the platform.
package enum HTTPFailure: Sendable {
    /// Somebody cancelled it.
    case cancelled
    /// The server was silent for this long.
    case timedOut(Duration)
    /// Anything else.
    case other(any Error)
}
