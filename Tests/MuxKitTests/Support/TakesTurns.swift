import MuxTesting
import Testing

/// Only so many tests run at a time as keep the processors busy; the others wait for their turn.
///
/// Swift Testing (6.3.1) begins all tests at once. On two processors each step of one then waits for a step of a thousand
/// others, for twenty seconds and more, and what is timed by a real clock runs out: a silent server, a lease, a fetch.
///
/// The other folders of tests have this file by a link.
struct TakesTurns: TestTrait, SuiteTrait, TestScoping {
    /// It is about each test of a suite.
    var isRecursive: Bool { true }

    @concurrent func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable @concurrent () async throws -> Void
    ) async throws {
        try await Turns.tests.take { try await function() }
    }
}

extension Trait where Self == TakesTurns {
    /// Keeps the number of tests that run at a time within what the processors can do.
    static var takesTurns: TakesTurns { TakesTurns() }
}
