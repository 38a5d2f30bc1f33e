import Foundation
import MuxTestSupport
import Testing

/// Rules for the sources that a text search checks.
@Suite(.standard)
struct SourceRuleTests {
    private func expectNone(
        of words: [String],
        in lines: [SourceLines.Line] = SourceLines.sources,
        where isConcerned: (String) -> Bool,
        _ why: Comment,
        _ location: SourceLocation = #_sourceLocation
    ) {
        let found = lines.filter { line in isConcerned(line.file) && words.contains { line.mentions($0) } }
        #expect(lines.count > 1_000 && found.map(\.place) == [], why, sourceLocation: location)
    }

    @Test func `Q-01 machines are pure`() {
        let machines = [
            "StateMachine.swift", "/Freshness.swift", "/WaiterQueue.swift", "/Slot.swift", "/FlightDeadlines.swift",
            "/BoundedTable.swift", "/EvictionOrder.swift", "/FlatIndex.swift", "/GhostQueue.swift", "/SlotTable.swift",
            "/OAuthSessionState.swift", "/FailurePause.swift",
        ]
        for machine in machines {
            #expect(SourceLines.sources.contains { $0.file.hasSuffix(machine) }, "\(machine) was not found")
        }
        self.expectNone(
            of: [
                "import ", "async", "await", "Task", "Mutex", "Locked", "Date(", "Continuation", "Clock", "Lock",
                ".random()", "SystemRandomNumberGenerator",
            ],
            where: { file in machines.contains { file.hasSuffix($0) } },
            "a decision depends on nothing but its arguments"
        )
    }

    @Test func `Q-09 no source traps on external input`() {
        self.expectNone(
            of: ["try!", "as!", "fatalError", "precondition(", "preconditionFailure", "assert(", "unowned(unsafe)"],
            where: { _ in true },
            "bad input is a typed error"
        )
    }

    @Test func `Q-09 only the audited files contain code that the compiler cannot check`() {
        self.expectNone(
            of: ["@unchecked", "nonisolated(unsafe)", "UnsafeContinuation"],
            // Subclasses of Foundation's queue and operation have to restate the conformance of their superclass.
            // An unchecked continuation belongs to one owner.
            where: { file in
                let audited = [
                    "/Locked.swift", "RetryingOperation.swift", "RetryableOperationWrapper.swift",
                    "Platform/URLSessionTransport.swift", "Platform/LeanContinuation.swift",
                    "Platform/CurlLibrary.swift",
                ]
                return audited.allSatisfy { !file.hasSuffix($0) }
            },
            "the audited files"
        )
    }

    @Test func `Q-01 only two files start unstructured tasks`() {
        self.expectNone(
            of: [" Task {", " Task(", "Task.detached", "(Task {", "(Task("],
            where: { !$0.hasSuffix("/TaskLauncher.swift") && !$0.hasSuffix("/Waiting.swift") },
            "whoever starts a task owns it"
        )
    }

    @Test func `PF-11 no state of a flight contains a TaskPriority, which only the runtime can copy`() throws {
        let stored = try Regex(#"(let|var) \w+(: TaskPriority\??$|: TaskPriority\?? =| = TaskPriority)"#)
        let lines = SourceLines.sources.filter { $0.file.contains("/SingleFlight/") }
        let found = lines.filter { $0.code.contains(stored) }

        #expect(lines.count > 1_000 && found.map(\.place) == [], "use FlightPriority")
    }

    @Test func `CO-01 a stored or escaping asynchronous closure runs concurrently`() throws {
        let closure = try Regex(#"(@escaping|case .*|typealias .*) @Sendable \([^()]*(\([^()]*\)[^()]*)*\) async"#)
        // Internal closures of this package, which no client writes.
        let own = ["/FlightEngine+Flying.swift", "/FlightEngine.swift", "/AsyncMedia+Progress.swift"]
        let found = SourceLines.sources.filter { line in
            line.code.contains(closure) && own.allSatisfy { !line.file.hasSuffix($0) }
        }

        #expect(found.map(\.place) == [], "without `@concurrent` the name of a method crashes a client's compiler")
    }

    @Test func `CO-25 every public error has the same text in print and in localizedDescription`() throws {
        let declaration = try Regex(#"public (?:enum|struct|final class) (\w+): [^{]*Error\b"#)
        let errors = SourceLines.sources.compactMap { line -> (line: SourceLines.Line, name: Substring)? in
            guard line.mentions("public "), let match = line.code.firstMatch(of: declaration) else { return nil }
            return match.output[1].substring.map { (line, $0) }
        }
        let silent = try errors.filter { error in
            let place = try Regex("(?:\\b(?:enum|struct|class)|extension(?: \\w+\\.|.*\\.)?) ?\(error.name): ")
            let heads = SourceLines.sources.filter { $0.file == error.line.file && $0.code.contains(place) }.map(\.code)
            let isLocalized = heads.contains { $0.contains("LocalizedError") }
            let isPrinted = heads.contains {
                $0.contains("CustomStringConvertible") || $0.contains("RedactedDescription")
            }
            return !isLocalized || !isPrinted
        }

        #expect(errors.count > 20)
        #expect(silent.map(\.line.place) == [], "conform to LocalizedError and to CustomStringConvertible")
    }

    @Test func `Q-09 no source unwraps an optional by force`() throws {
        let force = try Regex("[A-Za-z0-9_)\\]]!(?![=A-Za-z(])")
        let found = SourceLines.sources.filter { $0.code.contains(force) }

        #expect(found.map(\.place) == [], "absence is an answer")
    }

    @Test func `Q-01 only the platform folders and the lock contain conditional code`() {
        self.expectNone(
            of: ["#if", "#elseif"],
            // Swift 6.2.0 does not have the attribute.
            in: SourceLines.sources.filter { !$0.mentions("#if hasAttribute(nonexhaustive)") },
            where: { !$0.contains("/Platform/") && !$0.hasSuffix("/Locked.swift") },
            "one platform folder per wing"
        )
    }

    @Test func `Q-10 no test sleeps`() {
        self.expectNone(
            of: ["Task.sleep", "usleep(", "Thread.sleep", "nanosleep(", "asyncAfter(", "Clock().sleep("],
            in: SourceLines.tests,
            where: { file in
                // A wait for ends that no event reports, a test's limit, and tests of clocks and schedules.
                let others = [
                    "Settled.swift", "StandardTrait.swift", "CancellingClock.swift", "ScheduleOutsideTests.swift",
                ]
                return (others + ["SourceRuleTests.swift"]).allSatisfy { !file.hasSuffix($0) }
            },
            "time is virtual, and events are waited for"
        )
    }

    /// Whether a line gives a suite the standard trait, also if each trait has a line.
    private static func isStandard(_ line: SourceLines.Line) -> Bool {
        line.mentions("@Suite(.standard") || line.code == "    .standard,"
    }

    @Test func `Q-11 every suite ends its tests at rest`() {
        let lines = SourceLines.tests.filter { $0.file.hasPrefix("Mux") }
        let files = Dictionary(grouping: lines, by: \.file)
        let without = files.filter { _, lines in
            let suiteCount = lines.count { $0.mentions("@Suite(") }
            let hasTests = lines.contains { $0.mentions("@Test") }
            let hasException = lines.contains { $0.mentions("endsAtRest: false") }
            return hasTests && suiteCount == 0 || hasException
                || lines.count(where: Self.isStandard) != suiteCount
        }
        #expect(files.count > 250)
        #expect(without.keys.sorted() == [], "write @Suite(.standard)")
    }

    @Test func `Q-10 no test writes to the default folder of an app`() {
        self.expectNone(
            of: ["MuxRepository()", "MuxRepository.shared"],
            in: SourceLines.tests,
            // Packages of consumers compile such a line but do not run the line.
            where: { file in
                !["DocumentationTests/", "Consumers/"].contains { file.hasPrefix($0) }
                    && !file.hasSuffix("SourceRuleTests.swift")
            },
            "give it a folder or a store"
        )
    }

    @Test func `Q-10 every suite limits the number of simultaneous tests`() {
        let all = SourceLines.tests.filter { !$0.file.hasSuffix("Samples.swift") }
        let files = Set(all.filter { $0.mentions("@Test") }.map(\.file))
        let without = files.subtracting(all.filter(Self.isStandard).map(\.file))
        #expect(files.count > 140)
        #expect(without.sorted() == [], "write @Suite(.standard)")
    }

    @Test func `Q-15 Q-08 the sanitizers run all tests except tests that cannot run under a sanitizer`() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../..")
        let script = try String(contentsOf: root.appending(path: ".ci/run"), encoding: .utf8)
        func command(_ sanitizer: String) throws -> String {
            // The command ends with the first line without a backslash at its end.
            let rest = try #require(script.range(of: "--sanitize=\(sanitizer)")).upperBound
            return String(script[rest...].replacing("\\\n", with: " ").prefix { $0 != "\n" })
        }
        func quoted(_ sanitizer: String) throws -> [String] {
            try command(sanitizer).split(separator: " ").filter { $0.hasPrefix("'") }
                .map { $0.trimmingCharacters(in: .init(charactersIn: "'")) }
        }
        #expect(try quoted("address") == ["Crash", "Kill", "MemoryTests"])
        // A comment beside the command gives the reason for the test that ThreadSanitizer does not run.
        #expect(try command("thread").contains("--skip 'TR-07 ten thousand calls'"))
        #expect(try quoted("thread") == ["^MuxKitTests", "TR-07"])
        // Each part consists of the tests that the other part omits.
        #expect(script.contains("for part in --filter --skip; do"))
        #expect(try command("thread").contains("\"$part\" '^MuxKitTests'"))
    }

    @Test func `PT-07 the workflow runs every step of the script, once`() throws {
        func text(_ path: String) throws -> String {
            try String(contentsOf: SourceLines.root.appending(path: path), encoding: .utf8)
        }
        let script = try text(".ci/run")
        let steps = try #require(script.firstMatch(of: #/(?m)^all=\((.+)\)$/#)).1.split(separator: " ")
        let functions = script.matches(of: #/(?m)^run_(\w+)\(\) \{/#).map(\.1)
        #expect(steps.count > 10 && steps.sorted() == functions.sorted())

        let workflow = try text(".github/workflows/ci.yml")
        let matrix = try #require(workflow.firstMatch(of: #/\n +steps:\n((?: +- .+\n)+)/#)).1
        let jobs = matrix.split(separator: "\n").map { $0.split(separator: " ").dropFirst() }
        #expect(jobs.flatMap(\.self).sorted() == steps.sorted())
        #expect(workflow.contains("run: .ci/run ${{ matrix.steps }}\n"))
    }
}
