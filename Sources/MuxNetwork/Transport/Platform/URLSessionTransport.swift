import Dispatch
package import Foundation
package import MuxKit

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Sends requests with `URLSession`.
///
/// Nothing is stored between requests: no cookies, no credentials, no answers. A challenge for a password is rejected, so a 401
/// is an answer like any other. Redirections are followed within limits, and without credentials once they lead to another
/// scheme, host or port. A streamed body is written to a temporary file first, on Linux to memory.
///
/// **On Linux** prefer ``SystemTransport``, which is libcurl there: this class cannot read trailers, repeated fields, header bytes outside
/// ASCII, unknown content codings or a redirection without `Location`; it does not reach IPv6 literals; and a server can end the process
/// by an answer with trailers or by half of a head (Swift 6.3.1, swift-corelibs-foundation#5285).
///
/// **Cancellation.** A cancelled call leaves at once with `CancellationError`; the connection follows a moment later.
public final class URLSessionTransport: HTTPTransport, ValidatedTransport {
    package let options: HTTPTransportOptions
    package let time: TimeSource
    private let bridge = URLSessionBridge()
    private let session: URLSession

    /// Makes a transport with a session of its own.
    ///
    /// - Parameters:
    ///   - options: Its limits.
    ///   - clock: Measures its time-outs.
    public init(_ options: HTTPTransportOptions = .init(), clock: any Clock<Duration> = ContinuousClock()) {
        self.options = options
        self.time = TimeSource(clock)
        // With a cache, cancelling crashes on Linux: the lookup races the registry of tasks.
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
        // The session retains the bridge until it is invalidated. What makes tasks retains this object, so none is made later.
        self.session.finishTasksAndInvalidate()
    }

    package func perform(
        _ call: ValidatedCall,
        _ exchange: HTTPExchange,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        #if canImport(Security)
        try self.options.requireSystemCertificates(readsArchives: true)
        if let certificate = self.options.clientCertificate { try self.bridge.identity.read(certificate) }
        #else
        try self.options.requireSystemCertificates()
        #endif
        // The exchange measures the time-out. The session's own, which a slow delegate makes it miss, comes a day later.
        let timeout = min(max(0, (call.call.timeout ?? self.options.timeout).secondsValue) + 86_400, 1e9)
        var request = URLRequest(url: call.call.url, timeoutInterval: timeout)
        request.httpMethod = call.call.method
        for (name, value) in call.call.headers.combined { request.setValue(value, forHTTPHeaderField: name) }
        let make = try await self.task(request, call.call.body)
        defer { withExtendedLifetime((self, make)) {} }
        return try await exchange.run(into: sink) { self.bridge.start($0, in: self.session, make) }
    }

    /// What makes the task of a request: later, when an invalidated session would make none, so it retains this object.
    private func task(
        _ request: URLRequest,
        _ body: HTTPCall.Body?
    ) async throws -> @Sendable () -> URLSessionTask {
        var request = request
        if case .stream(let stream)? = body {
            #if canImport(FoundationNetworking)
            // A task that sends a file may end the process when it is over before the file is (Swift 6.3.1).
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

    /// The session's limit of connections to one host.
    package var connectionsPerHost: Int { self.session.configuration.httpMaximumConnectionsPerHost }

    /// The number of calls that wait for an answer.
    package var pendingCount: Int { self.bridge.pendingCount }
}

#if canImport(FoundationNetworking)
extension HTTPCall.BodyStream {
    /// All pieces.
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
/// A streamed body as a file, from which a session sends it with its length.
private final class TemporaryFile: Sendable {
    let url: URL
    private let folder: URL

    /// Writes the pieces of a stream to a new file, which only this user can read.
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
