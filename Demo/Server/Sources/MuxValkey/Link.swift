import NIOCore
import Synchronization

/// Keeps a connection to an engine: connects, requests the facts that a store needs, and reconnects after the
/// end of a connection.
///
/// **Concurrent calls.** Any member may be called from any thread.
package final class Link: Sendable {
    /// A connection that is ready for use.
    package struct Session: Sendable {
        let connection: Connection
        /// The unique name of the connection.
        let name: String
        /// The identity of the engine.
        let identity: ByteBuffer
        /// The scripts, and their digests in the engine.
        let scripts: [Script: (text: ByteBuffer, digest: ByteBuffer)]

        /// Runs a script by its digest, or by its text (`sendsText`).
        ///
        /// Replies in another order than the commands end the connection.
        func run(
            _ script: Script,
            _ keys: [ByteBuffer],
            _ arguments: [ByteBuffer] = [],
            sendsText: Bool = false
        ) -> EventLoopFuture<Reply> {
            let number = ByteBuffer(string: String(UInt64.random(in: .min ... .max), radix: 36))
            let program = self.scripts[script].map { sendsText ? $0.text : $0.digest } ?? ByteBuffer()
            let command = [ByteBuffer(string: sendsText ? "EVAL" : "EVALSHA"), program]
            let connection = self.connection
            let words = command + [ByteBuffer(string: "\(keys.count)")] + keys + arguments + [number]
            return connection.send(words).flatMapThrowing { reply in
                switch reply {
                case .failure: return reply
                case .list(let parts) where parts.count == 2 && parts[0] == .bytes(number): return parts[1]
                default:
                    let error = ValkeyError.notAReply("a result does not have the number of its call")
                    connection.close(because: error)
                    throw error
                }
            }
        }
    }

    private enum State {
        /// Calls wait for the running attempt.
        case connecting(EventLoopPromise<Session>)
        case connected(Session)
        /// Calls fail until the next attempt.
        case away(ValkeyError)
        case closed
    }

    /// An error: another engine has the keys.
    private struct Redirection: Error { let address: MuxValkey.Address }

    private struct Guarded {
        var state: State
        /// Whether the current connection is abandoned for another engine, with the address of that engine if
        /// known.
        var leaves: (isMeant: Bool, address: MuxValkey.Address?) = (false, nil)
        var task: Task<Void, Never>?
    }

    private let configuration: MuxValkey.Configuration
    private let names: Names
    /// Receives the messages on the channel, and `nil` for each new connection, because earlier messages may
    /// be lost.
    private let onMessage: @Sendable (ByteBuffer?) -> Void
    private let guarded: Mutex<Guarded>

    init(
        _ configuration: MuxValkey.Configuration,
        _ names: Names,
        onMessage: @escaping @Sendable (ByteBuffer?) -> Void
    ) {
        self.configuration = configuration
        self.names = names
        self.onMessage = onMessage
        let first = configuration.eventLoopGroup.next().makePromise(of: Session.self)
        self.guarded = Mutex(Guarded(state: .connecting(first)))
        let task = Task { await self.connectAgainAndAgain() }
        self.guarded.withLock { $0.task = task }
    }

    /// The current connection; waits for a running attempt.
    ///
    /// - Throws: ``ValkeyError`` without a connection.
    package func session() async throws -> Session {
        let attempt = try self.guarded.withLock { guarded -> EventLoopFuture<Session>? in
            switch guarded.state {
            case .connecting(let attempt): return attempt.futureResult
            case .connected: return nil
            case .away(let error): throw error
            case .closed: throw ValkeyError.closed
            }
        }
        if let attempt { return try await attempt.get() }
        return try self.guarded.withLock { guarded in
            guard case .connected(let session) = guarded.state else {
                throw ValkeyError.notConnected("it has just ended")
            }
            return session
        }
    }

    /// Abandons a connection: another engine has the keys, or the engine may not write.
    func leave(_ session: Session, for failure: ServerFailure) {
        let address = Self.redirection(failure, session.connection.address)
        self.guarded.withLock { guarded in
            guard case .connected(let present) = guarded.state, present.connection === session.connection else {
                return
            }
            guarded.leaves = (true, address)
        }
        session.connection.close(because: .refused(failure))
    }

    func close() {
        let (former, task) = self.guarded.withLock { guarded in
            defer { guarded.state = .closed }
            return (guarded.state, guarded.task)
        }
        task?.cancel()
        switch former {
        case .connecting(let attempt): attempt.fail(ValkeyError.closed)
        case .connected(let session): session.connection.close(because: .closed)
        case .away, .closed: break
        }
    }

    // MARK: - Connecting

    private func connectAgainAndAgain() async {
        let shortest = Duration.milliseconds(50)
        var (pause, attempt, redirections) = (shortest, 0, 0)
        var target: MuxValkey.Address?
        while !Task.isCancelled {
            do {
                let addresses = self.configuration.addresses
                guard let usual = addresses.isEmpty ? nil : addresses[attempt % addresses.count] else {
                    throw ValkeyError.notConnected("no address is configured")
                }
                let session = try await self.connect(target ?? usual)
                guard self.isReady(session) else { return session.connection.close() }
                (redirections, target) = (0, nil)
                let start = ContinuousClock.now
                try? await session.connection.ended.get()
                // A connection that repeatedly ends early is made less often.
                if ContinuousClock.now - start >= self.configuration.maximumPause { pause = shortest }
                let leaves = self.guarded.withLock { $0.leaves }
                target = leaves.address
                if leaves.isMeant, target == nil { attempt += 1 }
                self.failed(.notConnected("the last connection has ended, and the next is not there yet"))
            } catch let redirection as Redirection where redirections < 5 {
                target = redirection.address
                redirections += 1
                continue
            } catch {
                (target, redirections) = (nil, 0)
                attempt += 1
                self.failed(error as? ValkeyError ?? .notConnected("\(error)"))
            }
            // Machines that lose an engine at the same time reconnect at different times.
            try? await Task.sleep(for: pause * Double.random(in: 0.5...1))
            pause = min(pause * 2, self.configuration.maximumPause)
            self.begins()
        }
    }

    /// - Returns: Whether the link is still wanted.
    private func isReady(_ session: Session) -> Bool {
        let attempt = self.guarded.withLock { guarded -> EventLoopPromise<Session>? in
            guard case .connecting(let attempt) = guarded.state else { return nil }
            guarded.state = .connected(session)
            guarded.leaves = (false, nil)
            return attempt
        }
        attempt?.succeed(session)
        return attempt != nil
    }

    private func failed(_ error: ValkeyError) {
        let attempt = self.guarded.withLock { guarded -> EventLoopPromise<Session>? in
            switch guarded.state {
            case .closed: return nil
            case .connecting(let attempt):
                guarded.state = .away(error)
                return attempt
            case .connected, .away:
                guarded.state = .away(error)
                return nil
            }
        }
        attempt?.fail(error)
    }

    private func begins() {
        self.guarded.withLock { guarded in
            guard case .away = guarded.state else { return }
            guarded.state = .connecting(self.configuration.eventLoopGroup.next().makePromise(of: Session.self))
        }
    }

    private func connect(_ address: MuxValkey.Address) async throws -> Session {
        let (channel, onMessage) = (self.names.channel, self.onMessage)
        let hears = Hearing()
        let connection = try await Connection.open(address, self.configuration, probe: self.names.probe) { message in
            guard hears.isOn, message.count == 3, message[0].text == "message", case .bytes(channel) = message[1],
                case .bytes(let content) = message[2]
            else { return }
            onMessage(content)
        }
        do {
            return try await self.greet(connection, hears)
        } catch {
            connection.close()
            if case .refused(let failure) = error as? ValkeyError,
                let other = Self.redirection(failure, connection.address)
            {
                throw Redirection(address: other)
            }
            if case .refused(var failure) = error as? ValkeyError {
                failure.refusesConnection = true
                throw ValkeyError.refused(failure)
            }
            throw error
        }
    }

    /// Whether messages of a connection are passed on: only after the report that earlier messages may be
    /// lost.
    private final class Hearing: Sendable {
        private let flag = Atomic(false)
        var isOn: Bool { self.flag.load(ordering: .acquiring) }
        func begin() { self.flag.store(true, ordering: .releasing) }
    }

    private func greet(_ connection: Connection, _ hears: Hearing) async throws -> Session {
        var hello = ["HELLO", "3"]
        if let password = self.configuration.password {
            hello += ["AUTH", self.configuration.username ?? "default", password]
        }
        _ = try await connection.reply(to: hello.map { ByteBuffer(string: $0) })
        // The reply of a cluster names the engine with the keys.
        let probe = try await connection.send(["EXISTS", self.names.probe].map { ByteBuffer(string: $0) }).get()
        // An engine that replies ASK still owns the slot, which is being moved.
        if case .failure(let failure) = probe, failure.code != "ASK" { throw ValkeyError.refused(failure) }
        let identity = try await Self.identity(of: connection)
        var scripts: [Script: (text: ByteBuffer, digest: ByteBuffer)] = [:]
        for script in Script.allCases {
            let text = script.text(maximumPayloadBytes: self.configuration.maximumPayloadBytes)
            let words = [ByteBuffer(string: "SCRIPT"), ByteBuffer(string: "LOAD"), text]
            guard case .bytes(let digest) = try await connection.reply(to: words) else {
                throw ValkeyError.notAReply("the engine does not say what it calls a script")
            }
            scripts[script] = (text, digest)
        }
        let session = Session(
            connection: connection,
            name: MuxValkey.randomText(),
            identity: ByteBuffer(string: identity),
            scripts: scripts
        )
        for channel in [self.names.channel, self.names.connection(session.name)] {
            _ = try await connection.reply(to: [ByteBuffer(string: "SUBSCRIBE"), channel])
        }
        let arguments = [session.identity, ByteBuffer(string: MuxValkey.randomText())]
        if case .failure(let failure) = try await session.run(.begin, [self.names.tenure], arguments).get() {
            throw ValkeyError.refused(failure)
        }
        let onMessage = self.onMessage
        await connection.betweenMessages {
            hears.begin()
            onMessage(nil)
        }
        return session
    }

    /// An identity that changes when an engine starts or becomes a primary, and needlessly when a first
    /// replica connects.
    ///
    /// - Throws: ``ValkeyError``, also for a replica.
    private static func identity(of connection: Connection) async throws -> String {
        var values: [Substring: Substring] = [:]
        for section in ["server", "replication"] {
            let facts = try await connection.reply(to: "INFO", section).text ?? ""
            for line in facts.split(whereSeparator: \.isNewline) {
                guard let colon = line.firstIndex(of: ":") else { continue }
                values[line[..<colon]] = line[line.index(after: colon)...]
            }
        }
        guard let run = values["run_id"], !run.isEmpty else {
            throw ValkeyError.notAReply("the engine does not say its run_id")
        }
        guard values["role"] != "slave" else { throw ValkeyError.notConnected("the engine is a replica") }
        return "\(run):\(values["master_replid"] ?? "")"
    }

    /// The engine with the keys; `nil` if the failure names no other engine.
    private static func redirection(_ failure: ServerFailure, _ present: MuxValkey.Address) -> MuxValkey.Address? {
        let words = failure.text.split(separator: " ")
        guard failure.code == "MOVED", words.count == 3, let colon = words[2].lastIndex(of: ":"),
            let port = Int(words[2][words[2].index(after: colon)...]), (1...65_535).contains(port)
        else { return nil }
        // An empty name is the host of the current engine.
        let host = String(words[2][..<colon])
        return MuxValkey.Address(host: host.isEmpty ? present.host : host, port: port)
    }
}
