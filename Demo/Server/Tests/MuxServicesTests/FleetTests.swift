import Engines
import Foundation
import Testing

/// The page of a fleet, with the requests of a browser.
@Suite(.timeLimit(.minutes(5)))
struct FleetTests {
    private struct Outcome: Decodable {
        var text: String
        var holds: Bool
    }

    @Test(.enabled(if: !Engine.programs.isEmpty, "\(Engine.missing)"))
    func `FL-14 each button of the page keeps its promise on a real engine`() async throws {
        let fleet = try RunningProgram("fleet", [])
        let page = try await fleet.get("/")
        #expect(page.status == 200 && page.text.contains("Kill the store"))
        let acts = ["burst", "change", "machine"]
        // With the engine, then without the engine, then with the engine again.
        for act in acts + ["stop"] + acts + ["start", "burst", "change"] {
            let reply = try await fleet.get("/act/\(act)", "POST")
            let outcome = try JSONDecoder().decode(Outcome.self, from: Data(reply.text.utf8))
            #expect(outcome.holds, "\(act): \(outcome.text)")
        }
        #expect(try await fleet.get("/act/other", "POST").status == 404)
        #expect(fleet.terminate() == 0)
    }
}
