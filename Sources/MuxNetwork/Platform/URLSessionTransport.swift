import Foundation
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
public final class URLSessionTransport: HTTPTransport {
    private let options: HTTPTransportOptions
    private let bridge: URLSessionBridge
    private let session: URLSession

    /// A transport with a session of its own, for as long as it lives.
    ///
    /// - Parameters:
    ///   - options: Its limits.
    ///   - clock: What its time-outs are measured with.
    public init(_ options: HTTPTransportOptions = .init(), clock: any Clock<Duration> = ContinuousClock()) {
        self.options = options
        self.bridge = URLSessionBridge(time: TimeSource(clock), options: options)
        // A cache makes cancelling crash on Linux: its lookup races the registry of tasks.
        let configuration = URLSessionConfiguration.ephemeral
        configuration.urlCache = nil
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        configuration.httpCookieAcceptPolicy = .never
        configuration.urlCredentialStorage = nil
        configuration.httpMaximumConnectionsPerHost = max(1, options.connectionsPerHost)
        self.session = URLSession(configuration: configuration, delegate: self.bridge, delegateQueue: nil)
    }

    deinit {
        // The session holds the bridge until it is invalidated. Calls hold this object, so no task can be made later.
        self.session.finishTasksAndInvalidate()
    }

    /// Sends a request and returns the complete answer, whatever its status.
    ///
    /// - Throws: ``HTTPError`` if there is no complete answer; `CancellationError`, at once, if the task is cancelled.
    public func send(_ call: HTTPCall) async throws -> HTTPReply {
        let origin = try call.validated()
        let timeout = call.timeout ?? self.options.timeout
        // Our own timer rules; the session's, which knows only whole seconds on Linux, comes a little later.
        var request = URLRequest(url: call.url, timeoutInterval: max(0, timeout.secondsValue).rounded(.up) + 1)
        request.httpMethod = call.method
        request.httpBody = call.body
        for (name, value) in call.headers { request.setValue(value, forHTTPHeaderField: name) }

        let exchange = HTTPExchange(
            method: call.method,
            limit: self.options.maximumBodySize,
            redirects: HTTPRedirects(origin: origin, limit: self.options.maximumRedirects)
        )
        defer { withExtendedLifetime(self) {} }
        return try await self.bridge.run(request, timeout: timeout, exchange: exchange, in: self.session)
    }

    /// How many calls wait for an answer.
    package var pendingCount: Int { self.bridge.pendingCount }
}
