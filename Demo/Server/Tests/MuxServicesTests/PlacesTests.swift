import Engines
import Foundation
import MuxNetwork
import MuxValkey
import Testing

/// The web service of places, in a separate process.
@Suite(.timeLimit(.minutes(5)))
struct PlacesTests {
    private static let ids = [1_796_236, 2_950_159, 3_448_439, 3_530_597, 1_275_339, 745_044, 2_643_743]

    @Test func `FL-12 FL-16 a single service responds, saves at its end, and a restart fetches nothing`()
        async throws
    {
        let folder = FileManager.default.temporaryDirectory.appending(component: "mux-places-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let arguments = ["--folder", folder.path, "--delay", "1", "--time-to-live", "600"]
        let first = try RunningProgram("places", ["--port", "0"] + arguments)
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

        let second = try RunningProgram("places", ["--port", "0"] + arguments)
        for id in Self.ids { #expect(try await second.get("/places/\(id)").status == 200) }
        #expect(try await second.get("/search?name=berl").text.contains("Berlin"))
        #expect(try await second.figure("places_origin_calls_total") == 0)
        #expect(second.terminate() == 0)
    }

    @Test(.enabled(if: !Engine.programs.isEmpty, "\(Engine.missing)"))
    func `FL-12 three services with one engine call the origin once for each place`() async throws {
        let engine = try await Engine(try #require(Engine.programs.last))
        // The long budget prevents machines from fetching without the engine.
        let arguments = ["--valkey", "127.0.0.1:\(engine.port)", "--time-to-live", "600", "--budget", "10000"]
        let machines = try (0..<3).map { _ in try RunningProgram("places", ["--port", "0"] + arguments) }
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
        // The other machines have the place in memory until the notification arrives: repeat until a machine
        // fetches.
        while try await total() == Self.ids.count { _ = try await machines[1].get("/places/2950159") }
        for machine in machines { #expect(try await machine.get("/places/2950159").text.contains("Berlin")) }
        #expect(try await total() == Self.ids.count + 1)
        for machine in machines { #expect(machine.terminate() == 0) }
    }

    @Test(.enabled(if: !Engine.programs.isEmpty, "\(Engine.missing)"))
    func `FT-04 a fleet without an engine responds, reports the outage, and confirms no clear`() async throws {
        // The engine requires a password, and the service has no password.
        let engine = try await Engine(try #require(Engine.programs.last))
        try await engine.ask("CONFIG", "SET", "requirepass", "secret")
        let machine = try RunningProgram("places", ["--port", "0", "--valkey", "127.0.0.1:\(engine.port)"])
        let health = try await machine.get("/health")
        #expect(health.status == 503 && health.text.contains("NOAUTH"), "\(health.text)")
        #expect(try await machine.get("/places/2950159").text.contains("Berlin"))
        #expect(try await machine.get("/places/2950159", "DELETE").status == 503)
        #expect(try await machine.figure("mux_shared_store_unavailable") == 1)
        #expect(try await machine.figure("mux_pending_invalidations") == 2)
        #expect(machine.terminate() == 0)
    }
}
