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
