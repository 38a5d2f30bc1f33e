import Foundation
import MuxTestSupport
import Testing

/// Files in this folder, which are compiled, contain every sample of the documentation line by line.
///
/// Links and tests that the documentation names exist.
@Suite(.standard(endsAtRest: false))
struct SampleTests {
    /// The lines of a text that are not empty, without alignment.
    private static func lines(_ text: some StringProtocol) -> [String] {
        text.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }.filter { !$0.isEmpty }
    }

    /// The blocks of a page that are marked as Swift.
    private static func samples(_ page: String) -> [[String]] {
        page.components(separatedBy: "```swift\n").dropFirst().map { rest in
            Self.lines(rest.components(separatedBy: "```").first ?? "")
        }
    }

    private static func contains(_ lines: [String], _ sample: [String]) -> Bool {
        guard let first = sample.first else { return true }
        return lines.indices.contains { start in
            lines[start] == first && lines[start...].prefix(sample.count).elementsEqual(sample)
        }
    }

    @Test func `P-03 every sample of the README and the articles is compiled`() throws {
        let compiled = try Repository.files("Tests/DocumentationTests", ".swift").map {
            Self.lines(try Repository.text($0))
        }
        // Pages whose samples are parts of types, not complete statements.
        let excused: Set = ["Performance.md"]
        let pages = ["README.md"] + Repository.files("Sources", ".md")
        var count = 0
        for page in pages where !excused.contains(page.split(separator: "/").last.map(String.init) ?? page) {
            for sample in Self.samples(try Repository.text(page)) {
                count += 1
                // Without imports, `@main` and the package dependency.
                let body = sample.filter { line in
                    ["import ", ".package(", ".product(", "@main"].allSatisfy { !line.hasPrefix($0) }
                }
                let isCompiled = compiled.contains { Self.contains($0, body) }
                #expect(isCompiled, "\(page): \(body.first ?? "")")
            }
        }
        #expect(count > 10)
    }

    @Test func `OB-12 the article about offline writes has samples of each step`() throws {
        let page = try Repository.text("Sources/MuxOutbox/MuxOutbox.docc/OfflineWrites.md")
        let samples = Self.samples(page).map { $0.joined(separator: "\n") }
        #expect(samples.count >= 10)
        for step in [
            "MuxOutbox<", "outbox.add(", ".start()", ".overlay(", ".blocked {", ".pending", ".states", "idempotencyKey",
            "signOut()", "FakeChangeServer",
        ] {
            #expect(samples.contains { $0.contains(step) }, "\(step)")
        }
    }

    @Test func `P-03 every link of the README has an existing target`() throws {
        let links = try Repository.text("README.md").matches(of: /\]\(([^)]+)\)/).map { String($0.1) }
        let paths = links.filter { !$0.hasPrefix("https://") }
        #expect(paths.count > 15)
        for path in paths {
            #expect(FileManager.default.fileExists(atPath: Repository.root.appending(path: path).path), "\(path)")
        }
    }

    @Test func `P-03 the README links to every article of a library`() throws {
        let readme = try Repository.text("README.md")
        for page in Repository.files("Sources", ".md") where !page.contains("docc/Mux") {
            #expect(readme.contains(page), "\(page)")
        }
    }

    @Test func `P-03 every test that proves a guarantee exists`() throws {
        let tests = try Repository.files("Tests", ".swift").map { try Repository.text($0) }.joined()
        let names = Set(tests.matches(of: /func `([^`]+)`/).map { String($0.1) })
        let id = /[A-Z]{1,2}-?[0-9]{1,2}/
        let ids = Set(names.flatMap { name in name.split(separator: " ").prefix { $0.wholeMatch(of: id) != nil } })

        let page = try Repository.text("Sources/MuxKit/MuxKit.docc/Guarantees.md")
        let rows = page.split(separator: "\n").filter { $0.hasPrefix("|") }.joined(separator: "\n")
        let claimed = rows.matches(of: /\b[A-Z]{1,2}-?[0-9]{1,2}\b/).map { $0.0 }
        #expect(claimed.count > 100)
        for claim in claimed { #expect(ids.contains(claim), "no test begins with \(claim)") }
        for text in rows.matches(of: /`([^`]+)`/).map({ String($0.1) }) where text.prefixMatch(of: id) != nil {
            #expect(names.contains(text), "there is no test '\(text)'")
        }
    }
}
