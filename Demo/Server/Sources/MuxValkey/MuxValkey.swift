import Foundation
public import MuxKit
public import NIOCore
import NIOFoundationCompat
public import NIOPosix
public import NIOSSL
import Synchronization

/// Entries in Valkey, or in Redis from version 6.2, which several machines share.
///
/// ```swift
/// let store = MuxValkey(.init(host: "cache.internal", prefix: "places"))
/// let fleet = MuxRepository(sharedStore: store)
/// ```
///
/// One connection carries commands and messages, and is made again when it has ended; calls in between throw. A claim, a put and an
/// invalidation are one step of the engine each. Nothing is searched for in the engine: what ends together has a key of its own.
///
/// **Time** is the engine's.
///
/// **An engine that starts again**, or another one that takes its place, may have lost what it had confirmed. Nothing from before is read
/// then, also if the first one comes back later, and machines are told ``MuxKit/MuxShared/Change/unknown``: each value is fetched once more. An engine that evicts keys may lose
/// some; what belongs to them is a miss.
///
/// **Replicas.** A store finds the primary among its addresses, and asks no Sentinel. A primary that is cut off from its replicas, and not from
/// the machines, goes on by itself for as long as it is let: set `min-replicas-to-write` and `min-replicas-max-lag` at the engine. What one of two
/// primaries invalidates, the other shows.
///
/// **Clusters.** All keys of a ``Configuration/prefix`` are in one slot, and the store follows it from engine to engine. While the keys of the
/// slot are moved, calls fail, and machines do without the store. Give parts of an
/// application that need not be cleared together a store with a prefix each, to spread them.
///
/// **What it costs the engine**: a trip for each request that misses, one for what is fetched, and a message to each machine for each
/// entry that is put or cleared. An entry is kept for its time to live and ``Configuration/retention``, at most seven days.
///
/// **Concurrent calls.** Any member may be called from any task.
public final class MuxValkey: MuxSharedStore {
    /// Where an engine listens.
    public struct Address: Sendable, Hashable {
        /// A name, or an IP address.
        public var host: String
        /// The port; 6379 is the usual one.
        public var port: Int

        /// Makes an address.
        public init(host: String, port: Int = 6_379) {
            self.host = host
            self.port = port
        }
    }

    /// How an engine is reached, and what is kept in it.
    public struct Configuration: Sendable {
        /// Where engines listen, which are tried in turn until one answers.
        public var addresses: [Address]
        /// The user, if there is a ``password``; `default` if `nil`.
        public var username: String?
        /// The user's password; `nil` if the engine asks for none.
        public var password: String?
        /// How the connection is encrypted; `nil`, the default, for not at all.
        public var tls: TLSConfiguration?
        /// Distinguishes applications that use one engine; any text.
        public var prefix: String
        /// How long an attempt to connect may take, without TLS and the first commands, which have twice the ``heartbeat``; 1 second.
        public var connectTimeout: Duration
        /// The interval of heartbeats; 2 seconds.
        ///
        /// A connection with a waiting command ends after one interval without a complete reply or message. So the largest value has to arrive
        /// within one interval.
        public var heartbeat: Duration
        /// The longest pause between attempts to connect, which grow from 50 milliseconds; 2 seconds.
        public var maximumPause: Duration
        /// How long an entry is kept beyond its time to live, where its limits for stale values do not say longer; an hour.
        public var retention: Duration
        /// The most bytes that a value may have, the same on all machines; 8 MiB.
        ///
        /// Larger ones are not shared. An engine ends a connection that hears messages when 32 MiB wait for it (`client-output-buffer-limit pubsub`).
        public var maximumPayloadBytes: Int
        /// What the connection runs on.
        public var eventLoopGroup: any EventLoopGroup

        /// Makes a configuration with one address.
        public init(host: String, port: Int = 6_379, prefix: String) {
            self.init(addresses: [Address(host: host, port: port)], prefix: prefix)
        }

        /// Makes a configuration with several addresses, which are tried in turn; the parameters have the names of the properties.
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
    /// The claims whose answers are lost, and when they end by themselves.
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

    /// A text that no other machine has.
    static func randomText() -> String {
        String(UInt64.random(in: .min ... .max), radix: 36) + String(UInt64.random(in: .min ... .max), radix: 36)
    }

    // MARK: - MuxSharedStore

    /// See `MuxSharedStore`; throws ``ValkeyError``.
    public func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
        let session = try await self.link.session()
        // All are sent before the first is waited for.
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
            // No entry has an empty digest that is known.
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

    /// Gives up a claim whose answer is lost, as soon as there is a connection: it may have been granted, and then others wait for it.
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

    /// One that has not ended by itself.
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
        // All are sent before the first is waited for.
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

    /// What changes, as long as the store is not closed; ``MuxKit/MuxShared/Change/unknown`` whenever a connection is made.
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

    /// The engine has refused a script: it is sent whole if the engine does not know it any more.
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

    /// The longest life of an entry.
    private static var longestLife: Duration { .seconds(7 * 86_400) }

    private static func microseconds(_ duration: Duration) -> ByteBuffer {
        let (seconds, attoseconds) = min(max(duration, .zero), self.longest).components
        return ByteBuffer(string: "\(seconds * 1_000_000 + attoseconds / 1_000_000_000_000)")
    }

    /// At least one, as the engine takes no less.
    private static func milliseconds(_ duration: Duration) -> ByteBuffer {
        let (seconds, attoseconds) = min(max(duration, .milliseconds(1)), self.longest).components
        return ByteBuffer(string: "\(seconds * 1_000 + attoseconds / 1_000_000_000_000_000)")
    }

    /// An entry as a script tells it; `nil` if there is none.
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
    /// Where and for whom, without the password.
    public var description: String {
        let places = self.addresses.map { "\($0.host):\($0.port)" }.joined(separator: ", ")
        return "\(places), prefix \(self.prefix)\(self.tls == nil ? "" : ", encrypted")"
    }

    /// The description: a dump shows no password either.
    public var customMirror: Mirror { Mirror(self, children: [("description", self.description)]) }
}

/// The streams of changes.
final class Listeners: Sendable {
    private struct Listener {
        let stream: AsyncStream<MuxShared.Change>.Continuation
        /// Whether it lost a change since its buffer was full.
        var isBehind = false
    }

    private struct State {
        var listeners: [UInt64: Listener] = [:]
        var last: UInt64 = 0
        var isFinished = false
    }

    /// The greatest number of changes in the buffer of a slow reader.
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
        // Under the lock, so that all are told in one order; a stream's buffer runs no code of others.
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
