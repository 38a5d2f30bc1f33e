public import Foundation

/// What is wrong with an order that a ``SeededExecutor`` ran.
@nonexhaustive public enum SeededScheduleError: Error, Sendable, LocalizedError {
    /// The operation threw an error in the order that belongs to this seed.
    case failed(seed: UInt64, underlying: any Error)

    /// The operation waits for something that never comes, or that the schedule cannot see.
    case stuck(seed: UInt64)

    /// The operation threw an error after virtual time had passed beside something that the schedule cannot see.
    case outside(seed: UInt64, underlying: any Error)

    /// `MUX_SEED` or `MUX_SCHEDULES` is set to what is not a whole number from zero on.
    case invalidEnvironment(name: String, value: String)

    /// A text for the test's log, with what to set in the environment to see it again.
    public var errorDescription: String? {
        switch self {
        case .failed(let seed, let underlying):
            "MUX_SEED=\(seed): \(underlying)"
        case .stuck(let seed):
            """
            MUX_SEED=\(seed): nothing can go on. Something is waited for that never comes, or that a schedule cannot see: \
            \(Self.unseen)
            """
        case .outside(let seed, let underlying):
            """
            MUX_SEED=\(seed): virtual time passed while something was waited for that a schedule cannot see: \(Self.unseen) \
            What failed then: \(underlying)
            """
        case .invalidEnvironment(let name, let value):
            "\(name) is \"\(value)\" in the environment; it has to be a whole number from 0 on."
        }
    }

    private static let unseen =
        "Task.sleep (use the schedule's clock), URLSession (use a ScriptedTransport), a timer, or a thread."
}

extension SeededScheduleError: CustomStringConvertible {
    /// The same text.
    public var description: String { self.errorDescription ?? "" }
}
