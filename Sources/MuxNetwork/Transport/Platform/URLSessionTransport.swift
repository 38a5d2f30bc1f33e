import Dispatch
package import Foundation
import MuxKit

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Sends requests with `URLSession`.
///
/// Nothing is stored between requests: no cookies, no credentials, no answers. A challenge for a password is rejected, so a 401
/// is an answer like any other. Redirections are followed within limits, and without credentials once they lead to another
/// scheme, host or port.
///
/// **Cancellation.** A cancelled call leaves at once with `CancellationError`; the connection follows a moment later.
public final class URLSessionTransport: HTTPTransport, ValidatedTransport {
    package let options: HTTPTransportOptions
    private let bridge: URLSessionBridge
    private let session: URLSession

    /// Makes a transport with a session of its own.
    ///
    /// - Parameters:
    ///   - options: Its limits.
    ///   - clock: Measures its time-outs.
    public init(_ options: HTTPTransportOptions = .init(), clock: any Clock<Duration> = ContinuousClock()) {
        self.options = options
        self.bridge = URLSessionBridge(time: TimeSource(clock))
        // With a cache, cancelling crashes on Linux: the lookup races the registry of tasks.
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
        // The session retains the bridge until it is invalidated. Calls retain this object, so no task is made later.
        self.session.finishTasksAndInvalidate()
    }

    /// Sends a request and returns the complete answer, whatever its status.
    ///
    /// - Parameter call: The request.
    /// - Returns: The answer.
    /// - Throws: ``HTTPError`` if there is no complete answer; `CancellationError`, at once, if the task is cancelled.
    public func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.send(try ValidatedCall(call)) }

    /// Sends a request and passes the answer, whatever its status, to `sink` while it arrives.
    ///
    /// Neither size nor time is limited, as long as the server is not silent.
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

    /// The session's limit of connections to one host.
    package var connectionsPerHost: Int { self.session.configuration.httpMaximumConnectionsPerHost }

    /// The number of calls that wait for an answer.
    package var pendingCount: Int { self.bridge.pendingCount }
}

/// The delegate queue of a `URLSession` on Linux, with backpressure.
///
/// A session reads as fast as it can and queues a delegate call for each piece, so with a delegate that writes to a slow disk the
/// rest of the body is in memory (Swift 6.3.1: half a gigabyte, measured). Here, a full queue blocks the session, and through the
/// connection the server. An `Operation`, which is no delegate call, does not block.
///
/// `@unchecked` restates the conformance of Foundation's queue; the subclass adds no mutable state.
package final class BoundedOperationQueue: OperationQueue, @unchecked Sendable {
    /// Each of 16 kilobytes at most.
    private let places = DispatchSemaphore(value: 32)
    /// A queue with its own thread: those of the pool may all wait for the session, which waits for the delegate.
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
