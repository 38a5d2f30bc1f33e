import MuxKit

/// Limits the number of simultaneous calls to each host; further calls start in the order of arrival.
///
/// A waiting call does not delay calls to other hosts. libcurl has such a limit as well, but when a
/// connection becomes free, libcurl (7.88) checks only one waiting call, of any host. If that call is for
/// another host, no call starts: a host without responses would delay all other hosts.
package struct HostQueues<Host: Hashable & Sendable, Call: Sendable>: Sendable {
    private struct Queue: Sendable {
        var runningCount = 0
        /// Identifiers of waiting calls, and of calls that were removed while waiting.
        var waiting = FIFOQueue<Int>()
        /// The number of calls that were removed while waiting, since ``compactQueue(of:)`` last compacted
        /// the queue.
        var abandonedCount = 0
    }

    private enum Place: Sendable {
        case running(Host)
        case waiting(Host, Call)
    }

    private let limit: Int
    private var queues: [Host: Queue] = [:]
    private var places: [Int: Place] = [:]

    /// Makes empty queues; a limit below 1 counts as 1.
    package init(limit: Int) { self.limit = max(1, limit) }

    /// The numbers of hosts, of calls, and of slots in the queues, including vacated slots.
    package var counts: (hosts: Int, calls: Int, slots: Int) {
        (self.queues.count, self.places.count, self.queues.values.reduce(0) { $0 + $1.waiting.placeCount })
    }

    /// Adds a call under a new identifier.
    ///
    /// - Returns: Whether the call may start. Otherwise ``remove(_:)`` of another call returns the call
    ///   later, unless the call is removed first.
    package mutating func add(_ call: Call, _ id: Int, at host: Host) -> Bool {
        guard self.queues[host, default: Queue()].runningCount < self.limit else {
            self.queues[host]?.waiting.append(id)
            self.places[id] = .waiting(host, call)
            return false
        }
        self.queues[host, default: Queue()].runningCount += 1
        self.places[id] = .running(host)
        return true
    }

    /// Removes a call that has ended or was cancelled; an unknown identifier has no effect.
    ///
    /// - Returns: The waiting call that may start instead; `nil` without such a call.
    /// - Complexity: O(1), amortised.
    package mutating func remove(_ id: Int) -> Call? {
        switch self.places.removeValue(forKey: id) {
        case nil: return nil
        case .waiting(let host, _)?:
            self.queues[host]?.abandonedCount += 1
            self.compactQueue(of: host)
            return nil
        case .running(let host)?:
            guard var queue = self.queues.removeValue(forKey: host) else { return nil }
            defer { if queue.runningCount > 0 { self.queues[host] = queue } }
            while let next = queue.waiting.popFirst() {
                guard case .waiting(_, let call)? = self.places[next] else { continue }
                self.places[next] = .running(host)
                return call
            }
            queue.runningCount -= 1
            return nil
        }
    }

    /// Removes the identifiers of removed calls from the queue of a host, if ``Queue/abandonedCount`` is more
    /// than 16 and more than half of the slots of the queue, including vacated slots.
    private mutating func compactQueue(of host: Host) {
        guard let queue = self.queues[host], queue.abandonedCount > 16,
            queue.abandonedCount * 2 > queue.waiting.placeCount
        else { return }
        let calls = self.places
        self.queues[host]?.waiting.removeAll { calls[$0] == nil }
        self.queues[host]?.abandonedCount = 0
    }
}
