import Foundation
import Testing

/// Every sample of the documentation stands, line by line, in a file of this folder, which the compiler reads.
@Suite(.timeLimit(.minutes(1)))
struct SampleTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// The lines of a text that say something, without the blanks that line them up.
    private static func lines(_ text: some StringProtocol) -> [String] {
        text.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }.filter { !$0.isEmpty }
    }

    private static func files(_ folder: String, _ ending: String) throws -> [URL] {
        let folder = Self.root.appending(path: folder)
        let paths = FileManager.default.enumerator(atPath: folder.path)?.compactMap { $0 as? String } ?? []
        return paths.sorted().filter { $0.hasSuffix(ending) }.map { folder.appending(path: $0) }
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
        let compiled = try Self.files("Tests/DocumentationTests", ".swift").map {
            Self.lines(try String(contentsOf: $0, encoding: .utf8))
        }
        // Pages whose samples are parts of types, not whole statements.
        let excused: Set = ["Performance.md", "Proof.md"]
        let pages = [Self.root.appending(path: "README.md")] + (try Self.files("Sources", ".md"))
        var count = 0
        for page in pages where !excused.contains(page.lastPathComponent) {
            for sample in Self.samples(try String(contentsOf: page, encoding: .utf8)) {
                count += 1
                // What every sample begins with, and what names this package from outside.
                let body = sample.filter {
                    !$0.hasPrefix("import ") && !$0.hasPrefix(".package(") && !$0.hasPrefix(".product(")
                }
                let isCompiled = compiled.contains { Self.contains($0, body) }
                #expect(isCompiled, "\(page.lastPathComponent): \(body.first ?? "")")
            }
        }
        #expect(count > 10)
    }
}
