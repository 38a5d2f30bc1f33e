import Foundation
import MuxTestSupport
import Testing

/// Rules that the sources keep, so that they need not be believed.
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

    @Test func `Q-09 nothing traps on what comes from outside`() {
        self.expectNone(
            of: ["try!", "as!", "fatalError", "precondition(", "preconditionFailure", "assert(", "unowned(unsafe)"],
            where: { _ in true },
            "bad input is a typed error"
        )
    }

    @Test func `Q-09 what the compiler cannot check stands in one file`() {
        self.expectNone(
            of: ["@unchecked", "nonisolated(unsafe)", "UnsafeContinuation"],
            // Subclasses of Foundation's queue and operation have to restate what Foundation says of them. A continuation that
            // nobody checks belongs to one owner.
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

    @Test func `Q-01 unstructured tasks are started in one place`() {
        self.expectNone(
            of: [" Task {", " Task(", "Task.detached", "(Task {", "(Task("],
            where: { !$0.hasSuffix("/TaskLauncher.swift") && !$0.hasSuffix("/Waiting.swift") },
            "whoever starts a task owns it"
        )
    }

    @Test func `CO-01 an asynchronous closure that is handed over for good runs concurrently`() throws {
        let closure = try Regex(#"(@escaping|case .*|typealias .*) @Sendable \([^()]*(\([^()]*\)[^()]*)*\) async"#)
        // Closures of this package's own, which no client writes.
        let own = ["/FlightEngine+Flying.swift", "/FlightEngine.swift", "/AsyncMedia+Progress.swift"]
        let found = SourceLines.sources.filter { line in
            line.code.contains(closure) && own.allSatisfy { !line.file.hasSuffix($0) }
        }

        #expect(found.map(\.place) == [], "without `@concurrent` the name of a method crashes a client's compiler")
    }

    @Test func `CO-25 every public error says the same in print and in localizedDescription`() throws {
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

    @Test func `Q-09 nothing is unwrapped by force`() throws {
        let force = try Regex("[A-Za-z0-9_)\\]]!(?![=A-Za-z(])")
        let found = SourceLines.sources.filter { $0.code.contains(force) }

        #expect(found.map(\.place) == [], "absence is an answer")
    }

    @Test func `Q-01 conditional code stands in the platform folders and in the lock`() {
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
                // A wait for ends that no event reports, the limit of a test, and tests of clocks and schedules themselves.
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

    @Test func `Q-10 no test writes where an app's values would be`() {
        self.expectNone(
            of: ["MuxRepository()", "MuxRepository.shared"],
            in: SourceLines.tests,
            // Packages of consumers compile such a line, and do not run it.
            where: { file in
                !["DocumentationTests/", "Consumers/"].contains { file.hasPrefix($0) }
                    && !file.hasSuffix("SourceRuleTests.swift")
            },
            "give it a folder or a store"
        )
    }

    @Test func `Q-10 no test has so many others beside it that real time runs out`() {
        let all = SourceLines.tests.filter { !$0.file.hasSuffix("Samples.swift") }
        let files = Set(all.filter { $0.mentions("@Test") }.map(\.file))
        let without = files.subtracting(all.filter(Self.isStandard).map(\.file))
        #expect(files.count > 140)
        #expect(without.sorted() == [], "write @Suite(.standard)")
    }

    @Test func `Q-15 Q-08 the sanitizers see all tests but what cannot be run under them`() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../..")
        let script = try String(contentsOf: root.appending(path: ".ci/run"), encoding: .utf8)
        func command(_ sanitizer: String) throws -> String {
            // It ends with the first line that no backslash continues.
            let rest = try #require(script.range(of: "--sanitize=\(sanitizer)")).upperBound
            return String(script[rest...].replacing("\\\n", with: " ").prefix { $0 != "\n" })
        }
        func quoted(_ sanitizer: String) throws -> [String] {
            try command(sanitizer).split(separator: " ").filter { $0.hasPrefix("'") }
                .map { $0.trimmingCharacters(in: .init(charactersIn: "'")) }
        }
        #expect(try quoted("address") == ["Crash", "Kill", "MemoryTests"])
        // Which tests cannot be run under ThreadSanitizer, and why, stands beside the command.
        #expect(try command("thread").contains("--skip 'TR-07 ten thousand calls'"))
        #expect(try quoted("thread") == ["^MuxKitTests", "TR-07"])
        // What one part leaves out is the other part.
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
