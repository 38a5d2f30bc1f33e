/// What the work of ``retry(_:on:wakingOn:providers:while:log:clock:operation:)`` is told about the attempt it makes.
public struct RetryAttempt: Sendable {
    /// The attempt's index, which begins with 0.
    public let index: Int

    /// How long it is since the first attempt began; zero for the first.
    public let elapsed: Duration

    /// What the attempt before met; `nil` for the first, and after a result that asked for another.
    public let previousError: (any Error)?

    package init(index: Int, elapsed: Duration, previousError: (any Error)? = nil) {
        self.index = index
        self.elapsed = elapsed
        self.previousError = previousError
    }
}
