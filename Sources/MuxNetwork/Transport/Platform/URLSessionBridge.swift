import Dispatch
import Foundation
import MuxKit

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Runs tasks of one `URLSession` as asynchronous calls, on Linux and on Apple's platforms by the same path.
///
/// Cancelling `data(for:)` crashes or hangs on Linux before Swift 6.4 (swift-corelibs-foundation#5412). So this object resumes the
/// caller at once, and cancels the session's task on another thread, after the delegate calls that are under way. Later reports of
/// the task find no entry and are dropped.
final class URLSessionBridge: NSObject, URLSessionDataDelegate, Sendable {
    typealias Continuation = CheckedContinuation<HTTPReply, any Error>

    private struct Running: Sendable {
        var exchange: HTTPExchange
        let sink: any HTTPSink
        /// The session's delegate queue.
        let queue: OperationQueue
        /// How long the call may take.
        let limit: Duration?
        /// How long the server may be silent.
        var timeout: Duration
        /// When the call times out.
        var deadline: Moment
        var lastSign: Moment
        var task: URLSessionTask
        var continuation: Continuation
        var timer: Task<Void, Never>?
    }

    private enum Verdict: Sendable {
        /// The caller is resumed already.
        case isGone
        case goesOn(any HTTPSink)
        case fails(HTTPError)
    }

    private let time: TimeSource
    /// By task identifier, until the caller is resumed.
    private let running = Locked<[Int: Running]>([:])

    /// A queue with its own thread: cancelling waits for the session.
    private let cancellations = DispatchQueue(label: "mux.http.cancellations")

    init(time: TimeSource) { self.time = time }

    /// The number of callers that wait for an answer.
    var pendingCount: Int { self.running.withLock { $0.count } }

    /// Runs a request in `session`, whose delegate is this object, and passes the answer to `sink`.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - timeout: How long the server may be silent.
    ///   - limit: How long the call may take; `nil` for any time.
    ///   - exchange: The state of the exchange.
    ///   - sink: Takes the answer, on the session's queue.
    ///   - session: Runs the request.
    /// - Returns: The head of the answer, once it is complete.
    /// - Throws: ``HTTPError``, what the sink threw, or `CancellationError`.
    func run(
        _ request: URLRequest,
        timeout: Duration,
        limit: Duration?,
        exchange: HTTPExchange,
        into sink: any HTTPSink,
        in session: URLSession
    ) async throws -> HTTPReply {
        let ticket = Locked<Int?>(nil)
        return try await withTaskCancellationHandler {
            try Task.checkCancellation()
            return try await withCheckedThrowingContinuation { continuation in
                let now = self.time.now
                let task = session.dataTask(with: request)
                let id = task.taskIdentifier
                self.running.withLock { running in
                    running[id] = Running(
                        exchange: exchange,
                        sink: sink,
                        queue: session.delegateQueue,
                        limit: limit,
                        timeout: timeout,
                        deadline: limit.map { now.advanced(by: $0) } ?? .distantFuture,
                        lastSign: now,
                        task: task,
                        continuation: continuation
                    )
                }
                task.resume()
                self.startTimer(for: id)
                // From here on `onCancel` finds the ticket; a cancellation before it did not.
                ticket.withLock { $0 = id }
                if Task.isCancelled { self.abandon(id, CancellationError()) }
            }
        } onCancel: {
            if let id = ticket.withLock({ $0 }) { self.abandon(id, CancellationError()) }
        }
    }

    private func startTimer(for id: Int) {
        let timer = TaskLauncher()(name: "mux.http.deadline") { [weak self, time] in
            while let pause = self?.timeLeft(for: id) {
                guard (try? await time.sleep(for: pause)) != nil else { return }
            }
        }
        let isNeeded = self.running.withLock { running -> Bool in
            running[id]?.timer = timer
            return running[id] != nil
        }
        if !isNeeded { timer.cancel() }
    }

    /// The time until the call times out if nothing arrives; `nil`, after the caller was resumed, if that has passed.
    private func timeLeft(for id: Int) -> Duration? {
        guard let running = self.running.withLock({ $0[id] }) else { return nil }
        let now = self.time.now
        let silence = running.lastSign.advanced(by: running.timeout)
        let left = min(silence, running.deadline).duration(since: now)
        guard left <= .zero else { return left }
        let limit = running.deadline <= now ? running.limit : nil
        self.abandon(id, HTTPError.timedOut(after: limit ?? running.timeout))
        return nil
    }

    /// Resumes the caller with an error and cancels the session's task.
    private func abandon(_ id: Int, _ error: any Error) {
        guard let running = self.finish(id, .failure(error)) else { return }
        // After the delegate calls that are queued; not on the delegate's queue, which the session may wait for, and not on the
        // cancelling thread.
        let cancellations = self.cancellations
        running.queue.addOperation(BlockOperation { cancellations.async { running.task.cancel() } })
    }

    @discardableResult
    private func finish(_ id: Int, _ result: Result<HTTPReply, any Error>) -> Running? {
        guard let running = self.running.withLock({ $0.removeValue(forKey: id) }) else { return nil }
        running.timer?.cancel()
        running.continuation.resume(with: result)
        return running
    }

    /// Passes an event to the exchange, then to the sink; ends the call if either fails.
    ///
    /// The sink is called outside the lock. The session has one serial queue, so the sink is called in order.
    ///
    /// - Returns: Whether the exchange goes on.
    private func report(
        _ id: Int,
        _ event: (inout HTTPExchange) -> HTTPError? = { _ in nil },
        deliver: (any HTTPSink) throws -> Void = { _ in }
    ) -> Bool {
        let now = self.time.now
        let verdict = self.running.withLock { running -> Verdict in
            guard let index = running.index(forKey: id) else { return .isGone }
            running.values[index].lastSign = now
            return event(&running.values[index].exchange).map { .fails($0) } ?? .goesOn(running.values[index].sink)
        }
        switch verdict {
        case .isGone: return false
        case .goesOn(let sink):
            do {
                try deliver(sink)
                return true
            } catch {
                self.abandon(id, error)
                return false
            }
        case .fails(let error):
            self.abandon(id, error)
            return false
        }
    }

    // MARK: - URLSessionDataDelegate

    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse,
        completionHandler: @escaping (URLSession.ResponseDisposition) -> Void
    ) {
        let reply = HTTPReply(response)
        let goesOn = self.report(dataTask.taskIdentifier) { exchange in
            guard let reply else { return .notHTTP }
            return exchange.received(reply)
        } deliver: { sink in
            if let reply { try sink.receive(head: reply) }
        }
        completionHandler(goesOn ? .allow : .cancel)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        _ = self.report(dataTask.taskIdentifier) { exchange in
            exchange.received(count: data.count)
            return nil
        } deliver: { sink in
            try sink.receive(data)
        }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {
        _ = self.report(task.taskIdentifier)
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping (URLRequest?) -> Void
    ) {
        var request = request
        let goesOn = self.report(task.taskIdentifier) { exchange in
            // For a scheme that it does not know, Linux takes the path alone and would ask this server for it.
            let location = response.value(forHTTPHeaderField: "Location").flatMap { URL(string: $0) }
            guard let url = request.url, location?.scheme == nil || location.flatMap({ HTTPOrigin($0) }) != nil else {
                return .redirectRefused(.unknownScheme)
            }
            let carriesBody = request.httpBody != nil || request.httpBodyStream != nil
            switch exchange.redirected(to: url, carriesBody: carriesBody) {
            case .follow: return nil
            case .refuse(let reason): return .redirectRefused(reason)
            case .followWithoutCredentials:
                // Linux sends them to any server; Apple's platforms drop only `Authorization`.
                for name in exchange.credentialHeaders { request.setValue(nil, forHTTPHeaderField: name) }
                return nil
            }
        }
        #if canImport(FoundationNetworking)
        // Completing the redirection of a task that is being cancelled may crash (Swift 6.3.1).
        guard goesOn else { return }
        #endif
        completionHandler(goesOn ? request : nil)
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        #if canImport(FoundationNetworking)
        // swift-corelibs-foundation#5456: a 401 with Basic never completes before 6.3.2, unless it is cancelled.
        let goesOn = false
        #else
        let goesOn = true
        #endif
        let method = challenge.protectionSpace.authenticationMethod
        switch HTTPChallengeAnswer(to: method, goesOnAfterRejection: goesOn) {
        case .performDefaultHandling: completionHandler(.performDefaultHandling, nil)
        case .rejectProtectionSpace: completionHandler(.rejectProtectionSpace, nil)
        case .cancelAuthenticationChallenge:
            let refusal = challenge.failureResponse.flatMap { HTTPReply($0) }
            _ = self.report(task.taskIdentifier) { exchange in
                exchange.challenged(refusal)
                return nil
            }
            // On Linux this blocks on the session, which may wait for the delegate's queue.
            self.cancellations.async { completionHandler(.cancelAuthenticationChallenge, nil) }
        }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        let id = task.taskIdentifier
        guard let running = self.running.withLock({ $0[id] }) else { return }
        let failure = error.map { error -> HTTPExchange.Failure in
            switch (error as? URLError)?.code {
            case .cancelled: .cancelled
            case .timedOut: .timedOut(running.timeout)
            default: .other(error)
            }
        }
        var result = running.exchange.ended(failure)
        if !running.exchange.isHeadReceived, case .success(let reply) = result {
            // The refusal arrived with a challenge alone.
            result = Result {
                try running.sink.receive(head: reply)
                return reply
            }
        }
        self.finish(id, result)
    }
}

extension HTTPReply {
    /// The head of an answer; `nil` if it is not one of HTTP.
    fileprivate init?(_ response: URLResponse) {
        guard let response = response as? HTTPURLResponse else { return nil }
        let headers = response.allHeaderFields.map { ("\($0.key)", "\($0.value)") }
        self.init(
            status: response.statusCode,
            headers: Dictionary(headers) { "\($0), \($1)" },
            url: response.url
        )
    }
}

/// The answer of a transport without credentials to a challenge of the URL loading system.
package enum HTTPChallengeAnswer: Sendable, Hashable {
    /// The default: the system checks the server's certificate, and sends none.
    case performDefaultHandling

    /// The system goes on without credentials, so the refusal arrives with its body.
    case rejectProtectionSpace

    /// The system ends the request; the head of the refusal is known from the challenge.
    ///
    /// On Apple platforms this would cost the body of a 401.
    case cancelAuthenticationChallenge

    /// The answer to a challenge.
    ///
    /// - Parameters:
    ///   - method: The authentication method of the challenge's protection space.
    ///   - goesOnAfterRejection: Whether the system implements `rejectProtectionSpace`.
    package init(to method: String, goesOnAfterRejection: Bool) {
        guard Self.methodsOfHTTP.contains(method) else {
            self = .performDefaultHandling
            return
        }
        self = goesOnAfterRejection ? .rejectProtectionSpace : .cancelAuthenticationChallenge
    }

    /// The methods of servers and proxies that ask for a name and a password, as both Foundations spell them.
    private static let methodsOfHTTP: Set<String> = [
        "NSURLAuthenticationMethodDefault", "NSURLAuthenticationMethodHTTPBasic", "NSURLAuthenticationMethodHTTPDigest",
        "NSURLAuthenticationMethodHTMLForm", "NSURLAuthenticationMethodNegotiate", "NSURLAuthenticationMethodNTLM",
    ]
}
