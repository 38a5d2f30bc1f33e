/// Whether a session exists: tokens that the server has not refused.
///
/// ```swift
/// switch await oauth.status {
/// case .signedIn: show(.home)
/// case .signedOut: show(.welcome)
/// case .unknown: show(.home)          // the tokens cannot be read yet: the next request tries again
/// }
/// ```
public enum OAuthStatus: Sendable, Hashable {
    /// Tokens exist, and the server has not refused the tokens.
    case signedIn
    /// No usable tokens exist: the next call that needs a token signs in.
    ///
    /// For example, the server has refused the tokens.
    case signedOut
    /// The tokens cannot be read now, such as on a locked device.
    case unknown

    /// The reason for a sign-in.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum SignInReason: Sendable, Hashable {
        /// No usable tokens exist, such as before the first sign-in or after a sign-out.
        case noTokens
        /// The server has refused the refresh token.
        ///
        /// The refusal occurred in this process, in an earlier process, or in another process with the same
        /// store.
        case tokensRefused
    }

    /// The status of a runner over time.
    ///
    /// **Concurrent calls.** Any number of consumers may iterate. Each consumer gets the current status
    /// first; a slow consumer skips to the newest status.
    ///
    /// **Cancellation.** The sequence ends when the consumer's task is cancelled, and when the runner is
    /// deallocated; the sequence does not retain the runner.
    ///
    /// **Several processes.** With a lease and a store that can be watched, such as a
    /// ``ProtectedFileTokenStore``, the sequence reports changes by other processes at once. Otherwise a
    /// change is reported after a later event of this runner.
    public struct Changes: AsyncSequence, Sendable {
        /// A status.
        public typealias Element = OAuthStatus
        /// The sequence does not fail.
        public typealias Failure = Never

        let signals: @Sendable () -> AsyncStream<Void>
        /// The current status; `nil` after the runner's deallocation.
        let current: @Sendable @concurrent () async -> OAuthStatus?

        /// Starts to watch the status.
        ///
        /// - Returns: A separate iterator.
        public func makeAsyncIterator() -> Iterator {
            // The signals begin before the first read of the status, so no change is missed.
            Iterator(signals: self.signals().makeAsyncIterator(), current: self.current)
        }

        /// Iterates over the current status and the changes.
        public struct Iterator: AsyncIteratorProtocol {
            /// A status.
            public typealias Element = OAuthStatus
            /// The iterator does not fail.
            public typealias Failure = Never

            fileprivate var signals: AsyncStream<Void>.Iterator
            fileprivate let current: @Sendable @concurrent () async -> OAuthStatus?
            fileprivate var last: OAuthStatus?

            /// Suspends until the status differs from the last element.
            ///
            /// - Parameter actor: The isolation of the consumer.
            /// - Returns: The status; `nil` after the runner's deallocation or a cancellation of the task.
            public mutating func next(isolation actor: isolated (any Actor)?) async -> OAuthStatus? {
                while true {
                    if self.last != nil { guard await self.signals.next(isolation: actor) != nil else { return nil } }
                    guard !Task.isCancelled, let status = await self.current() else { return nil }
                    guard status != self.last else { continue }
                    self.last = status
                    return status
                }
            }

            /// Suspends until the status differs from the last element.
            ///
            /// - Returns: The status; `nil` after the runner's deallocation or a cancellation of the task.
            public mutating func next() async -> OAuthStatus? { await self.next(isolation: #isolation) }
        }
    }
}

@available(*, unavailable)
extension OAuthStatus.Changes.Iterator: Sendable {}
