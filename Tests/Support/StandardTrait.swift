import Foundation
package import Testing

/// The trait of nearly all suites: a turn on the processors, a limit in real time, and no resource left at
/// the end.
///
/// Swift Testing (6.3.1) does not compose traits, and begins all tests at once: on two processors each step
/// of a test waits for steps of 1,000 other tests, and tests exceed limits in real time. The time of
/// `.timeLimit` would include the wait for a turn, which is minutes in most tests. This limit begins with the
/// turn, so a short limit finds a test that hangs.
package struct StandardTrait: TestTrait, SuiteTrait, TestScoping {
    /// The main activity of a test.
    package enum Work { case computing, waiting }

    private static let turnsOfComputing = Turns(max(4, 2 * ProcessInfo.processInfo.activeProcessorCount))
    /// Tests that mostly wait, for example for the limit of a call that hangs, leave the other turns to tests
    /// that compute.
    private static let turnsOfWaiting = Turns(4)

    fileprivate let work: Work
    fileprivate let limit: Duration
    fileprivate let endsAtRest: Bool

    /// Applies to each test of a suite.
    package var isRecursive: Bool { true }

    @concurrent package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable @concurrent () async throws -> Void
    ) async throws {
        let turns = self.work == .computing ? Self.turnsOfComputing : Self.turnsOfWaiting
        try await turns.take {
            try await Self.limit(to: self.limit, test.sourceLocation) {
                guard self.endsAtRest else { return try await function() }
                try await EndsAtRest.check(test.sourceLocation, function)
            }
        }
    }

    /// Performs `body`; at the limit records an issue and cancels `body`.
    package static func limit(
        to limit: Duration,
        _ location: SourceLocation,
        _ body: @Sendable () async throws -> Void
    ) async throws {
        try await withoutActuallyEscaping(body) { body in
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await body() }
                group.addTask {
                    try await ContinuousClock().sleep(for: limit)
                    Issue.record("did not end within \(limit)", sourceLocation: location)
                }
                // The group then waits for the other task, so a body that ignores the cancellation still
                // hangs.
                defer { group.cancelAll() }
                try await group.next()
            }
        }
    }
}

extension Trait where Self == StandardTrait {
    /// A turn, a limit of three minutes, and no resource left at the end.
    package static var standard: StandardTrait { .standard() }

    /// The standard trait with exceptions.
    ///
    /// - Parameters:
    ///   - work: The main activity of a test.
    ///   - minutes: The limit of a test whose repetitions the environment sets, for example with `MUX_FUZZ` and
    ///     `MUX_KILLS`.
    ///   - endsAtRest: Whether resources are counted at the end.
    /// - Returns: The trait.
    package static func standard(
        _ work: StandardTrait.Work = .computing,
        minutes: Int? = nil,
        endsAtRest: Bool = true
    ) -> StandardTrait {
        StandardTrait(work: work, limit: .seconds(60 * (minutes ?? Self.minutes)), endsAtRest: endsAtRest)
    }

    /// Three minutes: on two processors, beside other tests, the longest test takes 43 seconds.
    ///
    /// A complete run has up to four times as many repetitions, and ThreadSanitizer makes a test up to ten
    /// times as long.
    private static var minutes: Int {
        #if MUX_TSAN
        3 * longTestFactor * 10
        #else
        3 * longTestFactor
        #endif
    }
}
