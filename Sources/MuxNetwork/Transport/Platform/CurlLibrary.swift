#if os(Linux)
import CMuxCurl
import Foundation
import MuxKit

/// The functions of libcurl, which is opened at run time.
///
/// `@unchecked`: the table of functions is constant after the initialisation, and is never freed.
package struct CurlLibrary: @unchecked Sendable {
    let table: OpaquePointer

    /// The system's library; `nil` if ``init(named:)`` fails for both names.
    package static let system = CurlLibrary(named: "libcurl.so.4") ?? CurlLibrary(named: "libcurl-gnutls.so.4")

    /// Opens the library with the name `name`; `nil` if the library is absent or older than 7.68, without
    /// memory, or if the initialisation of libcurl fails.
    package init?(named name: String) {
        guard let table = mux_curl_open(name) else { return nil }
        self.table = table
    }
}

/// A multi handle.
///
/// `@unchecked`: after the start of the transport's thread, only this thread uses the handle, except for
/// `curl_multi_wakeup`, which any thread may call.
struct CurlMulti: @unchecked Sendable {
    private let library: CurlLibrary
    private let pointer: UnsafeMutableRawPointer
    /// The sockets of the handle's connections.
    let sockets: OpaquePointer

    /// Makes a handle; `nil` without memory or without a file descriptor.
    init?(_ library: CurlLibrary) {
        guard let pointer = mux_multi_init(library.table) else { return nil }
        // Without a free file descriptor libcurl returns a handle that no thread can wake.
        guard mux_multi_wakeup(library.table, pointer) == 0, let sockets = mux_sockets_make() else {
            mux_multi_cleanup(library.table, pointer)
            return nil
        }
        self.library = library
        self.pointer = pointer
        self.sockets = sockets
        // One call at a time on a connection: libcurl would buffer the bytes of a paused stream in memory
        // while other streams of the connection run.
        _ = mux_multi_set_long(library.table, pointer, CInt(MUX_CURLMOPT_PIPELINING), 0)
    }

    /// Makes the current or the next ``poll()`` return; called on any thread.
    func wake() { _ = mux_multi_wakeup(self.library.table, self.pointer) }

    func add(_ easy: UnsafeMutableRawPointer) -> Bool { mux_multi_add(self.library.table, self.pointer, easy) == 0 }
    func remove(_ easy: UnsafeMutableRawPointer) { mux_multi_remove(self.library.table, self.pointer, easy) }
    func perform() { mux_multi_perform(self.library.table, self.pointer) }

    /// Waits for a connection, a timer of libcurl or ``wake()``, at most for a minute; may return earlier.
    func poll() { mux_multi_poll(self.library.table, self.pointer, 60_000) }

    /// Takes the next transfer that has ended; `nil` without such a transfer.
    func nextEnded() -> (easy: UnsafeMutableRawPointer, result: CInt)? {
        var result: CInt = 0
        return mux_multi_ended(self.library.table, self.pointer, &result).map { ($0, result) }
    }

    func free() {
        mux_multi_cleanup(self.library.table, self.pointer)
        // The cleanup closes the connections, which removes their sockets from `sockets`.
        mux_sockets_free(self.sockets)
    }
}

/// An error of libcurl.
struct CurlError: Error, LocalizedError, CustomNSError {
    /// The `CURLcode`.
    let errorCode: Int
    let errorDescription: String?

    static let errorDomain = "libcurl"

    init(_ result: CInt, _ library: CurlLibrary) {
        self.errorCode = Int(result)
        self.errorDescription = mux_easy_message(library.table, result).map { String(cString: $0) }
    }
}

/// The proxy refused the client: the user name or the password of the environment is absent or wrong.
struct ProxyRefusal: Error, LocalizedError, ConnectivityError {
    var isConnectivityFailure: Bool { false }
    var errorDescription: String? { "The proxy refused the user name or the password." }
}

extension HTTPError {
    static func outOfMemory(_ library: CurlLibrary) -> HTTPError { .unreachable(CurlError(27, library)) }

    /// The connection ended before the response.
    static func emptyReply(_ library: CurlLibrary) -> HTTPError {
        .transport(.closedWithoutResponse(CurlError(52, library)))
    }

    /// Maps a failure of libcurl.
    ///
    /// - Parameters:
    ///   - result: The `CURLcode`, not 0.
    ///   - library: The library.
    ///   - detail: libcurl's text for this failure, possibly with the name of a TLS alert; may be empty. If
    ///     libcurl has sent the request again, possibly the text of an earlier failure.
    ///   - isUnsent: Whether libcurl has certainly not begun to send the request.
    ///   - connectStatus: The status of the proxy's response to CONNECT; 0 without a response.
    ///   - headLimit: The limit of the head, if only a part of the head has arrived; otherwise `nil`.
    package init(
        _ result: CInt,
        _ library: CurlLibrary,
        detail: String,
        isUnsent: Bool,
        connectStatus: Int,
        headLimit: Int?
    ) {
        let error = CurlError(result, library)
        switch result {
        case 56 where connectStatus != 0 && !(200...299).contains(connectStatus):
            self = .transport(.notConnected(error))
        case 3: self = .invalidURL
        case 5, 6: self = .transport(.notResolved(error))
        // 28: the time-out for the connection; no other time-out of libcurl is set. 97: a failed handshake
        // with a proxy.
        case 7, 28, 97: self = .transport(.notConnected(error))
        // 35: any failure of a handshake. `CURLINFO_SSL_VERIFYRESULT` does not show a permanent failure: if
        // no certificate has arrived, the value is a failure, too.
        case 35 where !Self.isPermanentTLSFailure(detail): self = .transport(.notConnected(error))
        // In TLS 1.3 the server verifies the client's certificate after the handshake.
        case 55 where Self.isPermanentTLSFailure(detail), 56 where Self.isPermanentTLSFailure(detail):
            self = .transport(.insecureConnection(error))
        // TLS errors: handshake, engine, certificates of either side, ciphers, certificate revocation lists.
        case 35, 51, 53, 54, 58, 59, 60, 66, 77, 80, 82, 83, 90, 91, 98:
            self = .transport(.insecureConnection(error))
        // A truncated body; a failure of HTTP/2 or HTTP/3; no response; a failure to send, receive or rewind.
        case 16, 18, 52, 55, 56, 65, 92, 95:
            self = .transport(isUnsent ? .notConnected(error) : .closedWithoutResponse(error))
        // 43: the first header field begins with a space or a tab.
        case 1, 8, 43: self = .notHTTP
        // libcurl has a separate limit for the length of one line.
        case 27, 100:
            self = headLimit.map { .transport(.headTooLarge(limit: $0)) } ?? .unreachable(error)
        default: self = .unreachable(error)
        }
    }

    /// Whether the text of a TLS failure reports that either side rejected a certificate, or that the other
    /// side does not speak TLS.
    ///
    /// All other failures count as temporary, such as a lost connection.
    private static func isPermanentTLSFailure(_ detail: String) -> Bool {
        var detail = detail.lowercased()
        // The host name in the text must not affect the result.
        if let host = detail.range(of: " in connection to ") { detail = String(detail[..<host.lowerBound]) }
        return ["certificate", "unknown ca", "wrong version number", "unexpected tls packet"]
            .contains { detail.contains($0) }
    }
}
#endif
