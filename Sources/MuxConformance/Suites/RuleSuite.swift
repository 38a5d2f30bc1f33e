public import Foundation
import MuxKit
import MuxTesting

/// A conformance suite: the check of each rule must end in time without an error.
protocol RuleSuite {}

/// A broken rule, found by a conformance suite.
public struct ConformanceFailure: Error, LocalizedError, CustomStringConvertible, Sendable, Hashable {
    /// The rule, as a sentence.
    public var rule: String

    /// The violation.
    public var detail: String

    /// Makes a failure from texts.
    public init(rule: String, detail: String) {
        self.rule = rule
        self.detail = detail
    }

    /// The rule and the violation.
    public var errorDescription: String? { self.description }

    /// The rule and the violation.
    public var description: String { ErrorText.ended("\(self.rule): \(self.detail)") }
}

/// A violation of a rule that a check has found.
struct RuleBroken: Error {
    var detail: String
}

extension RuleSuite {
    /// Runs the check of one rule.
    ///
    /// Any error of the check, or exceeding the limit, breaks the rule. A check that is still running at the
    /// return is cancelled and not awaited.
    ///
    /// - Throws: ``ConformanceFailure`` if the rule is broken; `CancellationError` if the current task is
    ///   cancelled.
    static func runCheck(
        of rule: String,
        within limit: Duration,
        _ check: @escaping @Sendable @concurrent () async throws -> Void
    ) async throws {
        // The check or the timer opens the gate with the verdict, whichever is first; `nil`: the rule is
        // kept.
        let verdict = Gate<String?>()
        let work = TaskLauncher()(name: "mux.conformance") {
            do {
                try await check()
                verdict.open(1, returning: nil)
            } catch let broken as RuleBroken {
                verdict.open(1, returning: broken.detail)
            } catch {
                verdict.open(1, returning: "the check threw: \(error)")
            }
        }
        let timer = TaskLauncher()(name: "mux.conformance.limit") {
            guard (try? await TimeSource(ContinuousClock()).sleep(for: limit)) != nil else { return }
            verdict.open(1, returning: "the check did not end within \(ErrorText.time(limit))")
        }
        defer {
            work.cancel()
            timer.cancel()
        }
        if let detail = try await verdict.pass() { throw ConformanceFailure(rule: rule, detail: detail) }
    }

    /// Waits for 30 ms of real time, in which other tasks can make progress.
    static func waitBriefly() async throws {
        try await TimeSource(ContinuousClock()).sleep(for: .milliseconds(30))
    }

    static func expect(_ condition: Bool, _ detail: @autoclosure () -> String) throws {
        guard condition else { throw RuleBroken(detail: detail()) }
    }
}
