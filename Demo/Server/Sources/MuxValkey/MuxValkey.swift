import Foundation
public import MuxKit
public import NIOCore
import NIOFoundationCompat
public import NIOPosix
public import NIOSSL
import Synchronization

/// A shared store of entries in Valkey, or in Redis from version 6.2.
///
/// ```swift
/// let store = MuxValkey(.init(host: "cache.internal", prefix: "places"))
/// let fleet = MuxRepository(sharedStore: store)
/// ```
///
/// A single connection carries commands and messages. After its end, the store reconnects; calls in between
/// throw. A claim, a put and an invalidation are a single step of the engine each. The store never scans the
/// engine: entries that are invalidated together share a key.
///
/// **Time** is the engine's time.
///
/// **An engine that restarts**, or another engine in its place, may have lost confirmed changes. The store then
/// reads no earlier entry, even if the first engine comes back later, and machines receive
/// ``MuxKit/MuxShared/Change/unknown``: each value is fetched once more. An engine that evicts keys may lose
/// some keys; the entries that belong to a lost key are misses.
///
/// **Replicas.** A store finds the primary among its addresses, without a Sentinel. A primary that is cut off
/// from its replicas, but not from the machines, continues as long as the engine permits: set
/// `min-replicas-to-write` and `min-replicas-max-lag` in the engine. With two primaries, one primary still
/// returns entries that the other primary has invalidated.
///
/// **Clusters.** All keys of a ``Configuration/prefix`` are in one slot, and the store follows the slot from
/// engine to engine. While the keys of the slot are moved, calls fail, and machines do not use the store. To
/// spread the parts of an application that need not be cleared together, give each part a store with a
/// separate prefix.
///
/// **Costs for the engine**: a round trip for each request that misses, a round trip for each fetched value,
/// and a message to each machine for each entry that is put or cleared. An entry is kept for its time to live
/// and ``Configuration/retention``, at most seven days.
///
/// **Concurrent calls.** Any member may be called from any task.
public final class MuxValkey: MuxSharedStore {
    /// The address of an engine.
    public struct Address: Sendable, Hashable {
        /// A name, or an IP address.
        public var host: String
        /// The port; usually 6379.
        public var port: Int

        /// Makes an address.
        public init(host: String, port: Int = 6_379) {
            self.host = host
            self.port = port
        }
    }

    /// The settings of the connection to an engine, and of the stored entries.
    public struct Configuration: Sendable {
        /// The addresses of the engines, tried in turn until an engine replies.
        public var addresses: [Address]
        /// The user, used only with a ``password``; `default` if `nil`.
        public var username: String?
        /// The user's password; `nil` for an engine without a password.
        public var password: String?
        /// The encryption of the connection; `nil`, the default, for an unencrypted connection.
        public var tls: TLSConfiguration?
        /// Any text that distinguishes the applications of an engine.
        public var prefix: String
        /// The time limit of an attempt to connect, without TLS and the first commands; 1 second.
        ///
        /// TLS and the first commands have a limit of twice the ``heartbeat``.
        public var connectTimeout: Duration
        /// The interval of heartbeats; 2 seconds.
        ///
        /// A connection with a waiting command ends after an interval without a complete reply or message.
        /// The largest value must therefore arrive within an interval.
        public var heartbeat: Duration
        /// The longest pause between attempts to connect; 2 seconds.
        ///
        /// The first pause is 50 milliseconds.
        public var maximumPause: Duration
        /// The time for which an entry is kept after its time to live, unless its limits for stale values are
        /// longer; an hour.
        public var retention: Duration
        /// The maximum number of bytes of a value, the same on all machines; 8 MiB.
        ///
        /// Larger values are not shared. An engine ends a connection with subscriptions when 32 MiB of output
        /// wait (`client-output-buffer-limit pubsub`).
        public var maximumPayloadBytes: Int
        /// The event loops of the connection.
        public var eventLoopGroup: any EventLoopGroup

        /// Makes a configuration with one address.
        public init(host: String, port: Int = 6_379, prefix: String) {
            self.init(addresses: [Address(host: host, port: port)], prefix: prefix)
        }

        /// Makes a configuration with several addresses, tried in turn; the parameters have the names of the
        /// properties.
        public init(
            addresses: [Address],
            username: String? = nil,
            password: String? = nil,
            tls: TLSConfiguration? = nil,
            prefix: String,
            connectTimeout: Duration = .seconds(1),
            heartbeat: Duration = .seconds(2),
            maximumPause: Duration = .seconds(2),
            retention: Duration = .seconds(3_600),
            maximumPayloadBytes: Int = 8 << 20,
            eventLoopGroup: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
        ) {
            self.addresses = addresses
            self.username = username
            self.password = password
            self.tls = tls
            self.prefix = prefix
            self.connectTimeout = connectTimeout
            self.heartbeat = heartbeat
            self.maximumPause = maximumPause
            self.retention = retention
            self.maximumPayloadBytes = maximumPayloadBytes
            self.eventLoopGroup = eventLoopGroup
        }
    }

    package let link: Link
    private let names: Names
    private let retention: Duration
    private let maximumPayloadBytes: Int
    /// Distinguishes this machine's messages.
    private let machine: String
    private let listeners: Listeners
    /// The claims with lost replies, with the times at which the claims expire.
    private let lostClaims = Mutex<[(ticket: MuxShared.Ticket, end: ContinuousClock.Instant)]>([])

    /// Begins to connect.
    public init(_ configuration: Configuration) {
        let names = Names(prefix: configuration.prefix)
        let machine = Self.randomText()
        let listeners = Listeners()
        self.names = names
        self.retention = configuration.retention
        self.maximumPayloadBytes = configuration.maximumPayloadBytes
        self.machine = machine
        self.listeners = listeners
        self.link = Link(configuration, names) { message in
            guard let message else { return listeners.tell(.unknown) }
            if let change = Names.change(message, for: machine) { listeners.tell(change) }
        }
    }

    deinit { self.close() }

    /// Ends the connection and the streams of ``changes()``; calls throw ``ValkeyError/closed`` afterwards.
    public func close() {
        self.link.close()
        self.listeners.finish()
    }

    /// A text that is unique to this machine.
    static func randomText() -> String {
        String(UInt64.random(in: .min ... .max), radix: 36) + String(UInt64.random(in: .min ... .max), radix: 36)
    }

    // MARK: - MuxSharedStore

    /// See `MuxSharedStore`; throws ``ValkeyError``.
    public func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
        let session = try await self.link.session()
        // All commands are sent before the wait for the first reply.
        let trips = names.map { name in
            let keys = self.names.keys(name)
            return (keys, session.run(.load, keys))
        }
        var entries: [MuxShared.Entry?] = []
        for (keys, reply) in trips {
            var reply = try await reply.get()
            do {
                if case .failure(let failure) = reply {
                    reply = try await self.again(.load, session, keys, [], failure)
                }
                entries.append(try Self.entry(reply))
            } catch let error as ValkeyError where !error.isConnectivityFailure && names.count > 1 {
                // A refused entry is a miss; the other entries are loaded.
                entries.append(nil)
            }
        }
        return entries
    }

    /// See `MuxSharedStore`; throws ``ValkeyError``.
    public func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration
    ) async throws -> MuxShared.Claim {
        let session = try await self.link.session()
        let nonce = session.name + "." + Self.randomText()
        let arguments = [
            ByteBuffer(string: nonce),
            Self.milliseconds(duration),
            Self.microseconds(maximumAge ?? Self.longest),
            // An empty text never equals the digest of an entry.
            ByteBuffer(string: digest.map { "=" + $0 } ?? ""),
            self.names.connections,
            session.identity,
        ]
        let reply: Reply
        do {
            reply = try await self.run(.claim, self.names.keys(name), arguments, in: session)
        } catch {
            switch error as? ValkeyError {
            case .disconnected, .notAReply: self.disown(MuxShared.Ticket(name, nonce: nonce), for: duration)
            default: break
            }
            throw error
        }
        guard case .list(let parts) = reply else { throw Self.unexpected }
        switch (parts.first?.text, parts.count) {
        case ("entry", 2):
            guard let entry = try Self.entry(parts[1]) else { throw Self.unexpected }
            return .entry(entry)
        case ("granted", 2): return .granted(MuxShared.Ticket(name, nonce: nonce), try Self.entry(parts[1]))
        case ("taken", 3):
            guard let rest = parts[1].integer else { throw Self.unexpected }
            return .taken(for: .milliseconds(max(rest, 1)), try Self.entry(parts[2]))
        default: throw Self.unexpected
        }
    }

    /// Releases a claim with a lost reply after the next connection.
    ///
    /// The engine may have granted the claim, and other machines would wait for its end.
    private func disown(_ ticket: MuxShared.Ticket, for duration: Duration) {
        let end = ContinuousClock.now + duration
        let isFirst = self.lostClaims.withLock { claims in
            claims.append((ticket, end))
            return claims.count == 1
        }
        guard isFirst else { return }
        Task { [weak self] in
            while let self, let ticket = self.lostClaim {
                do {
                    try await self.giveUp(ticket)
                    self.lostClaims.withLock { $0.removeAll { $0.ticket == ticket } }
                } catch ValkeyError.closed {
                    return
                } catch {
                    try? await Task.sleep(for: .milliseconds(100))
                }
            }
        }
    }

    /// A claim with a lost reply that has not expired.
    private var lostClaim: MuxShared.Ticket? {
        let now = ContinuousClock.now
        return self.lostClaims.withLock { claims in
            claims.removeAll { $0.end <= now }
            return claims.first?.ticket
        }
    }

    /// See `MuxSharedStore`; throws ``ValkeyError``.
    public func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
        let limit = self.maximumPayloadBytes
        guard entry.payload?.count ?? 0 <= limit else { throw ValkeyError.tooLarge(limit: limit) }
        let key = ticket.name.key
        let stale = max(entry.staleWhileRevalidate ?? .zero, entry.staleIfError ?? .zero, self.retention)
        let lifetime = min(min(entry.timeToLive, Self.longestLife) + min(stale, Self.longestLife), Self.longestLife)
        let facts = [
            ByteBuffer(string: ticket.nonce),
            Self.microseconds(entry.age),
            Self.microseconds(entry.timeToLive),
            ByteBuffer(string: "=" + entry.digest),
            ByteBuffer(string: "\(entry.schemaVersion)"),
            ByteBuffer(string: entry.validator.map { "=" + $0 } ?? ""),
            entry.staleWhileRevalidate.map(Self.microseconds) ?? ByteBuffer(),
            entry.staleIfError.map(Self.microseconds) ?? ByteBuffer(),
            Self.milliseconds(lifetime),
            self.names.channel,
            self.message(.stored(key)),
            self.message(.released(key)),
        ]
        let payload = entry.payload.map { [ByteBuffer(data: $0)] } ?? []
        let reply = try await self.run(
            .put,
            self.names.keys(ticket.name),
            facts + payload,
            in: try await self.link.session()
        )
        return reply == .number(1)
    }

    /// See `MuxSharedStore`; throws ``ValkeyError``.
    public func giveUp(_ ticket: MuxShared.Ticket) async throws {
        let arguments = [
            ByteBuffer(string: ticket.nonce), self.names.channel, self.message(.released(ticket.name.key)),
        ]
        _ = try await self.run(.giveUp, self.names.keys(ticket.name), arguments, in: try await self.link.session())
    }

    /// See `MuxSharedStore`; throws ``ValkeyError``.
    public func invalidate(_ scopes: [MuxShared.Scope]) async throws {
        guard !scopes.isEmpty else { return }
        let session = try await self.link.session()
        // All commands are sent before the wait for the first reply.
        let trips = stride(from: 0, to: scopes.count, by: 500).map { start in
            let some = scopes[start..<min(start + 500, scopes.count)]
            let keys = some.flatMap { self.names.keys(ending: $0) }
            let arguments = [self.names.channel] + some.map { self.message(.invalidated($0)) }
            return (keys, arguments, session.run(.invalidate, keys, arguments))
        }
        for (keys, arguments, reply) in trips {
            if case .failure(let failure) = try await reply.get() {
                _ = try await self.again(.invalidate, session, keys, arguments, failure)
            }
        }
    }

    /// The stream of changes until the store is closed, with ``MuxKit/MuxShared/Change/unknown`` for each new
    /// connection.
    public func changes() -> AsyncStream<MuxShared.Change> { self.listeners.stream() }

    private func message(_ change: MuxShared.Change) -> ByteBuffer {
        Names.message(change, from: self.machine) ?? ByteBuffer()
    }

    // MARK: - Trips

    private func run(
        _ script: Script,
        _ keys: [ByteBuffer],
        _ arguments: [ByteBuffer],
        in session: Link.Session
    ) async throws -> Reply {
        let reply = try await session.run(script, keys, arguments).get()
        guard case .failure(let failure) = reply else { return reply }
        return try await self.again(script, session, keys, arguments, failure)
    }

    /// Handles the refusal of a script: sends the text of a script that the engine has forgotten.
    private func again(
        _ script: Script,
        _ session: Link.Session,
        _ keys: [ByteBuffer],
        _ arguments: [ByteBuffer],
        _ failure: ServerFailure
    ) async throws -> Reply {
        if failure.code == "NOSCRIPT" {
            let reply = try await session.run(script, keys, arguments, sendsText: true).get()
            if case .failure(let failure) = reply { throw ValkeyError.refused(failure) }
            return reply
        }
        if failure.isOfAnotherEngine { self.link.leave(session, for: failure) }
        throw ValkeyError.refused(failure)
    }

    // MARK: - Values

    private static var unexpected: ValkeyError { .notAReply("a script has another result than it can have") }

    private static var longest: Duration { .seconds(3_650 * 86_400) }

    /// The maximum lifetime of an entry.
    private static var longestLife: Duration { .seconds(7 * 86_400) }

    private static func microseconds(_ duration: Duration) -> ByteBuffer {
        let (seconds, attoseconds) = min(max(duration, .zero), self.longest).components
        return ByteBuffer(string: "\(seconds * 1_000_000 + attoseconds / 1_000_000_000_000)")
    }

    /// At least one millisecond, the minimum of the engine.
    private static func milliseconds(_ duration: Duration) -> ByteBuffer {
        let (seconds, attoseconds) = min(max(duration, .milliseconds(1)), self.longest).components
        return ByteBuffer(string: "\(seconds * 1_000 + attoseconds / 1_000_000_000_000_000)")
    }

    /// The entry in the reply of a script; `nil` without an entry.
    private static func entry(_ reply: Reply) throws -> MuxShared.Entry? {
        switch reply {
        case .nothing: return nil
        case .list(let parts) where parts.count == 8:
            guard let age = parts[0].integer, let timeToLive = parts[1].integer, let digest = parts[2].text,
                let schema = parts[3].integer, let validator = parts[4].text
            else { throw self.unexpected }
            var payload: Data?
            if case .bytes(let bytes) = parts[7] { payload = Data(buffer: bytes) }
            return MuxShared.Entry(
                payload: payload,
                digest: String(digest.unicodeScalars.dropFirst()),
                timeToLive: .microseconds(timeToLive),
                age: .microseconds(age),
                schemaVersion: Int(schema),
                validator: validator.isEmpty ? nil : String(validator.unicodeScalars.dropFirst()),
                staleWhileRevalidate: parts[5].integer.map { .microseconds($0) },
                staleIfError: parts[6].integer.map { .microseconds($0) }
            )
        default: throw self.unexpected
        }
    }
}

extension MuxValkey.Configuration: CustomStringConvertible, CustomReflectable {
    /// The addresses, the prefix and the encryption, without the password.
    public var description: String {
        let places = self.addresses.map { "\($0.host):\($0.port)" }.joined(separator: ", ")
        return "\(places), prefix \(self.prefix)\(self.tls == nil ? "" : ", encrypted")"
    }

    /// The description, so that a dump shows no password either.
    public var customMirror: Mirror { Mirror(self, children: [("description", self.description)]) }
}

/// The streams of changes.
final class Listeners: Sendable {
    private struct Listener {
        let stream: AsyncStream<MuxShared.Change>.Continuation
        /// Whether the listener lost a change, because its buffer was full.
        var isBehind = false
    }

    private struct State {
        var listeners: [UInt64: Listener] = [:]
        var last: UInt64 = 0
        var isFinished = false
    }

    /// The maximum number of changes in the buffer of a slow reader.
    static let maximumWaiting = 100_000

    private let state = Mutex(State())

    func stream() -> AsyncStream<MuxShared.Change> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: MuxShared.Change.self,
            bufferingPolicy: .bufferingOldest(Self.maximumWaiting)
        )
        let number = self.state.withLock { state -> UInt64? in
            guard !state.isFinished else { return nil }
            state.last += 1
            state.listeners[state.last] = Listener(stream: continuation)
            return state.last
        }
        guard let number else {
            continuation.finish()
            return stream
        }
        continuation.onTermination = { [weak self] _ in
            _ = self?.state.withLock { $0.listeners.removeValue(forKey: number) }
        }
        return stream
    }

    func tell(_ change: MuxShared.Change) {
        // Under the lock, so that all listeners receive changes in the same order. A stream's buffer runs no
        // foreign code.
        self.state.withLock { state in
            for number in state.listeners.keys {
                guard var listener = state.listeners[number] else { continue }
                let told = listener.isBehind ? MuxShared.Change.unknown : change
                if case .dropped = listener.stream.yield(told) {
                    listener.isBehind = true
                } else {
                    listener.isBehind = false
                }
                state.listeners[number] = listener
            }
        }
    }

    func finish() {
        let listeners = self.state.withLock { state in
            defer { state.listeners = [:] }
            state.isFinished = true
            return state.listeners
        }
        for listener in listeners.values { listener.stream.finish() }
    }
}
