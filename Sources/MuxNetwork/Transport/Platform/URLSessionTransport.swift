import Dispatch
package import Foundation
import MuxKit

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Sends requests with `URLSession`, made safe on Linux.
///
/// Nothing is cached, stored or remembered between requests: no cookies, no credentials, no replies. A challenge for a
/// password is not answered, so a 401 is a reply like any other. Redirections are followed within limits, and leave
/// credentials behind when they lead to another scheme, host or port.
///
/// **Cancellation.** A cancelled call leaves at once with `CancellationError`; the connection follows a moment later.
public final class URLSessionTransport: HTTPTransport, ValidatedTransport {
    package let options: HTTPTransportOptions
    private let bridge: URLSessionBridge
    private let session: URLSession

    /// A transport with a session of its own, for as long as it lives.
    ///
    /// - Parameters:
    ///   - options: Its limits.
    ///   - clock: What its time-outs are measured with.
    public init(_ options: HTTPTransportOptions = .init(), clock: any Clock<Duration> = ContinuousClock()) {
        self.options = options
        self.bridge = URLSessionBridge(time: TimeSource(clock))
        // A cache makes cancelling crash on Linux: its lookup races the registry of tasks.
        let configuration = URLSessionConfiguration.ephemeral
        configuration.urlCache = nil
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        configuration.httpCookieAcceptPolicy = .never
        configuration.urlCredentialStorage = nil
        configuration.httpMaximumConnectionsPerHost = max(1, options.connectionsPerHost)
        #if canImport(FoundationNetworking)
        let queue: OperationQueue? = BoundedOperationQueue()
        #else
        let queue: OperationQueue? = nil
        #endif
        self.session = URLSession(configuration: configuration, delegate: self.bridge, delegateQueue: queue)
    }

    deinit {
        // The session holds the bridge until it is invalidated. Calls hold this object, so no task can be made later.
        self.session.finishTasksAndInvalidate()
    }

    /// Sends a request and returns the complete answer, whatever its status.
    ///
    /// - Parameter call: The request.
    /// - Returns: The answer.
    /// - Throws: ``HTTPError`` if there is no complete answer; `CancellationError`, at once, if the task is cancelled.
    public func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.send(try ValidatedCall(call)) }

    /// Sends a request and hands the answer, whatever its status, to `sink` while it arrives.
    ///
    /// Neither the size nor the time is limited, as long as the server is not silent: the sink decides what is too much.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body piece by piece, on a thread of the session.
    /// - Returns: The head of the answer, once the body is complete.
    /// - Throws: ``HTTPError`` if there is no complete answer; what the sink threw; `CancellationError`, at once, if the
    ///   task is cancelled, while the sink may still be taking one last piece.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        try await self.perform(try ValidatedCall(call), into: sink, sizeLimit: nil, timeLimit: nil)
    }

    package func perform(
        _ call: ValidatedCall,
        into sink: any HTTPSink,
        sizeLimit: Int?,
        timeLimit: Duration?
    ) async throws -> HTTPReply {
        let timeout = call.call.timeout ?? self.options.timeout
        // The bridge measures the time-out. The session's own, which a slow delegate makes it miss, comes a day later.
        let day = 86_400.0
        var request = URLRequest(url: call.call.url, timeoutInterval: min(max(0, timeout.secondsValue) + day, 1e9))
        request.httpMethod = call.call.method
        request.httpBody = call.call.body
        for (name, value) in call.call.headers { request.setValue(value, forHTTPHeaderField: name) }
        defer { withExtendedLifetime(self) {} }
        return try await self.bridge.run(
            request,
            timeout: timeout,
            limit: timeLimit,
            exchange: HTTPExchange(call, self.options, sizeLimit: sizeLimit),
            into: sink,
            in: self.session
        )
    }

    /// How many connections to one host the session opens.
    package var connectionsPerHost: Int { self.session.configuration.httpMaximumConnectionsPerHost }

    /// How many calls wait for an answer.
    package var pendingCount: Int { self.bridge.pendingCount }
}

/// Delivers to the delegate of a `URLSession` no more calls than it keeps up with.
///
/// On Linux a session reads from the network as fast as it can and queues a call for each piece, so a delegate that writes
/// to a slow disk has the rest of the body in memory (Swift 6.3.1: half a gigabyte of one, measured). This queue makes the
/// session wait, and through the connection the server. What is no delegate call comes as an `Operation`, and never waits.
///
/// `@unchecked`, because Foundation's queue is, and a subclass has to say so again; it adds nothing that changes.
package final class BoundedOperationQueue: OperationQueue, @unchecked Sendable {
    /// Of 16 kilobytes at most.
    private let places = DispatchSemaphore(value: 32)
    /// With a thread of its own: those of the pool may all wait for the session, which waits for the delegate.
    private let queue = DispatchQueue(label: "mux.http.delegate")

    package override init() {
        super.init()
        self.maxConcurrentOperationCount = 1
        self.underlyingQueue = self.queue
    }

    package override func addOperation(_ block: @escaping @Sendable () -> Void) {
        let places = self.places
        places.wait()
        super.addOperation {
            block()
            places.signal()
        }
    }
}
