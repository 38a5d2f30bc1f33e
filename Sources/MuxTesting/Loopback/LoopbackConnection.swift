import Foundation
import MuxKit

/// One connection of a ``LoopbackServer``, served by a thread of its own.
final class LoopbackConnection: Sendable {
    private struct State: Sendable {
        /// `false` once the descriptors are closed: they may belong to somebody else by then.
        var isOpen = true
        var isStopped = false
        /// The asynchronous work that the thread waits for.
        var work: Task<Void, Never>?
    }

    private let descriptor: Int32
    private let wakeUp: (wait: Int32, wake: Int32)
    private let state = Guarded(State())

    /// Takes over the descriptor of a connection.
    init(_ descriptor: Int32) throws(LoopbackError) {
        self.descriptor = descriptor
        self.wakeUp = try Socket.wakePipe()
    }

    /// Serves requests until either side ends the connection, then closes it.
    ///
    /// Blocks: runs on its own thread.
    func serve(
        _ parser: LoopbackRequestParser,
        _ immediate: @Sendable (LoopbackRequest) -> LoopbackResponse?,
        _ handler: @escaping @Sendable @concurrent (LoopbackRequest) async -> LoopbackResponse
    ) {
        self.serveRequests(parser, immediate, handler)
        self.state.withLock { state in
            state.isOpen = false
            Socket.close(self.descriptor)
            Socket.close(self.wakeUp.wait)
            Socket.close(self.wakeUp.wake)
        }
    }

    /// Makes ``serve(_:_:_:)`` come to its end, whatever it waits for.
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
        _ immediate: @Sendable (LoopbackRequest) -> LoopbackResponse?,
        _ handler: @escaping @Sendable @concurrent (LoopbackRequest) async -> LoopbackResponse
    ) {
        var parser = parser
        while true {
            switch parser.next() {
            case .needsMore:
                guard let bytes = Socket.read(self.descriptor) else { return }
                parser.append(bytes)
            case .sendContinue:
                guard Socket.write(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8), to: self.descriptor) else { return }
            case .request(let request):
                let response = immediate(request) ?? self.outcome(of: { await handler(request) })
                guard let response, self.play(response) else { return }
            case .refuse(let status):
                _ = self.play(LoopbackResponse(status: status, headers: ["Connection": "close"]))
                return
            }
        }
    }

    /// - Returns: Whether the connection can take another request.
    private func play(_ response: LoopbackResponse) -> Bool {
        for step in response.steps {
            switch step {
            case .send(let data):
                guard Socket.write(Array(data), to: self.descriptor) else { return false }
            case .sendPieces(let next):
                while let data = next() {
                    guard Socket.write(Array(data), to: self.descriptor) else { return false }
                }
            case .sendAwaited(let next):
                var piece = self.outcome(of: next)
                while let data = piece ?? nil {
                    guard Socket.write(Array(data), to: self.descriptor) else { return false }
                    piece = self.outcome(of: next)
                }
                if piece == nil { return false }
            case .wait(let closure):
                guard self.outcome(of: closure) != nil else { return false }
            case .close:
                return false
            case .reset:
                Socket.resetOnClose(self.descriptor)
                return false
            }
        }
        return true
    }

    /// Blocks until `operation` has returned; `nil` if the client hung up or the server stopped before that.
    private func outcome<Value: Sendable>(of operation: @escaping @Sendable @concurrent () async -> Value) -> Value? {
        let result = Guarded<Value?>(nil)
        let work = Spawn(executor: LoopbackExecutor.shared)(name: "mux.loopback") { [weak self] in
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

        var listens = true
        while true {
            switch Socket.wait(for: listens ? self.descriptor : nil, wake: self.wakeUp.wait) {
            case .readable where !Socket.isAtEnd(self.descriptor):
                listens = false
            case .woken:
                Socket.drain(self.wakeUp.wait)
                guard !self.state.withLock({ $0.isStopped }) else {
                    work.cancel()
                    return nil
                }
                if let value = result.withLock({ $0 }) { return value }
            case .readable, .hungUp:
                work.cancel()
                return nil
            }
        }
    }

    private func wake() {
        self.state.withLock { state in
            if state.isOpen { Socket.wake(self.wakeUp.wake) }
        }
    }
}
