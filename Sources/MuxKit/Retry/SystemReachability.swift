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
        var nextID: UInt64 = 0
        var watchers: [UInt64: @Sendable (Bool) -> Void] = [:]
        var last: Bool?
        /// Raised with each start; what an earlier one tells is old.
        var generation: UInt64 = 0
        var stop: (@Sendable () -> Void)?
    }

    private let state = Guarded(State())
    private let start: Start

    /// Asks `start` for the network; it must not call back before it has returned.
    package init(start: @escaping Start = NetworkPath.watch) { self.start = start }

    /// Begins to watch; calls happen on a thread of the system.
    public func watch(_ changed: @escaping @Sendable (_ isReachable: Bool) -> Void) -> @Sendable () -> Void {
        let (id, last) = self.state.withLock { state -> (UInt64, Bool?) in
            state.nextID += 1
            state.watchers[state.nextID] = changed
            if state.stop == nil {
                state.generation += 1
                let generation = state.generation
                state.stop = self.start { [weak self] in self?.changed(to: $0, generation) }
            }
            return (state.nextID, state.last)
        }
        if let last { changed(last) }
        return { [state] in
            state.withLock { state in
                guard state.watchers.removeValue(forKey: id) != nil, state.watchers.isEmpty else { return }
                state.stop?()
                state.stop = nil
                state.last = nil
            }
        }
    }

    private func changed(to isReachable: Bool, _ generation: UInt64) {
        let watchers = self.state.withLock { state -> [@Sendable (Bool) -> Void] in
            guard generation == state.generation, state.stop != nil, state.last != isReachable else { return [] }
            state.last = isReachable
            return state.watchers.sorted { $0.key < $1.key }.map(\.value)
        }
        for watcher in watchers { watcher(isReachable) }
    }
}
