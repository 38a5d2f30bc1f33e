import Foundation

extension RetryingOperation {
    /// One attempt of a ``RetryingOperation``, as the work sees it.
    ///
    /// It is ended once; what is said after that counts for nothing.
    public struct Run: Sendable {
        /// The index of the attempt, and what went before.
        public let attempt: RetryAttempt

        let operation: RetryingOperation

        /// Whether the operation was cancelled, so that the attempt is to end soon.
        public var isCancelled: Bool { self.operation.isCancelled }

        /// Has `handler` called if the operation is cancelled during this attempt; at once if it is already.
        ///
        /// One handler is kept, the last. Stop the work there; the run has to be ended nevertheless.
        public func onCancel(_ handler: @escaping @Sendable () -> Void) {
            self.operation.onCancel(of: self.attempt.index, handler)
        }

        /// The work is done.
        public func end(returning output: Output) {
            self.operation.ended(self.attempt.index, .success(output), .pass)
        }

        /// The work failed.
        ///
        /// - Parameters:
        ///   - error: What it met.
        ///   - plan: What is to follow; by default what the providers, the error and the policy say.
        public func end(throwing error: any Error, _ plan: RetryPlan = .pass) {
            self.operation.ended(self.attempt.index, .failure(error), plan)
        }

        /// The work could not even begin, and another attempt would not help.
        func giveUp(_ reason: RetryError.Reason, _ error: any Error) {
            self.operation.ended(self.attempt.index, .failure(error), .never, reason: reason)
        }
    }
}

extension RetryingOperation.Run where Output == Void {
    /// The work is done.
    public func end() { self.end(returning: ()) }
}
