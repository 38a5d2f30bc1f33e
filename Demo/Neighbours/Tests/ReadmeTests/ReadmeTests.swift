import Foundation
import Testing

struct ReadmeTests {
    @Test func `NB-01 the sample of the store runs`() async throws {
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxReadme-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let profile = try await Samples.store(at: folder.appending(component: "app.sqlite").path(percentEncoded: false))
        #expect(profile == Samples.Profile(name: "Ada"))
    }

    @Test func `NB-02 each line of the README's samples with an import is compiled`() throws {
        let tests = URL(filePath: #filePath).deletingLastPathComponent()
        let compiled = try Self.lines(of: tests.appending(component: "Samples.swift"))
        let readme = try Self.lines(of: tests.appending(path: "../../README.md"))
        let blocks = readme.split(separator: "```", omittingEmptySubsequences: false)
        // A sample begins with an import.
        let samples = blocks.filter { $0.contains { $0.hasPrefix("import ") } }
        #expect(samples.count == 2)
        for line in samples.joined() where !line.isEmpty {
            #expect(compiled.contains(line), "\(line)")
        }
    }

    /// The lines of a file, without indentation and comments after code.
    private static func lines(of file: URL) throws -> [String] {
        try String(contentsOf: file, encoding: .utf8).split(separator: "\n", omittingEmptySubsequences: false)
            .map { line in
                let code = line.firstRange(of: " //").map { line[..<$0.lowerBound] } ?? line
                return code.trimmingCharacters(in: .whitespaces)
            }
    }
}
