/// Whether an account has a session.
///
/// ```swift
/// switch await oauth.status {
/// case .signedIn: show(.home)
/// case .signedOut: show(.welcome)
/// case .unknown: show(.home)          // the device is locked: asked again when a request needs a token
/// }
/// ```
public enum OAuthStatus: Sendable, Hashable {
    /// There are tokens, and the server has not refused them.
    case signedIn
    /// There are no tokens, or the server has refused them: the next call that needs one signs in.
    case signedOut
    /// The tokens cannot be read now, as on a locked device.
    case unknown

    /// Why a sign-in is needed.
    @nonexhaustive public enum SignInReason: Sendable, Hashable {
        /// There are no tokens: before the first sign-in, and after a sign-out.
        case noTokens
        /// The server has refused the refresh token, in this process, an earlier one, or another that shares the store.
        case tokensRefused
    }

    /// The status of a runner over time.
    ///
    /// **Concurrent calls.** Any number of consumers may iterate; each begins with the present status, and a slow one skips to the newest.
    ///
    /// **Cancellation.** The sequence ends when the consumer's task is cancelled, and when the runner is deallocated, which it does not
    /// prevent.
    ///
    /// **Several processes.** Changes by other processes are noticed at once where the store can be watched, as a
    /// ``ProtectedFileTokenStore`` can, and otherwise when this process next uses the tokens.
    public struct Changes: AsyncSequence, Sendable {
        /// What a consumer gets.
        public typealias Element = OAuthStatus
        /// It does not fail.
        public typealias Failure = Never

        let signals: @Sendable () -> AsyncStream<Void>
        /// The present status; `nil` if the runner is gone.
        let current: @Sendable @concurrent () async -> OAuthStatus?

        /// Begins to watch.
        ///
        /// - Returns: An iterator of its own.
        public func makeAsyncIterator() -> Iterator {
            // The signals begin before the first look, so that no change is missed.
            Iterator(signals: self.signals().makeAsyncIterator(), current: self.current)
        }

        /// Goes from one change to the next.
        public struct Iterator: AsyncIteratorProtocol {
            /// What a consumer gets.
            public typealias Element = OAuthStatus
            /// It does not fail.
            public typealias Failure = Never

            private var signals: AsyncStream<Void>.Iterator
            private let current: @Sendable @concurrent () async -> OAuthStatus?
            private var last: OAuthStatus?

            init(signals: AsyncStream<Void>.Iterator, current: @escaping @Sendable @concurrent () async -> OAuthStatus?)
            {
                self.signals = signals
                self.current = current
            }

            /// Suspends until the status differs from the last element.
            ///
            /// - Parameter actor: Where the consumer runs.
            /// - Returns: The status; `nil` if the runner is gone or the task is cancelled.
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
            /// - Returns: The status; `nil` if the runner is gone or the task is cancelled.
            public mutating func next() async -> OAuthStatus? { await self.next(isolation: #isolation) }
        }
    }
}

@available(*, unavailable)
extension OAuthStatus.Changes.Iterator: Sendable {}
