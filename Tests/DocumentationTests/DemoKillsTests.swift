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

    @Test func `P-01 the demo plays the main job end to end on real input`() async throws {
        let demo = try #require(
            Self.products.map { $0.appending(component: "demo") }
                .first { FileManager.default.isExecutableFile(atPath: $0.path) }
        )
        let log = FileManager.default.temporaryDirectory.appending(component: "MuxKit-demo-\(UUID().uuidString).log")
        try Data().write(to: log)
        defer { try? FileManager.default.removeItem(at: log) }
        let process = Process()
        process.executableURL = demo
        process.standardOutput = try FileHandle(forWritingTo: log)
        let status = try await withCheckedThrowingContinuation { (end: CheckedContinuation<Int32, any Error>) in
            process.terminationHandler = { end.resume(returning: $0.terminationStatus) }
            do { try process.run() } catch { end.resume(throwing: error) }
        }
        let output = try String(contentsOf: log, encoding: .utf8)

        #expect(status == 0, "\(output)")
        for act in ["Launch storm", "Token expiry storm", "Relaunch", "Offline", "Media", "Sign-out", "Whole answers"] {
            #expect(output.contains(act), "\(act)")
        }
        let places = try Repository.text("Demo/CLI/Resources/places.json")
        #expect(places.components(separatedBy: "\"population\"").count > 1_000, "real places")
    }
}
#endif
