/// Bounds the load of all callers on a failing host.
///
/// For each host, retries are limited to a share of the first attempts: 1,000 simultaneous failures with
/// three attempts each do not become 3,000 requests. After consecutive failures a circuit breaker opens:
/// requests, except probes, are refused with ``RetryError/Reason/hostDown``, until the host responds to any
/// request. A transient error, such as a time-out or the status 503, is a failure. A success, and a permanent
/// error with a status code or for a refused token, count as responses.
///
/// **Concurrent calls.** All members can be called from any thread.
public final class RetryBudget: Sendable {
    /// The bounds of a ``RetryBudget``.
    public struct Limits: Sendable, Hashable {
        /// The permitted number of retries per first attempt; by default 0.1.
        public var share: Double

        /// The count of retries up to which a retry is permitted even with few first attempts; by default 10.
        ///
        /// The count is halved after each ``window``, not reset.
        public var minimumRetries: Int

        /// The time after which the counts of first attempts and retries are halved; by default 10 seconds.
        public var window: Duration

        /// The number of consecutive failures that opens the breaker; by default 20.
        public var failuresToOpen: Int

        /// The first pause of an open breaker, doubled with each failed probe; by default 5 seconds.
        public var pause: Duration

        /// The longest pause, unless ``pause`` is longer; by default 5 minutes.
        public var maximumPause: Duration

        /// The time until another request is admitted as a probe if the former probe has not ended; by
        /// default 30 seconds.
        ///
        /// A response to any request closes the breaker.
        public var probeLimit: Duration

        /// The maximum number of hosts in memory; by default 1,000.
        ///
        /// Above the maximum, hosts are removed: healthy hosts first, in the order of their last use.
        public var maximumHosts: Int

        /// Makes limits; each parameter sets the property of the same name.
        public init(
            share: Double = 0.1,
            minimumRetries: Int = 10,
            window: Duration = .seconds(10),
            failuresToOpen: Int = 20,
            pause: Duration = .seconds(5),
            maximumPause: Duration = .seconds(5 * 60),
            probeLimit: Duration = .seconds(30),
            maximumHosts: Int = 1_000
        ) {
            self.share = share
            self.minimumRetries = minimumRetries
            self.window = window
            self.failuresToOpen = failuresToOpen
            self.pause = pause
            self.maximumPause = maximumPause
            self.probeLimit = probeLimit
            self.maximumHosts = maximumHosts
        }
    }

    /// The default budget of a ``RetryPolicy/Host``.
    public static let shared = RetryBudget()

    private let limits: Limits
    private let time: TimeSource
    private let hosts = Locked<[String: CircuitBreaker]>([:])
    /// Notifies the listeners for a host name of each response from the host.
    let responses = Broadcast<String, Void>()

    /// Makes a budget with all counts at zero.
    public init(_ limits: Limits = .init(), clock: any Clock<Duration> = ContinuousClock()) {
        self.limits = limits
        self.time = TimeSource(clock)
    }

    /// Changes the breaker of the host with this name; `body` receives the current time.
    func withBreaker<R: Sendable>(of name: String, _ body: (inout CircuitBreaker, Moment) -> R) -> R {
        let now = self.time.now
        return self.hosts.withLock { hosts in
            var breaker = hosts[name] ?? CircuitBreaker(self.limits, at: now)
            if hosts[name] == nil { hosts.makeRoom(limit: max(self.limits.maximumHosts, 1)) }
            defer { hosts[name] = breaker }
            return body(&breaker, now)
        }
    }

    /// The number of hosts in memory.
    package var hostCount: Int { self.hosts.withLock { $0.count } }
}
