/// The results of tests, with dependencies between tests: upstream's `results.mjs`.
struct CacheSuiteReport: Sendable {
    /// The result of a test, with the results of its dependencies.
    enum Verdict: Sendable, Equatable {
        case passed
        case failed(String)
        /// Void: a precondition of the test did not hold.
        case voided(String)
        /// Void: a dependency of the test did not pass.
        case dependency(String)

        /// Whether a precondition of the test did not hold.
        var isVoid: Bool { if case .voided = self { true } else { false } }

        var reason: String? {
            switch self {
            case .passed: nil
            case .failed(let reason): reason
            case .voided(let reason): "(setup) \(reason)"
            case .dependency(let id): "(depends on \(id))"
            }
        }
    }

    /// The number of passed tests, and the total.
    struct Count: Sendable, Equatable, CustomStringConvertible {
        var passed = 0
        var total = 0
        var description: String { "\(self.passed)/\(self.total)" }
    }

    let suites: [CacheSuite]
    /// The outcome of each test without its dependencies, by test id.
    let outcomes: [String: CacheSuiteOutcome]
    /// The verdicts by test id.
    let verdicts: [String: Verdict]

    /// - Parameters:
    ///   - suites: The suites with the counted tests and the dependencies of these tests.
    ///   - outcomes: The outcome of each test without its dependencies, by test id.
    init(_ suites: [CacheSuite], _ outcomes: [String: CacheSuiteOutcome]) {
        self.suites = suites
        self.outcomes = outcomes
        let tests = Dictionary(suites.flatMap(\.tests).map { ($0.id, $0) }) { first, _ in first }
        var verdicts: [String: Verdict] = [:]
        func verdict(_ id: String) -> Verdict {
            if let known = verdicts[id] { return known }
            guard let test = tests[id], let outcome = outcomes[id] else { return .voided("not played") }
            let culprit = test.dependsOn.first { verdict($0) != .passed }
            let result: Verdict =
                if let culprit {
                    .dependency(culprit)
                } else {
                    switch outcome {
                    case .passed: .passed
                    case .failed(let reason): .failed(reason)
                    case .voided(let reason): .voided(reason)
                    case .retried: .voided("retry")
                    }
                }
            verdicts[id] = result
            return result
        }
        for id in tests.keys { _ = verdict(id) }
        self.verdicts = verdicts
    }

    /// The number of passed tests of a kind and a scope, and the total.
    func count(
        _ kind: CacheSuiteTest.Kind,
        _ scope: CacheSuiteTest.Scope = .privateCache,
        in suite: CacheSuite? = nil
    ) -> Count {
        let tests = (suite?.tests ?? self.suites.flatMap(\.tests)).filter { $0.kind == kind && $0.scope == scope }
        return Count(passed: tests.count { self.verdicts[$0.id] == .passed }, total: tests.count)
    }

    /// The tests of a kind and a scope that did not pass, in the order of the suite.
    func notPassed(
        _ kind: CacheSuiteTest.Kind,
        _ scope: CacheSuiteTest.Scope = .privateCache,
        in suite: CacheSuite? = nil
    ) -> [CacheSuiteTest] {
        (suite?.tests ?? self.suites.flatMap(\.tests))
            .filter { $0.kind == kind && $0.scope == scope && self.verdicts[$0.id] != .passed }
    }

    /// The table of a cache, with the published results of browsers.
    func table(_ title: String) -> String {
        var lines = [
            "HTTP cache tests, \(title): required \(self.count(.required)), optimal \(self.count(.optimal)), "
                + "checks with yes \(self.count(.check)); beyond browsers: required "
                + "\(self.count(.required, .beyondBrowsers)), optimal \(self.count(.optimal, .beyondBrowsers))",
            "published, required, by the same rule: Chrome 143 117/137, Firefox 146 106/137, Safari 26.2 108/137",
        ]
        for suite in self.suites {
            let required = self.count(.required, in: suite)
            let optimal = self.count(.optimal, in: suite)
            lines.append("\(suite.id), \(suite.name): required \(required), optimal \(optimal)")
            for (kind, scope) in [
                (CacheSuiteTest.Kind.required, CacheSuiteTest.Scope.privateCache), (.optimal, .privateCache),
                (.required, .beyondBrowsers), (.optimal, .beyondBrowsers),
            ] {
                for test in self.notPassed(kind, scope, in: suite) {
                    let label = scope == .privateCache ? kind.rawValue : "beyond browsers, \(kind.rawValue)"
                    lines.append("    \(label): \(test.id): \(self.verdicts[test.id]?.reason ?? "")")
                }
            }
        }
        return lines.joined(separator: "\n")
    }
}
