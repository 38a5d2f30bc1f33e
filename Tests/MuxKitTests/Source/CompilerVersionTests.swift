import Foundation
import MuxTestSupport
import Testing

/// The package builds with Swift 6.2, but a newer compiler accepts newer features without a diagnostic.
@Suite(.standard)
struct CompilerVersionTests {
    private static func text(_ path: String) throws -> String {
        try String(contentsOf: SourceLines.root.appending(path: path), encoding: .utf8)
    }

    /// A feature of Swift 6.3 that the sources could use, and the condition that permits its use.
    private struct Feature {
        let name: String
        /// A part of each match: a search for the text takes a tenth of the time.
        let text: String
        let pattern: String
        var condition = "compiler(>=6.3)"

        /// The places of the feature outside of its condition.
        func places(in lines: [(line: SourceLines.Line, conditions: [String])]) throws -> [String] {
            let pattern = try Regex(self.pattern)
            return lines.filter { line, conditions in
                line.mentions(self.text) && !conditions.contains { $0.hasPrefix(self.condition) }
                    && line.code.contains(pattern)
            }
            .map(\.line.place)
        }
    }

    /// From the proposals of Swift Evolution (`SE`) and of Swift Testing (`ST`).
    private static let features = [
        Feature(name: "SE-0460", text: "@specialized", pattern: #"@specialized\b"#),
        Feature(name: "SE-0473", text: "systemEpoch", pattern: #"\.systemEpoch\b"#),
        Feature(name: "SE-0481", text: "weak let", pattern: #"\bweak let\b"#),
        Feature(
            name: "SE-0487",
            text: "@nonexhaustive",
            pattern: #"@nonexhaustive\b"#,
            condition: "hasAttribute(nonexhaustive)"
        ),
        Feature(name: "SE-0491", text: "::", pattern: #"\b[A-Z]\w*::[A-Za-z]"#),
        Feature(name: "SE-0492", text: "@section", pattern: #"@section\b"#),
        Feature(name: "SE-0492", text: "@used", pattern: #"@used\b"#),
        Feature(name: "SE-0495", text: "@c", pattern: #"@c\b"#),
        Feature(name: "SE-0496", text: "@inline(always)", pattern: #"@inline\(always\)"#),
        Feature(name: "SE-0497", text: "@export", pattern: #"@export\b"#),
        Feature(name: "ST-0012", text: "] in", pattern: #"(processExitsWith.*\{|^) *\[[^\]]*\] in$"#),
        Feature(name: "ST-0013", text: "severity: .", pattern: #"\bseverity: \."#),
        Feature(name: "ST-0016", text: "cancel(", pattern: #"\bTest(\.Case)?\.cancel\("#),
    ]

    @Test func `RC-01 no feature of Swift 6.3 is used without a condition`() throws {
        let lines = SourceLines.conditions(of: SourceLines.sources + SourceLines.tests + SourceLines.demo)
        #expect(lines.count > 50_000)
        for feature in Self.features {
            let places = try feature.places(in: lines)
            #expect(places == [], "\(feature.name)")
        }
    }

    @Test(arguments: [
        ("SE-0460", "@specialized(where T == Int)"), ("SE-0473", "let start = clock.systemEpoch"),
        ("SE-0481", "    weak let object: Object?"), ("SE-0487", "@nonexhaustive public enum Kind {"),
        ("SE-0491", "let name = MuxKit::Multiplexer.self"), ("SE-0492", "@section(\"x\") let x = 1"),
        ("SE-0492", "@used let x = 1"),
        ("SE-0495", "@c func f() {}"), ("SE-0496", "    @inline(always) func f() {}"),
        ("SE-0497", "@export(interface)"),
        ("ST-0012", "await #expect(processExitsWith: .success) { [path = path as String] in"),
        ("ST-0012", "    [path = path as String, count] in"), ("ST-0013", "Issue.record(text, severity: .warning)"),
        ("ST-0016", "try Test.cancel(reason)"),
    ])
    func `RC-01 each feature of the list is found`(name: String, code: String) throws {
        let features = Self.features.filter { $0.name == name }
        let condition = try #require(features.first?.condition)
        let line = SourceLines.Line(file: "A.swift", folder: nil, number: 1, code: code)
        #expect(try features.flatMap { try $0.places(in: [(line, ["os(Linux)"])]) } == ["A.swift:1"])
        #expect(try features.flatMap { try $0.places(in: [(line, ["os(Linux)", condition])]) } == [])
    }

    @Test func `RC-01 the manifests and the workflow use Swift 6.2`() throws {
        for manifest in ["Package.swift", "Demo/Server/Package.swift"] {
            #expect(try Self.text(manifest).hasPrefix("// swift-tools-version: 6.2\n"), "\(manifest)")
        }
        let workflow = try Self.text(".github/workflows/ci.yml")
        let job = try #require(workflow.components(separatedBy: "      image: swift:6.2\n").dropFirst().first)
        // Warnings of another compiler are no errors.
        for command in ["swift build --build-tests", "swift test"] {
            #expect(job.contains("run: env -u MUX_WARNINGS_AS_ERRORS \(command)\n"), "\(command)")
        }
    }

    @Test func `RC-01 the documentation states which compilers were used`() throws {
        for page in ["README.md", "Sources/MuxKit/MuxKit.docc/GettingStarted.md"] {
            let text = try Self.text(page)
            #expect(text.contains("Swift 6.2"), "\(page)")
            #expect(!text.contains("Swift 6.3 is"), "\(page)")
        }
        let rows = try Self.text("README.md").split(separator: "\n").filter { $0.hasPrefix("| ") }
        #expect(rows.contains { $0.hasPrefix("| Swift 6.2 |") && $0.contains("not verified") })
    }
}
