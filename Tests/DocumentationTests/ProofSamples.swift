import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The article about proofs.
@Suite(.standard(endsAtRest: false))
struct ProofSamples {
    private struct Settings: Codable, Equatable, Sendable { var size = 0 }
    private struct ShowsWhatWasBefore: Error, Sendable {}

    /// The server, shared by all orders one after another.
    private actor Server {
        private var present = Settings()

        func settings() async throws -> Settings { self.present }

        func change(_ size: Int) async throws -> Settings {
            self.present.size = size
            return self.present
        }
    }

    @Test func `Q-04 the sample of the article holds in all orders of its exploration`() async throws {
        let server = Server()
        try await SeededExecutor.explore(100) { schedule in
            let repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
            let settings = Multiplexer<Settings>(cacheKey: "Settings", repository: repository) {
                try await server.settings()
            }

            async let shown = settings.request()
            let saved = try await server.change(schedule.draw(0..<10))
            settings.store(saved)
            _ = try await shown
            guard try await settings.request() == saved else { throw ShowsWhatWasBefore() }
        }
    }
}
