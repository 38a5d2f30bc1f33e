import Engines
import Foundation
import MuxNetwork
import MuxValkey
import Testing

/// The web service of places, as a process.
@Suite(.timeLimit(.minutes(5)))
struct PlacesTests {
    /// A running service.
    private final class Places: Sendable {
        private let process = Process()
        private let output = Pipe()
        private let base: URL

        /// Starts it, and waits until it listens.
        ///
        /// - Throws: Why it cannot be started.
        init(_ arguments: [String]) throws {
            let folder = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent()
            self.process.executableURL = folder.appending(component: "places")
            self.process.arguments = ["--port", "0"] + arguments
            self.process.standardOutput = self.output
            self.process.standardError = FileHandle.nullDevice
            try self.process.run()
            var text = ""
            while !text.hasSuffix("\n") {
                let bytes = self.output.fileHandleForReading.availableData
                guard !bytes.isEmpty else { throw CocoaError(.fileReadUnknown) }
                text += String(decoding: bytes, as: UTF8.self)
            }
            let address = try #require(text.split(whereSeparator: \.isWhitespace).last)
            self.base = try #require(URL(string: "http://\(address)"))
        }

        deinit { if self.process.isRunning { kill(self.process.processIdentifier, SIGKILL) } }

        func get(_ path: String, _ method: String = "GET") async throws -> (status: Int, text: String) {
            let url = try #require(URL(string: path, relativeTo: self.base)?.absoluteURL)
            let reply = try await SystemTransport().send(HTTPCall(method: method, url: url))
            return (reply.status, String(decoding: reply.body, as: UTF8.self))
        }

        func figure(_ name: String) async throws -> Int {
            let line = try await self.get("/metrics").text.split(separator: "\n").first { $0.hasPrefix(name + " ") }
            return try #require(line.flatMap { Int($0.dropFirst(name.count + 1)) })
        }

        /// Asks it to end, and waits.
        func terminate() -> Int32 {
            kill(self.process.processIdentifier, SIGTERM)
            self.process.waitUntilExit()
            return self.process.terminationStatus
        }
    }

    private static let ids = [1_796_236, 2_950_159, 3_448_439, 3_530_597, 1_275_339, 745_044, 2_643_743]

    @Test func `FL-12 FL-16 alone it answers, saves when it is ended, and fetches nothing when it is back`()
        async throws
    {
        let folder = FileManager.default.temporaryDirectory.appending(component: "mux-places-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let arguments = ["--folder", folder.path, "--delay", "1", "--time-to-live", "600"]
        let first = try Places(arguments)
        for id in Self.ids { #expect(try await first.get("/places/\(id)").status == 200) }
        #expect(try await first.get("/places/2950159").text.contains("Berlin"))
        #expect(try await first.get("/search?name=BERL").text.contains("Berlin"))
        #expect(try await first.get("/nearest?latitude=52.5&longitude=13.4").text.contains("Berlin"))
        for (path, status) in [
            ("/places/1", 404), ("/places/x", 400), ("/nearest?latitude=nan&longitude=1", 400), ("/search", 400),
        ] {
            #expect(try await first.get(path).status == status, "\(path)")
        }
        #expect(try await first.get("/health").status == 200)
        #expect(first.terminate() == 0)

        let second = try Places(arguments)
        for id in Self.ids { #expect(try await second.get("/places/\(id)").status == 200) }
        #expect(try await second.get("/search?name=berl").text.contains("Berlin"))
        #expect(try await second.figure("places_origin_calls_total") == 0)
        #expect(second.terminate() == 0)
    }

    @Test(.enabled(if: !Engine.programs.isEmpty, "\(Engine.missing)"))
    func `FL-12 three of them with one engine ask the origin once for each place`() async throws {
        let engine = try Engine(try #require(Engine.programs.last))
        try await engine.wait(for: "PING") { $0.text == "PONG" }
        let arguments = ["--valkey", "127.0.0.1:\(engine.port)", "--time-to-live", "600"]
        let machines = try (0..<3).map { _ in try Places(arguments) }
        func total() async throws -> Int {
            var total = 0
            for machine in machines { total += try await machine.figure("places_origin_calls_total") }
            return total
        }
        for id in Self.ids {
            async let one = machines[0].get("/places/\(id)")
            async let two = machines[1].get("/places/\(id)")
            async let three = machines[2].get("/places/\(id)")
            #expect(try await [one.status, two.status, three.status] == [200, 200, 200])
        }
        #expect(try await total() == Self.ids.count)

        #expect(try await machines[0].get("/places/2950159", "DELETE").status == 204)
        // The others have it in memory until they are told, so ask until one has fetched it.
        while try await total() == Self.ids.count { _ = try await machines[1].get("/places/2950159") }
        for machine in machines { #expect(try await machine.get("/places/2950159").text.contains("Berlin")) }
        #expect(try await total() == Self.ids.count + 1)
        for machine in machines { #expect(machine.terminate() == 0) }
    }
}
