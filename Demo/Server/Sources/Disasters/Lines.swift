import NIOCore
import NIOPosix

/// A connection on loopback that carries lines in both directions, in order.
struct LineConnection: Sendable {
    private let channel: any Channel

    fileprivate init(_ channel: any Channel) { self.channel = channel }

    /// Connects to a ``LineServer``.
    ///
    /// - Parameters:
    ///   - port: The port of the server.
    ///   - onLine: Receives each line, on the connection's event loop, in the order of arrival.
    /// - Returns: The connection.
    /// - Throws: The reason of the failure.
    static func open(
        port: Int,
        onLine: @escaping @Sendable (LineConnection, String) -> Void
    ) async throws -> LineConnection {
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let connection = LineConnection(channel)
                    let handler = LineHandler { onLine(connection, $0) }
                    try channel.pipeline.syncOperations.addHandler(handler)
                }
            }
            .connect(host: "127.0.0.1", port: port).get()
        return LineConnection(channel)
    }

    func send(_ line: String) { self.channel.writeAndFlush(ByteBuffer(string: line + "\n"), promise: nil) }

    /// Succeeds when the connection has ended.
    var ended: EventLoopFuture<Void> { self.channel.closeFuture }

    func close() { self.channel.close(promise: nil) }
}

/// Accepts ``LineConnection``s on loopback.
struct LineServer: Sendable {
    let port: Int
    private let channel: any Channel

    /// Begins to listen.
    ///
    /// - Parameter onConnection: Returns the receiver of the lines of a connection.
    /// - Throws: The reason why the server cannot listen.
    init(onConnection: @escaping @Sendable (LineConnection) -> @Sendable (String) -> Void) async throws {
        self.channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let handler = LineHandler(onLine: onConnection(LineConnection(channel)))
                    try channel.pipeline.syncOperations.addHandler(handler)
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        self.port = self.channel.localAddress?.port ?? 0
    }

    func close() { self.channel.close(promise: nil) }
}

private final class LineHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var rest = ByteBuffer()
    private let onLine: (String) -> Void

    init(onLine: @escaping (String) -> Void) { self.onLine = onLine }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = self.unwrapInboundIn(data)
        self.rest.writeBuffer(&bytes)
        while let end = self.rest.readableBytesView.firstIndex(of: UInt8(ascii: "\n")) {
            let line = self.rest.readString(length: end - self.rest.readerIndex) ?? ""
            self.rest.moveReaderIndex(forwardBy: 1)
            self.onLine(line)
        }
        self.rest.discardReadBytes()
    }
}
