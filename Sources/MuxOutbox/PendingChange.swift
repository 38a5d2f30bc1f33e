public import Foundation

extension MuxOutbox {
    /// A change in the list of an outbox, in its state at the time of the list.
    public struct PendingChange: Sendable, Identifiable {
        /// The state of a change.
        #if hasAttribute(nonexhaustive)
        @nonexhaustive
        #endif
        public enum State: Sendable, Hashable {
            /// The change waits for its turn or for the next attempt, or a failed change blocks the change.
            case waiting
            /// An attempt has begun, in this or another process, and has no outcome yet.
            case sending
            /// An attempt failed, and no further attempt follows without ``MuxOutbox/retry(_:)``.
            ///
            /// The text describes the error.
            case refused(String)
            /// The server did not confirm the change within ``MuxOutboxPolicy/maximumAge``.
            case expired
            /// The server may or may not have applied the change; see
            /// ``MuxOutboxPolicy/serverDetectsRepetitions``.
            case unknown
            /// This version of the app cannot read the change, or the record is damaged.
            ///
            /// If the lane is known, later changes of the lane wait, except after a failed change that the
            /// app can no longer decode. Only ``MuxOutbox/discard(_:)`` has an effect.
            case unreadable
        }

        /// Identifies the change in the outbox, also after a relaunch.
        public let id: String

        /// The change; `nil` for ``State/unreadable``.
        public let change: Change?

        /// The lane from the `order` closure; `nil` if unknown, such as for a damaged record.
        public let lane: String?

        /// The wall-clock time of ``MuxOutbox/add(_:)``; for a damaged record, the time of the first read by
        /// this process.
        public let addedAt: Date

        /// The number of attempts so far.
        public let attempts: Int

        /// The state.
        public let state: State

        /// Whether the change has failed: the state is neither ``State/waiting`` nor ``State/sending``.
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

        /// The idempotency key: a UUID, the same for all attempts until ``MuxOutbox/retry(_:)``, also after a
        /// relaunch.
        ///
        /// ``MuxOutbox/retry(_:)`` replaces the key if the server cannot have applied the change, because the
        /// server may have stored the refusal with the former key.
        public let idempotencyKey: String

        /// Whether the server may have applied the change in an earlier attempt.
        ///
        /// If `false`, each earlier attempt sent no request, or got a refusal of the dependency or a response
        /// with the status 503 or 4xx.
        public let mayHaveArrived: Bool
    }
}
