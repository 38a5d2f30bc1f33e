public import Logging
public import MuxKit
public import ServiceLifecycle

/// The lifecycle of repositories in a service: records figures while the service runs, and saves at the end.
///
/// ```swift
/// let services = ServiceGroup(
///     services: [MuxService(repository, metrics: [RepositoryMetrics(of: repository)]), web],
///     gracefulShutdownSignals: [.sigterm],
///     logger: logger
/// )
/// ```
///
/// Services of a group end in reverse order. Put this service before the service of requests: this service
/// then saves the values of the last request too.
///
/// **At the end**, by a graceful shutdown or a cancellation: running fetches have a moment to end. Then the
/// values in memory are written, the newest entries first, until the time limit passes.
public struct MuxService: Service {
    private let repositories: [MuxRepository]
    private let metrics: [RepositoryMetrics]
    private let interval: Duration
    private let drainLimit: Duration
    private let saveLimit: Duration
    private let logger: Logger?

    /// Makes a service.
    ///
    /// - Parameters:
    ///   - repositories: The saved repositories.
    ///   - metrics: The recorded metrics.
    ///   - interval: The interval between records.
    ///   - drainLimit: The time limit of running fetches at the end.
    ///   - saveLimit: The time limit of the save of each repository.
    ///   - logger: The logger of a line for each saved repository.
    public init(
        _ repositories: MuxRepository...,
        metrics: [RepositoryMetrics] = [],
        every interval: Duration = .seconds(10),
        drainingWithin drainLimit: Duration = .milliseconds(200),
        savingWithin saveLimit: Duration = .seconds(5),
        logger: Logger? = nil
    ) {
        self.repositories = repositories
        self.metrics = metrics
        self.interval = max(interval, .milliseconds(1))
        self.drainLimit = drainLimit
        self.saveLimit = saveLimit
        self.logger = logger
    }

    /// Runs until the group shuts down, then saves and returns.
    public func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                for metrics in self.metrics { await metrics.record() }
                try? await Task.sleep(for: self.interval)
            }
        }
        // In a separate task, because the current task may be cancelled.
        await Task { await self.end() }.value
    }

    private func end() async {
        let clock = ContinuousClock()
        let end = clock.now + self.drainLimit
        // A repository does not report the end of its last flight.
        while clock.now < end, await self.isFetching { try? await Task.sleep(for: .milliseconds(2)) }
        for repository in self.repositories {
            let report = await repository.saveAll(within: self.saveLimit)
            guard let logger = self.logger else { continue }
            let level: Logger.Level = report.failed.isEmpty && report.leftOver == 0 ? .info : .warning
            logger.log(
                level: level,
                "saved",
                metadata: [
                    "saved": "\(report.saved)", "failed": "\(report.failed.count)", "left-over": "\(report.leftOver)",
                ]
            )
        }
        for metrics in self.metrics { await metrics.record() }
    }

    private var isFetching: Bool {
        get async {
            for repository in self.repositories where await repository.gauges().flights > 0 { return true }
            return false
        }
    }
}

/// The health of a repository, for a health check.
public struct RepositoryHealth: Sendable, Hashable, Codable {
    /// Whether the last save was complete, no removal for an ended session is pending, and the shared store
    /// is available.
    ///
    /// An unhealthy machine still serves requests: connect the check to an alarm. A load balancer would
    /// remove all machines during an outage of the engine.
    public let isHealthy: Bool
    /// Values in memory.
    public let entries: Int
    /// Values in memory that are not saved.
    public let unsaved: Int
    /// Waiting calls.
    public let waiters: Int
    /// Running fetches.
    public let flights: Int
    /// The number of failures of the last save.
    public let saveFailures: Int
    /// The reason of an outage of the shared store, such as `WRONGPASS`; `nil` without an outage or without a
    /// shared store.
    public let sharedStoreOutage: String?
    /// The number of invalidations without confirmation by the shared store.
    public let pendingInvalidations: Int

    /// Reads the health of a repository.
    public init(of repository: MuxRepository) async {
        let gauges = await repository.gauges()
        let isSaved = gauges.lastSaveFailures == 0 && !gauges.owesRemoval
        self.isHealthy = isSaved && gauges.sharedStoreOutage == nil
        self.entries = gauges.entries
        self.unsaved = gauges.unsaved
        self.waiters = gauges.waiters
        self.flights = gauges.flights
        self.saveFailures = gauges.lastSaveFailures
        self.sharedStoreOutage = gauges.sharedStoreOutage.map { "\($0)" }
        self.pendingInvalidations = gauges.pendingInvalidations
    }
}
