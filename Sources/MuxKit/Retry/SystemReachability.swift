/// Monitors the system's network.
///
/// - On Apple platforms the monitor uses `NWPathMonitor`.
/// - On Linux the monitor follows the kernel's routing table: the network is reachable with a default route.
///   A container without a default route counts as offline.
/// - On other platforms, and if Linux refuses the socket, no state is reported.
///
/// All calls of ``watch(_:)`` share one watch of the system, which ends with the last watch. No thread is
/// blocked.
package final class SystemReachability: Sendable {
    package static let shared = SystemReachability()

    package typealias Start = @Sendable (_ changed: @escaping @Sendable (Bool) -> Void) -> (@Sendable () -> Void)?

    private struct State: Sendable {
        var watchers = Subscribers<@Sendable (Bool) -> Void>()
        var last: Bool?
        /// Incremented with each start; reports of earlier starts are ignored.
        var generation: UInt64 = 0
        var stop: (@Sendable () -> Void)?
        /// Undelivered reports, in order.
        var reports: [(watcher: UInt64, isReachable: Bool)] = []
        var isDelivering = false

        /// Begins a delivery, unless a delivery is running or no report is pending.
        ///
        /// - Returns: Whether the caller must deliver the reports.
        mutating func beginsDelivery() -> Bool {
            guard !self.isDelivering, !self.reports.isEmpty else { return false }
            self.isDelivering = true
            return true
        }
    }

    private let state = Locked(State())
    private let start: Start

    /// Makes a monitor.
    ///
    /// - Parameter start: Starts to watch the system, and returns a closure that ends the watch; `nil` if the
    ///   system cannot be watched. A lock is held during both calls: neither may call `changed`, or wait for
    ///   a running call of `changed`.
    package init(start: @escaping Start = NetworkPath.watch) { self.start = start }

    /// Starts to watch.
    ///
    /// - Parameter changed: Called with the current state as soon as known, then with each change; on a
    ///   system thread, or on a thread that calls this method.
    /// - Returns: A closure that ends the watch; a running call of `changed` continues.
    package func watch(_ changed: @escaping @Sendable (_ isReachable: Bool) -> Void) -> @Sendable () -> Void {
        let (id, delivers) = self.state.withLock { state -> (UInt64, Bool) in
            let id = state.watchers.add(changed)
            if state.stop == nil {
                state.generation += 1
                let generation = state.generation
                state.stop = self.start { [weak self] in self?.changed(to: $0, generation) }
            }
            if let last = state.last { state.reports.append((id, last)) }
            return (id, state.beginsDelivery())
        }
        if delivers { self.deliver() }
        // A strong reference: the watches retain the monitor.
        return {
            let removed = self.state.withLock { state -> (@Sendable (Bool) -> Void)? in
                guard let removed = state.watchers.remove(id) else { return nil }
                if state.watchers.isEmpty {
                    state.stop?()
                    state.stop = nil
                    state.last = nil
                }
                return removed
            }
            withExtendedLifetime(removed) {}
        }
    }

    private func changed(to isReachable: Bool, _ generation: UInt64) {
        let delivers = self.state.withLock { state -> Bool in
            guard generation == state.generation, state.stop != nil, state.last != isReachable else { return false }
            state.last = isReachable
            state.reports += state.watchers.ids.map { ($0, isReachable) }
            return state.beginsDelivery()
        }
        if delivers { self.deliver() }
    }

    /// Delivers the reports outside of the lock, one at a time, so that the last report of each watch is the
    /// latest state.
    private func deliver() {
        while let (watcher, isReachable) = self.next() { watcher?(isReachable) }
    }

    private func next() -> ((@Sendable (Bool) -> Void)?, Bool)? {
        self.state.withLock { state in
            guard !state.reports.isEmpty else {
                state.isDelivering = false
                return nil
            }
            let (watcher, isReachable) = state.reports.removeFirst()
            return (state.watchers[watcher], isReachable)
        }
    }
}

extension RetrySignal.WakeUp {
    /// Wakes when the network becomes reachable again.
    ///
    /// If the network stays reachable during the wait, this wake-up does not end the wait. On Apple platforms
    /// the system's network path decides, on Linux the kernel's routing table: the network is reachable with
    /// a default route. If the system reports no state, this wake-up never ends a wait.
    ///
    /// - Parameter host: The host of the request, only for the log; the host is not contacted.
    /// - Returns: The wake-up.
    public static func reachable(_ host: RetryPolicy.Host) -> RetrySignal.WakeUp {
        .reachable(host, monitor: SystemReachability.shared)
    }

    /// The same as ``reachable(_:)``, with the given monitor.
    package static func reachable(_ host: RetryPolicy.Host, monitor: SystemReachability) -> RetrySignal.WakeUp {
        RetrySignal.WakeUp("network for \(host.name)", .signal) { _, wake in
            let wasReachable = Locked(true)
            return monitor.watch { isReachable in
                let isBack = wasReachable.withLock { wasReachable in
                    defer { wasReachable = isReachable }
                    return isReachable && !wasReachable
                }
                if isBack { wake() }
            }
        }
    }
}
