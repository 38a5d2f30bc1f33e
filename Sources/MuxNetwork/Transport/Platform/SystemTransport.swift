import Foundation
package import MuxKit

/// The platform's transport: libcurl on Linux, `URLSession` on Apple platforms.
///
/// The transport stores no cookies, credentials or responses between requests. A 401 is returned like any
/// other response. Redirections follow the rules of ``HTTPRedirects``.
///
/// **On Linux** the calls of a transport share a thread, which sleeps while no call is active. The first
/// transport opens libcurl (`libcurl.so.4` or `libcurl-gnutls.so.4`, 7.68 or later). If libcurl cannot be
/// used, as in a static executable, the transport uses a ``URLSessionTransport``, which has further
/// limitations, and the process logs one message. Before libcurl 7.87, a call that is cancelled during the
/// name resolution of its host delays other calls until the name resolution ends.
///
/// **Kept connections of libcurl.** A connection may be kept open after a request. Before the next request on
/// this connection, the transport checks for bytes that have arrived since the last response. If the server
/// has closed the connection or has sent bytes, the transport closes the connection and sends the request,
/// with any method, on a new connection. HTTP/2 frames do not count as such bytes if libcurl uses OpenSSL.
/// Bytes that arrive in the microseconds between the check and the sending cannot be distinguished from the
/// response. If the server closes the connection in that time without refusing the request, only a request
/// with an idempotent method or an `Idempotency-Key` is sent again. libcurl before 7.80 has no callback for
/// the check, so each request uses a new connection.
///
/// **Content codings.** With libcurl, a body is decoded if the request accepts all codings of the body. A
/// body with an unknown coding, with more than two codings, or with partial content (206) is returned as sent
/// by the server. A request without `Accept-Encoding` accepts all codings of the transport; a request with
/// only `identity` accepts no coding. `URLSession` always decodes its known codings.
///
/// **Limits of libcurl.** Only the end of the connection ends an HTTP/1 response that has neither a length
/// nor chunks. With OpenSSL before 3.2, such a response over TLS counts as complete even if the connection
/// ends without TLS `close_notify`.
///
/// **Cancellation.** After a cancelled call has thrown `CancellationError`, the transport ends the exchange
/// with the server.
public final class SystemTransport: HTTPTransport, ValidatedTransport {
    package let base: any ValidatedTransport

    /// Makes a transport with separate connections.
    ///
    /// - Parameters:
    ///   - configuration: The limits of the transport.
    ///   - clock: Measures the time-outs.
    public convenience init(
        _ configuration: HTTPTransportConfiguration = .init(),
        clock: any Clock<Duration> = ContinuousClock()
    ) {
        #if os(Linux)
        self.init(configuration, clock: clock, library: .system)
        #else
        self.init(URLSessionTransport(configuration, clock: clock))
        #endif
    }

    #if os(Linux)
    /// Makes a transport over `library`; over `URLSession` if `library` is `nil` or cannot be used.
    package convenience init(
        _ configuration: HTTPTransportConfiguration = .init(),
        clock: any Clock<Duration> = ContinuousClock(),
        library: CurlLibrary?
    ) {
        if let transport = CurlTransport(configuration, clock: clock, library: library) {
            self.init(transport)
        } else {
            _ = Self.missingLibraryIsLogged
            self.init(URLSessionTransport(configuration, clock: clock))
        }
    }
    #endif

    private init(_ base: any ValidatedTransport) { self.base = base }

    /// Writes the log message about the missing library, once in a process.
    private static let missingLibraryIsLogged: Void = SystemLog(subsystem: "MuxKit", category: "network").write(
        "libcurl.so.4 cannot be used. Requests use URLSession, which can crash on malformed responses.",
        isTrouble: true
    )

    package var options: HTTPTransportConfiguration { self.base.options }
    package var time: TimeSource { self.base.time }
    package var pendingCount: Int { self.base.pendingCount }

    package func perform(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        try await self.base.perform(call, limits, into: sink)
    }

    static let shared = SystemTransport()
}

extension HTTPTransport where Self == SystemTransport {
    /// The platform's transport with the default limits, shared by the process.
    public static var system: SystemTransport { .shared }

    /// The platform's transport, with custom limits and separate connections.
    public static func system(_ configuration: HTTPTransportConfiguration) -> SystemTransport {
        SystemTransport(configuration)
    }
}
