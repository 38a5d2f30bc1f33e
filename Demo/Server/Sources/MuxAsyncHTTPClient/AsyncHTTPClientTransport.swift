public import AsyncHTTPClient
import Dispatch
import Foundation
import MuxKit
public import MuxNetwork
public import NIOCore
import NIOFoundationCompat
import NIOHTTP1
import NIOPosix
import NIOSSL

/// Sends requests with async-http-client, on the existing event loops of a service.
///
/// ```swift
/// let client = MuxNetwork.HTTPClient(transport: AsyncHTTPClientTransport())
/// ```
///
/// The transport creates a separate client and shuts the client down on release. Redirections, time-outs and
/// limits are applied by `ExchangeTransport`, as in every transport of `MuxNetwork`, and are off in the
/// client.
///
/// **Limitations.** Response trailers are not passed on, because async-http-client (1.37) does not expose
/// trailers. SwiftNIO replaces bytes of a field that are not UTF-8. Proxies of the environment are not used:
/// set a proxy in the configuration.
///
/// **Concurrent calls.** Any member may be called from any task.
public final class AsyncHTTPClientTransport: HTTPTransport {
    private let client: AsyncHTTPClient.HTTPClient
    private let base: ExchangeTransport

    /// Makes a transport.
    ///
    /// - Parameters:
    ///   - eventLoopGroup: The event loops of the connections.
    ///   - options: The limits. ``MuxNetwork/HTTPTransportConfiguration/usesProxies`` has no effect.
    ///   - configuration: TLS, a proxy, the version of HTTP and other settings of connections. The transport
    ///     disables redirections, decompression and read time-outs, and sets the number of connections per
    ///     host.
    public init(
        eventLoopGroup: any EventLoopGroup = AsyncHTTPClient.HTTPClient.defaultEventLoopGroup,
        options: HTTPTransportConfiguration = .init(),
        configuration: AsyncHTTPClient.HTTPClient.Configuration = .init()
    ) {
        var configuration = configuration
        configuration.redirectConfiguration = .disallow
        configuration.decompression = .disabled
        configuration.timeout.read = nil
        configuration.timeout.write = nil
        configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = max(options.connectionsPerHost, 1)
        // Retries are decided above the transport.
        configuration.connectionPool.retryConnectionEstablishment = false
        let client = AsyncHTTPClient.HTTPClient(eventLoopGroup: eventLoopGroup, configuration: configuration)
        self.client = client
        let eventLoops = Array(eventLoopGroup.makeIterator())
        self.base = ExchangeTransport(options) { call, sink in try await Self.exchange(call, sink, client, eventLoops) }
    }

    deinit {
        let client = self.client
        client.shutdown(queue: .global()) { _ in _ = client }
    }

    /// See `HTTPTransport`.
    public func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.base.send(call) }

    /// See `HTTPTransport`.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        try await self.base.stream(call, into: sink)
    }

    @concurrent
    private static func exchange(
        _ call: HTTPCall,
        _ sink: any HTTPSink,
        _ client: AsyncHTTPClient.HTTPClient,
        _ eventLoops: [any EventLoop]
    ) async throws -> MuxNetwork.HTTPHeaders {
        var request = HTTPClientRequest(url: call.url.absoluteString)
        request.method = NIOHTTP1.HTTPMethod(rawValue: call.method)
        for field in call.headers.fields { request.headers.add(name: field.name.rawValue, value: field.value) }
        switch call.body {
        case .data(let data)?: request.body = .bytes(ByteBuffer(data: data))
        case .stream(let stream)?:
            let length = stream.length.map { HTTPClientRequest.Body.Length.known(Int64($0)) } ?? .unknown
            request.body = .stream(PacedBody(base: stream, eventLoops: eventLoops), length: length)
        case nil: break
        }
        do {
            let response = try await client.execute(request, deadline: .distantFuture)
            var headers = MuxNetwork.HTTPHeaders()
            for field in response.headers {
                if let name = MuxNetwork.HTTPHeaders.Name(rawValue: field.name) {
                    headers.append(field.value, for: name)
                }
            }
            try await sink.receive(head: HTTPReply(status: Int(response.status.code), headers: headers))
            for try await piece in response.body { try await sink.receive(Data(buffer: piece)) }
            return [:]
        } catch {
            throw Self.failure(error) ?? error
        }
    }

    /// The codes that only the connection to an IP address can have.
    ///
    /// An established connection may end with `EHOSTUNREACH` or `ENETUNREACH`, after the request was sent. The
    /// failures of the connection to a host name are a `NIOConnectionError`.
    private static let connectFailures = [ECONNREFUSED, EADDRNOTAVAIL]

    /// The class of an error of the client; `nil` for other errors.
    static func failure(_ error: any Error) -> HTTPError.TransportFailure? {
        switch error {
        case let error as NIOConnectionError:
            return error.dnsAError != nil && error.connectionErrors.isEmpty ? .notResolved(error) : .notConnected(error)
        case let error as HTTPClientError:
            switch error {
            case .connectTimeout, .tlsHandshakeTimeout, .httpProxyHandshakeTimeout, .socksHandshakeTimeout,
                .getConnectionFromPoolTimeout, .invalidProxyResponse, .proxyAuthenticationRequired:
                return .notConnected(error)
            case .remoteConnectionClosed, .uncleanShutdown: return .closedWithoutResponse(error)
            case .cancelled: return nil
            default: return .unreachable(error)
            }
        case HTTPParserError.invalidEOFState: return .closedWithoutResponse(error)
        case is HTTPParserError: return .notHTTP
        case let error as IOError where Self.connectFailures.contains(error.errnoCode): return .notConnected(error)
        case is NIOSSLError, is BoringSSLError, is NIOSSLExtraError: return .insecureConnection(error)
        case is IOError, is ChannelError: return .closedWithoutResponse(error)
        default: return nil
        }
    }
}

/// A streamed body that waits for the event loops after each megabyte.
///
/// The client accepts pieces until the event loop of the connection reports that the server accepts no more.
/// With a slow event loop, an entire fast body would be in memory.
private struct PacedBody: AsyncSequence, Sendable {
    let base: HTTPCall.BodyStream
    let eventLoops: [any EventLoop]

    struct AsyncIterator: AsyncIteratorProtocol {
        var base: HTTPCall.BodyStream.Iterator
        let eventLoops: [any EventLoop]
        var count = 0

        mutating func next() async throws -> ByteBuffer? {
            if self.count >= 1 << 20 {
                self.count = 0
                for eventLoop in self.eventLoops { try await eventLoop.submit {}.get() }
            }
            guard let piece = try await self.base.next() else { return nil }
            self.count += piece.count
            return ByteBuffer(data: piece)
        }
    }

    func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(base: self.base.makeAsyncIterator(), eventLoops: self.eventLoops)
    }
}
