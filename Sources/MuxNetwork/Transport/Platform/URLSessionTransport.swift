import Dispatch
package import Foundation
package import MuxKit

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Sends requests with `URLSession`.
///
/// The transport stores no cookies, credentials or responses between requests. A challenge for a password is
/// rejected: a 401 is returned like any other response, but on Linux without the body. Redirections follow
/// the rules of ``HTTPRedirects``. A streamed request body is first collected in a temporary file, on Linux
/// in memory; no time limit ends the collection. Trailers are not returned.
///
/// **On Linux** prefer ``SystemTransport``, which uses libcurl there. On Linux this class has these limits:
///
/// - Repeated fields, header bytes outside ASCII, unknown content codings and redirections without `Location`
///   cannot be read.
/// - IPv6 literals cannot be reached.
/// - A slow sink stops the responses to all calls of the transport.
/// - A server can crash the process with trailers or with a truncated head (Swift 6.3.1,
///   swift-corelibs-foundation#5285).
///
/// **Without a body**, a request whose kept connection ends counts as unsent if the session then cannot
/// connect again: an outbox may apply the change twice.
///
/// **Cancellation.** After a cancelled call has thrown `CancellationError`, the transport ends the exchange
/// with the server. After a cancellation during the collection of a streamed request body, the call throws
/// only when the stream ends or fails.
public final class URLSessionTransport: HTTPTransport, ValidatedTransport {
    package let options: HTTPTransportConfiguration
    package let time: TimeSource
    private let bridge = URLSessionBridge()
    private let session: URLSession

    /// Makes a transport with a separate session.
    ///
    /// - Parameters:
    ///   - options: The limits of the transport.
    ///   - clock: Measures the time-outs.
    public init(_ options: HTTPTransportConfiguration = .init(), clock: any Clock<Duration> = ContinuousClock()) {
        self.options = options
        self.time = TimeSource(clock)
        // With a cache, a cancellation may crash on Linux: the cache lookup races with the registry of tasks.
        let configuration = URLSessionConfiguration.ephemeral
        configuration.urlCache = nil
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        configuration.httpCookieAcceptPolicy = .never
        configuration.urlCredentialStorage = nil
        configuration.httpMaximumConnectionsPerHost = max(1, options.connectionsPerHost)
        if !options.usesProxies { configuration.connectionProxyDictionary = [:] }
        #if canImport(FoundationNetworking)
        let queue: OperationQueue? = BoundedOperationQueue()
        #else
        let queue: OperationQueue? = nil
        #endif
        self.session = URLSession(configuration: configuration, delegate: self.bridge, delegateQueue: queue)
    }

    deinit {
        // The session retains the bridge until the invalidation. Closures that make tasks retain this object,
        // so no task is made after the invalidation.
        self.session.finishTasksAndInvalidate()
    }

    package func perform(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        #if canImport(Security)
        try self.options.requireSupportedCertificates(readsArchives: true)
        if let certificate = self.options.clientCertificate { try self.bridge.identity.read(certificate) }
        #else
        try self.options.requireSupportedCertificates()
        #endif
        // The exchange measures the time-out. The session's time-out also counts the time of a slow delegate,
        // and therefore is a day longer.
        let timeout = min(max(0, (call.call.timeout ?? self.options.timeout).secondsValue) + 86_400, 1e9)
        var request = URLRequest(url: call.call.url, timeoutInterval: timeout)
        request.httpMethod = call.call.method
        let headers = call.call.headers
        for field in headers.fields { request.setValue(headers[field.name], forHTTPHeaderField: field.name.rawValue) }
        let make = try await self.task(request, call.call.body)
        defer { withExtendedLifetime((self, make)) {} }
        let exchange = HTTPExchange(call, limits, self.time)
        return try await exchange.run(into: sink) { self.bridge.start($0, in: self.session, make) }
    }

    /// Returns a closure that makes the task of a request later; collects a streamed body first.
    ///
    /// The closure retains this object, because an invalidated session makes no task.
    private func task(
        _ request: URLRequest,
        _ body: HTTPCall.Body?
    ) async throws -> @Sendable () -> URLSessionTask {
        var request = request
        if case .stream(let stream)? = body {
            #if canImport(FoundationNetworking)
            // On Linux a task that sends a file may crash the process if the task ends before the end of the
            // file (Swift 6.3.1).
            request.httpBody = try await stream.collected()
            #else
            let file = try await TemporaryFile(stream)
            return { [self, request] in self.session.uploadTask(with: request, fromFile: file.url) }
            #endif
        } else {
            request.httpBody = body?.data
        }
        return { [self, request] in self.session.dataTask(with: request) }
    }

    package var connectionsPerHost: Int { self.session.configuration.httpMaximumConnectionsPerHost }

    package var pendingCount: Int { self.bridge.pendingCount }
}

#if canImport(FoundationNetworking)
extension HTTPCall.BodyStream {
    fileprivate func collected() async throws -> Data {
        var body = Data()
        do {
            for try await piece in self { body.append(piece) }
        } catch {
            throw error is CancellationError ? error : HTTPError.preparation(.encoding(error))
        }
        return body
    }
}
#else
/// A streamed body in a temporary file, so that a session sends the body with its length.
private final class TemporaryFile: Sendable {
    let url: URL
    private let folder: URL

    /// Writes the pieces of a stream to a new file in a folder that only the current user can access.
    init(_ stream: HTTPCall.BodyStream) async throws {
        let folder = FileManager.default.temporaryDirectory.appending(component: "mux-\(UUID().uuidString)")
        let url = folder.appending(component: "body")
        self.folder = folder
        self.url = url
        do {
            let handle = try await BlockingWork.run {
                Result {
                    let owner: [FileAttributeKey: Any] = [.posixPermissions: 0o700]
                    try FileManager.default.createDirectory(
                        at: folder,
                        withIntermediateDirectories: false,
                        attributes: owner
                    )
                    try Data().write(to: url)
                    return try FileHandle(forWritingTo: url)
                }
            }.get()
            for try await piece in stream {
                try await BlockingWork.run { Result { try handle.write(contentsOf: piece) } }.get()
            }
            try handle.close()
        } catch {
            try? FileManager.default.removeItem(at: folder)
            throw error is CancellationError ? error : HTTPError.preparation(.encoding(error))
        }
    }

    deinit { try? FileManager.default.removeItem(at: self.folder) }
}

#endif

/// The delegate queue of a `URLSession` on Linux, with backpressure.
///
/// A session reads without a limit and queues a delegate call for each piece. With a delegate that writes to
/// a slow disk, the rest of the body would be in memory (Swift 6.3.1: half a gigabyte, measured). A full
/// queue of this class blocks the session: the session stops reading, and the flow control of the connection
/// slows down the server. An `Operation` object is not a delegate call: adding an `Operation` does not block.
///
/// `@unchecked` restates the conformance of Foundation's queue; the subclass adds no mutable state.
package final class BoundedOperationQueue: OperationQueue, @unchecked Sendable {
    /// The free places for queued delegate calls, each with at most 16 kilobytes of the body.
    private let places = DispatchSemaphore(value: 32)
    /// Runs the delegate calls outside the concurrent pool: all threads of the pool may wait for the session,
    /// which waits for the delegate.
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
