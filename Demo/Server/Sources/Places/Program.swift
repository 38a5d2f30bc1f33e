import ArgumentParser
import Foundation
public import Hummingbird
import Logging
import MuxKit
public import MuxServices
import MuxValkey
import NIOCore
import ServiceLifecycle
import UnixSignals

/// A web service of places with a slow origin: alone with a folder, or as one of many machines that share an
/// engine.
@main
struct Program: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "places",
        abstract:
            "Serves places: search, one, nearest. Alone with a cache on disk, or with others that share an engine.",
        discussion: """
            GET /places/{id}, /search?name=ber, /nearest?latitude=52.5&longitude=13.4, /health, /metrics
            DELETE /places/{id} forgets a place, on all machines; 503 if not all could be told yet.
            """
    )

    @Option(help: "The port to listen on; 0 for a free one.") var port = 8_080
    @Option(help: "The address to listen on.") var host = "127.0.0.1"
    @Option(help: "HOST:PORT of a Valkey or Redis that machines share; without one there is a folder.") var valkey:
        String?
    @Option(help: "How long a request waits for the engine at most, in milliseconds.") var budget = 250
    @Option(help: "The folder of the cache; one in the user's caches by default.") var folder: String?
    @Option(help: "How long values are fresh, in seconds.") var timeToLive = 60
    @Option(help: "How long the origin takes, in milliseconds.") var delay = 50
    @Flag(help: "Requests wait for a fetch at the end of a value's lifetime, as with the default policy.")
    var waitsAtExpiry = false

    private func repository(_ logger: Logger) throws -> MuxRepository {
        let observer = LogObserver(logger)
        if let valkey {
            let parts = valkey.split(separator: ":")
            guard parts.count == 2, let port = Int(parts[1]), (1...65_535).contains(port) else {
                throw ValidationError("'\(valkey)' is not HOST:PORT.")
            }
            let store = MuxValkey(.init(host: String(parts[0]), port: port, prefix: "places"))
            return MuxRepository(
                sharedStore: store,
                policy: .init(budget: .milliseconds(max(self.budget, 0))),
                observer: observer
            )
        }
        let folder =
            self.folder.map { URL(filePath: $0, directoryHint: .isDirectory) }
            ?? FileManager.default.urls(for: .cachesDirectory, in: .userDomainMask).first?.appending(
                path: "org.example.places"
            )
        guard let folder else { throw ValidationError("There is no caches folder: name one, --folder PATH.") }
        return MuxRepository(directory: folder, observer: observer)
    }

    func run() async throws {
        LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
        let logger = Logger(label: "places")
        let repository = try self.repository(logger)
        let origin = try Origin(delay: .milliseconds(max(self.delay, 0)))
        let lifetime = Duration.seconds(max(self.timeToLive, 0))
        let policy = self.waitsAtExpiry ? MuxPolicy(timeToLive: lifetime) : .service(timeToLive: lifetime)
        let caches = Caches(repository, origin, policy: policy)
        let web = Application(
            router: Self.router(caches, origin),
            configuration: .init(address: .hostname(self.host, port: self.port)),
            onServerRunning: { channel in
                let address = channel.localAddress.map { "\($0.ipAddress ?? ""):\($0.port ?? 0)" } ?? ""
                FileHandle.standardOutput.write(Data("listening on \(address)\n".utf8))
            },
            logger: logger
        )
        // Services end in reverse order, so that the values of the last request are saved.
        let group = ServiceGroup(
            services: [MuxService(repository, logger: logger), web],
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: logger
        )
        try await group.run()
    }

    private static func router(_ caches: Caches, _ origin: Origin) -> Router<BasicRequestContext> {
        let router = Router()
        router.get("places/{id}") { _, context in
            let id = try context.parameters.require("id", as: Int.self)
            return try await self.answer { try await caches.places.request(key: id) }
        }
        router.delete("places/{id}") { _, context -> HTTPResponse.Status in
            let id = try context.parameters.require("id", as: Int.self)
            let reports = await [
                caches.repository.clear(tags: ["place \(id)"]), caches.places.clear(key: id),
            ]
            guard reports.allSatisfy(\.isComplete) else {
                throw HTTPError(
                    .serviceUnavailable,
                    message: "Other machines may still show the place; they will be told."
                )
            }
            return .noContent
        }
        router.get("search") { request, _ in
            let name = try request.uri.queryParameters.require("name").lowercased()
            return try await self.answer { try await caches.searches.request(key: name) }
        }
        router.get("nearest") { request, _ in
            let latitude = try request.uri.queryParameters.require("latitude", as: Double.self)
            let longitude = try request.uri.queryParameters.require("longitude", as: Double.self)
            guard let spot = Spot(latitude: latitude, longitude: longitude) else {
                throw HTTPError(.badRequest, message: "That is not on the globe.")
            }
            return try await self.answer { try await caches.nearest.request(key: spot) }
        }
        router.get("health") { _, _ -> EditedResponse<RepositoryHealth> in
            let health = await RepositoryHealth(of: caches.repository)
            return EditedResponse(status: health.isHealthy ? .ok : .serviceUnavailable, response: health)
        }
        router.get("metrics") { _, _ in
            await self.metrics(caches.repository, origin)
        }
        return router
    }

    /// The value of a request, or the HTTP error for its failure.
    private static func answer<Value>(_ value: () async throws -> Value) async throws -> Value {
        do { return try await value() } catch is NoSuchPlace {
            throw HTTPError(.notFound, message: "There is no such place.")
        }
    }

    /// Counters and gauges in the format of Prometheus.
    private static func metrics(_ repository: MuxRepository, _ origin: Origin) async -> String {
        let statistics = repository.statistics
        let gauges = await repository.gauges()
        return """
            places_origin_calls_total \(origin.callCount)
            mux_hits_total \(statistics.hits)
            mux_joins_total \(statistics.joins)
            mux_misses_total \(statistics.misses)
            mux_shared_hits_total \(statistics.sharedHits)
            mux_disk_hits_total \(statistics.diskHits)
            mux_fetches_total \(statistics.fetches)
            mux_failures_total \(statistics.failures)
            mux_stale_total \(statistics.staleServed)
            mux_entries \(gauges.entries)
            mux_waiters \(gauges.waiters)
            mux_flights \(gauges.flights)
            mux_shared_store_unavailable \(gauges.sharedStoreOutage == nil ? 0 : 1)
            mux_pending_invalidations \(gauges.pendingInvalidations)

            """
    }
}

extension RepositoryHealth: ResponseGenerator, ResponseEncodable {}
