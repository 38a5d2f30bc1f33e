package import NIOCore
import NIOPosix
import NIOSSL
import Synchronization

/// A command on its way to the engine.
struct Command: Sendable {
    let words: [ByteBuffer]
    let reply: EventLoopPromise<Reply>
}

/// A connection to an engine: commands are sent at once, and replies have the order of the commands.
///
/// **Concurrent calls.** Any member may be called from any thread.
package struct Connection: Sendable {
    package let address: MuxValkey.Address
    private let channel: any Channel
    private let cause: EndCause

    /// Connects, without a command to the engine.
    ///
    /// - Parameters:
    ///   - address: The address of the engine.
    ///   - configuration: The settings of the connection.
    ///   - probe: A key of the connection's slot; `nil` without a slot.
    ///   - onMessage: Receives unsolicited messages, on the connection's event loop, in the order of arrival.
    /// - Returns: The connection.
    /// - Throws: The failure, after ``MuxValkey/Configuration/connectTimeout`` at the latest.
    package static func open(
        _ address: MuxValkey.Address,
        _ configuration: MuxValkey.Configuration,
        probe: String? = nil,
        onMessage: @escaping @Sendable ([Reply]) -> Void
    ) async throws -> Connection {
        let timeout = TimeAmount(clamping: configuration.connectTimeout)
        let tls = try configuration.tls.map { tls in
            var tls = tls
            // A silent engine does not reply to a TLS close notification either.
            tls.shutdownTimeout = min(tls.shutdownTimeout, TimeAmount(clamping: configuration.heartbeat))
            return try NIOSSLContext(configuration: tls)
        }
        let cause = EndCause()
        let channel = try await ClientBootstrap(group: configuration.eventLoopGroup)
            .connectTimeout(timeout)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls {
                        let isNumeric = (try? SocketAddress(ipAddress: address.host, port: 0)) != nil
                        let name = isNumeric ? nil : address.host
                        try pipeline.addHandler(NIOSSLClientHandler(context: tls, serverHostname: name))
                    }
                    let decoder = ReplyDecoder(
                        maximumBytes: max(configuration.maximumPayloadBytes, 0) + ReplyDecoder.maximumLines
                    )
                    try pipeline.addHandler(ByteToMessageHandler(decoder, maximumBufferSize: nil))
                    try pipeline.addHandler(
                        CommandHandler(
                            heartbeat: TimeAmount(clamping: configuration.heartbeat),
                            probe: probe,
                            cause,
                            onMessage: onMessage
                        )
                    )
                }
            }
            .connect(host: address.host, port: address.port).get()
        return Connection(address: address, channel: channel, cause: cause)
    }

    /// Sends a command; on return, the command is in the connection's buffer.
    package func send(_ words: [ByteBuffer]) -> EventLoopFuture<Reply> {
        let reply = self.channel.eventLoop.makePromise(of: Reply.self)
        // An ended connection drops written commands.
        self.channel.writeAndFlush(Command(words: words, reply: reply)).whenFailure {
            reply.fail(self.cause.error ?? .disconnected("\($0)"))
        }
        return reply.futureResult
    }

    /// Sends a command, and waits for its reply.
    ///
    /// - Throws: ``ValkeyError``.
    package func reply(to words: [ByteBuffer]) async throws -> Reply {
        let reply = try await self.send(words).get()
        if case .failure(let failure) = reply { throw ValkeyError.refused(failure) }
        return reply
    }

    package func reply(to words: String...) async throws -> Reply {
        try await self.reply(to: words.map { ByteBuffer(string: $0) })
    }

    /// Succeeds when the connection has ended.
    package var ended: EventLoopFuture<Void> { self.channel.closeFuture }

    /// Ends the connection; calls that wait for a reply throw the error.
    func close(because error: ValkeyError) {
        _ = self.cause.set(error)
        self.channel.close(promise: nil)
    }

    /// Ends the connection.
    package func close() { self.close(because: .closed) }

    /// Runs an action between two messages.
    func betweenMessages(_ action: @escaping @Sendable () -> Void) async {
        try? await self.channel.eventLoop.submit(action).get()
    }

    /// Whether two connections are identical.
    static func === (a: Connection, b: Connection) -> Bool { a.channel === b.channel }
}

/// The cause of the end of a connection, for later commands.
private final class EndCause: Sendable {
    private let first = Mutex<ValkeyError?>(nil)

    var error: ValkeyError? { self.first.withLock { $0 } }

    /// - Returns: Whether the error is the first cause.
    func set(_ error: ValkeyError) -> Bool {
        self.first.withLock { first in
            guard first == nil else { return false }
            first = error
            return true
        }
    }
}

/// Writes commands, and passes replies to the waiting calls.
private final class CommandHandler: ChannelDuplexHandler {
    typealias InboundIn = Reply
    typealias OutboundIn = Command
    typealias OutboundOut = ByteBuffer

    private var waiting = CircularBuffer<EventLoopPromise<Reply>>()
    private let onMessage: @Sendable ([Reply]) -> Void
    private let heartbeat: TimeAmount
    private let probe: String?
    private var timer: RepeatedTask?
    /// Whether a complete reply or message has arrived since the last heartbeat.
    private var hasHeard = true
    private let cause: EndCause
    private var hasEnded = false

    /// A store has a command for each request that misses.
    private static var maximumWaiting: Int { 100_000 }

    init(heartbeat: TimeAmount, probe: String?, _ cause: EndCause, onMessage: @escaping @Sendable ([Reply]) -> Void) {
        self.probe = probe
        self.heartbeat = heartbeat
        self.cause = cause
        self.onMessage = onMessage
    }

    func channelActive(context: ChannelHandlerContext) {
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        self.timer = context.eventLoop.scheduleRepeatedTask(initialDelay: self.heartbeat, delay: self.heartbeat) { _ in
            let (handler, context) = bound.value
            handler.beat(context)
        }
        context.fireChannelActive()
    }

    /// Ends a connection without an expected reply, or whose engine has become a replica or has lost the
    /// slot.
    ///
    /// Such an engine may send no more messages, although no call fails.
    private func beat(_ context: ChannelHandlerContext) {
        guard self.hasHeard || self.waiting.isEmpty else {
            return self.end(context, .disconnected("the engine has been silent for too long"))
        }
        self.hasHeard = false
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        for words in [["ROLE"]] + (self.probe.map { [["EXISTS", $0]] } ?? []) {
            let reply = context.eventLoop.makePromise(of: Reply.self)
            let isRole = words == ["ROLE"]
            reply.futureResult.whenSuccess { reply in
                guard let failure = Self.sign(reply, isRole: isRole) else { return }
                let (handler, context) = bound.value
                handler.end(context, failure)
            }
            self.write(Command(words: words.map { ByteBuffer(string: $0) }, reply: reply), context, nil)
        }
        context.flush()
    }

    /// The error of an engine with this reply to a heartbeat; `nil` without an error.
    private static func sign(_ reply: Reply, isRole: Bool) -> ValkeyError? {
        switch reply {
        case .list(let facts) where facts.first?.text == "slave": .disconnected("the engine has become a replica")
        case .failure(let failure): failure.isOfAnotherEngine ? .refused(failure) : nil
        case .number: nil
        // The second command detects replies in a wrong order, because its reply is a number.
        default: isRole ? nil : .notAReply("a heartbeat has the reply of another command")
        }
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        self.write(self.unwrapOutboundIn(data), context, promise)
    }

    private func write(_ command: Command, _ context: ChannelHandlerContext, _ promise: EventLoopPromise<Void>?) {
        let ended = self.cause.error
        guard ended == nil, self.waiting.count < Self.maximumWaiting else {
            let failure = ended ?? .tooManyCommands(limit: Self.maximumWaiting)
            promise?.fail(failure)
            return command.reply.fail(failure)
        }
        self.waiting.append(command.reply)
        let length = command.words.reduce(16) { $0 + $1.readableBytes + 16 }
        var buffer = context.channel.allocator.buffer(capacity: length)
        buffer.writeString("*\(command.words.count)\r\n")
        for word in command.words {
            buffer.writeString("$\(word.readableBytes)\r\n")
            buffer.writeImmutableBuffer(word)
            buffer.writeString("\r\n")
        }
        context.write(self.wrapOutboundOut(buffer), promise: promise)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.hasHeard = true
        let reply = self.unwrapInboundIn(data)
        guard case .message(let message) = reply else { return self.answer(reply, context) }
        switch message.first?.text {
        // The only reply with the form of a message.
        case "subscribe": self.answer(.list(message), context)
        default: self.onMessage(message)
        }
    }

    private func answer(_ reply: Reply, _ context: ChannelHandlerContext) {
        guard let first = self.waiting.popFirst() else {
            return self.end(context, .notAReply("a reply to no command"))
        }
        first.succeed(reply)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        var failure = error as? ValkeyError ?? .disconnected("\(error)")
        if case .tooLarge = failure {
            // The reply belongs to the first command. The other commands have lost their connection.
            self.waiting.popFirst()?.fail(failure)
            failure = .disconnected("a reply was too large")
        }
        self.end(context, failure)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.end(context, .disconnected("the other side has closed it"))
        context.fireChannelInactive()
    }

    private func end(_ context: ChannelHandlerContext, _ failure: ValkeyError) {
        guard !self.hasEnded else { return }
        self.hasEnded = true
        _ = self.cause.set(failure)
        let cause = self.cause.error ?? failure
        self.timer?.cancel()
        let waiting = self.waiting
        self.waiting = []
        for reply in waiting { reply.fail(cause) }
        context.close(promise: nil)
    }
}

extension TimeAmount {
    /// At least a millisecond, at most a day.
    init(clamping duration: Duration) {
        let limited = min(max(duration, .milliseconds(1)), .seconds(86_400))
        let (seconds, attoseconds) = limited.components
        self = .nanoseconds(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
    }
}
