#if os(Linux)
import CMuxCurl
import Foundation
import MuxKit

/// The loop of the transport's thread; between two rounds, the thread sleeps in ``CurlMulti/poll()``.
final class CurlLoop {
    private let library: CurlLibrary
    private let mailbox: CurlMailbox
    /// The running transfers, by the identifiers of the orders.
    private var transfers: [Int: CurlTransfer] = [:]
    /// The identifiers of the orders, by easy handle.
    private var ids: [UnsafeMutableRawPointer: Int] = [:]
    private let agenda = CurlAgenda()
    private var queues: HostQueues<HTTPOrigin, CurlOrder>

    init(_ library: CurlLibrary, _ mailbox: CurlMailbox, connectionsPerHost: Int) {
        self.library = library
        self.mailbox = mailbox
        self.queues = HostQueues(limit: connectionsPerHost)
    }

    func run() {
        let multi = self.mailbox.multi
        while true {
            let (messages, isClosed) = self.mailbox.takeMessages()
            for message in messages { self.handle(message) }
            if isClosed, self.transfers.isEmpty { break }
            multi.perform()
            while let (easy, result) = multi.nextEnded() { self.handleEnd(of: easy, result) }
            let (paused, complete) = self.agenda.flush()
            // A transfer of the agenda may have ended, and its handle may be freed.
            for transfer in paused where self.transfers[transfer.order.id] === transfer { self.resume(transfer) }
            for transfer in complete where self.transfers[transfer.order.id] === transfer {
                transfer.reportOutcome(0)
                self.handle(.stop(transfer.order.id))
            }
            multi.poll()
        }
        self.mailbox.free()
    }

    private func handle(_ message: CurlMailbox.Message) {
        switch message {
        case .start(let order):
            if self.queues.add(order, order.id, at: order.call.origin) {
                if !self.begin(order) { self.startNext(after: order.id) }
            } else {
                order.exchange.setWaitingForServer(false)
            }
        case .resume(let id):
            if let transfer = self.transfers[id] { self.resume(transfer) }
        case .stop(let id):
            if let transfer = self.transfers.removeValue(forKey: id) { self.remove(transfer) }
            self.startNext(after: id)
        }
    }

    /// Removes the order `id` from the queues.
    ///
    /// If the order was running, starts the next waiting order for the same host; tries further orders until
    /// an order starts.
    private func startNext(after id: Int) {
        var id = id
        while let next = self.queues.remove(id), !self.begin(next) { id = next.id }
    }

    /// Starts a transfer.
    ///
    /// - Returns: Whether the transfer runs; otherwise the exchange has ended, possibly with a failure of
    ///   this method.
    private func begin(_ order: CurlOrder) -> Bool {
        guard !order.exchange.hasEnded else { return false }
        guard let easy = mux_easy_init(self.library.table) else {
            order.exchange.end(with: HTTPError.outOfMemory(self.library))
            return false
        }
        let transfer = CurlTransfer(order, easy, self.library, self.agenda, sockets: self.mailbox.multi.sockets)
        self.transfers[order.id] = transfer
        self.ids[easy] = order.id
        guard transfer.prepare(), self.mailbox.multi.add(easy) else {
            order.exchange.end(with: transfer.failure ?? HTTPError.outOfMemory(self.library))
            self.transfers[order.id] = nil
            self.remove(transfer)
            return false
        }
        return true
    }

    private func resume(_ transfer: CurlTransfer) {
        let result = mux_easy_pause(self.library.table, transfer.easy, CInt(MUX_CURLPAUSE_CONT))
        // 0 is success; 43 means that the transfer has not begun or has ended.
        guard result != 0, result != 43 else { return }
        transfer.reportOutcome(result)
        self.handle(.stop(transfer.order.id))
    }

    private func handleEnd(of easy: UnsafeMutableRawPointer, _ result: CInt) {
        guard let id = self.ids[easy], let transfer = self.transfers[id] else { return }
        if transfer.canRestart(after: result) {
            self.mailbox.multi.remove(easy)
            if transfer.prepareRestart(), self.mailbox.multi.add(easy) { return }
            // The restart has failed: the transfer ends.
        }
        self.transfers[id] = nil
        transfer.reportOutcome(result)
        self.remove(transfer)
        self.startNext(after: id)
    }

    private func remove(_ transfer: CurlTransfer) {
        self.ids[transfer.easy] = nil
        self.mailbox.multi.remove(transfer.easy)
        // The transfer owns memory that libcurl uses until the end of the clean-up.
        withExtendedLifetime(transfer) { mux_easy_cleanup(self.library.table, transfer.easy) }
    }
}

/// Work that must not run in a callback of libcurl, and is deferred until after the callback.
final class CurlAgenda {
    private var exchanges: [HTTPExchange] = []
    private var paused: [CurlTransfer] = []
    private var complete: [CurlTransfer] = []

    /// Schedules a resumption of the caller after the callbacks, for all bytes that have arrived.
    func scheduleFlush(of exchange: HTTPExchange) {
        if self.exchanges.last !== exchange { self.exchanges.append(exchange) }
    }

    func scheduleResumption(of transfer: CurlTransfer) { self.paused.append(transfer) }

    /// Schedules the end of a transfer.
    ///
    /// Needed if the response is complete before the whole request was sent: libcurl would wait until the
    /// rest of the request is sent.
    func scheduleEnd(of transfer: CurlTransfer) { self.complete.append(transfer) }

    /// Resumes the scheduled callers, and clears the agenda.
    ///
    /// - Returns: The transfers to resume, and the transfers to end.
    func flush() -> (paused: [CurlTransfer], complete: [CurlTransfer]) {
        for exchange in self.exchanges { exchange.flush() }
        self.exchanges.removeAll(keepingCapacity: true)
        defer {
            self.paused = []
            self.complete = []
        }
        return (self.paused, self.complete)
    }
}
#endif
