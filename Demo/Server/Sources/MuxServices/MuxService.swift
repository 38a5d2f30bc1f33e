public import Logging
public import MuxKit
public import ServiceLifecycle

/// The life of repositories in a service: records figures while it runs, and saves when it ends.
///
/// ```swift
/// let services = ServiceGroup(
///     services: [MuxService(repository, metrics: [RepositoryMetrics(of: repository)]), web],
///     gracefulShutdownSignals: [.sigterm],
///     logger: logger
/// )
/// ```
///
/// Services of a group end in the reverse of their order, so name this one before what serves requests: then it saves what the last request
/// fetched.
///
/// **At the end**, by a graceful shutdown or a cancellation: fetches that are under way have a moment to end, then what is in memory is written,
/// the newest entries first, until the time is up.
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
    ///   - repositories: What is saved.
    ///   - metrics: What is recorded.
    ///   - interval: How often it is recorded.
    ///   - drainLimit: How long fetches that are under way may take at the end.
    ///   - saveLimit: How long saving may take, for each repository.
    ///   - logger: Gets a line for each repository when it is saved.
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

    /// Runs until the group shuts down; then saves, and returns.
    public func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                for metrics in self.metrics { await metrics.record() }
                try? await Task.sleep(for: self.interval)
            }
        }
        // In a task of its own: this one may be cancelled.
        await Task { await self.end() }.value
    }

    private func end() async {
        let clock = ContinuousClock()
        let end = clock.now + self.drainLimit
        // A repository does not say when its last flight has ended.
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

/// What a health check answers about a repository.
public struct RepositoryHealth: Sendable, Hashable, Codable {
    /// Whether the last save has written everything, nothing of an ended session is still to be removed, and the shared store is available.
    ///
    /// An unhealthy machine still answers requests: connect the check to an alarm. A load balancer would remove all machines in an outage of the
    /// engine.
    public let isHealthy: Bool
    /// Values in memory.
    public let entries: Int
    /// Values in memory that are not saved.
    public let unsaved: Int
    /// Calls that wait.
    public let waiters: Int
    /// Fetches under way.
    public let flights: Int
    /// What the last save could not write.
    public let saveFailures: Int
    /// The reason of an outage of the shared store, such as `WRONGPASS`; `nil` without an outage or without a shared store.
    public let sharedStoreOutage: String?
    /// The number of invalidations without confirmation by the shared store.
    public let pendingInvalidations: Int

    /// Asks a repository.
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
