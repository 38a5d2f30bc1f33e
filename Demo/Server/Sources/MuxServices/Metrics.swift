public import Metrics
public import MuxKit
import Synchronization

/// Counts and times the events of repositories, with swift-metrics.
///
/// ```swift
/// let repository = MuxRepository(observer: MetricsObserver())
/// ```
///
/// `mux.events` counts by `kind`, `cache` (the name of a multiplexer or a runner) and, for failures,
/// `reason`. `mux.duration` times events with a duration, by `kind` and `cache`. Each counter and timer is
/// made once. Keys of entries are never dimensions: a cache may have millions of keys. Hits are not observed,
/// because the event would take longer than the hit; ``RepositoryMetrics`` records hits.
///
/// **Concurrent calls.** Any member may be called from any thread.
public final class MetricsObserver: MuxObserver {
    /// `false`: hits are counted by the repository.
    public var observesHits: Bool { false }

    private struct Kind: Hashable {
        let kind: MuxEvent.Kind
        let name: String
        let reason: MuxEvent.Reason?
    }

    private struct Handles: Sendable {
        let counter: Counter
        let timer: Metrics.Timer?
    }

    /// The maximum number of kinds of events with separate handles; further names and reasons are `other`.
    private static let maximumKinds = 5_000

    private let label: String
    private let factory: any MetricsFactory
    private let handles = Mutex<[Kind: Handles]>([:])

    /// Makes an observer.
    ///
    /// - Parameters:
    ///   - label: The prefix of labels.
    ///   - factory: The factory of counters and timers.
    public init(label: String = "mux", factory: any MetricsFactory = MetricsSystem.factory) {
        self.label = label
        self.factory = factory
    }

    /// Counts the event, and records its duration.
    public func observe(_ event: MuxEvent) {
        let kind = Kind(kind: event.kind, name: event.name ?? event.cacheKey ?? "", reason: event.reason)
        let handles = self.handles(of: kind, isTimed: event.duration != nil)
        handles.counter.increment()
        if let duration = event.duration { handles.timer?.record(duration: duration) }
    }

    private func handles(of kind: Kind, isTimed: Bool) -> Handles {
        self.handles.withLock { handles in
            if let known = handles[kind] { return known }
            var kind = kind
            if handles.count >= Self.maximumKinds {
                kind = Kind(kind: kind.kind, name: "other", reason: kind.reason == nil ? nil : .other("other"))
                if let known = handles[kind] { return known }
            }
            var dimensions = [("kind", "\(kind.kind)"), ("cache", kind.name)]
            let timer =
                isTimed
                ? Metrics.Timer(label: "\(self.label).duration", dimensions: dimensions, factory: self.factory) : nil
            if let reason = kind.reason { dimensions.append(("reason", "\(reason)")) }
            let counter = Counter(label: "\(self.label).events", dimensions: dimensions, factory: self.factory)
            let made = Handles(counter: counter, timer: timer)
            handles[kind] = made
            return made
        }
    }
}

/// Records the statistics and gauges of a repository in swift-metrics.
///
/// Call ``record()`` every few seconds, as ``MuxService`` does.
///
/// Counters: `mux.hits`, `mux.joins`, `mux.misses`, `mux.fetches`, `mux.failures`, `mux.stale`,
/// `mux.shared_hits`. Meters: `mux.entries`, `mux.unsaved`, `mux.waiters`, `mux.flights`,
/// `mux.save_failures`, `mux.shared_store_unavailable` (1 during an outage), `mux.pending_invalidations`.
///
/// **Concurrent calls.** Any member may be called from any task.
public final class RepositoryMetrics: Sendable {
    private typealias Figure = @Sendable (MuxRepository.Statistics) -> Int
    private typealias Size = @Sendable (MuxRepository.Gauges) -> Int

    private let repository: MuxRepository
    private let counters: [(figure: Figure, counter: Counter)]
    private let meters: [(size: Size, meter: Meter)]
    private let last = Mutex(MuxRepository.Statistics())

    /// Makes the counters and meters.
    ///
    /// - Parameters:
    ///   - repository: The recorded repository.
    ///   - label: The prefix of labels.
    ///   - dimensions: The dimensions that distinguish several repositories.
    ///   - factory: The factory of counters and meters.
    public init(
        of repository: MuxRepository,
        label: String = "mux",
        dimensions: [(String, String)] = [],
        factory: any MetricsFactory = MetricsSystem.factory
    ) {
        let figures: [(String, Figure)] = [
            ("hits", { $0.hits }), ("joins", { $0.joins }), ("misses", { $0.misses }), ("fetches", { $0.fetches }),
            ("failures", { $0.failures }),
            ("stale", { $0.staleServed }), ("shared_hits", { $0.sharedHits }),
        ]
        let sizes: [(String, Size)] = [
            ("entries", { $0.entries }), ("unsaved", { $0.unsaved }), ("waiters", { $0.waiters }),
            ("flights", { $0.flights }),
            ("save_failures", { $0.lastSaveFailures }),
            ("shared_store_unavailable", { $0.sharedStoreOutage == nil ? 0 : 1 }),
            ("pending_invalidations", { $0.pendingInvalidations }),
        ]
        self.repository = repository
        self.counters = figures.map { name, figure in
            (figure, Counter(label: "\(label).\(name)", dimensions: dimensions, factory: factory))
        }
        self.meters = sizes.map { name, size in
            (size, Meter(label: "\(label).\(name)", dimensions: dimensions, factory: factory))
        }
    }

    /// Records the increase of the statistics since the previous call, and the current gauges.
    public func record() async {
        let gauges = await self.repository.gauges()
        self.last.withLock { last in
            let statistics = self.repository.statistics
            for (figure, counter) in self.counters {
                // The sum is lower after the release of a map.
                let increase = figure(statistics) - figure(last)
                if increase > 0 { counter.increment(by: increase) }
            }
            last = statistics
        }
        for (size, meter) in self.meters { meter.set(size(gauges)) }
    }
}
