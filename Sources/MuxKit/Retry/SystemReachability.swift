/// Tells when the system's network comes and goes.
///
/// On Apple platforms it asks `NWPathMonitor`. On Linux it follows the kernel's routes, and takes the network to be there while
/// there is a default route; containers without one count as offline. On other platforms it knows nothing.
///
/// It watches only while somebody wants to know, once for all of them, and holds no thread.
public final class SystemReachability: ReachabilityMonitor {
    /// The one of the process.
    public static let shared = SystemReachability()

    /// Whether this platform can tell at all; where it cannot, no watch is ever called.
    public static var isSupported: Bool { NetworkPath.isSupported }

    package typealias Start = @Sendable (_ changed: @escaping @Sendable (Bool) -> Void) -> (@Sendable () -> Void)?

    private struct State: Sendable {
        var watchers = Subscribers<@Sendable (Bool) -> Void>()
        var last: Bool?
        /// Raised with each start; what an earlier one tells is old.
        var generation: UInt64 = 0
        var stop: (@Sendable () -> Void)?
        /// What is still to be told, and to whom, in order.
        var news: [(watcher: UInt64, isReachable: Bool)] = []
        /// Whether somebody is telling it.
        var isTelling = false

        /// Whether there is news, and nobody tells it yet.
        mutating func beginsTelling() -> Bool {
            guard !self.isTelling, !self.news.isEmpty else { return false }
            self.isTelling = true
            return true
        }
    }

    private let state = Locked(State())
    private let start: Start

    /// Asks `start` for the network; it must not call back before it has returned.
    package init(start: @escaping Start = NetworkPath.watch) { self.start = start }

    /// Begins to watch; calls happen on a thread of the system.
    public func watch(_ changed: @escaping @Sendable (_ isReachable: Bool) -> Void) -> @Sendable () -> Void {
        let (id, tells) = self.state.withLock { state -> (UInt64, Bool) in
            let id = state.watchers.add(changed)
            if state.stop == nil {
                state.generation += 1
                let generation = state.generation
                state.stop = self.start { [weak self] in self?.changed(to: $0, generation) }
            }
            if let last = state.last { state.news.append((id, last)) }
            return (id, state.beginsTelling())
        }
        if tells { self.tell() }
        // Holds the monitor: it lives as long as somebody watches.
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
        let tells = self.state.withLock { state -> Bool in
            guard generation == state.generation, state.stop != nil, state.last != isReachable else { return false }
            state.last = isReachable
            state.news += state.watchers.ids.map { ($0, isReachable) }
            return state.beginsTelling()
        }
        if tells { self.tell() }
    }

    /// Tells what there is, outside the lock: one at a time, so that nobody gets the older state last.
    private func tell() {
        while let (watcher, isReachable) = self.next() { watcher?(isReachable) }
    }

    private func next() -> ((@Sendable (Bool) -> Void)?, Bool)? {
        self.state.withLock { state in
            guard !state.news.isEmpty else {
                state.isTelling = false
                return nil
            }
            let (watcher, isReachable) = state.news.removeFirst()
            return (state.watchers[watcher], isReachable)
        }
    }
}

/// Tells when the network comes and goes.
///
/// ``SystemReachability`` is the system's; a test hands in one of its own.
public protocol ReachabilityMonitor: Sendable {
    /// Begins to watch.
    ///
    /// - Parameter changed: Called with whether the network is there: once for the present state, then with each change.
    /// - Returns: What ends the watch; called once.
    func watch(_ changed: @escaping @Sendable (_ isReachable: Bool) -> Void) -> @Sendable () -> Void
}

extension RetryWakeUp {
    /// Wakes when the network comes back.
    ///
    /// A network that was there all the time wakes nobody: it was not what the attempt failed of. Where the system cannot tell
    /// (see ``SystemReachability/isSupported``) this wakes nobody either, and the wait ends by its time.
    ///
    /// - Parameters:
    ///   - host: Whom the work asks; it names the wait in a log. Whether the host answers, only a request can tell.
    ///   - monitor: Who tells.
    /// - Returns: The wake-up.
    public static func reachable(
        _ host: RetryHost,
        monitor: any ReachabilityMonitor = SystemReachability.shared
    ) -> RetryWakeUp {
        RetryWakeUp("network for \(host.name)", .signal) { _, wake in
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

/// Reads Linux's tables of routes.
package enum KernelRoutes {
    private static let up = 0x1
    private static let reject = 0x200

    /// Whether one of the tables has a way to everywhere that is up.
    ///
    /// - Parameters:
    ///   - ipv4: The text of `/proc/net/route`: name, destination, gateway, flags, …, mask in the eighth column.
    ///   - ipv6: The text of `/proc/net/ipv6_route`: destination, its length, …, flags and name at the end.
    /// - Returns: Whether there is one.
    package static func haveDefault(ipv4: String, ipv6: String) -> Bool {
        let v4 = ipv4.split(separator: "\n").contains { line in
            let fields = line.split { $0 == " " || $0 == "\t" }
            return fields.count >= 8 && self.isZero(fields[1]) && self.isZero(fields[7]) && self.isUsable(fields[3])
        }
        return v4
            || ipv6.split(separator: "\n").contains { line in
                let fields = line.split { $0 == " " || $0 == "\t" }
                return fields.count >= 10 && self.isZero(fields[0]) && self.isZero(fields[1])
                    && self.isUsable(fields[8]) && fields[9] != "lo"
            }
    }

    private static func isZero(_ field: Substring) -> Bool { field.allSatisfy { $0 == "0" } }

    private static func isUsable(_ flags: Substring) -> Bool {
        guard let flags = Int(flags, radix: 16) else { return false }
        return flags & self.up != 0 && flags & self.reject == 0
    }
}
