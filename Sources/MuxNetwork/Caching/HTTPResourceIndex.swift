package import Foundation
package import MuxKit

/// Which keys of one multiplexer stand for which resource, so that a change of the resource finds them.
package final class HTTPResourceIndex<Key: Hashable & Sendable>: HTTPTraffic.Listener {
    private struct State: Sendable {
        var keys: [HTTPResourceName: Set<Key>] = [:]
        var count = 0
        /// Beyond this many, those that are neither in memory nor being fetched go.
        var limit = 1_000
    }

    private let state = Locked(State())
    private let traffic: HTTPTraffic
    private let time: TimeSource
    private let refresh = Locked<@Sendable (Key) -> Void>({ _ in })
    private let isKnown = Locked<@Sendable (Key) -> Bool>({ _ in true })

    package init(_ traffic: HTTPTraffic, time: TimeSource) {
        self.traffic = traffic
        self.time = time
    }

    /// Begins to pass on changes; both closures must not keep their multiplexer alive.
    package func attach(
        refresh: @escaping @Sendable (Key) -> Void,
        isKnown: @escaping @Sendable (Key) -> Bool
    ) {
        self.refresh.withLock { $0 = refresh }
        self.isKnown.withLock { $0 = isKnown }
        self.traffic.listen(self)
    }

    /// Notes that `key` stands for what `name` names.
    package func note(_ key: Key, _ name: HTTPResourceName) {
        let isCrowded = self.state.withLock { state in
            if state.keys[name, default: []].insert(key).inserted { state.count += 1 }
            return state.count > state.limit
        }
        if isCrowded { self.prune() }
    }

    /// Forgets keys that are neither in memory nor being fetched: when one is read from disk again, it is noted again.
    private func prune() {
        let isKnown = self.isKnown.withLock { $0 }
        let old = self.state.withLock { $0.keys }
        let gone = old.mapValues { $0.filter { !isKnown($0) } }.filter { !$0.value.isEmpty }
        self.state.withLock { state in
            for (name, keys) in gone {
                state.keys[name]?.subtract(keys)
                if state.keys[name]?.isEmpty ?? false { state.keys[name] = nil }
            }
            state.count = state.keys.values.reduce(0) { $0 + $1.count }
            state.limit = max(1_000, state.count * 2)
        }
    }

    /// When what `name` names was changed last; `nil` if it was not, as far as is known.
    package func changedAt(_ name: HTTPResourceName) -> Moment? {
        self.traffic.timeSinceChange(of: name).map { self.time.now.advanced(by: .zero - $0) }
    }

    package func changed(_ name: HTTPResourceName) {
        let keys = self.state.withLock { $0.keys[name] ?? [] }
        let refresh = self.refresh.withLock { $0 }
        for key in keys { refresh(key) }
    }

    /// How many keys are noted.
    package var count: Int { self.state.withLock { $0.count } }
}

/// What a URL names, whatever way it is written: RFC 9110, section 4.2.3.
package struct HTTPResourceName: Sendable, Hashable {
    private let origin: HTTPOrigin
    /// Path and query, as they are sent.
    private let target: String

    /// The name of what an absolute `http` or `https` URL names; `nil` for any other.
    package init?(_ url: URL) {
        guard let origin = HTTPOrigin(url) else { return nil }
        self.origin = origin
        let path = url.path(percentEncoded: true)
        let query = url.query(percentEncoded: true).map { "?\($0)" } ?? ""
        self.target = PercentEncoding.normalized((path.isEmpty ? "/" : path) + query)
    }
}
