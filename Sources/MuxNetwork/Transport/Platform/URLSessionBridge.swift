import Dispatch
import Foundation
import MuxKit

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

#if canImport(Security)
import Security

/// The client's certificate as a credential of the URL loading system.
final class ClientIdentity: Sendable {
    private let credential = Locked<URLCredential?>(nil)

    /// The credential for a server that requests a certificate; `nil` before ``read(_:)``.
    var value: URLCredential? { self.credential.withLock { $0 } }

    /// Reads the PKCS #12 archive, unless ``value`` is set; no effect for another kind of certificate.
    ///
    /// - Throws: ``HTTPError/TransportFailure/insecureConnection(_:)`` if the system cannot import the
    ///   archive.
    func read(_ certificate: HTTPTransportConfiguration.ClientCertificate) throws(HTTPError) {
        guard self.value == nil, case .pkcs12(let data) = certificate.source else { return }
        let options: [CFString: Any] = [kSecImportExportPassphrase: certificate.password ?? ""]
        var items: CFArray?
        let status = SecPKCS12Import(data as CFData, options as CFDictionary, &items)
        guard status == 0, let item = (items as NSArray?)?.firstObject as? NSDictionary,
            let identity = item.object(forKey: kSecImportItemIdentity)
        else {
            throw .transport(.insecureConnection(NSError(domain: NSOSStatusErrorDomain, code: Int(status))))
        }
        let chain = item.object(forKey: kSecImportItemCertChain) as? [Any] ?? []
        let credential = URLCredential(
            identity: unsafeDowncast(identity as AnyObject, to: SecIdentity.self),
            certificates: Array(chain.dropFirst()),
            persistence: .none
        )
        self.credential.withLock { $0 = credential }
    }
}
#endif

/// Runs tasks of one `URLSession` as the producers of exchanges, on Linux and on Apple platforms.
///
/// On Linux before Swift 6.4, a cancellation of `data(for:)` crashes or hangs
/// (swift-corelibs-foundation#5412). So the exchange resumes the caller at once, and the bridge cancels the
/// session's task on another thread, after pending delegate calls. Later delegate calls of the task find no
/// entry and do not reach the exchange.
final class URLSessionBridge: NSObject, URLSessionDataDelegate, Sendable {
    /// The producers by task identifier, until the task completes or the producer is stopped.
    private let running = Locked<[Int: URLSessionProducer]>([:])
    /// The number of producers that are not stopped.
    private let pending = Locked(0)
    #if canImport(Security)
    let identity = ClientIdentity()
    #endif

    /// A queue outside the concurrent pool, for calls that may wait for the session.
    ///
    /// The session may wait for the delegate, and the delegate for a caller. The caller runs on the
    /// concurrent pool, so a wait on a thread of the pool could be a deadlock.
    private let control = DispatchQueue(label: "mux.http.control")

    /// The number of callers that wait for a response.
    var pendingCount: Int { self.pending.withLock { $0 } }

    /// Starts a task as the producer of an exchange; ``control`` calls `make` unless the exchange ends first.
    func start(
        _ exchange: HTTPExchange,
        in session: URLSession,
        _ make: @escaping @Sendable () -> URLSessionTask
    ) -> any HTTPProducer {
        let producer = URLSessionProducer(self, exchange, session.delegateQueue)
        self.pending.withLock { $0 += 1 }
        self.control.async {
            guard !exchange.hasEnded else { return }
            let task = make()
            self.running.withLock { $0[task.taskIdentifier] = producer }
            producer.state.withLock { $0.task = task }
            task.resume()
        }
        return producer
    }

    fileprivate func stop(_ producer: URLSessionProducer) {
        self.pending.withLock { $0 -= 1 }
        producer.room.signal()
        self.control.async {
            // The block of ``start(_:in:_:)`` ran before on this queue: the task exists, or is never created.
            guard let task = producer.state.withLock({ $0.task }), self.remove(task.taskIdentifier) != nil else {
                return
            }
            // Cancels the task after the pending delegate calls.
            producer.queue.addOperation(BlockOperation { self.control.async { task.cancel() } })
        }
    }

    private func entry(_ id: Int) -> URLSessionProducer? { self.running.withLock { $0[id] } }

    private func remove(_ id: Int) -> URLSessionProducer? { self.running.withLock { $0.removeValue(forKey: id) } }

    // MARK: - URLSessionDataDelegate

    func urlSession(
        _ session: URLSession,
        dataTask: URLSessionDataTask,
        didReceive response: URLResponse,
        completionHandler: @escaping (URLSession.ResponseDisposition) -> Void
    ) {
        guard let exchange = self.entry(dataTask.taskIdentifier)?.exchange else { return completionHandler(.cancel) }
        guard let head = HTTPReply(response) else {
            exchange.end(with: HTTPError.notHTTP)
            return completionHandler(.cancel)
        }
        let goesOn = exchange.receive(head: head)
        exchange.flush()
        completionHandler(goesOn ? .allow : .cancel)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        guard let producer = self.entry(dataTask.taskIdentifier) else { return }
        let verdict = producer.exchange.receive(data, canKeep: false)
        producer.exchange.flush()
        guard verdict == .paused else { return }
        #if canImport(FoundationNetworking)
        // On Linux a session reads on for a suspended task; only a blocked delegate queue stops the session
        // (``BoundedOperationQueue``).
        producer.room.wait()
        #else
        producer.pause()
        #endif
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {
        self.entry(task.taskIdentifier)?.exchange.recordActivity()
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        needNewBodyStream completionHandler: @escaping @Sendable (InputStream?) -> Void
    ) {
        // The session must not send a body again by itself.
        completionHandler(nil)
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping (URLRequest?) -> Void
    ) {
        #if canImport(FoundationNetworking)
        // On Linux the completion of a redirection may crash if the task is being cancelled (Swift 6.3.1).
        guard self.entry(task.taskIdentifier) != nil else { return }
        #endif
        // The redirection is returned like any other response; the transport follows the redirection.
        completionHandler(nil)
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        #if canImport(FoundationNetworking)
        // Before Swift 6.3.2, a task does not complete after `rejectProtectionSpace`: the challenge must be
        // cancelled (swift-corelibs-foundation#5456).
        let supportsRejection = false
        #else
        let supportsRejection = true
        #endif
        let method = challenge.protectionSpace.authenticationMethod
        #if canImport(Security)
        if method == NSURLAuthenticationMethodClientCertificate, let credential = self.identity.value {
            return completionHandler(.useCredential, credential)
        }
        #endif
        let disposition = URLSession.AuthChallengeDisposition(to: method, supportsRejection: supportsRejection)
        guard disposition == .cancelAuthenticationChallenge else { return completionHandler(disposition, nil) }
        var refusal = challenge.failureResponse.flatMap { HTTPReply($0) }
        refusal?.headers[.contentLength] = nil
        self.entry(task.taskIdentifier)?.state.withLock { state in
            state.isChallenged = true
            state.refusal = refusal
        }
        // On Linux this call blocks on the session, which may wait for the delegate queue.
        self.control.async { completionHandler(disposition, nil) }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        guard let producer = self.remove(task.taskIdentifier) else { return }
        let exchange = producer.exchange
        let (isChallenged, refusal) = producer.state.withLock { ($0.isChallenged, $0.refusal) }
        if isChallenged, !exchange.isHeadReceived, let refusal {
            // The session delivered the head only with the challenge; the body is lost.
            if exchange.receive(head: refusal) { exchange.end(with: nil) }
        } else {
            let ownEnd = isChallenged && (error as? URLError)?.code == .cancelled
            exchange.end(with: ownEnd ? nil : error.map { Self.failure(after: $0, of: task) })
        }
        exchange.flush()
    }

    /// The failure of a task that ended with `error`.
    ///
    /// The session sends some requests again after a kept connection has ended. If the session then cannot
    /// connect, the first sending may have reached the server.
    private static func failure(after error: any Error, of task: URLSessionTask) -> HTTPError {
        let failure = HTTPError(loading: error)
        let hasSentBody = task.countOfBytesSent > 0
        guard hasSentBody, failure.isConnectivityFailure,
            let method = task.originalRequest?.httpMethod.flatMap({ HTTPMethod(rawValue: $0) })
        else { return failure }
        return failure.afterEarlierSending(of: method)
    }
}

/// The producer of an exchange over a task of a session.
private final class URLSessionProducer: HTTPProducer {
    struct State: Sendable {
        var task: URLSessionTask?
        /// 1 while the task is suspended; -1 if a resumption came before its suspension.
        var pauses = 0
        /// Whether the bridge cancelled a challenge: then the session ends the task with the error
        /// `cancelled`, which is not a failure.
        var isChallenged = false
        /// The head of the 401 or 407 response, from the challenge; used if the session does not deliver the
        /// head otherwise.
        ///
        /// The head has no `Content-Length`, because the body does not arrive.
        var refusal: HTTPReply?
    }

    let exchange: HTTPExchange
    /// The session's delegate queue.
    let queue: OperationQueue
    /// Signalled when the exchange's buffer has room, or the exchange has ended.
    let room = DispatchSemaphore(value: 0)
    let state = Locked(State())
    private let bridge: URLSessionBridge

    init(_ bridge: URLSessionBridge, _ exchange: HTTPExchange, _ queue: OperationQueue) {
        self.bridge = bridge
        self.exchange = exchange
        self.queue = queue
    }

    func resume() {
        #if canImport(FoundationNetworking)
        self.room.signal()
        #else
        self.state.withLock { state in
            state.pauses -= 1
            if state.pauses == 0 { state.task?.resume() }
        }
        #endif
    }

    /// Suspends the task, unless the matching ``resume()`` came first: the consumer's thread may overtake the
    /// delegate's thread.
    func pause() {
        self.state.withLock { state in
            state.pauses += 1
            if state.pauses == 1 { state.task?.suspend() }
        }
    }

    func stop() { self.bridge.stop(self) }
}

extension HTTPError {
    /// Maps an error of the URL loading system.
    package init(loading error: any Error) {
        switch (error as? URLError)?.code {
        case .cannotFindHost?, .dnsLookupFailed?: self = .transport(.notResolved(error))
        case .cannotConnectToHost?, .notConnectedToInternet?, .internationalRoamingOff?, .callIsActive?,
            .dataNotAllowed?:
            self = .transport(.notConnected(error))
        case .secureConnectionFailed? where !Self.isPermanentTLSFailure(error):
            self = .transport(.notConnected(error))
        case .secureConnectionFailed?, .serverCertificateHasBadDate?, .serverCertificateUntrusted?,
            .serverCertificateHasUnknownRoot?, .serverCertificateNotYetValid?, .clientCertificateRejected?,
            .clientCertificateRequired?, .appTransportSecurityRequiresSecureConnection?:
            self = .transport(.insecureConnection(error))
        case .networkConnectionLost?: self = .transport(.closedWithoutResponse(error))
        // The session's time-out comes a day after the time-out of the exchange.
        case .timedOut?: self = .timedOut(after: .seconds(86_400))
        default: self = .unreachable(error)
        }
    }

    /// Whether a failed handshake is a rejection of a certificate by either side; any other failure counts as
    /// ``TransportFailure/notConnected(_:)``.
    private static func isPermanentTLSFailure(_ error: any Error) -> Bool {
        // Error codes of Security/SecureTransport.h: chains and roots, dates, names; alerts about the
        // client's certificate.
        let certificates: Set = [
            -9807, -9808, -9812, -9813, -9814, -9815, -9825, -9826, -9827, -9828, -9829, -9831, -9843,
        ]
        guard let detail = (error as NSError).userInfo["_kCFStreamErrorCodeKey"] as? Int else { return false }
        return certificates.contains(detail)
    }
}

extension HTTPReply {
    /// Makes the head of a response; `nil` if `response` is not an HTTP response.
    fileprivate init?(_ response: URLResponse) {
        guard let response = response as? HTTPURLResponse else { return nil }
        let headers = response.allHeaderFields.map { ("\($0.key)", "\($0.value)") }
        self.init(
            status: response.statusCode,
            headers: HTTPHeaders(Dictionary(headers) { "\($0), \($1)" }),
            url: response.url
        )
    }
}

extension URLSession.AuthChallengeDisposition {
    /// Chooses the reply to a challenge, for a transport without credentials.
    ///
    /// - `performDefaultHandling`: the system replies, for example checks the server's certificate.
    /// - `rejectProtectionSpace`: the system continues without credentials, so the 401 or 407 response
    ///   arrives with its body.
    /// - `cancelAuthenticationChallenge`: the system ends the request; the challenge contains the head of the
    ///   401 or 407 response. On Apple platforms this reply would lose the body of a 401.
    ///
    /// - Parameters:
    ///   - method: The authentication method of the challenge's protection space.
    ///   - supportsRejection: Whether the system implements `rejectProtectionSpace`.
    init(to method: String, supportsRejection: Bool) {
        guard Self.methodsOfHTTP.contains(method) else {
            self = .performDefaultHandling
            return
        }
        self = supportsRejection ? .rejectProtectionSpace : .cancelAuthenticationChallenge
    }

    /// The methods of HTTP authentication; both implementations of Foundation use these names.
    private static let methodsOfHTTP: Set<String> = [
        "NSURLAuthenticationMethodDefault", "NSURLAuthenticationMethodHTTPBasic", "NSURLAuthenticationMethodHTTPDigest",
        "NSURLAuthenticationMethodHTMLForm", "NSURLAuthenticationMethodNegotiate", "NSURLAuthenticationMethodNTLM",
    ]
}
