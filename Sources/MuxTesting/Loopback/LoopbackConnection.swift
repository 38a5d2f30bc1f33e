import Dispatch
import Foundation
import MuxKit

/// One connection of a ``LoopbackServer``, served on a separate thread.
final class LoopbackConnection: Sendable {
    private struct State: Sendable {
        /// `false` after the descriptors are closed: the system may have reused their numbers.
        var isOpen = true
        var isStopped = false
        /// The task of the running handler, or of an asynchronous closure of a response.
        var work: Task<Void, Never>?
    }

    /// The received bytes that are not processed yet.
    private struct Incoming {
        var parser: LoopbackRequestParser
        /// Whether no more bytes can be received; the client may still read the response.
        var isEnded = false
    }

    private let descriptor: Int32
    private let wakeUp: (wait: Int32, wake: Int32)
    private let executor = LoopbackExecutor()
    private let state = Locked(State())

    /// Takes ownership of the descriptor, unless the initializer throws.
    init(_ descriptor: Int32) throws(LoopbackServer.Failure) {
        self.descriptor = descriptor
        self.wakeUp = try Socket.makeWakePipe()
    }

    /// Serves requests until either side ends the connection, then closes the connection; blocks.
    func serve(
        _ parser: LoopbackRequestParser,
        _ immediate: @Sendable (LoopbackServer.Request) -> LoopbackServer.Response?,
        _ handler: @escaping @Sendable @concurrent (LoopbackServer.Request) async -> LoopbackServer.Response
    ) {
        self.serveRequests(parser, immediate, handler)
        self.state.withLock { state in
            state.isOpen = false
            Socket.close(self.descriptor, self.wakeUp.wait, self.wakeUp.wake)
        }
    }

    /// Ends the connection and cancels the running closure, so ``serve(_:_:_:)`` returns soon.
    ///
    /// A synchronous closure, such as `immediate`, delays the return.
    func stop() {
        let work = self.state.withLock { state -> Task<Void, Never>? in
            guard state.isOpen else { return nil }
            state.isStopped = true
            Socket.shutDown(self.descriptor)
            Socket.wake(self.wakeUp.wake)
            return state.work
        }
        work?.cancel()
    }

    private func serveRequests(
        _ parser: LoopbackRequestParser,
        _ immediate: @Sendable (LoopbackServer.Request) -> LoopbackServer.Response?,
        _ handler: @escaping @Sendable @concurrent (LoopbackServer.Request) async -> LoopbackServer.Response
    ) {
        var incoming = Incoming(parser: parser)
        while true {
            switch incoming.parser.next() {
            case .needsMore:
                guard !incoming.isEnded, let bytes = Socket.read(self.descriptor) else { return }
                incoming.parser.append(bytes)
            case .sendContinue:
                guard self.write(Data("HTTP/1.1 100 Continue\r\n\r\n".utf8)) else { return }
            case .request(let request):
                let response = immediate(request) ?? self.outcome(of: { await handler(request) }, &incoming)
                guard let response, self.send(response, to: request, &incoming) else { return }
            case .refuse(let status):
                if self.send(LoopbackServer.Response(status: status), to: nil, &incoming) { self.discardInput() }
                return
            }
        }
    }

    private func write(_ data: Data) -> Bool { Socket.write(Array(data), to: self.descriptor) }

    /// Reads and discards input for at most two seconds.
    ///
    /// Closing a connection with unread bytes would reset the connection and could destroy the response (RFC
    /// 9112, section 9.6).
    private func discardInput() {
        Socket.endWriting(self.descriptor)
        let end = ContinuousClock.now.advanced(by: .seconds(1))
        while ContinuousClock.now < end,
            Socket.wait(for: self.descriptor, wake: self.wakeUp.wait, milliseconds: 1_000) == .readable,
            Socket.read(self.descriptor) != nil
        {}
    }

    // MARK: - Responding

    /// Sends a response to `request`, or, if `request` is `nil`, to bytes that the parser refused.
    ///
    /// - Returns: Whether the response was sent and the connection may have a next request; if `request` is
    ///   `nil`, whether the response was sent.
    private func send(
        _ response: LoopbackServer.Response,
        to request: LoopbackServer.Request?,
        _ incoming: inout Incoming
    ) -> Bool {
        var keepsAlive = request?.keepsAlive ?? false
        var hasBody = true
        // If the next step is `send`, the head and the bytes of the step are sent in one write.
        var head = Data()
        for step in response.steps {
            if case .send(let data) = step, hasBody {
                guard self.write(head + data) else { return false }
                head = Data()
                continue
            }
            guard head.isEmpty || self.write(head) else { return false }
            head = Data()
            switch step {
            case .head(let status, let headers):
                keepsAlive = keepsAlive && !ConnectionOptions(headers).contains("close")
                hasBody = request?.method != "HEAD" && status >= 200 && status != 204 && status != 304
                head = Self.head(status, headers, request, keepsAlive: keepsAlive)
            case .close:
                return false
            case .reset:
                Socket.setResetOnClose(self.descriptor)
                return false
            case .send, .sendPieces, .sendAwaited, .wait:
                guard !hasBody || self.send(step, &incoming) else { return false }
            }
        }
        guard head.isEmpty || self.write(head) else { return false }
        return keepsAlive || request == nil
    }

    /// Performs one step with a closure.
    ///
    /// - Returns: `false` if the connection has ended, or the server stops.
    private func send(_ step: LoopbackServer.Response.Step, _ incoming: inout Incoming) -> Bool {
        switch step {
        case .sendPieces(let next):
            while let data = next() {
                guard self.write(data) else { return false }
            }
        case .sendAwaited(let next):
            while true {
                guard let piece = self.outcome(of: next, &incoming) else { return false }
                guard let data = piece else { break }
                guard self.write(data) else { return false }
            }
        case .wait(let closure):
            return self.outcome(of: closure, &incoming) != nil
        case .head, .send, .close, .reset:
            break
        }
        return true
    }

    private static func head(
        _ status: Int,
        _ headers: [(name: String, value: String)],
        _ request: LoopbackServer.Request?,
        keepsAlive: Bool
    ) -> Data {
        var text = "HTTP/1.1 \(status) \(status < 400 ? "OK" : "Refused")\r\n"
        for (name, value) in headers { text += "\(name): \(value)\r\n" }
        let options = ConnectionOptions(headers)
        if status >= 200, !keepsAlive, !options.contains("close") { text += "Connection: close\r\n" }
        if keepsAlive, request?.version == "HTTP/1.0", !options.contains("keep-alive") {
            text += "Connection: keep-alive\r\n"
        }
        return Data((text + "\r\n").utf8)
    }

    /// Runs `operation` in a task, and blocks until the return of `operation`.
    ///
    /// Bytes received in the meantime are appended to `incoming`.
    ///
    /// - Returns: The value; `nil`, after a cancellation of the task, if the client hangs up or the server
    ///   stops earlier.
    private func outcome<Value: Sendable>(
        of operation: @escaping @Sendable @concurrent () async -> Value,
        _ incoming: inout Incoming
    ) -> Value? {
        let result = Locked<Value?>(nil)
        let work = TaskLauncher(executor: self.executor)(name: "mux.loopback") { [weak self] in
            let value = await operation()
            result.withLock { $0 = value }
            self?.wake()
        }
        let isStopped = self.state.withLock { state -> Bool in
            state.work = work
            return state.isStopped
        }
        if isStopped { work.cancel() }
        defer { self.state.withLock { $0.work = nil } }

        while true {
            let listens = !incoming.isEnded && incoming.parser.canTakeMore
            if !listens, !Socket.isConnected(self.descriptor) { break }
            // The descriptor is not part of this wait: only polling detects a reset.
            let milliseconds: Int32? = listens ? nil : 20
            let source = listens ? self.descriptor : nil
            switch Socket.wait(for: source, wake: self.wakeUp.wait, milliseconds: milliseconds) {
            case .readable:
                if let bytes = Socket.read(self.descriptor) {
                    incoming.parser.append(bytes)
                } else {
                    incoming.isEnded = true
                    Socket.probe(self.descriptor)
                }
                continue
            case .woken:
                Socket.drain(self.wakeUp.wait)
                if self.state.withLock({ $0.isStopped }) { break }
                if let value = result.withLock({ $0 }) { return value }
                continue
            case .timedOut:
                continue
            case .hungUp:
                break
            }
            break
        }
        work.cancel()
        return nil
    }

    private func wake() {
        self.state.withLock { state in
            if state.isOpen { Socket.wake(self.wakeUp.wake) }
        }
    }
}

/// Runs the handlers of one connection on a separate queue.
///
/// A test with a child process can block the cooperative pool during its wait (exit tests of Swift 6.3.1 do),
/// and the child process may wait for a response.
private final class LoopbackExecutor: TaskExecutor {
    private let queue = DispatchQueue(label: "MuxTesting.Loopback")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
