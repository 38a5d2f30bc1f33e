import Foundation
import MuxTestSupport
import Testing

/// The package as a dependency, and the files that a published repository has.
@Suite(.standard(endsAtRest: false))
struct ReleaseTests {
    private static func libraries() throws -> [String] {
        try Repository.text("Package.swift").matches(of: /\.library\(name: "([A-Za-z]+)"/).map { String($0.1) }
    }

    private static func exists(_ path: String) -> Bool {
        FileManager.default.fileExists(atPath: Repository.root.appending(path: path).path)
    }

    // MARK: - A dependency by version

    @Test func `RC-02 no target of a product has unsafe flags or a package dependency`() throws {
        // Older versions of SwiftPM refuse unsafe flags in products of a dependency by version; SwiftPM 6.3.1
        // does not.
        let manifest = try Repository.text("Package.swift")
        #expect(!manifest.contains(".package("))
        let parts = manifest.components(separatedBy: ".unsafeFlags(")
        #expect(parts.count == 2, "the settings of tests alone")
        let settings = try #require(parts.first?.components(separatedBy: "\nlet ").last)
        #expect(settings.hasPrefix("testSettings: [SwiftSetting] ="))
        let uses = manifest.components(separatedBy: "testSettings")
        #expect(uses.count == 3)
        #expect(uses.last?.hasPrefix("\n        )\n    }\n") == true, "the settings of test targets")
        #expect(uses[1].components(separatedBy: ".testTarget(").count == 2)
    }

    #if os(macOS) || os(Linux)
    @Test(.enabled(if: Self.exists(".git"), "needs the repository"))
    func `RC-02 a package elsewhere resolves a tag of this repository`() async throws {
        let log = FileManager.default.temporaryDirectory.appending(component: "MuxKit-\(UUID().uuidString).log")
        try Data().write(to: log)
        defer { try? FileManager.default.removeItem(at: log) }
        let process = Process()
        process.executableURL = Repository.root.appending(path: "Tests/Consumers/by-version")
        process.arguments = ["--resolve"]
        process.standardOutput = try FileHandle(forWritingTo: log)
        process.standardError = process.standardOutput
        let status = try await withCheckedThrowingContinuation { (end: CheckedContinuation<Int32, any Error>) in
            process.terminationHandler = { end.resume(returning: $0.terminationStatus) }
            do { try process.run() } catch { end.resume(throwing: error) }
        }
        let output = try String(contentsOf: log, encoding: .utf8)
        #expect(status == 0 && output.contains("MuxKit.git@0.1.0"), "\(output)")
    }
    #endif

    @Test func `RC-02 CI builds and runs the first sample of the README from a tag`() throws {
        #expect(try Repository.text("Tests/Consumers/run").contains("\n\"$here/by-version\" "))
        let script = try Repository.text("Tests/Consumers/by-version")
        #expect(script.contains("from: \"0.1.0\"") && script.contains(".package(url: \"file://"))
        #expect(!script.contains(".package(path:"))
    }

    // MARK: - Files of a published repository

    @Test func `RC-03 the package index builds the documentation of every library with articles`() throws {
        let settings = try Repository.text(".spi.yml")
        let targets = try #require(settings.firstMatch(of: /documentation_targets: \[(.+)\]/)).1
            .components(separatedBy: ", ")
        let libraries = try Self.libraries()
        #expect(Set(targets).isSubset(of: libraries))
        let documented = libraries.filter { Self.exists("Sources/\($0)/\($0).docc") }
        #expect(documented.count >= 3 && Set(documented).isSubset(of: targets))
    }

    @Test func `RC-03 editors and the formatter have the same settings`() throws {
        let settings = try Repository.text(".editorconfig")
        let format = try Repository.text(".swift-format")
        let length = try #require(format.firstMatch(of: /"lineLength": (\d+)/)).1
        let indentation = try #require(format.firstMatch(of: /"spaces": (\d+)/)).1
        #expect(settings.hasPrefix("root = true\n"))
        #expect(settings.contains("\n[*.swift]\nmax_line_length = \(length)\n"))
        #expect(settings.contains("\nindent_style = space\nindent_size = \(indentation)\n"))
    }

    @Test func `RC-03 a reporter and a contributor find templates and a code of conduct`() throws {
        for form in ["bug", "request"] {
            let text = try Repository.text(".github/ISSUE_TEMPLATE/\(form).yml")
            for key in ["name: ", "description: ", "\nbody:\n"] { #expect(text.contains(key), "\(form): \(key)") }
        }
        let pull = try Repository.text(".github/PULL_REQUEST_TEMPLATE.md")
        let steps = try #require(pull.firstMatch(of: /`\.ci\/run ([a-z ]+)`/)).1.split(separator: " ")
        let script = try Repository.text(".ci/run")
        for step in steps { #expect(script.contains("\nrun_\(step)() {"), "\(step)") }
        #expect(try Repository.text(".github/CODE_OF_CONDUCT.md").contains("in private"))
    }

    @Test func `RC-03 the changelog has one section, for the first version`() throws {
        let lines = try Repository.text("CHANGELOG.md").split(separator: "\n", omittingEmptySubsequences: false)
        #expect(lines.filter { $0.hasPrefix("## ") } == ["## 0.1.0"])
        #expect(lines.filter { $0.hasPrefix("### ") } == [])
        #expect(lines.count <= 30)
    }

    // MARK: - The README

    @Test func `RC-04 the README is short and has its required sections`() throws {
        let text = try Repository.text("README.md")
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        #expect(lines.count <= 140)
        let sample = try #require(text.components(separatedBy: "```swift\n").dropFirst().first)
        let code = sample.components(separatedBy: "```")[0].split(separator: "\n").filter { !$0.hasPrefix("import ") }
        #expect(code.count <= 5)
        for part in ["| instead of | write |", "\n## When not to use it\n", "\n## Three figures\n"] {
            #expect(text.contains(part), "\(part)")
        }
    }

    @Test func `RC-04 each of the three figures has a command that exists`() throws {
        let section = try Repository.text("README.md").components(separatedBy: "\n## Three figures\n").dropFirst().first
        let part = try #require(section?.components(separatedBy: "\n## ").first)
        let rows = part.split(separator: "\n").filter { $0.hasPrefix("| ") && $0.contains("`swift run") }
        #expect(rows.count == 3)
        let demo = try Repository.files("Demo/CLI/Acts", ".swift").map { try Repository.text($0) }.joined()
        let acts = demo.matches(of: /Play\("([^"]+)"/).map { act in
            act.1.lowercased().split { !$0.isLetter && !$0.isNumber }.joined(separator: "-")
        }
        let groups = try Repository.text("Demo/Benchmarks/Benchmarks.swift")
            .matches(of: #/BenchmarkGroup\(\s*"(\w+)"/#).map { String($0.1) }
        for row in rows {
            if let act = row.firstMatch(of: /`swift run demo play ([a-z0-9-]+)`/) {
                #expect(acts.contains(String(act.1)), "\(row)")
            } else {
                let group = try #require(row.firstMatch(of: /`swift run -c release benchmarks (\w+)`/), "\(row)")
                #expect(groups.contains(String(group.1)), "\(row)")
            }
        }
    }

    @Test func `RC-04 the README has a picture of the demo page`() throws {
        let picture = try #require(try Repository.text("README.md").firstMatch(of: /!\[[^\]]+\]\(([^)]+\.png)\)/)).1
        let bytes = try Data(contentsOf: Repository.root.appending(path: String(picture)))
        #expect(bytes.starts(with: [0x89, 0x50, 0x4E, 0x47]) && bytes.count < 500_000)
    }
}
