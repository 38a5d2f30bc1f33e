/// Decides what the block of an expiring activity does.
///
/// The system calls the block when the activity begins, on a thread that it may block, and again, on another thread, when its
/// time is over. If there is no time at all, the first call says so already.
package struct ExpiringActivity: Sendable {
    /// What a call of the block does.
    package enum Action: Sendable, Equatable {
        /// Begin the work, and wait for its end: the app is not suspended before the block returns.
        case workAndWait
        /// Begin the work, and return: there is no time to wait, but the work may end before the app is suspended.
        case work
        /// Let the first call return: an app that outstays its time is ended.
        case stopWaiting
    }

    private var hasBegun = false

    package init() {}

    /// The system calls the block.
    ///
    /// - Parameter hasExpired: What the system says: whether the time is over.
    /// - Returns: What this call of the block does.
    package mutating func called(hasExpired: Bool) -> Action {
        guard !self.hasBegun else { return .stopWaiting }
        self.hasBegun = true
        return hasExpired ? .work : .workAndWait
    }
}
