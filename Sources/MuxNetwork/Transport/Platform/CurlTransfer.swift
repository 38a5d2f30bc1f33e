#if os(Linux)
import CMuxCurl
import Foundation
import MuxKit

/// One transfer of libcurl.
final class CurlTransfer {
    let order: CurlOrder
    let easy: UnsafeMutableRawPointer
    private let library: CurlLibrary
    private let agenda: CurlAgenda
    private let sockets: OpaquePointer
    private var fields: UnsafeMutableRawPointer?
    private var head: HTTPHeadParser
    /// The failure that replaces libcurl's result; `nil` to use libcurl's result.
    private(set) var failure: HTTPError?
    /// The error if libcurl refuses the next option.
    private var refusal = HTTPError.invalidURL
    /// The number of sendings of the request, including repetitions; 0 if ``countsSendings`` is `false`.
    private var sendings = 0
    /// Whether the last sending of the request used a new connection.
    private var isOnNewConnection = false
    /// The HTTP/2 stream of the request; allocated, because libcurl keeps the address.
    private let streams = UnsafeMutablePointer<mux_streams>.allocate(capacity: 1)
    /// Whether libcurl calls back before each sending (since libcurl 7.80).
    private var countsSendings = false
    /// libcurl's text for a failure.
    private let errorText: UnsafeMutablePointer<CChar>
    /// Whether the transfer ended before the sending of the request, because the kept connection was
    /// unusable.
    private var isConnectionUnusable = false
    private var restarts = 0

    init(
        _ order: CurlOrder,
        _ easy: UnsafeMutableRawPointer,
        _ library: CurlLibrary,
        _ agenda: CurlAgenda,
        sockets: OpaquePointer
    ) {
        self.order = order
        self.easy = easy
        self.library = library
        self.agenda = agenda
        self.sockets = sockets
        self.streams.initialize(to: mux_streams())
        self.errorText = .allocate(capacity: Self.errorTextSize)
        self.errorText.initialize(repeating: 0, count: Self.errorTextSize)
        self.head = HTTPHeadParser(url: order.call.call.url, limit: order.options.maximumHeadSize)
    }

    /// Sets the options of the handle, and the callbacks.
    ///
    /// - Returns: Whether all required options were set; if not, ``failure`` is the reason, or `nil` without
    ///   memory.
    func prepare() -> Bool {
        self.setOptions()
        self.setMethod()
        self.setCallbacks()
        return self.setFields() && self.failure == nil
    }

    /// Whether to send the request again on a new connection, because the server has not processed the
    /// request; at most five times.
    ///
    /// libcurl 7.88 does not repeat a request on a stream above the last stream of a GOAWAY if the server
    /// then closes the connection. A repeatable request is not observed (`mux_easy_note_streams`), so its
    /// failure is left to the caller's retry.
    func canRestart(after result: CInt) -> Bool {
        guard self.restarts < 5 else { return false }
        return self.isConnectionUnusable
            || result != 0 && self.failure == nil && self.streams.pointee.is_refused != 0 && !self.head.hasBegun
    }

    /// Prepares the handle, which has been removed from the multi handle, for sending the request on a new
    /// connection.
    ///
    /// - Returns: Whether the handle is ready; if not, ``failure`` is the reason.
    func prepareRestart() -> Bool {
        self.isConnectionUnusable = false
        self.restarts += 1
        guard self.rewind() else {
            self.failure = .emptyReply(self.library)
            return false
        }
        self.set(CInt(MUX_CURLOPT_FRESH_CONNECT), 1)
        self.set(CInt(MUX_CURLOPT_FORBID_REUSE), 0)
        return self.failure == nil
    }

    deinit {
        // The loop holds this object until the handle is freed: the handle uses the list and the buffers.
        if let fields { mux_list_free(self.library.table, fields) }
        self.errorText.deallocate()
        self.streams.deallocate()
    }

    /// `CURL_ERROR_SIZE`.
    private static let errorTextSize = 256

    func reportOutcome(_ result: CInt) {
        let exchange = self.order.exchange
        if let failure {
            exchange.end(with: failure)
        } else if result != 0, mux_easy_is_proxy_refusal(self.library.table, self.easy) != 0 {
            exchange.end(with: HTTPError.unreachable(ProxyRefusal()))
        } else if result == 0 {
            let hasHead = exchange.isHeadReceived
            exchange.end(with: hasHead ? nil : HTTPError.emptyReply(self.library), trailers: self.head.trailers)
        } else {
            let isPartOfHead = self.head.hasBegun && !exchange.isHeadReceived
            let error = HTTPError(
                result,
                self.library,
                detail: String(cString: self.errorText),
                isUnsent: self.countsSendings && self.sendings == 0,
                connectStatus: mux_easy_connect_status(self.library.table, self.easy),
                headLimit: isPartOfHead ? self.order.options.maximumHeadSize : nil
            )
            let call = self.order.call
            let mayHaveArrived = Self.mayHaveArrived(
                afterSendings: self.sendings,
                isRefused: self.isRefused,
                isRepeatable: call.call.isRepeatable
            )
            exchange.end(with: mayHaveArrived ? error.afterEarlierSending(of: call.method) : error)
        }
    }

    /// Whether the server may have processed a sending of the request, although the last sending, or the
    /// connection for a further sending, has failed with the error of an unsent request.
    ///
    /// Has no meaning for other errors, because ``isRefused`` assumes a repetition by libcurl.
    ///
    /// libcurl sends a request again if a kept connection ends. A request that is not repeatable is sent
    /// again only after a refusal by the server. For a repeatable request, it is unknown whether the server
    /// refused the sendings before the last one.
    ///
    /// - Parameters:
    ///   - sendings: The number of sendings.
    ///   - isRefused: Whether the server has refused the last sending.
    ///   - isRepeatable: Whether the request is repeatable.
    /// - Returns: Whether a sending may have been processed.
    package static func mayHaveArrived(afterSendings sendings: Int, isRefused: Bool, isRepeatable: Bool) -> Bool {
        sendings > 0 && !(isRefused && (sendings == 1 || !isRepeatable))
    }

    // MARK: - Options

    /// Sets an option that older versions of libcurl may lack; a failure has no effect.
    private func setIfSupported(_ option: CInt, _ value: Int) {
        _ = mux_easy_set_long(self.library.table, self.easy, option, CLong(value))
    }

    private func set(_ option: CInt, _ value: Int) {
        self.require(mux_easy_set_long(self.library.table, self.easy, option, CLong(value)))
    }

    private func set(_ option: CInt, _ text: String) {
        self.require(mux_easy_set_pointer(self.library.table, self.easy, option, text))
    }

    /// Sets an option to the path of a file; a URL without a usable path counts as a refused option.
    private func set(_ option: CInt, _ file: URL) {
        guard let path = try? FilePath.path(of: file) else { return self.require(43) }
        self.set(option, path)
    }

    /// Records the failure to set an option.
    ///
    /// The `CURLcode` 27 is `CURLE_OUT_OF_MEMORY`; 43 is `CURLE_BAD_FUNCTION_ARGUMENT`.
    private func require(_ result: CInt) {
        guard result != 0, self.failure == nil else { return }
        self.failure = result == 27 ? .outOfMemory(self.library) : self.refusal
    }

    /// Sets the error for the options that libcurl refuses from now on.
    ///
    /// - Parameter name: The property of the configuration, or `libcurl`.
    private func setRefusal(_ name: String) { self.refusal = .preparation(.unsupportedOption(name: name)) }

    private func setOptions() {
        let call = self.order.call.call
        var components = URLComponents(url: call.url, resolvingAgainstBaseURL: true)
        components?.fragment = nil
        guard let url = components?.url?.absoluteString else {
            self.failure = self.refusal
            return
        }
        self.set(CInt(MUX_CURLOPT_URL), url)
        self.setRefusal("libcurl")
        self.set(CInt(MUX_CURLOPT_PROTOCOLS), Int(MUX_CURLPROTO_HTTP_AND_HTTPS))
        self.set(CInt(MUX_CURLOPT_PATH_AS_IS), 1)
        self.set(CInt(MUX_CURLOPT_NOSIGNAL), 1)
        // The removal of a handle does not wait for a running name resolution (since libcurl 7.87).
        self.setIfSupported(CInt(MUX_CURLOPT_QUICK_EXIT), 1)
        self.setIfSupported(CInt(MUX_CURLOPT_HTTP09_ALLOWED), 0)
        self.setIfSupported(CInt(MUX_CURLOPT_HTTP_VERSION), Int(MUX_CURL_HTTP_VERSION_2TLS))
        self.require(mux_easy_set_sockets(self.library.table, self.easy, self.sockets))
        self.require(
            mux_easy_set_pointer(self.library.table, self.easy, CInt(MUX_CURLOPT_ERRORBUFFER), self.errorText)
        )
        self.set(CInt(MUX_CURLOPT_HTTP_CONTENT_DECODING), 0)
        self.set(CInt(MUX_CURLOPT_SUPPRESS_CONNECT_HEADERS), 1)
        self.set(CInt(MUX_CURLOPT_BUFFERSIZE), 64 << 10)
        // libcurl limits the time to connect, and divides this time among the addresses of a host. Since
        // 7.80, the exchange measures silence only after the connection is established.
        let silence = call.timeout ?? self.order.options.timeout
        self.set(CInt(MUX_CURLOPT_CONNECTTIMEOUT_MS), Int(min(max(1, silence.secondsValue * 1000), 2e9)))
        if !self.order.options.usesProxies { self.set(CInt(MUX_CURLOPT_NOPROXY), "*") }
        if let authorities = self.order.options.certificateAuthorities {
            self.setRefusal("certificateAuthorities")
            self.set(CInt(MUX_CURLOPT_CAINFO), authorities)
            _ = mux_easy_set_pointer(self.library.table, self.easy, CInt(MUX_CURLOPT_CAPATH), nil)
        }
        if let certificate = self.order.options.clientCertificate { self.set(certificate) }
        self.setRefusal("libcurl")
    }

    private func set(_ certificate: HTTPTransportConfiguration.ClientCertificate) {
        self.setRefusal("clientCertificate")
        switch certificate.source {
        case .files(let chain, let key):
            self.set(CInt(MUX_CURLOPT_SSLCERT), chain)
            self.set(CInt(MUX_CURLOPT_SSLKEY), key)
        case .pem(let chain, let key):
            self.set(CInt(MUX_CURLOPT_SSLCERT_BLOB), chain)
            self.set(CInt(MUX_CURLOPT_SSLKEY_BLOB), key)
        case .pkcs12(let data):
            self.set(CInt(MUX_CURLOPT_SSLCERTTYPE), "P12")
            self.set(CInt(MUX_CURLOPT_SSLCERT_BLOB), data)
        }
        // An empty password prevents OpenSSL from asking for a password at the terminal.
        self.set(CInt(MUX_CURLOPT_KEYPASSWD), certificate.password ?? "")
    }

    private func set(_ option: CInt, _ bytes: Data) {
        let result = bytes.withUnsafeBytes {
            mux_easy_set_blob(self.library.table, self.easy, option, $0.baseAddress, $0.count)
        }
        self.require(result)
    }

    private func setMethod() {
        let method = self.order.call.method
        if let upload = self.order.upload {
            self.set(CInt(MUX_CURLOPT_UPLOAD), 1)
            let length = Int64(upload.length ?? -1)
            _ = mux_easy_set_offset(self.library.table, self.easy, CInt(MUX_CURLOPT_INFILESIZE_LARGE), length)
        } else if method == .head {
            self.set(CInt(MUX_CURLOPT_NOBODY), 1)
        } else if [.post, .put, .patch].contains(method) {
            // RFC 9110, section 8.6: these methods send `Content-Length` even without a body.
            self.set(CInt(MUX_CURLOPT_UPLOAD), 1)
            _ = mux_easy_set_offset(self.library.table, self.easy, CInt(MUX_CURLOPT_INFILESIZE_LARGE), 0)
        }
        if method != .get || self.order.upload != nil { self.set(CInt(MUX_CURLOPT_CUSTOMREQUEST), method.rawValue) }
    }

    /// The value of `User-Agent`: the name of the program, if the name is a token, and of this library.
    ///
    /// RFC 9110, section 10.1.5, recommends the field, and some servers refuse a request without the field.
    private static let userAgent: String = {
        let name = ProcessInfo.processInfo.processName
        return HTTPGrammar.isToken(name) ? "\(name) MuxKit" : "MuxKit"
    }()

    /// Sets the header fields; returns `false` without memory.
    private func setFields() -> Bool {
        let headers = self.order.call.call.headers
        var lines = headers.fields.map { field in
            // For libcurl, a name with `;` is a field with an empty value; a name with `:` alone removes the
            // field.
            let value = HTTPGrammar.trimmed(field.value)
            return value.isEmpty ? "\(field.name.rawValue);" : "\(field.name.rawValue): \(value)"
        }
        if headers[.acceptEncoding] == nil, !DecodableCoding.accepted.isEmpty {
            lines.append("Accept-Encoding: \(DecodableCoding.accepted)")
        }
        if headers[.userAgent] == nil { lines.append("User-Agent: \(Self.userAgent)") }
        // An empty value removes fields that libcurl adds by default.
        lines += [HTTPHeaders.Name.accept, .expect].filter { headers[$0] == nil }.map { "\($0.rawValue):" }
        for line in lines {
            guard let list = mux_list_append(self.library.table, self.fields, line) else { return false }
            self.fields = list
        }
        return mux_easy_set_pointer(self.library.table, self.easy, CInt(MUX_CURLOPT_HTTPHEADER), self.fields) == 0
    }

    // MARK: - Callbacks

    private func setCallbacks() {
        let (table, easy) = (self.library.table, self.easy)
        let own = Unmanaged.passUnretained(self).toOpaque()
        _ = mux_easy_set_transfer(table, easy, CInt(MUX_CURLOPT_HEADERFUNCTION)) { bytes, size, count, context in
            CurlTransfer.from(context)?.receive(line: UnsafeRawBufferPointer(start: bytes, count: size * count)) ?? 0
        }
        _ = mux_easy_set_pointer(table, easy, CInt(MUX_CURLOPT_HEADERDATA), own)
        _ = mux_easy_set_transfer(table, easy, CInt(MUX_CURLOPT_WRITEFUNCTION)) { bytes, size, count, context in
            CurlTransfer.from(context)?.receive(UnsafeRawBufferPointer(start: bytes, count: size * count)) ?? 0
        }
        _ = mux_easy_set_pointer(table, easy, CInt(MUX_CURLOPT_WRITEDATA), own)
        _ = mux_easy_set_transfer(table, easy, CInt(MUX_CURLOPT_READFUNCTION)) { bytes, size, count, context in
            guard let bytes else { return Int(MUX_CURL_READFUNC_ABORT) }
            let room = UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
            return CurlTransfer.from(context)?.send(into: room) ?? Int(MUX_CURL_READFUNC_ABORT)
        }
        _ = mux_easy_set_pointer(table, easy, CInt(MUX_CURLOPT_READDATA), own)
        _ = mux_easy_set_seek(table, easy) { context, offset, origin in
            let canRewind = offset == 0 && origin == 0 && CurlTransfer.from(context)?.rewind() ?? true
            return CInt(canRewind ? MUX_CURL_SEEKFUNC_OK : MUX_CURL_SEEKFUNC_FAIL)
        }
        _ = mux_easy_set_pointer(table, easy, CInt(MUX_CURLOPT_SEEKDATA), own)
        let code = mux_easy_set_before_sending(table, easy, own) { context, remoteIP, localIP, remotePort, localPort in
            let addresses = mux_addresses(
                remote_ip: remoteIP,
                local_ip: localIP,
                remote_port: remotePort,
                local_port: localPort
            )
            return CurlTransfer.from(context)?.prepareSending(between: addresses) ?? true ? 0 : 1
        }
        if code == 0 {
            self.countsSendings = true
            self.order.exchange.setWaitingForServer(false)
        } else {
            self.order.exchange.setWaitingForServer(true)
            // Before 7.80, libcurl does not call back before a sending: a kept connection cannot be checked,
            // and libcurl might send the request twice. Therefore each request uses a new connection.
            self.set(CInt(MUX_CURLOPT_FRESH_CONNECT), 1)
        }
    }

    private static func from(_ context: UnsafeMutableRawPointer?) -> CurlTransfer? {
        context.map { Unmanaged<CurlTransfer>.fromOpaque($0).takeUnretainedValue() }
    }

    /// Processes a line of the head or of the trailers.
    ///
    /// - Returns: The number of bytes taken; any number other than the size of the line ends the transfer.
    private func receive(line: UnsafeRawBufferPointer) -> Int {
        do throws(HTTPError) {
            guard let reply = try self.head.read(line) else {
                self.order.exchange.recordActivity()
                return line.count
            }
            self.agenda.scheduleFlush(of: self.order.exchange)
            // If the response arrives before the whole request was sent, libcurl completes the response only
            // while the sending is not paused. Therefore the sending resumes.
            if self.order.upload != nil { self.agenda.scheduleResumption(of: self) }
            guard self.order.exchange.receive(head: reply) else { return self.abort(with: nil) }
            self.endIfComplete()
            return line.count
        } catch {
            return self.abort(with: error)
        }
    }

    /// Ends the transfer from a callback; without an error if the exchange has ended before.
    private func abort(with error: HTTPError?) -> Int {
        self.failure = error
        return -1
    }

    /// For a request that libcurl repeats: whether the server has certainly not processed the last sending.
    ///
    /// The server has refused the stream, or a GOAWAY has a last stream below this stream (RFC 9113, section
    /// 8.7). On a new connection, libcurl repeats a request only for these reasons. On a kept connection,
    /// libcurl reports only a GOAWAY, which `streams` records; any other refused stream on a kept connection
    /// counts as a lost connection.
    private var isRefused: Bool {
        self.sendings > 0 && (self.isOnNewConnection || self.streams.pointee.is_refused != 0)
    }

    private func rewind() -> Bool { self.order.upload?.rewind(isRefused: self.isRefused) ?? true }

    /// Prepares the sending of the request on a connection, unless libcurl must not send the request.
    ///
    /// libcurl repeats a request if a kept connection ends without a response. The server may have processed
    /// the first request, so only a repeatable request (``HTTPCall/isRepeatable``) or a refused request
    /// (``isRefused``) is sent twice.
    ///
    /// libcurl before 8 sends a request on a kept connection that the server has closed with TLS
    /// `close_notify` (curl#10690). Any version of libcurl may read bytes that arrived between two requests
    /// as the response to the second request (RFC 9112, section 9.2). In both cases this method prevents the
    /// sending, and ``prepareRestart()`` selects a new connection. Bytes that arrive between this check and
    /// the sending cannot be distinguished from the response.
    ///
    /// - Returns: Whether libcurl may send the request.
    private func prepareSending(between addresses: mux_addresses) -> Bool {
        guard self.sendings == 0 || self.order.call.call.isRepeatable || self.isRefused else {
            self.failure = .emptyReply(self.library)
            return false
        }
        let state = mux_easy_is_connection_clean(self.library.table, self.easy, self.sockets, addresses)
        guard state != 0 else {
            self.isConnectionUnusable = true
            self.set(CInt(MUX_CURLOPT_FORBID_REUSE), 1)
            return false
        }
        self.isOnNewConnection = state == 2
        self.streams.pointee.is_refused = 0
        // Debug messages of libcurl report the streams, and cost time. A repeatable request needs no report,
        // because it may be sent twice. A request without TLS needs no report, because it has no stream.
        if !self.order.call.call.isRepeatable, self.order.call.origin.isSecure {
            _ = mux_easy_note_streams(self.library.table, self.easy, self.streams)
        }
        self.sendings += 1
        self.order.exchange.setWaitingForServer(true)
        return true
    }

    private func receive(_ bytes: UnsafeRawBufferPointer) -> Int {
        self.agenda.scheduleFlush(of: self.order.exchange)
        switch self.order.exchange.receive(Data(bytes)) {
        case .taken:
            self.endIfComplete()
            return bytes.count
        case .paused: return Int(MUX_CURL_WRITEFUNC_PAUSE)
        case .ended: return self.abort(with: nil)
        }
    }

    /// Schedules the end if the response is complete, but libcurl has not taken the whole request body.
    private func endIfComplete() {
        guard let upload = self.order.upload, !upload.isSent, self.order.exchange.isComplete else { return }
        self.agenda.scheduleEnd(of: self)
    }

    /// Copies the next bytes of the request body to libcurl's buffer.
    private func send(into room: UnsafeMutableRawBufferPointer) -> Int {
        guard let upload = self.order.upload else { return 0 }
        switch upload.read(limit: room.count) {
        case .bytes(let bytes):
            self.order.exchange.setWaitingForServer(true)
            return bytes.withUnsafeBytes { source in
                room.copyMemory(from: source)
                return source.count
            }
        case .unavailable:
            self.order.exchange.setWaitingForServer(false)
            return Int(MUX_CURL_READFUNC_PAUSE)
        case .failed: return Int(MUX_CURL_READFUNC_ABORT)
        }
    }
}
#endif
