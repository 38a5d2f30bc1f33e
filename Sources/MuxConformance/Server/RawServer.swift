import Dispatch
package import Foundation
import MuxKit
package import MuxTesting

/// A server with a script for the bytes and the end (FIN or RST) of each connection.
///
/// ```swift
/// let server = RawServer { connection in
///     try connection.readRequest()
///     try connection.write("HTTP/1.1 200 OK\r\nContent-Le")
///     connection.resetAtEnd()
/// }
/// ```
///
/// The script runs once for each connection, on a separate thread, and may block the thread. The connection
/// is closed when the script returns or throws. A started server stays in memory until ``stop()``.
///
/// ``LoopbackServer`` needs less code for most tests.
package final class RawServer: Sendable {
    /// The script of one connection: reads requests, and writes responses.
    package typealias Script = @Sendable (inout RawConnection) throws -> Void

    private struct State: Sendable {
        /// The pipe to wake the accepting thread; `nil` before ``RawServer/start()``, and after
        /// ``RawServer/stop()`` or ``RawServer/closePort()``.
        var wake: Int32?
        var isStopped = false
        var lastNumber = 0
        /// The descriptors of open connections, by number.
        var descriptors: [Int: Int32] = [:]
        var requests: [RawRequest] = []
    }

    private let address: Socket.Loopback
    private let script: Script
    private let state = Locked(State())
    private let opened = Tally()
    private let closed = Tally()
    private let permits = DispatchSemaphore(value: 0)
    /// Signalled when the port is closed.
    private let unbound = DispatchSemaphore(value: 0)

    /// Makes a server; the server does not listen yet.
    ///
    /// - Parameters:
    ///   - address: The address to listen on.
    ///   - script: Runs once for each connection.
    package init(on address: Socket.Loopback = .ipv4, _ script: @escaping Script) {
        self.address = address
        self.script = script
    }

    /// Starts to listen on a free port; may be called once.
    ///
    /// - Returns: The server's URL, without a path.
    package func start() throws(LoopbackServer.Failure) -> URL {
        let wakeUp = try Socket.makeWakePipe()
        let (listener, port): (Int32, UInt16)
        do throws(LoopbackServer.Failure) {
            // With small buffers, the server soon notices a client that does not read, and soon blocks a
            // client that sends.
            (listener, port) = try Socket.listen(on: self.address, port: 0, buffers: 256 << 10)
        } catch {
            Socket.close(wakeUp.wait, wakeUp.wake)
            throw error
        }
        self.state.withLock { $0.wake = wakeUp.wake }
        Thread.detachNewThread {
            while Socket.wait(for: listener, wake: wakeUp.wait) == .readable {
                if let descriptor = Socket.accept(listener) { self.serve(descriptor) }
            }
            self.state.withLock { $0.wake = nil }  // before the descriptor may be used for another file
            Socket.close(listener, wakeUp.wait, wakeUp.wake)
            self.unbound.signal()
        }
        let host = self.address == .ipv4 ? "127.0.0.1" : "[::1]"
        return URL(string: "http://\(host):\(port)") ?? URL(filePath: "/")
    }

    /// Stops the server, and returns after the end of all scripts.
    ///
    /// Ends every connection, and every wait of a script in ``RawConnection``. The port may stay open for a
    /// moment after the return: the accepting thread closes the listener.
    package func stop() async {
        let count = self.state.withLock { state -> Int in
            if let wake = state.wake { Socket.wake(wake) }
            state.wake = nil
            state.isStopped = true
            for descriptor in state.descriptors.values { Socket.shutDown(descriptor) }
            return state.descriptors.count
        }
        for _ in 0..<count { self.permits.signal() }
        await finishing { await self.closed.reached(self.opened.value) }
    }

    /// Closes the port, and returns when the system refuses new connections; may be called once, by a script.
    ///
    /// Connections that the server has accepted stay open.
    package func closePort() {
        self.state.withLock { state in
            if let wake = state.wake { Socket.wake(wake) }
            state.wake = nil
        }
        self.unbound.wait()
    }

    /// Lets one current or later call of ``RawConnection/waitToProceed()`` return.
    package func proceed() { self.permits.signal() }

    /// The requests that ``RawConnection/readRequest()`` has read, in the order of their completion.
    package var requests: [RawRequest] { self.state.withLock { $0.requests } }

    /// Suspends until `count` scripts have ended since the start; returns early if the task is cancelled.
    package func waitForClosedConnection(_ count: Int = 1) async { await self.closed.reached(count) }

    fileprivate func record(_ request: RawRequest) { self.state.withLock { $0.requests.append(request) } }

    fileprivate func waitToProceed() -> Bool {
        guard !self.state.withLock({ $0.isStopped }) else { return false }
        self.permits.wait()
        return !self.state.withLock { $0.isStopped }
    }

    private func serve(_ descriptor: Int32) {
        let number = self.state.withLock { state -> Int? in
            guard !state.isStopped else { return nil }
            state.lastNumber += 1
            state.descriptors[state.lastNumber] = descriptor
            self.opened.add()  // under the lock: ``stop()`` must wait for this connection
            return state.lastNumber
        }
        guard let number else { return Socket.close(descriptor) }
        Thread.detachNewThread {
            var connection = RawConnection(number: number, descriptor: descriptor, server: self)
            // An error of a script ends only the connection of the script.
            try? self.script(&connection)
            self.state.withLock { state in
                state.descriptors[number] = nil
                Socket.close(descriptor)
            }
            self.closed.add()
        }
    }
}

/// A request received by a ``RawServer``.
package struct RawRequest: Sendable {
    /// The number of the connection, from 1.
    package var connection: Int

    /// The bytes of the head, including the empty line.
    package var head: [UInt8]

    /// The body, without the framing of chunks; empty if only the head was read.
    package var body: [UInt8] = []

    private var lines: [Substring] {
        String(decoding: self.head, as: UTF8.self).split(separator: "\r\n", omittingEmptySubsequences: true)
    }

    private var words: [Substring] {
        (self.lines.first ?? "").split(separator: " ", omittingEmptySubsequences: false)
    }

    /// The method as sent.
    package var method: String { String(self.words.first ?? "") }

    /// The target as sent.
    package var target: String { String(self.words.dropFirst().first ?? "") }

    /// The header fields in order, with values as sent, without surrounding white space.
    package var fields: [(name: String, value: String)] {
        self.lines.dropFirst().map { line in
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            return (String(parts[0]), parts.count > 1 ? parts[1].trimmingCharacters(in: .whitespaces) : "")
        }
    }

    /// The values of all lines with this name, compared case-insensitively.
    package func values(of name: String) -> [String] {
        self.fields.filter { $0.name.lowercased() == name.lowercased() }.map(\.value)
    }

    /// Whether a `Transfer-Encoding` field has the value `chunked`.
    package var isChunked: Bool { self.values(of: "Transfer-Encoding").contains { $0.lowercased() == "chunked" } }

    /// The method and the target.
    package var line: String { "\(self.method) \(self.target)" }
}

/// One connection of a ``RawServer``, used only by the thread of the connection.
///
/// Calls can block the thread.
package struct RawConnection {
    /// The connection has ended, the server stops, or received bytes have interrupted a pause.
    package struct Ended: Error {}

    /// The connection's number, from 1 in the order of acceptance.
    package let number: Int
    private let descriptor: Int32
    private let server: RawServer
    /// The received bytes that the script has not read yet.
    private var buffer: [UInt8] = []

    fileprivate init(number: Int, descriptor: Int32, server: RawServer) {
        self.number = number
        self.descriptor = descriptor
        self.server = server
    }

    // MARK: - Reading

    /// Reads and records the next request with the body; sends `100 Continue` if the request has
    /// `Expect: 100-continue`.
    @discardableResult
    package mutating func readRequest() throws(Ended) -> RawRequest {
        var request = try self.readHead()
        if request.values(of: "Expect").contains(where: { $0.lowercased() == "100-continue" }) {
            try self.write("HTTP/1.1 100 Continue\r\n\r\n")
        }
        if request.isChunked {
            while let size = Int(String(decoding: try self.readLine(), as: UTF8.self), radix: 16), size > 0 {
                request.body += try self.read(count: size)
                _ = try self.readLine()
            }
            while try !self.readLine().isEmpty {}
        } else {
            let length = request.values(of: "Content-Length").first.flatMap { Int($0) } ?? 0
            request.body = try self.read(count: max(length, 0))
        }
        self.server.record(request)
        return request
    }

    /// Reads the head of the next request, without the body.
    package mutating func readHead() throws(Ended) -> RawRequest {
        let end = Array("\r\n\r\n".utf8)
        while true {
            if let range = self.buffer.firstRange(of: end) {
                defer { self.buffer.removeFirst(range.upperBound) }
                return RawRequest(connection: self.number, head: Array(self.buffer[..<range.upperBound]))
            }
            try self.receive()
        }
    }

    /// Reads this number of bytes.
    package mutating func read(count: Int) throws(Ended) -> [UInt8] {
        while self.buffer.count < count { try self.receive() }
        defer { self.buffer.removeFirst(count) }
        return Array(self.buffer[..<count])
    }

    /// Reads a line, and returns the line without its end.
    private mutating func readLine() throws(Ended) -> [UInt8] {
        while true {
            if let range = self.buffer.firstRange(of: [13, 10]) {
                defer { self.buffer.removeFirst(range.upperBound) }
                return Array(self.buffer[..<range.lowerBound])
            }
            try self.receive()
        }
    }

    private mutating func receive() throws(Ended) {
        guard let bytes = Socket.read(self.descriptor) else { throw Ended() }
        self.buffer += bytes
    }

    /// Reads and discards bytes until the connection ends or the server stops.
    package mutating func waitForEnd() {
        self.buffer = []
        while Socket.read(self.descriptor) != nil {}
    }

    // MARK: - Writing

    /// Writes text in UTF-8.
    package func write(_ text: String) throws(Ended) { try self.write(Array(text.utf8)) }

    /// Writes all bytes.
    package func write(_ bytes: [UInt8]) throws(Ended) {
        guard Socket.write(bytes, to: self.descriptor) else { throw Ended() }
    }

    /// Writes some of the bytes, limited by the space in the send buffer.
    ///
    /// - Parameters:
    ///   - bytes: The bytes.
    ///   - milliseconds: The maximum wait for space.
    /// - Returns: The number of written bytes; 0 if no byte was written within the maximum wait.
    /// - Throws: ``Ended``.
    package func writeSome(_ bytes: ArraySlice<UInt8>, milliseconds: Int32) throws(Ended) -> Int {
        guard let count = Socket.writeSome(bytes, to: self.descriptor, milliseconds: milliseconds) else {
            throw Ended()
        }
        return count
    }

    /// Writes a complete response; each additional field must end with CRLF.
    package func respond(_ status: Int = 200, fields: String = "", _ body: String = "") throws(Ended) {
        try self.write("HTTP/1.1 \(status) -\r\n\(fields)Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
    }

    // MARK: - Waiting and ending

    /// Waits for a call of ``RawServer/proceed()``, or uses up an earlier call; throws if the server stops.
    package func waitToProceed() throws(Ended) {
        guard self.server.waitToProceed() else { throw Ended() }
    }

    /// Pauses between two writes of a slow response; throws at once if bytes arrive or the connection ends.
    package func pause(milliseconds: Int32) throws(Ended) {
        guard !Socket.waitForInput(self.descriptor, milliseconds: milliseconds) else { throw Ended() }
    }

    /// Makes the connection end with RST instead of FIN at the end of the script.
    package func resetAtEnd() { Socket.setResetOnClose(self.descriptor) }
}
