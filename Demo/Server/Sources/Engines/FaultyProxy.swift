package import MuxValkey
package import NIOCore
import NIOPosix

/// A TCP proxy on loopback that simulates faults of a network.
///
/// All work of a proxy runs on one event loop, which confines the state of the proxy.
package final class FaultyProxy: Sendable {
    /// The treatment of bytes, in both directions, on existing and on new connections.
    package enum Mode: Sendable, Equatable {
        /// Bytes are forwarded.
        case pass
        /// New connections are closed at once; existing connections continue.
        case refuse
        /// Bytes and the end of a connection are kept and not forwarded: the connection is half open.
        case hold
        /// Bytes are forwarded after a delay.
        case delay(TimeAmount)
        /// Bytes are forwarded one at a time.
        case trickle
    }

    /// The address of the proxy.
    package let address: MuxValkey.Address
    private let server: any Channel
    private let state: NIOLoopBoundBox<ProxyState>

    /// Begins to listen.
    ///
    /// - Parameter target: The target of forwarded connections.
    /// - Throws: The reason why the proxy cannot listen.
    package init(to target: MuxValkey.Address) async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let state = NIOLoopBoundBox.makeBoxSendingValue(ProxyState(target), eventLoop: loop)
        self.state = state
        self.server = try await ServerBootstrap(group: loop)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { client in
                client.eventLoop.makeCompletedFuture {
                    let shared = state.value
                    guard shared.mode != .refuse else { return client.close(promise: nil) }
                    let relay = Relay(from: client, shared)
                    shared.relays[ObjectIdentifier(relay)] = relay
                    try client.pipeline.syncOperations.addHandler(RelayHandler(relay, .client))
                    relay.connect()
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        self.address = .init(host: "127.0.0.1", port: self.server.localAddress?.port ?? 0)
    }

    /// Ends the proxy and its connections.
    package func close() {
        self.server.close(promise: nil)
        self.cut()
    }

    /// Changes the treatment of bytes.
    ///
    /// Kept bytes are forwarded, unless the new mode keeps them. The mode applies to all bytes that arrive
    /// after the function has returned.
    package func set(_ mode: Mode) async {
        try? await self.state.eventLoop.submit { [state] in
            state.value.mode = mode
            for relay in state.value.relays.values { relay.modeChanged() }
        }.get()
    }

    /// Ends existing connections at once, and drops kept bytes.
    package func cut() {
        self.state.eventLoop.execute { [state] in
            for relay in state.value.relays.values { relay.end() }
        }
    }

    /// Waits until the engine has ended every connection that its client has closed.
    ///
    /// Until then, the engine may execute commands of closed connections.
    ///
    /// - Throws: `CancellationError`.
    package func drained() async throws {
        while try await self.state.eventLoop.submit({ [state] in
            state.value.relays.values.contains { $0.isLeft }
        }).get() {
            try await Task.sleep(for: .milliseconds(5))
        }
    }
}

private final class ProxyState {
    let target: MuxValkey.Address
    var mode = FaultyProxy.Mode.pass
    var relays: [ObjectIdentifier: Relay] = [:]

    init(_ target: MuxValkey.Address) { self.target = target }
}

/// A connection of a client, with its connection to the engine.
private final class Relay {
    enum Side: Sendable {
        case client
        case engine
    }

    private let shared: ProxyState
    private let client: any Channel
    private var engine: (any Channel)?
    private var toEngine: Flow
    private var toClient: Flow
    private var hasEnded = false

    init(from client: any Channel, _ shared: ProxyState) {
        self.shared = shared
        self.client = client
        self.toEngine = Flow(shared, to: nil, client.eventLoop)
        self.toClient = Flow(shared, to: client, client.eventLoop)
    }

    /// Whether the client has ended the connection, and the engine has not.
    var isLeft: Bool { self.toEngine.isEnding }

    func connect() {
        let loop = self.client.eventLoop
        let bound = NIOLoopBound(self, eventLoop: loop)
        let target = self.shared.target
        ClientBootstrap(group: loop)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { engine in
                engine.eventLoop.makeCompletedFuture {
                    try engine.pipeline.syncOperations.addHandler(RelayHandler(bound.value, .engine))
                }
            }
            .connect(host: target.host, port: target.port)
            .whenComplete { result in
                let relay = bound.value
                guard case .success(let engine) = result, !relay.hasEnded else {
                    if case .success(let engine) = result { engine.close(promise: nil) }
                    return relay.end()
                }
                relay.engine = engine
                relay.toEngine.destination = engine
                relay.toEngine.pump()
            }
    }

    func received(_ bytes: ByteBuffer, from side: Side) {
        let flow = side == .client ? self.toEngine : self.toClient
        flow.queue.append((.now(), bytes))
        flow.pump()
    }

    /// One side has finished sending.
    func ended(_ side: Side) {
        let flow = side == .client ? self.toEngine : self.toClient
        flow.isEnding = true
        flow.pump()
        self.endIfOver()
    }

    func modeChanged() {
        self.toEngine.modeChanged()
        self.toClient.modeChanged()
        self.endIfOver()
    }

    /// Ends the connection if the engine has ended it, and the client has received all bytes that the mode
    /// permits.
    private func endIfOver() {
        guard self.toClient.isEnding else { return }
        if self.toEngine.isEnding || self.toClient.queue.isEmpty && self.shared.mode != .hold { self.end() }
    }

    /// Ends both connections at once.
    func end() {
        guard !self.hasEnded else { return }
        self.hasEnded = true
        self.shared.relays[ObjectIdentifier(self)] = nil
        self.client.close(promise: nil)
        self.engine?.close(promise: nil)
    }
}

/// Bytes in one direction.
private final class Flow {
    var queue = CircularBuffer<(arrival: NIODeadline, bytes: ByteBuffer)>()
    var destination: (any Channel)?
    /// Whether the source has finished sending.
    var isEnding = false
    private let shared: ProxyState
    private let loop: any EventLoop
    /// Whether a timer will continue the flow; a timer of an earlier mode has no effect.
    private var isTimed = false
    private var generation = 0

    init(_ shared: ProxyState, to destination: (any Channel)?, _ loop: any EventLoop) {
        self.shared = shared
        self.destination = destination
        self.loop = loop
    }

    func modeChanged() {
        self.generation += 1
        self.isTimed = false
        self.pump()
    }

    func pump() {
        guard let destination, !self.isTimed else { return }
        while let (arrival, bytes) = self.queue.first {
            switch self.shared.mode {
            case .hold: return
            case .pass, .refuse: _ = self.queue.popFirst()
            case .delay(let amount):
                let due = arrival + amount
                guard due <= .now() else { return self.goOn(at: due) }
                _ = self.queue.popFirst()
            case .trickle:
                var rest = bytes
                guard let byte = rest.readSlice(length: 1) else {
                    _ = self.queue.popFirst()
                    continue
                }
                self.queue[self.queue.startIndex].bytes = rest
                destination.writeAndFlush(byte, promise: nil)
                return self.goOn(at: .now() + .microseconds(20))
            }
            destination.writeAndFlush(bytes, promise: nil)
        }
        if self.isEnding, self.shared.mode != .hold { destination.close(mode: .output, promise: nil) }
    }

    private func goOn(at time: NIODeadline) {
        self.isTimed = true
        let bound = NIOLoopBound(self, eventLoop: self.loop)
        let generation = self.generation
        self.loop.scheduleTask(deadline: time) {
            let flow = bound.value
            guard generation == flow.generation else { return }
            flow.isTimed = false
            flow.pump()
        }
    }
}

private final class RelayHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let relay: Relay
    private let side: Relay.Side

    init(_ relay: Relay, _ side: Relay.Side) {
        self.relay = relay
        self.side = side
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.relay.received(self.unwrapInboundIn(data), from: self.side)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event as? ChannelEvent == .inputClosed { self.relay.ended(self.side) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.relay.ended(self.side)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { self.relay.ended(self.side) }
}
