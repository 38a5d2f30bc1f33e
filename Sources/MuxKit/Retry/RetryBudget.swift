/// Bounds the load of all callers on a host that fails.
///
/// For each host, retries are limited to a share of the first attempts, so 1,000 requests that fail at once do not become 3,000.
/// After consecutive failures a circuit breaker opens: attempts end at once with ``RetryError/Reason/hostDown``, until a probe
/// succeeds.
///
/// **Concurrent calls.** All members can be called from any thread.
public final class RetryBudget: Sendable {
    /// The bounds of a ``RetryBudget``.
    public struct Options: Sendable, Hashable {
        /// The number of retries for each first attempt; 0.1.
        public var share: Double

        /// The number of retries within a window that are always permitted; 10.
        public var minimumRetries: Int

        /// The time after which the counts are halved; 10 seconds.
        public var window: Duration

        /// The number of consecutive failures that opens the breaker; 20.
        public var failuresToOpen: Int

        /// The first pause of an open breaker; 5 seconds, doubled with each failed probe.
        public var pause: Duration

        /// The longest pause; 5 minutes.
        public var maximumPause: Duration

        /// The time after which another probe is let through, if the first has not ended; 30 seconds.
        ///
        /// The first answer to any of them closes the breaker.
        public var probeLimit: Duration

        /// The number of hosts in memory; 1,000.
        ///
        /// Beyond that, healthy hosts are removed first, and of these the least recently used.
        public var maximumHosts: Int

        /// The parameters have the names of the properties.
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

    /// The budget of every ``RetryPolicy/Host`` that is made without one.
    public static let shared = RetryBudget()

    private let options: Options
    private let time: TimeSource
    private let hosts = Locked<[String: CircuitBreaker]>([:])
    /// Sent by host when the host answers.
    private let answers = Broadcast<String, Void>()

    /// Makes a budget without counts.
    public init(_ options: Options = .init(), clock: any Clock<Duration> = ContinuousClock()) {
        self.options = options
        self.time = TimeSource(clock)
    }

    func admit(_ name: String, isRetry: Bool) -> UInt64? {
        let now = self.time.now
        let action = self.withHost(name, at: now) { $0.wanted(isRetry: isRetry, at: now) }
        switch action {
        case .ask(let ticket): return ticket
        case .refuse: return nil
        }
    }

    func permitsRetry(_ name: String) -> Bool {
        let now = self.time.now
        return self.withHost(name, at: now) { $0.retryWanted(at: now) }
    }

    func answered(_ name: String) {
        self.withHost(name, at: self.time.now) { $0.answered() }
        self.answers.send((), to: name)
    }

    func failed(_ name: String, _ ticket: UInt64) {
        let now = self.time.now
        self.withHost(name, at: now) { $0.failed(ticket, at: now) }
    }

    func abandoned(_ name: String, _ ticket: UInt64) {
        let now = self.time.now
        self.withHost(name, at: now) { $0.abandoned(ticket, at: now) }
    }

    func listen(_ name: String, _ wake: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        self.answers.add(to: name, wake)
    }

    private func withHost<R: Sendable>(_ name: String, at now: Moment, _ body: (inout CircuitBreaker) -> R) -> R {
        self.hosts.withLock { hosts in
            var host = hosts[name] ?? CircuitBreaker(self.options, at: now)
            if hosts[name] == nil { Self.makeRoom(in: &hosts, limit: max(self.options.maximumHosts, 1)) }
            defer { hosts[name] = host }
            return body(&host)
        }
    }

    /// Removes hosts: healthy ones first, and of these the least recently used.
    private static func makeRoom(in hosts: inout [String: CircuitBreaker], limit: Int) {
        guard hosts.count >= limit else { return }
        let order = hosts.sorted { a, b in
            let (a, b) = (a.value, b.value)
            return a.isHealthy != b.isHealthy ? a.isHealthy : a.lastUsed < b.lastUsed
        }
        // A quarter at a time, so that many new hosts do not each cost a sort.
        for (name, _) in order.prefix(max(hosts.count - limit + 1, limit / 4)) { hosts[name] = nil }
    }

    /// The number of hosts in memory.
    package var hostCount: Int { self.hosts.withLock { $0.count } }
}
