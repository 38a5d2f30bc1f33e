#if os(Linux)
import CMuxCurl
import Foundation
import MuxKit

/// The functions of libcurl, which is opened at run time: it is there wherever Foundation's own networking is.
///
/// `@unchecked`: the table of functions is never changed after it was made, and never freed.
package struct CurlLibrary: @unchecked Sendable {
    let table: OpaquePointer

    /// The system's library; `nil` if there is none, or one older than 7.68.
    package static let system = CurlLibrary(named: "libcurl.so.4") ?? CurlLibrary(named: "libcurl-gnutls.so.4")

    /// Opens the library of this name; `nil` if it is not there.
    package init?(named name: String) {
        guard let table = mux_curl_open(name) else { return nil }
        self.table = table
    }
}

/// A multi handle.
///
/// `@unchecked`: only the transport's own thread uses it, but for `curl_multi_wakeup`, which may be called on any.
struct CurlMulti: @unchecked Sendable {
    private let library: CurlLibrary
    private let pointer: UnsafeMutableRawPointer
    /// The sockets of its connections.
    let sockets: OpaquePointer

    /// Makes a handle; `nil` without memory.
    init?(_ library: CurlLibrary) {
        guard let pointer = mux_multi_init(library.table) else { return nil }
        // Without a free file descriptor there is a handle, but nothing that wakes it.
        guard mux_multi_wakeup(library.table, pointer) == 0, let sockets = mux_sockets_make() else {
            mux_multi_cleanup(library.table, pointer)
            return nil
        }
        self.library = library
        self.pointer = pointer
        self.sockets = sockets
        // One call at a time on a connection: libcurl keeps in memory what arrives for a paused stream beside others.
        _ = mux_multi_set_long(library.table, pointer, CInt(MUX_CURLMOPT_PIPELINING), 0)
    }

    /// Makes ``poll()`` return.
    func wake() { _ = mux_multi_wakeup(self.library.table, self.pointer) }

    func add(_ easy: UnsafeMutableRawPointer) -> Bool { mux_multi_add(self.library.table, self.pointer, easy) == 0 }
    func remove(_ easy: UnsafeMutableRawPointer) { _ = mux_multi_remove(self.library.table, self.pointer, easy) }
    func perform() { _ = mux_multi_perform(self.library.table, self.pointer) }

    /// Waits until a connection is ready, a time of libcurl's own has come, or for a minute.
    func poll() { mux_multi_poll(self.library.table, self.pointer, 60_000) }

    /// The next transfer that has ended.
    func nextEnded() -> (easy: UnsafeMutableRawPointer, result: CInt)? {
        var result: CInt = 0
        return mux_multi_ended(self.library.table, self.pointer, &result).map { ($0, result) }
    }

    func free() {
        mux_multi_cleanup(self.library.table, self.pointer)
        // Closing the connections removed their sockets from it.
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

/// A proxy refused the name or the password that the environment gives it.
struct ProxyRefusal: Error, LocalizedError, ConnectivityError {
    var isConnectivityFailure: Bool { false }
    var errorDescription: String? { "The proxy refused the name or the password." }
}

extension HTTPExchangeStateMachine.Failure {
    static func outOfMemory(_ library: CurlLibrary) -> Self { .other(.unreachable(CurlError(27, library))) }

    /// What a result of libcurl, other than success, says of the exchange.
    ///
    /// - Parameters:
    ///   - result: The `CURLcode`.
    ///   - library: The library.
    ///   - detail: libcurl's text for this failure, which names an alert of TLS.
    ///   - isUnsent: Whether the connection ended before anything of the request was sent.
    ///   - connectStatus: The status of a proxy's answer to CONNECT; 0 if there was none.
    ///   - headLimit: The limit of the head, if a part of one has arrived.
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
            self = .other(.transport(.notConnected(error)))
        case 3: self = .other(.invalidURL)
        case 5, 6: self = .other(.transport(.notResolved(error)))
        // 28: the time for a connection is over; libcurl has no other limit here.
        case 7, 28, 97: self = .other(.transport(.notConnected(error)))
        // Any end of a handshake; `CURLINFO_SSL_VERIFYRESULT` is a failure until there is a certificate.
        case 35 where !Self.isVerdict(detail): self = .other(.transport(.notConnected(error)))
        // In TLS 1.3 the server judges the client's certificate after the handshake.
        case 55 where Self.isVerdict(detail), 56 where Self.isVerdict(detail):
            self = .other(.transport(.insecureConnection(error)))
        // The numbers of TLS: handshake, engine, certificates of either side, ciphers, lists of revoked certificates.
        case 35, 51, 53, 54, 58, 59, 60, 66, 77, 80, 82, 83, 90, 91, 98:
            self = .other(.transport(.insecureConnection(error)))
        // Half a body, HTTP/2 stream or connection, no answer, not sent or received, not to be sent again.
        case 16, 18, 52, 55, 56, 65, 92, 95:
            self = isUnsent ? .other(.transport(.notConnected(error))) : .closed(error)
        // 43: a first field that begins with a blank.
        case 1, 8, 43: self = .other(.notHTTP)
        // libcurl has a limit of its own for one line.
        case 27, 100:
            self = .other(headLimit.map { .transport(.headTooLarge(limit: $0)) } ?? .unreachable(error))
        default: self = .other(.unreachable(error))
        }
    }

    /// Whether a failure of TLS is a judgement, by either side, on a certificate, or the other side does not speak TLS; otherwise the
    /// connection was lost, or the server could not serve it now.
    private static func isVerdict(_ detail: String) -> Bool {
        var detail = detail.lowercased()
        // The name of a host says nothing.
        if let host = detail.range(of: " in connection to ") { detail = String(detail[..<host.lowerBound]) }
        return ["certificate", "unknown ca", "wrong version number", "unexpected tls packet"]
            .contains { detail.contains($0) }
    }
}
#endif
