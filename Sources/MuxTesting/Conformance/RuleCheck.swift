import MuxKit

/// One rule of a conformance suite is broken.
struct RuleBroken: Error {
    var detail: String
}

/// Runs the check of one rule for a limited time.
enum RuleCheck {
    /// What is wrong with what `check` looks at; `nil` if the rule is kept.
    ///
    /// Whatever the check throws breaks the rule, and so does one that does not end: it is cancelled then, and left behind.
    ///
    /// - Throws: `CancellationError` if the present task is cancelled.
    static func flaw(
        within limit: Duration,
        _ check: @escaping @Sendable @concurrent () async throws -> Void
    ) async throws -> String? {
        let verdict = Gate<String?>()
        let work = TaskLauncher()(name: "mux.conformance") {
            do {
                try await check()
                verdict.open(1, returning: nil)
            } catch let broken as RuleBroken {
                verdict.open(1, returning: broken.detail)
            } catch {
                verdict.open(1, returning: "it threw: \(error)")
            }
        }
        let timer = TaskLauncher()(name: "mux.conformance.limit") {
            guard (try? await TimeSource(ContinuousClock()).sleep(for: limit)) != nil else { return }
            verdict.open(1, returning: "it did not end within \(limit)")
        }
        defer {
            work.cancel()
            timer.cancel()
        }
        return try await verdict.pass()
    }

    /// Lets real time pass, so that what was begun gets as far as it can.
    static func settle() async throws {
        try await TimeSource(ContinuousClock()).sleep(for: .milliseconds(30))
    }

    static func expect(_ condition: Bool, _ detail: @autoclosure () -> String) throws {
        guard condition else { throw RuleBroken(detail: detail()) }
    }
}
