#if os(macOS) || os(Linux)
import Foundation
import MuxTestSupport
import Testing

/// The demo as it is built beside the tests.
///
/// It kills processes of its own, hence the name: sanitizers leave it out.
@Suite(.timeLimit(.minutes(15)), .takesTurns)
struct DemoKillsTests {
    /// The folder of everything that was built together with the tests.
    private static var products: [URL] {
        let bundles = Bundle.allBundles.filter { $0.bundlePath.hasSuffix(".xctest") }
        return bundles.map { $0.bundleURL.deletingLastPathComponent() } + [Bundle.main.bundleURL]
    }

    /// Runs what was built beside the tests; returns how it ended and what it printed.
    private func run(_ product: String, _ arguments: [String] = []) async throws -> (status: Int32, output: String) {
        let program = try #require(
            Self.products.map { $0.appending(component: product) }
                .first { FileManager.default.isExecutableFile(atPath: $0.path) }
        )
        let log = FileManager.default.temporaryDirectory.appending(component: "MuxKit-demo-\(UUID().uuidString).log")
        try Data().write(to: log)
        defer { try? FileManager.default.removeItem(at: log) }
        let process = Process()
        process.executableURL = program
        process.arguments = arguments
        process.standardOutput = try FileHandle(forWritingTo: log)
        process.standardError = process.standardOutput
        let status = try await withCheckedThrowingContinuation { (end: CheckedContinuation<Int32, any Error>) in
            process.terminationHandler = { end.resume(returning: $0.terminationStatus) }
            do { try process.run() } catch { end.resume(throwing: error) }
        }
        return (status, try String(contentsOf: log, encoding: .utf8))
    }

    @Test(arguments: [["--help"], ["help"], ["-h"], ["serve", "--help"], ["play", "--help"]])
    func `CO-27 the demo says how it is used wherever it is asked`(arguments: [String]) async throws {
        let (status, output) = try await self.run("demo", arguments)
        #expect(status == 0)
        for word in ["play ACT", "serve", "--json", "--port", "token-expiry-storm", "Exit codes"] {
            #expect(output.contains(word), "\(word)")
        }
    }

    @Test(arguments: [
        (["dance"], "'dance'"), (["play", "dance"], "'dance'"), (["play"], "'play'"),
        (["serve", "--port", "x"], "'x'"),
        (["serve", "--port"], "'--port'"), (["--json", "--loud"], "'--loud'"),
    ])
    func `CO-27 the demo names what it does not know`(arguments: [String], name: String) async throws {
        let (status, output) = try await self.run("demo", arguments)
        #expect(status == 2)
        #expect(output.split(separator: "\n").first?.contains(name) ?? false, "\(output)")
        #expect(output.contains("Exit codes"))
    }

    @Test func `CO-27 the demo plays one act by its name, after those that it goes on from`() async throws {
        let (status, output) = try await self.run("demo", ["play", "token-expiry-storm"])
        #expect(status == 0, "\(output)")
        #expect(output.contains("Token expiry storm") && !output.contains("Relaunch"))
    }

    @Test func `CO-27 the benchmarks say how they are used, and name what they do not know`() async throws {
        let (status, output) = try await self.run("benchmarks", ["--help"])
        #expect(status == 0)
        for word in ["--json", "--markdown", "--check", "--long", "growth", "Exit codes"] {
            #expect(output.contains(word), "\(word)")
        }
        let unknown = try await self.run("benchmarks", ["hit", "dance"])
        #expect(unknown.status == 2)
        #expect(unknown.output.hasPrefix("benchmarks: there is no 'dance'"))
    }

    @Test(.onlyInWholeRuns) func `P-01 the demo plays the main job end to end on real input`() async throws {
        let (status, output) = try await self.run("demo")

        #expect(status == 0, "\(output)")
        for act in ["Launch storm", "Token expiry storm", "Relaunch", "Offline", "Media", "Sign-out", "Whole answers"] {
            #expect(output.contains(act), "\(act)")
        }
        let places = try Repository.text("Demo/CLI/Resources/places.json")
        #expect(places.components(separatedBy: "\"population\"").count > 1_000, "real places")
    }
}
#endif
