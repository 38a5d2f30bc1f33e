public import Logging
public import MuxKit
import Synchronization

/// Writes the events of a repository to swift-log.
///
/// ```swift
/// let repository = MuxRepository(observer: LogObserver(Logger(label: "cache")))
/// ```
///
/// Failures and outages of a shared store are warnings. The number of warnings per second is limited; the
/// next warning has the number of omitted warnings. Retried attempts are `info`, all other events `debug`.
/// Hits are not written. No line contains a value, a token or the text of an error. A line contains the key
/// of an entry only on request, because keys may be names of people.
///
/// **Concurrent calls.** A line is written on the thread of the event.
public struct LogObserver: MuxObserver {
    /// `false`: hits are not written.
    public var observesHits: Bool { false }

    private let logger: Logger
    private let showsKeys: Bool
    private let limit: RateLimit

    /// Makes an observer.
    ///
    /// - Parameters:
    ///   - logger: The logger of the lines.
    ///   - showsKeys: Whether lines show the keys of entries.
    ///   - failuresPerSecond: The maximum number of warnings in a second.
    public init(_ logger: Logger, showsKeys: Bool = false, failuresPerSecond: Int = 10) {
        let start = ContinuousClock.now
        self.init(logger, showsKeys: showsKeys, failuresPerSecond: failuresPerSecond) { ContinuousClock.now - start }
    }

    package init(
        _ logger: Logger,
        showsKeys: Bool = false,
        failuresPerSecond: Int,
        time: @escaping @Sendable () -> Duration
    ) {
        self.logger = logger
        self.showsKeys = showsKeys
        self.limit = RateLimit(perSecond: failuresPerSecond, time)
    }

    /// Writes a line about the event, unless the logger omits the level.
    public func observe(_ event: MuxEvent) {
        let level = event.level
        guard self.logger.logLevel <= level else { return }
        var metadata: Logger.Metadata = [:]
        if level == .warning {
            guard let leftOut = self.limit.admit() else { return }
            if leftOut > 0 { metadata["left-out"] = "\(leftOut)" }
        }
        if let name = event.name ?? event.cacheKey { metadata["cache"] = "\(name)" }
        if self.showsKeys, let key = event.key { metadata["key"] = "\(key)" }
        if let reason = event.reason { metadata["reason"] = "\(reason)" }
        if let problem = event.problem { metadata["problem"] = "\(problem)" }
        if let duration = event.duration { metadata["milliseconds"] = "\(duration.milliseconds)" }
        self.logger.log(level: level, "\(event.kind)", metadata: metadata)
    }
}

/// Combines several observers into one observer.
///
/// Only observers of hits receive hits.
public struct ObserverGroup: MuxObserver {
    /// Whether an observer of the group observes hits.
    public let observesHits: Bool

    private let observers: [any MuxObserver]

    /// Makes a group.
    ///
    /// - Parameter observers: The observers, which receive each event in this order.
    public init(_ observers: any MuxObserver...) {
        self.observers = observers
        self.observesHits = observers.contains(where: \.observesHits)
    }

    /// Passes the event to all observers.
    public func observe(_ event: MuxEvent) {
        for observer in self.observers where event.kind != .hit || observer.observesHits { observer.observe(event) }
    }
}

extension MuxEvent {
    fileprivate var level: Logger.Level {
        switch self.kind {
        case .fetchRetried, .sharedStoreAvailable: .info
        case .fetchFailed where self.reason == .cancellation, .updateFailed where self.reason == .cancellation: .info
        case .evictedUnsaved, .cacheKeyShared, .repositoryMismatch, .updateInterrupted, .changesDropped: .warning
        default: self.reason != nil || self.problem != nil ? .warning : .debug
        }
    }
}

extension Duration {
    fileprivate var milliseconds: Double { self / .milliseconds(1) }
}

/// Limits the number of lines per second.
private final class RateLimit: Sendable {
    private struct State {
        var second = Int64.min
        var count = 0
        var leftOut = 0
    }

    private let perSecond: Int
    private let time: @Sendable () -> Duration
    private let state = Mutex(State())

    init(perSecond: Int, _ time: @escaping @Sendable () -> Duration) {
        self.perSecond = perSecond
        self.time = time
    }

    /// - Returns: The number of omitted lines before this line; `nil` if this line must be omitted too.
    func admit() -> Int? {
        let second = self.time().components.seconds
        return self.state.withLock { state in
            if state.second != second { (state.second, state.count) = (second, 0) }
            guard state.count < self.perSecond else {
                state.leftOut += 1
                return nil
            }
            state.count += 1
            defer { state.leftOut = 0 }
            return state.leftOut
        }
    }
}
