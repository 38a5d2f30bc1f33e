/// Keeps a host that fails from being asked ever more, by all who ask it together.
///
/// Two bounds for each host. Retries are at most a share of the first attempts: 1,000 callers whose requests fail at once do
/// not make 3,000 of them. And a host that only fails is left alone for a while: calls end at once with
/// ``RetryError/Reason/hostDown``, until one request finds out that it works again.
///
/// One budget is shared by all that use ``shared``, as a ``RetryHost`` does unless it is given another.
public final class RetryBudget: Sendable {
    /// The bounds of a ``RetryBudget``.
    public struct Options: Sendable, Hashable {
        /// How many retries there may be for each first attempt; 0.1.
        public var share = 0.1

        /// How many retries there may be within a window in any case, so that a single caller has some; 10.
        public var minimumRetries = 10

        /// After what time attempts count for half; 10 seconds.
        public var window: Duration = .seconds(10)

        /// After how many failures in a row a host is left alone; 20.
        public var failuresToOpen = 20

        /// For how long at first; 5 seconds, and twice as long each time that the request which finds out fails, too.
        public var pause: Duration = .seconds(5)

        /// For how long at most; 5 minutes.
        public var maximumPause: Duration = .seconds(5 * 60)

        /// How long the request that finds out may take before another one is let through; 30 seconds.
        ///
        /// The host stays shut for all others meanwhile. Whichever of the requests is answered first opens it.
        public var probeLimit: Duration = .seconds(30)

        /// How many hosts are kept account of; 1,000.
        ///
        /// Beyond that, the one that was not asked for longest is forgotten.
        public var maximumHosts = 1_000

        /// The defaults.
        public init() {}
    }

    /// The budget of everybody who has no other.
    public static let shared = RetryBudget()

    private let options: Options
    private let time: TimeSource
    private let hosts = Locked<[String: CircuitBreaker]>([:])
    /// Sent by host when the host answers.
    private let answers = Broadcast<String, Void>()

    /// A budget that nothing has been taken from.
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

    /// The host has answered somebody: it works, and who waits for that is woken.
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
        // A quarter at a time, so that many new hosts do not each cost a look at all.
        for (name, _) in order.prefix(max(hosts.count - limit + 1, limit / 4)) { hosts[name] = nil }
    }

    /// How many hosts are kept account of.
    package var hostCount: Int { self.hosts.withLock { $0.count } }
}
