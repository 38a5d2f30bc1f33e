import Foundation
import Testing

/// Rules that the sources keep, so that they need not be believed.
@Suite(.timeLimit(.minutes(1)))
struct SourceRuleTests {
    private struct Line: Sendable {
        let file: String
        let number: Int
        let text: String
        var place: String { "\(self.file):\(self.number)" }
    }

    /// The lines of code of all Swift files under `Sources`, without comments.
    private static let lines: [Line] = {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent().appending(component: "Sources")
        let files = FileManager.default.enumerator(atPath: root.path)?.compactMap { $0 as? String } ?? []
        return files.filter { $0.hasSuffix(".swift") }.sorted().flatMap { file in
            let text = (try? String(contentsOf: root.appending(path: file), encoding: .utf8)) ?? ""
            return text.split(separator: "\n", omittingEmptySubsequences: false).enumerated().map { number, line in
                let code = line.range(of: "//").map { String(line[..<$0.lowerBound]) } ?? String(line)
                return Line(file: file, number: number + 1, text: code)
            }
        }
    }()

    private func expectNone(
        of words: [String],
        where isConcerned: (String) -> Bool,
        _ why: Comment,
        _ location: SourceLocation = #_sourceLocation
    ) {
        #expect(Self.lines.count > 1_000, "the sources were not found", sourceLocation: location)
        let found = Self.lines.filter { line in isConcerned(line.file) && words.contains { line.text.contains($0) } }
        #expect(found.map(\.place) == [], why, sourceLocation: location)
    }

    @Test func `Q-01 machines are pure`() {
        let machines = ["StateMachine.swift", "Freshness.swift", "Parking.swift", "Slot.swift", "Deadlines.swift"]
        self.expectNone(
            of: ["import ", "async", "await", "Task", "Mutex", "Guarded", "Date(", "Continuation"],
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
            of: ["@unchecked", "nonisolated(unsafe)"],
            // Subclasses of Foundation's queue and operation have to restate what Foundation says of them.
            where: { file in
                let audited = [
                    "Guarded.swift", "RetryingOperation.swift", "RetryableOperationWrapper.swift",
                    "Platform/BoundedOperationQueue.swift",
                ]
                return audited.allSatisfy { !file.hasSuffix($0) }
            },
            "the audited files"
        )
    }

    @Test func `Q-01 unstructured tasks are started in one place`() {
        self.expectNone(
            of: [" Task {", " Task(", "Task.detached", "(Task {", "(Task("],
            where: { !$0.hasSuffix("Spawn.swift") },
            "whoever starts a task owns it"
        )
    }

    @Test func `Q-01 platforms are told apart in their own folders`() {
        self.expectNone(
            of: ["#if os", "#if canImport", "#if !canImport"],
            where: { !$0.contains("/Platform/") },
            "one platform folder per wing"
        )
    }
}
