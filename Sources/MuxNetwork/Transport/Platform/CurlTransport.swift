#if os(Linux)
import CMuxCurl
import Foundation
package import MuxKit

/// Sends requests with libcurl, on a separate thread.
///
/// All calls of one transport share the connections and the thread. The thread starts with the first call and
/// ends after the transport's deallocation.
package final class CurlTransport: ValidatedTransport {
    package let options: HTTPTransportConfiguration
    package let time: TimeSource
    private let library: CurlLibrary
    private let mailbox: CurlMailbox

    /// Makes a transport; `nil` without a library, without memory, or without a file descriptor.
    init?(_ options: HTTPTransportConfiguration, clock: any Clock<Duration>, library: CurlLibrary?) {
        guard let library, let multi = CurlMulti(library) else { return nil }
        self.options = options
        self.time = TimeSource(clock)
        self.library = library
        self.mailbox = CurlMailbox(multi)
        Inspection.inspector?.note(self)
    }

    deinit { self.mailbox.close() }

    package func perform(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        defer { withExtendedLifetime(self) {} }
        let exchange = HTTPExchange(call, limits, self.time)
        let sink = DecodingSink(sink, call) { try exchange.throwIfAbandoned() }
        let reply = try await exchange.run(into: sink) { self.start(call, $0) }
        try sink.finish()
        return reply
    }

    private func start(_ call: ValidatedCall, _ exchange: HTTPExchange) -> any HTTPProducer {
        let upload = call.call.body.map { CurlUpload($0, isRepeatable: call.call.isRepeatable) }
        let (id, isFirst) = self.mailbox.newID()
        let order = CurlOrder(id: id, call: call, options: self.options, exchange: exchange, upload: upload)
        if isFirst {
            Thread.detachNewThread { [library, mailbox, options] in
                // On Linux `Thread.name` may be lost, even if a thread sets its own name.
                mux_begin_thread("mux.http")
                CurlLoop(library, mailbox, connectionsPerHost: options.connectionsPerHost).run()
            }
        }
        let mailbox = self.mailbox
        mailbox.post(.start(order))
        let feeder = upload?.feed(
            failed: { exchange.abandon(HTTPError.preparation(.encoding($0))) },
            more: { mailbox.post(.resume(id)) }
        )
        return Producer(order: order, mailbox: mailbox, feeder: feeder)
    }

    private struct Producer: HTTPProducer {
        let order: CurlOrder
        let mailbox: CurlMailbox
        let feeder: Task<Void, Never>?

        func resume() { self.mailbox.post(.resume(self.order.id)) }

        func stop() {
            self.feeder?.cancel()
            self.mailbox.removePendingCaller()
            guard !self.order.exchange.hasProducerEnded else { return }
            self.mailbox.post(.stop(self.order.id))
        }
    }

    package var pendingCount: Int { self.mailbox.pendingCount }
}

extension CurlTransport: Inspectable {
    package func faults() async -> [String] {
        self.pendingCount > 0 ? ["\(self.pendingCount) exchanges are pending"] : []
    }
}

/// One exchange, with all data that the transport's thread needs.
struct CurlOrder: Sendable {
    let id: Int
    let call: ValidatedCall
    let options: HTTPTransportConfiguration
    let exchange: HTTPExchange
    let upload: CurlUpload?
}

/// The messages of other threads for the transport's thread.
final class CurlMailbox: Sendable {
    enum Message: Sendable {
        case start(CurlOrder)
        /// The buffer has room for the response, or more of the request body is available.
        case resume(Int)
        case stop(Int)
    }

    private struct State: Sendable {
        var messages: [Message] = []
        var lastID = 0
        var isClosed = false
        /// Whether the multi handle is freed; a freed handle must not be woken.
        var isFreed = false
        var pendingCount = 0
    }

    let multi: CurlMulti
    private let state = Locked(State())

    init(_ multi: CurlMulti) { self.multi = multi }

    var pendingCount: Int { self.state.withLock { $0.pendingCount } }

    /// Returns a new identifier, and whether the identifier is the first: then the caller starts the thread.
    func newID() -> (id: Int, isFirst: Bool) {
        self.state.withLock { state in
            state.lastID += 1
            return (state.lastID, state.lastID == 1)
        }
    }

    func post(_ message: Message) {
        self.state.withLock { state in
            guard !state.isFreed else { return }
            state.messages.append(message)
            if case .start = message { state.pendingCount += 1 }
            // One wake-up suffices for all messages until the thread takes the messages.
            if state.messages.count == 1 { self.multi.wake() }
        }
    }

    /// Closes the mailbox at the transport's deallocation: the thread ends after the last transfer; if there
    /// is no thread, the handle is freed at once.
    func close() {
        let frees = self.state.withLock { state -> Bool in
            state.isClosed = true
            guard state.lastID > 0 else {
                state.isFreed = true
                return true
            }
            if !state.isFreed { self.multi.wake() }
            return false
        }
        if frees { self.multi.free() }
    }

    /// Takes all messages, and returns whether the mailbox is closed; called by the thread.
    func takeMessages() -> (messages: [Message], isClosed: Bool) {
        self.state.withLock { state in
            defer { state.messages = [] }
            return (state.messages, state.isClosed)
        }
    }

    /// Decrements the number of pending calls, because a caller has resumed.
    func removePendingCaller() { self.state.withLock { $0.pendingCount -= 1 } }

    /// Frees the multi handle; called at the end of the thread.
    func free() {
        self.state.withLock { $0.isFreed = true }
        self.multi.free()
    }
}
#endif
