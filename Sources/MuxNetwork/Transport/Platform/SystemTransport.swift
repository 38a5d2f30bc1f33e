import Foundation
package import MuxKit

/// The platform's own way to send requests: libcurl on Linux, `URLSession` on Apple platforms.
///
/// Nothing is stored between requests: no cookies, no credentials, no answers. A 401 is an answer like any other. Redirections are
/// followed as ``HTTPRedirects`` says.
///
/// **On Linux** the calls of a transport share a thread, which sleeps while nothing happens. libcurl is opened when the first
/// transport is made (`libcurl.so.4`, 7.68 or later). Where there is none, as in a static executable, the transport is a
/// ``URLSessionTransport``, which is logged once. Before 7.87 a cancelled call whose host is being resolved delays the others.
///
/// **Kept connections.** Before a request is sent on a kept connection, the transport checks that nothing has arrived on it since the
/// last response. A connection that the server has closed, or on which it has sent bytes, is closed, and the request is sent on
/// a new connection, whatever its method. Bytes that arrive in the microseconds between the check and the sending cannot be told
/// from the response; a request that is not idempotent fails if the server closes the connection in that time. Before libcurl
/// 7.80, which offers no time for the check, each request has a new connection.
///
/// **Content codings.** A body is decoded if the request asked for its coding, and arrives as the server sent it otherwise. A
/// request without `Accept-Encoding` asks for all codings that the transport knows; one with `identity` asks for none.
/// `URLSession` decodes the codings that it knows in any case.
///
/// **Limits of libcurl.** An answer over TLS that announces no length and ends without TLS's own end counts as complete before OpenSSL 3.2.
///
/// **Cancellation.** A cancelled call leaves at once with `CancellationError`; the connection follows a moment later.
public final class SystemTransport: HTTPTransport, ValidatedTransport {
    package let base: any ValidatedTransport

    /// Makes a transport with connections of its own.
    ///
    /// - Parameters:
    ///   - options: Its limits.
    ///   - clock: Measures its time-outs.
    public convenience init(_ options: HTTPTransportOptions = .init(), clock: any Clock<Duration> = ContinuousClock()) {
        #if os(Linux)
        self.init(options, clock: clock, library: .system)
        #else
        self.init(URLSessionTransport(options, clock: clock))
        #endif
    }

    #if os(Linux)
    /// Makes a transport over this library; without one, over `URLSession`.
    package convenience init(
        _ options: HTTPTransportOptions = .init(),
        clock: any Clock<Duration> = ContinuousClock(),
        library: CurlLibrary?
    ) {
        if let transport = CurlTransport(options, clock: clock, library: library) {
            self.init(transport)
        } else {
            _ = Self.missingLibraryIsLogged
            self.init(URLSessionTransport(options, clock: clock))
        }
    }
    #endif

    private init(_ base: any ValidatedTransport) { self.base = base }

    /// Written once in a process.
    private static let missingLibraryIsLogged: Void = SystemLog(subsystem: "MuxKit", category: "network").write(
        "libcurl.so.4 cannot be used, so requests are sent with URLSession, which does not survive every answer",
        isTrouble: true
    )

    package var options: HTTPTransportOptions { self.base.options }
    package var time: TimeSource { self.base.time }
    package var pendingCount: Int { self.base.pendingCount }

    package func perform(
        _ call: ValidatedCall,
        _ exchange: HTTPExchange,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        try await self.base.perform(call, exchange, into: sink)
    }

    /// The transport that is shared by all who ask for no other.
    static let shared = SystemTransport()
}

extension HTTPTransport where Self == SystemTransport {
    /// The platform's own transport with the default limits, shared by the process.
    public static var system: SystemTransport { .shared }

    /// The platform's own transport, with limits and connections of its own.
    public static func system(_ options: HTTPTransportOptions) -> SystemTransport { SystemTransport(options) }
}
