extension DependencyStateMachine {
    /// When a value turns bad by itself.
    @usableFromInline
    package struct Expiry: Sendable {
        /// From when on it is renewed before it is used.
        @usableFromInline package let renewal: Moment
        /// From when on it is no good.
        package let end: Moment

        package init(renewal: Moment, end: Moment) {
            self.renewal = renewal
            self.end = end
        }
    }

    /// A dependency with the epochs that tell it from others.
    ///
    /// An object that never changes: it is made once, and handed to all who use it.
    @usableFromInline
    package final class VersionedDependency: Sendable {
        /// The value.
        @usableFromInline package let value: Dependency
        /// Raised with every change of the value; names it.
        @usableFromInline package let epoch: UInt64
        /// The epoch of the parent's value that this one was made with; 0 where there is no parent.
        @usableFromInline package let parentEpoch: UInt64
        /// The session in which it was made.
        package let session: UInt64
        /// Raised with every change of the value or of what is known about it.
        package let revision: UInt64
        /// When it turns bad by itself; `nil` if nobody knows.
        @usableFromInline package let expiry: Expiry?
        /// Whether an update found it ready, and did not make it.
        package let isFound: Bool

        init(
            value: Dependency,
            epoch: UInt64,
            parentEpoch: UInt64,
            session: UInt64,
            revision: UInt64,
            expiry: Expiry?,
            isFound: Bool
        ) {
            self.value = value
            self.epoch = epoch
            self.parentEpoch = parentEpoch
            self.session = session
            self.revision = revision
            self.expiry = expiry
            self.isFound = isFound
        }
    }

    /// How a session ends.
    @usableFromInline
    package enum End: Sendable, Equatable {
        /// The runner was reset.
        case reset
        /// The owner signed out.
        case signOut

        @usableFromInline package var error: RunnerError {
            switch self {
            case .reset: .reset
            case .signOut: .signedOut
            }
        }
    }

    /// What a call gets.
    @usableFromInline
    package enum Answer: Sendable {
        /// Run the task with this.
        case use(VersionedDependency)
        /// End with this.
        case fail(any Error)
        /// Wait for an update.
        case update
    }
}
