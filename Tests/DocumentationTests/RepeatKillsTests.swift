#if os(macOS) || os(Linux)
import Foundation
import MuxTestSupport
import Testing

/// The script that runs the tests many times, with a scripted `swift`.
///
/// The script ends processes, hence the name: runs with sanitizers skip these tests.
@Suite(.standard(endsAtRest: false))
struct RepeatKillsTests {
    /// Runs the script in a separate folder; `runs` contains the logs of runs that fail, and an empty text
    /// for each run that passes.
    private func play(_ runs: [String], _ arguments: [String] = []) async throws -> (status: Int32, output: String) {
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxKit-repeat-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        try FileManager.default.createDirectory(
            at: folder.appending(component: ".ci"),
            withIntermediateDirectories: true
        )
        try Repository.text(".ci/repeat").write(
            to: folder.appending(path: ".ci/repeat"),
            atomically: true,
            encoding: .utf8
        )
        for (number, log) in runs.enumerated() {
            try log.write(to: folder.appending(component: "run-\(number + 1)"), atomically: true, encoding: .utf8)
        }
        try """
        #!/bin/bash
        echo "$@" >>"\(folder.path)/calls"
        [ "$1" = test ] || exit 0
        run="\(folder.path)/run-$(grep -c '^test' "\(folder.path)/calls")"
        cat "$run"
        [ ! -s "$run" ]
        """.write(to: folder.appending(component: "swift.text"), atomically: true, encoding: .utf8)

        let log = folder.appending(component: "log")
        try Data().write(to: log)
        let process = Process()
        process.executableURL = URL(filePath: "/bin/bash")
        process.currentDirectoryURL = folder
        // A program that this process writes might still be open in a child that another test starts at this
        // moment: "Text file busy".
        let line = #"install -m 755 swift.text swift && exec bash .ci/repeat "$@""#
        process.arguments = ["-c", line, "repeat", "\(runs.count)"] + arguments
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        process.environment = ["PATH": "\(folder.path):\(path)"]
        process.standardOutput = try FileHandle(forWritingTo: log)
        process.standardError = process.standardOutput
        let status = try await withCheckedThrowingContinuation { (end: CheckedContinuation<Int32, any Error>) in
            process.terminationHandler = { end.resume(returning: $0.terminationStatus) }
            do { try process.run() } catch { end.resume(throwing: error) }
        }
        let calls = try String(contentsOf: folder.appending(component: "calls"), encoding: .utf8)
        return (status, try String(contentsOf: log, encoding: .utf8) + calls)
    }

    @Test func `Q-16 the script reports failed runs, failed tests, and tests that did not end`() async throws {
        let failed = """
            ◇ Test "MX-01 passes" started.
            ◇ Test "MX-02 fails" started.
            ◇ Test "MX-03 hangs" started.
            ✔ Test "MX-01 passes" passed after 0.001 seconds.
            ✘ Test "MX-02 fails" recorded an issue at SomeTests.swift:1:1: Expectation failed
            ✘ Test "MX-02 fails" failed after 0.001 seconds with 1 issue.

            """
        let (status, output) = try await self.play(["", failed, ""], ["--filter", "MX-0"])

        #expect(status == 1)
        let lines = output.split(separator: "\n").map(String.init)
        #expect(lines.contains { $0.hasPrefix("run 1: passed") } && lines.contains { $0.hasPrefix("run 3: passed") })
        #expect(lines.contains { $0.hasPrefix("run 2: failed") && $0.hasSuffix(".build/repeat/2.log") }, "\(output)")
        #expect(lines.contains { $0.contains("MX-02 fails\" recorded an issue") })
        #expect(lines.filter { $0.hasPrefix("did not end: ") } == [#"did not end: "MX-03 hangs""#])
        #expect(lines.contains("1 of 3 runs failed"))
        // Each run gets the arguments after the number, and the tests are built once.
        #expect(lines.filter { $0.hasPrefix("build ") }.count == 1)
        #expect(lines.filter { $0.hasPrefix("test ") && $0.hasSuffix("--filter MX-0") }.count == 3)
    }

    @Test func `Q-16 the script succeeds if all runs pass, also under load`() async throws {
        let (status, output) = try await self.play(["", ""], ["--loaded"])
        #expect(status == 0)
        #expect(output.contains("0 of 2 runs failed"))
    }
}
#endif
