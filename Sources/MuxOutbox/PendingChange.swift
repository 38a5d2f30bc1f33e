public import Foundation

extension MuxOutbox {
    /// A change in the list of an outbox, in its state at the time of the list.
    public struct PendingChange: Sendable, Identifiable {
        /// The state of a change.
        #if hasAttribute(nonexhaustive)
        @nonexhaustive
        #endif
        public enum State: Sendable, Hashable {
            /// The change waits for its turn, for the next attempt, or for a decision about a failed change.
            case waiting
            /// An attempt has begun, in this or another process, and has no outcome yet.
            case sending
            /// The server refused the change, or the policy permits no further attempt; the text describes
            /// the error. The change is not sent again without ``MuxOutbox/retry(_:)``.
            case refused(String)
            /// The change was not sent within ``MuxOutboxPolicy/maximumAge``.
            case expired
            /// The server may or may not have applied the change; see
            /// ``MuxOutboxPolicy/serverDetectsRepetitions``.
            case unknown
            /// This version of the app cannot decode the change, or the record is damaged. Later changes of
            /// the lane wait; a damaged record has no lane. Only ``MuxOutbox/discard(_:)`` has an effect.
            case unreadable
        }

        /// Identifies the change in the outbox, also after a relaunch.
        public let id: String

        /// The change; `nil` for ``State/unreadable``.
        public let change: Change?

        /// The lane from the `order` closure; `nil` for a damaged record.
        public let lane: String?

        /// The wall-clock time of ``MuxOutbox/add(_:)``.
        public let addedAt: Date

        /// The number of attempts so far.
        public let attempts: Int

        /// The state.
        public let state: State

        /// Whether the change is not sent without ``MuxOutbox/retry(_:)``; see also ``State/unreadable``.
        public var hasFailed: Bool {
            switch self.state {
            case .waiting, .sending: false
            case .refused, .expired, .unknown, .unreadable: true
            }
        }
    }

    /// An attempt to send a change.
    public struct Attempt: Sendable, Hashable {
        /// The number of the attempt of this change; the first is 1.
        public let number: Int

        /// The idempotency key of the change: a UUID, the same for all attempts, also after a relaunch.
        ///
        /// ``MuxOutbox/retry(_:)`` replaces the key if the server cannot have applied the change, because the
        /// server may have stored its refusal with the former key.
        public let idempotencyKey: String

        /// Whether the server may have applied the change in an earlier attempt.
        ///
        /// `true` if the response was lost, or had the status 408 or 5xx except 503; if a request failed
        /// after a redirection that changed the method; if the closure threw a permanent error without a
        /// status; or if the app ended during the attempt.
        public let mayHaveArrived: Bool
    }
}
