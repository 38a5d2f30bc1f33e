public import Foundation

/// What is wrong with an order that a ``SeededExecutor`` ran.
@nonexhaustive public enum SeededScheduleError: Error, Sendable, LocalizedError {
    /// The operation threw an error in the order that belongs to this seed.
    case failed(seed: UInt64, underlying: any Error)

    /// The operation waits for something that never comes, in the order that belongs to this seed.
    case stuck(seed: UInt64)

    /// A text for the test's log, with what to set in the environment to see it again.
    public var errorDescription: String? {
        switch self {
        case .failed(let seed, let underlying): "MUX_SEED=\(seed): \(underlying)"
        case .stuck(let seed): "MUX_SEED=\(seed): something is waited for that never comes."
        }
    }
}

extension SeededScheduleError: CustomStringConvertible {
    /// The same text.
    public var description: String { self.errorDescription ?? "" }
}
