import Foundation
import MuxTestSupport
import Testing

/// The package as a dependency.
@Suite(.timeLimit(.minutes(15)), .takesTurns)
struct ReleaseTests {
    private static func exists(_ path: String) -> Bool {
        FileManager.default.fileExists(atPath: Repository.root.appending(path: path).path)
    }

    // MARK: - A dependency by version

    @Test func `RC-02 no target of a product has unsafe flags or a package dependency`() throws {
        // SwiftPM refuses a dependency by version whose products have unsafe flags, for each value of a variable.
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
}
