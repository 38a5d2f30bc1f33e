public import Foundation
import MuxKit

/// A small HTTP/1.1 server on 127.0.0.1 for tests; a closure responds to requests.
///
/// ```swift
/// let server = LoopbackServer { request in .text("You asked for \(request.path)") }
/// let url = try server.start()
/// …
/// await server.stop()
/// ```
///
/// The server uses real sockets and separate threads. A connection can have several requests (RFC 9112,
/// section 9.3). A ``Response`` can also violate the protocol. The server is not intended for production.
///
/// **Refused requests.** The server itself responds to a malformed or unsupported request (status 400), a
/// request with `Transfer-Encoding` (411), and a request above a limit (413 or 431), and closes the
/// connection. Such requests are not counted.
///
/// **Concurrent calls.** Each connection runs the closure on a separate queue: a blocking closure delays only
/// the requests of the same connection.
///
/// **Cancellation.** The closure's task is cancelled if the client hangs up, or if the server stops or is
/// released. A client that has shut down only its sending side still gets the response.
public final class LoopbackServer: Sendable {
    /// Responds to a request.
    public typealias Handler = @Sendable @concurrent (Request) async -> Response

    private struct State: Sendable {
        /// Whether ``LoopbackServer/start()`` has succeeded without a later ``LoopbackServer/stop()``.
        var isRunning = false
        /// The pipe to end the accepting thread; `nil` without such a thread, and after the signal to end.
        var wake: Int32?
        var isStopping = false
        /// The number of successful starts.
        var starts = 0
        /// The port of every start; `nil` before the port is chosen.
        var port: UInt16?
        /// On Linux, reserves a free port until the deallocation of the server.
        var reservation: Int32?
        var nextID: UInt64 = 0
        var connections: [UInt64: LoopbackConnection] = [:]
    }

    private let fixedPort: UInt16?
    private let handler: Handler
    private let immediate: (@Sendable (Request) -> Response?)?
    private let headerLimit: Int
    private let bodyLimit: Int
    private let state = Locked(State())
    private let requests = Tally()
    private let requestsByPath = Tallies<String>()
    private let opened = Tally()
    private let closed = Tally()
    private let listenersClosed = Tally()
    private let stops = Tally()

    /// Makes a server; the server does not listen yet.
    ///
    /// - Parameters:
    ///   - port: The port to listen on; `nil` or 0 for a free port.
    ///   - headerLimit: The maximum size of a request without its body, in bytes.
    ///   - bodyLimit: The maximum size of a body, in bytes.
    ///   - immediate: Called first, on the connection's thread, without a task: for tests with a blocked
    ///     cooperative pool.
    ///   - handler: Responds to a request for which `immediate` returned no response; runs concurrently for
    ///     several connections.
    public init(
        port: UInt16? = nil,
        headerLimit: Int = 16_384,
        bodyLimit: Int = 4_194_304,
        immediate: (@Sendable (Request) -> Response?)? = nil,
        handler: @escaping Handler
    ) {
        self.fixedPort = port == 0 ? nil : port
        self.immediate = immediate
        self.headerLimit = headerLimit
        self.bodyLimit = bodyLimit
        self.handler = handler
    }

    deinit {
        let connections = self.state.withLock { state -> [LoopbackConnection] in
            if let wake = state.wake { Socket.wake(wake) }
            if let reservation = state.reservation { Socket.close(reservation) }
            return Array(state.connections.values)
        }
        for connection in connections { connection.stop() }
    }

    /// Starts to listen on 127.0.0.1: first on the given or a free port, later always on the port of the
    /// first start.
    ///
    /// - Returns: The server's URL, without a path.
    /// - Throws: ``Failure``.
    @discardableResult
    public func start() throws(Failure) -> URL {
        let wakeUp = try Socket.makeWakePipe()
        let descriptor: Int32
        do throws(Failure) {
            descriptor = try self.state.withLock { state throws(Failure) in
                guard !state.isRunning, !state.isStopping else { throw .alreadyRunning }
                let port = state.port ?? self.fixedPort
                if port == nil { (state.reservation, state.port) = try Socket.reservePort() }
                let descriptor = try Socket.listen(on: .ipv4, port: port ?? state.port ?? 0).descriptor
                state.port = state.port ?? port
                state.wake = wakeUp.wake
                state.isRunning = true
                state.starts += 1
                return descriptor
            }
        } catch {
            Socket.close(wakeUp.wait, wakeUp.wake)
            throw error
        }
        Thread.detachNewThread { [weak self, state, listenersClosed] in
            while Socket.wait(for: descriptor, wake: wakeUp.wait) == .readable, let self {
                if let connection = Socket.accept(descriptor) { self.open(connection) }
            }
            // `stop()` and `deinit` must not write to a closed pipe.
            state.withLock { if $0.wake == wakeUp.wake { $0.wake = nil } }
            // Shut down first: a child process that is being started may hold a copy of the descriptor, and
            // would keep the port in use.
            Socket.shutDown(descriptor)
            Socket.close(descriptor, wakeUp.wait, wakeUp.wake)
            listenersClosed.add()
        }
        return self.url
    }

    /// Stops listening and ends every connection.
    ///
    /// **Concurrent calls.** All calls return when the listener and all connections are closed.
    ///
    /// **Cancellation.** A cancellation does not shorten the wait.
    public func stop() async {
        let (isFirst, connections, starts) = self.state.withLock {
            state -> (Bool, [LoopbackConnection], Int) in
            guard state.isRunning else { return (false, [], state.starts) }
            state.isRunning = false
            state.isStopping = true
            // `wake` is `nil` if the accepting thread has ended after an error.
            if let wake = state.wake { Socket.wake(wake) }
            state.wake = nil
            return (true, Array(state.connections.values), state.starts)
        }
        for connection in connections { connection.stop() }
        await finishing { [self] in
            guard isFirst else { return await self.stops.reached(starts) }
            await self.listenersClosed.reached(starts)
            await self.closed.reached(self.opened.value)
            self.state.withLock { $0.isStopping = false }
            self.stops.add()
        }
    }

    /// The URL of the server, without a path; without a port before the first start.
    public var url: URL {
        let port = self.state.withLock { $0.port.map { ":\($0)" } ?? "" }
        return URL(string: "http://127.0.0.1\(port)") ?? URL(filePath: "/")
    }

    /// The number of received requests, without refused requests.
    public var requestCount: Int { self.requests.value }

    /// The number of accepted connections.
    public var connectionCount: Int { self.opened.value }

    /// The number of open connections.
    public var openConnectionCount: Int { self.state.withLock { $0.connections.count } }

    /// The number of received requests with a method and path, such as `"GET /me"`, without refused requests.
    public func requestCount(_ methodAndPath: String) -> Int { self.requestsByPath[methodAndPath].value }

    /// Suspends until `count` requests were received; returns early if the task is cancelled.
    public func waitForRequest(_ count: Int = 1) async { await self.requests.reached(count) }

    /// Suspends until `count` requests for a method and path, such as `"GET /me"`, were received; returns
    /// early if the task is cancelled.
    public func waitForRequest(_ methodAndPath: String, count: Int = 1) async {
        await self.requestsByPath[methodAndPath].reached(count)
    }

    /// Suspends until `count` connections were closed, by either side; returns early if the task is
    /// cancelled.
    public func waitForClosedConnection(_ count: Int = 1) async { await self.closed.reached(count) }

    private func count(_ request: Request) {
        self.requestsByPath["\(request.method) \(request.path)"].add()
        self.requests.add()
    }

    private func open(_ descriptor: Int32) {
        guard let connection = try? LoopbackConnection(descriptor) else {
            return Socket.close(descriptor)
        }
        let id = self.state.withLock { state -> UInt64? in
            guard state.isRunning else { return nil }
            state.nextID += 1
            state.connections[state.nextID] = connection
            return state.nextID
        }
        if id != nil { self.opened.add() }
        let parser = LoopbackRequestParser(headerLimit: self.headerLimit, bodyLimit: self.bodyLimit)
        let handler: Handler = { [weak self] request in
            guard let self else { return Response(steps: [.close]) }
            self.count(request)
            return await self.handler(request)
        }
        let immediate: @Sendable (Request) -> Response? = { [weak self] request in
            guard let self, let response = self.immediate?(request) else { return nil }
            self.count(request)
            return response
        }
        Thread.detachNewThread { [state, closed] in
            if id == nil { connection.stop() }
            connection.serve(parser, immediate, handler)
            guard let id else { return }
            state.withLock { _ = $0.connections.removeValue(forKey: id) }
            closed.add()
        }
    }
}

extension LoopbackServer {
    /// The reason why a ``LoopbackServer`` did not start.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Failure: Error, Sendable, Hashable, LocalizedError, CustomStringConvertible {
        /// The system refused a socket, a port or a pipe with this `errno`; `port` is the refused port, and
        /// otherwise `nil`.
        case cannotListen(code: Int32, port: UInt16? = nil)

        /// The server is running, or is still stopping.
        case alreadyRunning

        /// A text for the test's log.
        public var errorDescription: String? { self.description }

        /// A text for the test's log.
        public var description: String {
            switch self {
            case .cannotListen(POSIXError.Code.EADDRINUSE.rawValue, let port?):
                "The loopback server cannot listen. Port \(port) is in use."
            case .cannotListen(let code, let port):
                "The loopback server cannot listen\(port.map { " on port \($0)" } ?? ""). "
                    + ErrorText.sentence(of: NSError(domain: NSPOSIXErrorDomain, code: Int(code)))
            case .alreadyRunning: "The loopback server is running, or has not stopped yet."
            }
        }
    }
}
