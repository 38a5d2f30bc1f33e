public import Foundation
public import MuxKit
import Synchronization

/// A shared store in memory, with simulated delays, failures, cut connections and losses of entries.
///
/// The default clock is a ``VirtualClock`` that stands still: entries do not age, claims do not expire, and a
/// ``delay`` does not end. Each machine of a fleet has a separate connection:
///
/// ```swift
/// let store = MemorySharedStore(clock: clock)
/// let (first, second) = (store.connection(), store.connection())
/// second.isCut = true        // calls of `second` throw until `isCut` is `false` again
/// store.isDown = true        // all calls throw
/// ```
///
/// **Concurrent calls.** Any member may be called from any thread.
public final class MemorySharedStore: Sendable {
    /// The error of a call that does not reach the store, or that loses the reply.
    public struct Away: ConnectivityError, LocalizedError, CustomStringConvertible {
        /// Makes an error.
        public init() {}

        /// A text for the test's log.
        public var errorDescription: String? { self.description }

        /// A text for the test's log.
        public var description: String { "The shared store of the test is disconnected." }
    }

    fileprivate struct State: Sendable {
        var ledger = SharedLedger<MuxShared.Entry>()
        var connections: [UInt64: ConnectionState] = [:]
        /// The number of the last connection or stream.
        var lastID: UInt64 = 0
        var calls = 0
        var isDown = false
        var delay = Duration.zero
    }

    /// The state of a connection, with its streams of changes.
    fileprivate struct ConnectionState: Sendable {
        var isCut = false
        var losesReplies = false
        /// The change that stands for changes that the connection may have missed: `unknown`, or `emptied`
        /// after a loss of entries; `nil` without missed changes.
        var missed: MuxShared.Change?
        var streams: [UInt64: AsyncStream<MuxShared.Change>.Continuation] = [:]

        /// Notes that the connection may have missed changes.
        mutating func recordMissedChange() { self.missed = self.missed ?? .unknown }
    }

    private let time: TimeSource
    fileprivate let state = Locked(State())

    /// Makes an empty store.
    ///
    /// - Parameter clock: The store's clock, for ages, claims and ``delay``.
    public init(clock: any Clock<Duration> = VirtualClock()) { self.time = TimeSource(clock) }

    /// The number of calls that reached the store, without checks of the connection; with a real store, each
    /// call would be a network round trip.
    public var callCount: Int { self.state.withLock { $0.calls } }

    /// The number of open streams of changes: zero at rest.
    package var listenerCount: Int { self.state.withLock { $0.connections.values.reduce(0) { $0 + $1.streams.count } } }

    /// The delay before a call takes effect, except a check of the connection; zero by default.
    public var delay: Duration {
        get { self.state.withLock { $0.delay } }
        set { self.state.withLock { $0.delay = newValue } }
    }

    /// Whether all calls throw ``Away``.
    ///
    /// When the store is reachable again, all connections receive `MuxShared.Change.unknown`, or `emptied`
    /// after a loss of entries; cut connections receive the change when the cut ends.
    public var isDown: Bool {
        get { self.state.withLock { $0.isDown } }
        set {
            self.change { state in
                guard state.isDown != newValue else { return }
                state.isDown = newValue
                for id in state.connections.keys { state.connections[id]?.recordMissedChange() }
            }
        }
    }

    /// Removes all entries and claims, like a restart of a database without persistence.
    ///
    /// All connections receive `MuxShared.Change.emptied`; unreachable connections receive the change later.
    public func loseEverything() {
        self.change { state in
            state.ledger.loseAll()
            for id in state.connections.keys { state.connections[id]?.missed = .emptied }
        }
    }

    /// Makes a connection of a machine.
    public func connection() -> Connection {
        let id = self.state.withLock { state in
            state.lastID += 1
            state.connections[state.lastID] = ConnectionState()
            return state.lastID
        }
        return Connection(self, id)
    }

    /// Changes the state, then notifies connections that missed changes and are reachable.
    private func change(_ body: (inout State) -> Void) {
        self.state.withLock { state in
            body(&state)
            for (id, connection) in state.connections where !connection.isCut && !state.isDown {
                guard let missed = connection.missed else { continue }
                state.connections[id]?.missed = nil
                // Under the lock, so that all streams get changes in the same order; a buffered stream runs
                // no client code.
                for stream in connection.streams.values { stream.yield(missed) }
            }
        }
    }

    /// Runs a call: changes the ledger, and sends the changes in order to all reachable connections.
    ///
    /// A connection does not receive its own invalidations.
    fileprivate func performCall<R: Sendable>(
        _ id: UInt64,
        _ body: (inout SharedLedger<MuxShared.Entry>, Moment) throws -> (R, [MuxShared.Change])
    ) async throws -> R {
        let delay = self.delay
        if delay > .zero { try await self.time.sleep(for: delay) }
        return try self.state.withLock { state in
            guard !state.isDown, let connection = state.connections[id], !connection.isCut else { throw Away() }
            state.calls += 1
            let (result, changes) = try body(&state.ledger, self.time.now)
            for (receiverID, receiver) in state.connections {
                if receiver.isCut {
                    if !changes.isEmpty { state.connections[receiverID]?.recordMissedChange() }
                    continue
                }
                for change in changes {
                    if case .invalidated = change, receiverID == id { continue }
                    for stream in receiver.streams.values { stream.yield(change) }
                }
            }
            if connection.losesReplies { throw Away() }
            return result
        }
    }

    fileprivate func isReachable(_ id: UInt64) -> Bool {
        self.state.withLock { !$0.isDown && !($0.connections[id]?.isCut ?? true) }
    }

    fileprivate func cut(_ id: UInt64, _ isCut: Bool) {
        self.change { state in
            state.connections[id]?.isCut = isCut
            // Changes during the cut are lost, and so may be changes in transit.
            if isCut { state.connections[id]?.recordMissedChange() }
        }
    }

    fileprivate func listen(_ id: UInt64) -> AsyncStream<MuxShared.Change> {
        let (stream, continuation) = AsyncStream.makeStream(of: MuxShared.Change.self)
        let streamID = self.state.withLock { state in
            state.lastID += 1
            state.connections[id]?.streams[state.lastID] = continuation
            return state.lastID
        }
        continuation.onTermination = { [weak self] _ in
            self?.state.withLock { _ = $0.connections[id]?.streams.removeValue(forKey: streamID) }
        }
        return stream
    }

    /// The connection of a machine to the store.
    ///
    /// A call that is cancelled during a ``MemorySharedStore/delay`` throws `CancellationError`.
    public final class Connection: MuxSharedStore {
        private let store: MemorySharedStore
        private let id: UInt64

        fileprivate init(_ store: MemorySharedStore, _ id: UInt64) {
            self.store = store
            self.id = id
        }

        deinit {
            let streams = self.store.state.withLock { $0.connections.removeValue(forKey: self.id)?.streams }
            for stream in (streams ?? [:]).values { stream.finish() }
        }

        /// Whether the connection is cut: calls throw ``MemorySharedStore/Away``, and no changes arrive.
        ///
        /// When the cut ends, the streams of changes receive `MuxShared.Change.unknown`, or `emptied` after a
        /// loss of entries.
        public var isCut: Bool {
            get { self.store.state.withLock { $0.connections[self.id]?.isCut ?? true } }
            set { self.store.cut(self.id, newValue) }
        }

        /// Whether calls take effect, but throw ``MemorySharedStore/Away``; a check of the connection does
        /// not throw.
        public var losesReplies: Bool {
            get { self.store.state.withLock { $0.connections[self.id]?.losesReplies ?? false } }
            set { self.store.state.withLock { $0.connections[self.id]?.losesReplies = newValue } }
        }

        /// See `MuxSharedStore`; throws ``MemorySharedStore/Away``.
        public func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
            if names.isEmpty {
                guard self.store.isReachable(self.id) else { throw Away() }
                return []
            }
            return try await self.store.performCall(self.id) { ledger, now in
                (names.map { ledger.entry($0).map { Self.entry($0, at: now) } }, [])
            }
        }

        /// See `MuxSharedStore`; throws ``MemorySharedStore/Away``.
        public func claim(
            _ name: MuxShared.Name,
            maximumAge: Duration?,
            digest: String?,
            for duration: Duration
        ) async throws -> MuxShared.Claim {
            try await self.store.performCall(self.id) { ledger, now in
                let action = ledger.claim(name, for: duration, at: now) {
                    Self.entry($0, at: now).isFresh(maximumAge)
                }
                func replyEntry(_ held: SharedLedger<MuxShared.Entry>.Held) -> MuxShared.Entry {
                    var entry = Self.entry(held, at: now)
                    if entry.digest == digest { entry.payload = nil }
                    return entry
                }
                switch action {
                case .entry(let held): return (.entry(replyEntry(held)), [])
                case .granted(let nonce, let held):
                    return (.granted(MuxShared.Ticket(name, nonce: "\(nonce)"), held.map(replyEntry)), [])
                case .taken(let end, let held): return (.taken(for: end.duration(since: now), held.map(replyEntry)), [])
                }
            }
        }

        /// See `MuxSharedStore`; throws ``MemorySharedStore/Away``.
        public func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
            try await self.store.performCall(self.id) { ledger, now in
                let nonce = UInt64(ticket.nonce) ?? 0
                var entry = entry
                if entry.payload == nil {
                    let held = ledger.entry(ticket.name)?.content
                    entry.payload = held?.digest == entry.digest ? held?.payload : nil
                }
                let key = ticket.name.key
                guard entry.payload != nil else {
                    return (false, ledger.giveUp(nonce, ticket.name, at: now) ? [.released(key)] : [])
                }
                let fetchedAt = now.advanced(by: .zero - max(entry.age, .zero))
                let isStored = ledger.put(entry, fetchedAt: fetchedAt, nonce, ticket.name, at: now)
                return (isStored, isStored ? [.stored(key)] : [])
            }
        }

        /// See `MuxSharedStore`; throws ``MemorySharedStore/Away``.
        public func giveUp(_ ticket: MuxShared.Ticket) async throws {
            try await self.store.performCall(self.id) { ledger, now in
                let wasValid = ledger.giveUp(UInt64(ticket.nonce) ?? 0, ticket.name, at: now)
                return ((), wasValid ? [.released(ticket.name.key)] : [])
            }
        }

        /// See `MuxSharedStore`; throws ``MemorySharedStore/Away``.
        public func invalidate(_ scopes: [MuxShared.Scope]) async throws {
            try await self.store.performCall(self.id) { ledger, _ in
                for scope in scopes { ledger.invalidate(scope) }
                return ((), scopes.map { .invalidated($0) })
            }
        }

        /// The changes for this machine, until the deallocation of the connection.
        public func changes() -> AsyncStream<MuxShared.Change> { self.store.listen(self.id) }

        private static func entry(_ held: SharedLedger<MuxShared.Entry>.Held, at now: Moment) -> MuxShared.Entry {
            var entry = held.content
            entry.age = now.duration(since: held.fetchedAt)
            return entry
        }
    }
}
