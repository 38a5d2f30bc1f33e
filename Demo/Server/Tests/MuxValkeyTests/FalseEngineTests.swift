import Foundation
import MuxKit
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import MuxValkey

/// Faulty engines, and foreign programs in the place of engines.
@Suite(.timeLimit(.minutes(5)))
struct FalseEngineTests {
    /// A server with scripted replies.
    private final class FalseEngine: Sendable {
        private let channel: any Channel
        let address: MuxValkey.Address
        let connections = Mutex(0)

        /// Begins to listen.
        ///
        /// `answer` receives the name of each command and the number of the connection, and returns bytes, or
        /// `nil` to close the connection.
        init(_ answer: @escaping @Sendable (String, Int) -> String?) throws {
            let counter = Counter()
            self.channel = try ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(Answering(counter.next(), answer))
                    }
                }
                .bind(host: "127.0.0.1", port: 0).wait()
            self.address = .init(host: "127.0.0.1", port: self.channel.localAddress?.port ?? 0)
        }

        deinit { self.channel.close(promise: nil) }

        private final class Counter: Sendable {
            private let last = Atomic(0)
            func next() -> Int { self.last.add(1, ordering: .relaxed).newValue }
        }
    }

    private final class Answering: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let number: Int
        private let answer: @Sendable (String, Int) -> String?
        private var rest = ByteBuffer()

        init(_ number: Int, _ answer: @escaping @Sendable (String, Int) -> String?) {
            self.number = number
            self.answer = answer
        }

        /// The first word of a command, followed by `begin` for the script of the tenure.
        private static func name(_ words: [String]) -> String {
            switch words.first {
            case "SCRIPT" where words.last?.contains("local tenure = get(KEYS[1])") ?? false: "SCRIPT begin"
            case "EVALSHA" where words.count > 1 && words[1] == "b": "EVALSHA begin"
            default: words.first ?? ""
            }
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.rest.writeImmutableBuffer(self.unwrapInboundIn(data))
            while case .list(let words)? = try? ReplyDecoder(maximumBytes: 1 << 20).decode(buffer: &self.rest) {
                let texts = words.compactMap(\.text)
                guard var answer = self.answer(Self.name(texts), self.number) else {
                    return context.close(promise: nil)
                }
                // A result contains the number of its call. An error contains no number.
                if texts.first == "EVALSHA", let number = texts.last, !answer.hasPrefix("-") {
                    answer = "*2\r\n$\(number.utf8.count)\r\n\(number)\r\n\(answer)"
                }
                context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(string: answer)), promise: nil)
            }
        }
    }

    /// The replies of an engine to the first commands; `nil` for other commands.
    private static func greeting(_ word: String) -> String? {
        switch word {
        case "HELLO": "%1\r\n+proto\r\n:3\r\n"
        case "EXISTS": ":0\r\n"
        case "INFO": "$10\r\nrun_id:1\r\n\r\n"
        case "SCRIPT": "$1\r\nd\r\n"
        case "SCRIPT begin": "$1\r\nb\r\n"
        case "EVALSHA begin": ":1\r\n"
        case "SUBSCRIBE": ">3\r\n+subscribe\r\n+channel\r\n:1\r\n"
        case "ROLE": "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
        default: nil
        }
    }

    private func store(_ address: MuxValkey.Address) -> MuxValkey {
        var configuration = MuxValkey.Configuration.patient([address], prefix: "false")
        configuration.heartbeat = .seconds(3)
        configuration.maximumPayloadBytes = 1 << 20
        return MuxValkey(configuration)
    }

    private let name = MuxShared.Name(MuxStoreKey(domain: "Places"))

    @Test(arguments: [
        "HTTP/1.1 400 Bad Request\r\n\r\n", "$2000000\r\n", "*3\r\n", ":1\r\n:2\r\n", "",
        "%1\r\n+proto\r\n:3\r\n+OK\r\n",
        "-ERR unknown command 'HELLO'\r\n", "_\r\n", "$-1\r\n",
    ])
    func `FL-09 a foreign program in place of an engine is a clear error`(answer: String) async throws {
        let engine = try FalseEngine { _, _ in answer }
        let store = self.store(engine.address)
        await #expect(throws: ValkeyError.self) { try await store.load([self.name]) }
        await #expect(throws: ValkeyError.self) { try await store.invalidate([.everything]) }
    }

    @Test(arguments: [
        "_\r\n", ":1\r\n", "*0\r\n", "*1\r\n+entry\r\n", "*2\r\n+entry\r\n_\r\n", "*2\r\n+entry\r\n:1\r\n",
        "*3\r\n+taken\r\n+x\r\n_\r\n", "*2\r\n+granted\r\n*8\r\n+a\r\n+a\r\n+a\r\n+a\r\n+a\r\n+a\r\n+a\r\n+a\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n", "-LOADING Redis is loading\r\n", "$5\r\nabc",
        "",
    ])
    func `FL-09 an impossible result of a script is a clear error`(answer: String)
        async throws
    {
        let engine = try FalseEngine { word, _ in Self.greeting(word) ?? answer }
        let store = self.store(engine.address)
        await store.waitUntilConnected()
        await #expect(throws: ValkeyError.self) {
            try await store.claim(self.name, maximumAge: nil, digest: nil, for: .seconds(1))
        }
        #expect(Bool(true))
    }

    @Test
    func `FL-09 a store follows its slot to another engine of a cluster, and reconnects`()
        async throws
    {
        let owner = try FalseEngine { word, _ in Self.greeting(word) ?? (word == "EVALSHA" ? "_\r\n" : nil) }
        let port = owner.address.port
        let other = try FalseEngine { word, _ in
            word == "EXISTS" ? "-MOVED 1 127.0.0.1:\(port)\r\n" : Self.greeting(word)
        }
        let store = self.store(other.address)
        await store.waitUntilConnected()
        #expect(try await store.load([self.name]) == [nil])

        // The slot moves during the connection.
        let former = try FalseEngine { word, _ in
            Self.greeting(word) ?? (word == "EVALSHA" ? "-MOVED 1 :\(port)\r\n" : nil)
        }
        let mover = self.store(former.address)
        await mover.waitUntilConnected()
        var changes = mover.changes().makeAsyncIterator()
        await #expect(throws: ValkeyError.self) { try await mover.load([self.name]) }
        #expect(await changes.next() == .unknown)
        #expect(try await mover.load([self.name]) == [nil])
    }

    @Test func `FL-11 a claim with a lost reply is released on the next connection`() async throws {
        let (givenUp, continuation) = AsyncStream.makeStream(of: Int.self)
        let engine = try FalseEngine { word, connection in
            guard word == "EVALSHA" else { return Self.greeting(word) }
            // The first connection ends without a reply.
            guard connection > 1 else { return nil }
            continuation.yield(connection)
            return ":1\r\n"
        }
        let store = self.store(engine.address)
        await store.waitUntilConnected()
        await #expect(throws: ValkeyError.self) {
            try await store.claim(self.name, maximumAge: nil, digest: nil, for: .seconds(240))
        }
        #expect(await givenUp.first { _ in true } == 2)
    }

    @Test func `FL-09 engines that redirect to each other are given up`() async throws {
        let ports = Mutex<[Int]>([0, 0])
        let engines = try (0..<2).map { index in
            try FalseEngine { word, _ in
                word == "EXISTS" ? "-MOVED 1 127.0.0.1:\(ports.withLock { $0[1 - index] })\r\n" : Self.greeting(word)
            }
        }
        ports.withLock { $0 = engines.map(\.address.port) }
        let store = self.store(engines[0].address)
        await #expect(throws: ValkeyError.self) { try await store.load([self.name]) }
    }

    @Test func `FL-09 without a listener or an address, calls fail at once`() async throws {
        for addresses in [[MuxValkey.Address(host: "127.0.0.1", port: 1)], []] {
            let store = MuxValkey(.init(addresses: addresses, prefix: "nothing"))
            await #expect(throws: ValkeyError.self) { try await store.load([self.name]) }
            store.close()
            await #expect(throws: ValkeyError.closed) { try await store.load([self.name]) }
            for await change in store.changes() { Issue.record("told \(change)") }
        }
    }

    @Test func `FL-09 a read-only engine is abandoned for the next address`() async throws {
        let replica = try FalseEngine { word, _ in
            Self.greeting(word) ?? "-READONLY You can't write against a read only replica.\r\n"
        }
        let primary = try FalseEngine { word, _ in Self.greeting(word) ?? "_\r\n" }
        var configuration = MuxValkey.Configuration.patient([replica.address, primary.address], prefix: "false")
        configuration.heartbeat = .seconds(3)
        let store = MuxValkey(configuration)
        await store.waitUntilConnected()
        var changes = store.changes().makeAsyncIterator()
        await #expect(throws: ValkeyError.self) { try await store.load([self.name]) }
        #expect(await changes.next() == .unknown)
        #expect(try await store.load([self.name]) == [nil])
    }

    @Test func `FL-09 an engine that has become a replica is abandoned for the next address`() async throws {
        let isReplica = Mutex(false)
        let first = try FalseEngine { word, _ in
            guard isReplica.withLock({ $0 }) else { return Self.greeting(word) ?? "_\r\n" }
            return switch word {
            case "ROLE": "*5\r\n$5\r\nslave\r\n$4\r\nhost\r\n:1\r\n$9\r\nconnected\r\n:0\r\n"
            case "INFO": "$22\r\nrun_id:1\r\nrole:slave\r\n\r\n"
            default: Self.greeting(word)
            }
        }
        let second = try FalseEngine { word, _ in Self.greeting(word) ?? ":1\r\n" }
        var configuration = MuxValkey.Configuration.patient([first.address, second.address], prefix: "false")
        configuration.heartbeat = .seconds(3)
        let store = MuxValkey(configuration)
        await store.waitUntilConnected()
        #expect(try await store.load([self.name]) == [nil])

        // The store detects the change without a call.
        var changes = store.changes().makeAsyncIterator()
        isReplica.withLock { $0 = true }
        #expect(await changes.next() == .unknown)
        await #expect(throws: ValkeyError.self) { try await store.load([self.name]) }
    }

    @Test(arguments: [
        "-CLUSTERDOWN Hash slot not served", "-MOVED 1 127.0.0.1:1",
        "-ERR Error running script: -READONLY You can't write",
    ])
    func `FL-09 an idle store abandons an engine that has lost its slot or may not write`(failure: String)
        async throws
    {
        let isLost = Mutex(false)
        let first = try FalseEngine { word, _ in
            word == "EXISTS" && isLost.withLock { $0 } ? failure + "\r\n" : Self.greeting(word) ?? "_\r\n"
        }
        let second = try FalseEngine { word, _ in Self.greeting(word) ?? ":1\r\n" }
        var configuration = MuxValkey.Configuration.patient([first.address, second.address], prefix: "false")
        configuration.heartbeat = .seconds(3)
        let store = MuxValkey(configuration)
        await store.waitUntilConnected()
        #expect(try await store.load([self.name]) == [nil])

        var changes = store.changes().makeAsyncIterator()
        isLost.withLock { $0 = true }
        #expect(await changes.next() == .unknown)
        // The second engine replies with an impossible result of a script.
        await #expect(throws: ValkeyError.notAReply("a script has another result than it can have")) {
            try await store.load([self.name])
        }
    }

    /// Waits until a store with short heartbeats has left an engine that sends `stray` bytes with its first
    /// reply to a heartbeat.
    private func checkHeartbeat(before: String = "", after: String = "") async throws {
        let (connections, continuation) = AsyncStream.makeStream(of: Int.self)
        let hasStrayed = Mutex(false)
        let engine = try FalseEngine { word, connection in
            if word == "HELLO" { continuation.yield(connection) }
            let isFirst = hasStrayed.withLock { hasStrayed in
                defer { hasStrayed = hasStrayed || word == "ROLE" }
                return word == "ROLE" && !hasStrayed
            }
            return Self.greeting(word).map { isFirst ? before + $0 + after : $0 }
        }
        var configuration = MuxValkey.Configuration.patient([engine.address], prefix: "false")
        configuration.heartbeat = .seconds(1)
        let store = MuxValkey(configuration)
        #expect(await connections.first { $0 == 2 } == 2)
        store.close()
    }

    @Test(.timeLimit(.minutes(1)), arguments: ["$100000\r\n", "*1000\r\n", "+"])
    func `FT-07 a prefix without its data ends the connection although bytes keep arriving`(stray: String) async throws
    {
        try await self.checkHeartbeat(after: stray)
    }

    @Test(.timeLimit(.minutes(1))) func `FT-07 a connection on which commands always wait stays open`() async throws {
        let (counts, continuation) = AsyncStream.makeStream(of: Int.self)
        let count = Mutex(0)
        let engine = try FalseEngine { word, _ in
            if word == "ROLE" {
                continuation.yield(
                    count.withLock {
                        $0 += 1
                        return $0
                    }
                )
            }
            return Self.greeting(word) ?? "_\r\n"
        }
        var configuration = MuxValkey.Configuration.patient([engine.address], prefix: "false")
        configuration.heartbeat = .seconds(1)
        let store = MuxValkey(configuration)
        await store.waitUntilConnected()
        let connection = try await store.link.session().connection
        try await withThrowingTaskGroup { group in
            for _ in 0..<16 {
                group.addTask { while !Task.isCancelled { _ = try await store.load([self.name]) } }
            }
            #expect(await counts.first { $0 == 4 } == 4)
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(try await store.link.session().connection === connection)
    }

    @Test(.timeLimit(.minutes(1)), arguments: [":1\r\n", "_\r\n"])
    func `FT-07 a stray reply in place of a heartbeat's reply ends the connection`(stray: String) async throws {
        try await self.checkHeartbeat(before: stray)
    }

    @Test(arguments: ["_\r\n", "*2\r\n$1\r\n1\r\n_\r\n", ":1\r\n", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"])
    func `FT-07 a stray reply is not the result of another call, and ends the connection`(stray: String) async throws {
        let engine = try FalseEngine { word, connection in
            switch word {
            // A stray reply follows the reply to a call.
            case "EVALSHA" where connection == 1: "_\r\n" + stray
            case "EVALSHA": "_\r\n"
            default: Self.greeting(word)
            }
        }
        let store = self.store(engine.address)
        await store.waitUntilConnected()
        let session = try await store.link.session()
        let replies = (0..<3).map { _ in session.run(.load, []) }
        #expect(try await replies[0].get() == .nothing)
        for reply in replies.dropFirst() {
            let error = await #expect(throws: ValkeyError.self) { try await reply.get() }
            #expect(error?.isConnectivityFailure == true)
        }
        try await session.connection.ended.get()
    }

    @Test func `FT-02 a reply above the limit is the failure of its own command`() async throws {
        let engine = try FalseEngine { word, _ in word == "EVALSHA" ? "$999999999\r\n" : Self.greeting(word) }
        let store = self.store(engine.address)
        await store.waitUntilConnected()
        let session = try await store.link.session()
        // Both commands are in the buffer of one connection before the reply arrives.
        let replies = [session.run(.load, []), session.run(.load, [])]
        let large = await #expect(throws: ValkeyError.self) { try await replies[0].get() }
        let other = await #expect(throws: ValkeyError.self) { try await replies[1].get() }
        #expect(large?.reason == "too large" && large?.isConnectivityFailure == false)
        #expect(other == .disconnected("a reply was too large"))
    }

    @Test func `FL-09 a slow reader of changes receives a report of missed changes`() async {
        let listeners = Listeners()
        var changes = listeners.stream().makeAsyncIterator()
        let change = MuxShared.Change.stored(self.name.key)
        for _ in 0...Listeners.maximumWaiting { listeners.tell(change) }
        var count = 0
        while count < Listeners.maximumWaiting, await changes.next() == change { count += 1 }
        #expect(count == Listeners.maximumWaiting)
        // The buffer has space again: the next change reports the loss.
        for expected in [MuxShared.Change.unknown, change] {
            listeners.tell(change)
            #expect(await changes.next() == expected)
        }
    }

    @Test func `FL-09 no error contains a password that an engine repeats`() async throws {
        let engine = try FalseEngine { _, _ in
            "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `open sesame`, \r\n"
        }
        var configuration = MuxValkey.Configuration.patient([engine.address], prefix: "false")
        configuration.password = "open sesame"
        let error = await #expect(throws: ValkeyError.self) { try await MuxValkey(configuration).load([self.name]) }
        let text = try #require(error.map { "\($0) \($0.localizedDescription) \(String(reflecting: $0))" })
        #expect(text.contains("unknown command `HELLO`") && !text.contains("sesame"), "\(text)")
    }

    @Test func `FL-09 no description contains the password`() {
        var configuration = MuxValkey.Configuration(host: "cache.internal", prefix: "app")
        configuration.password = "open sesame"
        configuration.username = "ali"
        var dumped = ""
        dump(configuration, to: &dumped)
        for text in ["\(configuration)", String(reflecting: configuration), dumped] {
            #expect(!text.contains("sesame") && text.contains("cache.internal:6379"), "\(text)")
        }
    }
}
