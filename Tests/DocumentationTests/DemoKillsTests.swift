#if os(macOS) || os(Linux)
import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

/// The demo that is built beside the tests.
///
/// The tests kill processes, hence the name: runs with sanitizers skip these tests.
@Suite(.standard(endsAtRest: false))
struct DemoKillsTests {
    /// The folders of the products that are built together with the tests.
    private static var products: [URL] {
        let bundles = Bundle.allBundles.filter { $0.bundlePath.hasSuffix(".xctest") }
        return bundles.map { $0.bundleURL.deletingLastPathComponent() } + [Bundle.main.bundleURL]
    }

    private func program(_ product: String) throws -> URL {
        try #require(
            Self.products.map { $0.appending(component: product) }
                .first { FileManager.default.isExecutableFile(atPath: $0.path) }
        )
    }

    /// Runs a program that is built beside the tests; returns its exit status and its output.
    private func run(_ product: String, _ arguments: [String] = []) async throws -> (status: Int32, output: String) {
        let program = try self.program(product)
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
    func `CO-27 each form of help shows how to use the demo`(arguments: [String]) async throws {
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
    func `CO-27 the demo names an unknown argument`(arguments: [String], name: String) async throws {
        let (status, output) = try await self.run("demo", arguments)
        #expect(status == 2)
        #expect(output.split(separator: "\n").first?.contains(name) ?? false, "\(output)")
        #expect(output.contains("Exit codes"))
    }

    @Test func `CO-27 the demo plays one act by its name, after the acts that it continues`() async throws {
        let (status, output) = try await self.run("demo", ["play", "token-expiry-storm"])
        #expect(status == 0, "\(output)")
        #expect(output.contains("Token expiry storm") && !output.contains("Relaunch"))
    }

    /// A press of a button of the demo's page.
    private struct Press: HTTPRequest {
        struct Output: Decodable, Sendable {
            var act, text, result: String
        }

        var endpoint: HTTPEndpoint
        var method: HTTPMethod { .post }
    }

    /// Serves the demo's page for `body`, which presses buttons.
    private func withPage(
        _ body: (_ press: @escaping @Sendable (_ act: String) async throws -> HTTPResponse) async throws -> Void
    ) async throws {
        let process = Process()
        process.executableURL = try self.program("demo")
        process.arguments = ["serve"]
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        defer { process.terminate() }
        let text = String(decoding: output.fileHandleForReading.availableData, as: UTF8.self)
        let url = try #require(text.firstMatch(of: /http:\S+:[0-9]+/).flatMap { URL(string: String($0.output)) })
        let endpoint = try HTTPEndpoint(url)
        let client = HTTPClient()
        try await body { act in
            let press = Press(endpoint: endpoint.appending("/act/\(act)"))
            return try await client.response(to: press, headers: ["Origin": url.absoluteString])
        }
    }

    /// Acts, with the kind and the beginning of the text of the outcome, in order.
    private static let presses = [
        ("cut", "noEffect", "No film data is arriving"), ("forget", "noEffect", "The memory was empty"),
        ("expire", "noEffect", "No user is signed in"), ("sign-out", "noEffect", "No user is signed in"),
        ("online", "noEffect", "The server is online already"), ("offline", "held", "The server is offline. No value"),
        ("offline", "noEffect", "The server is offline already"), ("cut", "noEffect", "No film data is arriving"),
        ("download", "noEffect", "The server is offline, so no download"),
        ("forget", "noEffect", "The memory was empty"), ("refresh", "noEffect", "No value was cached. 500 requests"),
        ("sign-out", "noEffect", "No user is signed in"), ("storm", "noEffect", "5,000 requests by 200 callers"),
        ("online", "held", "The server is online. Memory has 0 stale"),
        ("refresh", "noEffect", "No value was cached. 500 requests by 20 callers: 25 fetches, 1 sign-in."),
        ("storm", "held", "5,000 requests by 200 callers: 0 fetches."),
        ("expire", "held", "All access tokens expired. 2,500 requests by 100 callers: 25 fetches."),
        ("offline", "held", "The server is offline. 25 values marked as stale. 500 requests by 20 callers:"),
        ("expire", "held", "All access tokens expired."), ("sign-out", "held", "Alice is signed out. Memory and disk"),
        ("sign-out", "noEffect", "No user is signed in"), ("forget", "noEffect", "The memory was empty"),
    ]

    @Test func `CS-10 the outcome of each action of the demo page is true in each state`() async throws {
        try await self.withPage { press in
            for (number, (act, result, text)) in Self.presses.enumerated() {
                let outcome = try JSONDecoder().decode(Press.Output.self, from: try await press(act).body)
                #expect(outcome.act == act && outcome.result == result, "\(number + 1): \(outcome)")
                #expect(outcome.text.hasPrefix(text), "\(number + 1): \(outcome)")
            }
        }
    }

    @Test func `CS-10 an action of the demo page excludes actions that change the same counters`() async throws {
        try await self.withPage { press in
            async let storm = press("storm")
            async let refresh = press("refresh")
            let statuses = try await [storm.status, refresh.status]
            #expect(Set(statuses) == [200, 409])
            #expect(try await press("storm").status == 200)
        }
    }

    @Test func `CO-27 the benchmarks show how to use them, and name an unknown argument`() async throws {
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
