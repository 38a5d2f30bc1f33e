import Foundation
package import MuxKit

/// Makes cached values stale when a request changes their resource: RFC 9111, section 4.4.
///
/// If the response to a request with an unsafe method has a status from 200 to 399, the request has changed
/// the resource of its URL, and the resources of the same origin in `Location` and `Content-Location`. A
/// request that fails without a response counts as a change of the resource of its URL. A query
/// (``ValidatedCall/isQuery``) changes no resource.
package final class InvalidationInterceptor: Sendable {
    /// Receives changes.
    package protocol Listener: AnyObject, Sendable {
        /// The resource `name` has changed.
        func resourceChanged(_ name: HTTPResourceName)
    }

    private struct State: Sendable {
        struct WeakListener: Sendable {
            weak var listener: (any Listener)?
        }

        var changes: [HTTPResourceName: Moment] = [:]
        /// The last time at which ``changes`` was cleared because of ``maximumChanges``: each value fetched
        /// before this time counts as changed.
        var everythingChanged: Moment?
        var listeners: [WeakListener] = []
        /// The number of listeners at which deallocated listeners are removed.
        var purgeCount = 64
    }

    /// The maximum number of recorded changes.
    package static let maximumChanges = 1_000

    private let time: TimeSource
    private let state = Locked(State())

    package init(time: TimeSource) { self.time = time }

    /// Runs `next`, which sends `call`, and records the changed resources.
    ///
    /// - Throws: The error of `next`.
    package func send(_ call: ValidatedCall, next: () async throws -> HTTPReply) async throws -> HTTPReply {
        guard !call.method.isSafe, !call.isQuery else { return try await next() }
        do {
            let reply = try await next()
            self.recordChanges(of: Self.resources(changedBy: call, reply))
            return reply
        } catch {
            // The server may have processed the request: the safe assumption is a changed resource.
            self.recordChanges(of: Set([call.call.url].compactMap { HTTPResourceName($0) }))
            throw error
        }
    }

    /// The resources that a request with an unsafe method has changed, according to its response; empty for a
    /// status outside 200 to 399.
    static func resources(changedBy call: ValidatedCall, _ reply: HTTPReply) -> Set<HTTPResourceName> {
        guard (200...399).contains(reply.status) else { return [] }
        let url = call.call.url
        let named = [HTTPHeaders.Name.location, .contentLocation].compactMap { reply.headers[$0] }.compactMap {
            URLReference.url($0, relativeTo: reply.url ?? url)
        }
        // Section 4.4: only resources of the same origin; otherwise a server could invalidate responses of
        // other servers.
        return Set(([url] + named.filter { HTTPOrigin($0) == call.origin }).compactMap { HTTPResourceName($0) })
    }

    private func recordChanges(of names: Set<HTTPResourceName>) {
        guard !names.isEmpty else { return }
        let now = self.time.now
        let listeners = self.state.withLock { state in
            for name in names { state.changes[name] = now }
            if state.changes.count > Self.maximumChanges {
                state.changes = [:]
                state.everythingChanged = now
            }
            return state.listeners.compactMap(\.listener)
        }
        for listener in listeners { for name in names { listener.resourceChanged(name) } }
    }

    /// The number of places for listeners, including places of deallocated listeners.
    package var listenerPlaces: Int { self.state.withLock { $0.listeners.count } }

    /// Reports changes to `listener`, until the listener's deallocation.
    package func listen(_ listener: any Listener) {
        // Released outside the lock: each reference may be the last.
        var living: [any Listener] = []
        defer { withExtendedLifetime(living) {} }
        self.state.withLock { state in
            if state.listeners.count >= state.purgeCount {
                living = state.listeners.compactMap(\.listener)
                state.listeners = living.map { State.WeakListener(listener: $0) }
                state.purgeCount = max(64, state.listeners.count * 2)
            }
            state.listeners.append(State.WeakListener(listener: listener))
        }
    }

    /// The time since the last change of the resource; `nil` without a recorded change.
    package func timeSinceChange(of name: HTTPResourceName) -> Duration? {
        let now = self.time.now
        let changed = self.state.withLock { state in
            [state.changes[name], state.everythingChanged].compactMap { $0 }.max()
        }
        return changed.map { now.duration(since: $0) }
    }
}

/// The keys of one multiplexer by resource: a change of a resource makes the values of its keys stale.
package final class HTTPResourceIndex<Key: Hashable & Sendable>: InvalidationInterceptor.Listener {
    private struct State: Sendable {
        var keys: [HTTPResourceName: Set<Key>] = [:]
        /// The last two resources of each key: the fetch of a new resource may fail, so that the value of the
        /// former resource remains.
        var names: [Key: [HTTPResourceName]] = [:]
        /// The number of records; a key with two resources has two records.
        var count = 0
        /// The number of records above which keys that are neither in memory nor in flight are removed.
        var limit = 1_000
        /// The keys that were recorded since the start of a running removal; `nil` without a running removal.
        var recordedInPrune: Set<Key>?
        var refresh: @Sendable (Key) -> Void = { _ in }
        var isInUse: @Sendable (Key) -> Bool = { _ in true }

        mutating func remove(_ key: Key, of name: HTTPResourceName) {
            if self.keys[name]?.remove(key) != nil { self.count -= 1 }
            if self.keys[name]?.isEmpty ?? false { self.keys[name] = nil }
        }
    }

    private let state = Locked(State())
    private let invalidation: InvalidationInterceptor
    private let time: TimeSource

    package init(_ invalidation: InvalidationInterceptor, time: TimeSource) {
        self.invalidation = invalidation
        self.time = time
    }

    /// Starts to call `refresh` for the keys of changed resources; neither closure may retain the
    /// multiplexer.
    ///
    /// - Parameters:
    ///   - refresh: Makes the value of a key stale.
    ///   - isInUse: Whether a key is in memory or in flight; the index may remove any other key.
    package func attach(
        refresh: @escaping @Sendable (Key) -> Void,
        isInUse: @escaping @Sendable (Key) -> Bool
    ) {
        self.state.withLock { state in
            state.refresh = refresh
            state.isInUse = isInUse
        }
        self.invalidation.listen(self)
    }

    /// Records `name` as the resource of `key`, and removes all former resources except the last.
    package func recordKey(_ key: Key, of name: HTTPResourceName) {
        let isCrowded = self.state.withLock { state in
            if state.keys[name, default: []].insert(key).inserted { state.count += 1 }
            let former = (state.names[key] ?? []).filter { $0 != name }
            for old in former.dropLast() { state.remove(key, of: old) }
            state.names[key] = Array(former.suffix(1)) + [name]
            state.recordedInPrune?.insert(key)
            return state.count > state.limit
        }
        if isCrowded { self.prune(keeping: key) }
    }

    /// Removes keys that are neither in memory nor in flight; a later fetch or read from disk records the key
    /// again.
    ///
    /// `key`, which was just recorded, and a key that is recorded during the removal are in use, and stay.
    private func prune(keeping key: Key) {
        let start: (names: [Key: [HTTPResourceName]], isInUse: @Sendable (Key) -> Bool)? = self.state.withLock {
            state in
            guard state.recordedInPrune == nil else { return nil }
            state.recordedInPrune = [key]
            return (state.names, state.isInUse)
        }
        guard let (old, isInUse) = start else { return }
        // Outside the lock, because `isInUse` takes the locks of the multiplexer.
        let gone = Set(old.keys.filter { !isInUse($0) })
        self.state.withLock { state in
            for key in gone.subtracting(state.recordedInPrune ?? []) {
                for name in state.names.removeValue(forKey: key) ?? [] { state.remove(key, of: name) }
            }
            state.limit = max(1_000, state.count * 2)
            state.recordedInPrune = nil
        }
    }

    /// The time of the last change of the resource, by the clock of the repository; `nil` without a recorded
    /// change.
    package func changedAt(_ name: HTTPResourceName) -> Moment? {
        self.invalidation.timeSinceChange(of: name).map { self.time.now.advanced(by: .zero - $0) }
    }

    package func resourceChanged(_ name: HTTPResourceName) {
        let (keys, refresh) = self.state.withLock { ($0.keys[name] ?? [], $0.refresh) }
        for key in keys { refresh(key) }
    }

    /// The number of records.
    package var count: Int { self.state.withLock { $0.count } }
}
