public import Foundation

extension MuxOutbox {
    /// A change of an outbox, in the state at the time of the call.
    public struct PendingChange: Sendable, Identifiable {
        /// The state of a change.
        #if hasAttribute(nonexhaustive)
        @nonexhaustive
        #endif
        public enum State: Sendable, Hashable {
            /// The change waits for its turn, or for the next attempt.
            case waiting
            /// An attempt is running.
            case sending
            /// The server refused the change, with this message; the change is not sent again without
            /// ``MuxOutbox/retry(_:)``.
            case refused(String)
            /// The change was not sent within ``MuxOutboxPolicy/maximumAge``.
            case expired
            /// The server may or may not have applied the change; see ``MuxOutboxPolicy/isIdempotent``.
            case unknown
            /// The record is damaged, has another type, or belongs to a later version of the app. Later
            /// changes of the lane wait.
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

        /// Whether the change waits for a call of ``MuxOutbox/retry(_:)`` or ``MuxOutbox/discard(_:)``.
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
        /// After a refusal of the only attempt, ``MuxOutbox/retry(_:)`` begins with another key, because a
        /// server may have stored the refusal with the key.
        public let idempotencyKey: String

        /// Whether an earlier attempt may have reached the server: its response was lost, or the app ended
        /// during the attempt.
        public let mayHaveArrived: Bool
    }
}
