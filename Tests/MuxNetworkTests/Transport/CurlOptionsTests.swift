#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// All options of libcurl that the transport sets, by libcurl's names and types.
///
/// The table of libcurl's functions records `curl_easy_setopt` and refuses to start a transfer, so no
/// request reaches the network.
@Suite(.standard, .serialized)
struct CurlOptionsTests {
    /// The options of a plain GET with the default options.
    private static let defaults = [
        "URL": "https://host.example/a/../b?c",
        "PROTOCOLS": "3",  // http and https
        "PATH_AS_IS": "1",
        "NOSIGNAL": "1",
        "QUICK_EXIT": "1",
        "HTTP09_ALLOWED": "0",
        "HTTP_VERSION": "4",  // 2 over TLS, 1.1 otherwise
        "HTTP_CONTENT_DECODING": "0",
        "SUPPRESS_CONNECT_HEADERS": "1",
        "BUFFERSIZE": "65536",
        "CONNECTTIMEOUT_MS": "20000",
        "HTTPHEADER": "Accept-Encoding: identity | User-Agent: test | Accept: | Expect:",
        "ERRORBUFFER": "set",
        "SOCKOPTFUNCTION": "set", "SOCKOPTDATA": "set", "CLOSESOCKETFUNCTION": "set", "CLOSESOCKETDATA": "set",
        "HEADERFUNCTION": "set", "HEADERDATA": "set", "WRITEFUNCTION": "set", "WRITEDATA": "set",
        "READFUNCTION": "set", "READDATA": "set", "SEEKFUNCTION": "set", "SEEKDATA": "set",
        "PREREQFUNCTION": "set", "PREREQDATA": "set",
    ]

    /// A configuration, and its changes of the default options.
    private struct Row: Sendable, CustomTestStringConvertible {
        let testDescription: String
        var options = HTTPTransportConfiguration()
        var call: HTTPCall
        let changes: [String: String]

        init(
            _ name: String,
            method: String = "GET",
            body: HTTPCall.Body? = nil,
            _ changes: [String: String],
            configure: (inout HTTPTransportConfiguration, inout HTTPCall) -> Void = { _, _ in }
        ) {
            self.testDescription = name
            let url = URL(string: "https://host.example/a/../b?c#fragment") ?? URL(filePath: "/")
            let headers: HTTPHeaders = ["Accept-Encoding": "identity", "User-Agent": "test"]
            self.call = HTTPCall(method: method, url: url, headers: headers, body: body)
            self.changes = changes
            configure(&self.options, &self.call)
        }
    }

    private static let fields = "Accept-Encoding: identity | User-Agent: test"

    private static let rows =
        [
            Row("the defaults", [:]),
            Row("no proxies", ["NOPROXY": "*"]) { options, _ in options.usesProxies = false },
            // No folder of authorities besides the private authorities.
            Row("private authorities", ["CAINFO": "/ca.pem", "CAPATH": "none"]) { options, _ in
                options.certificateAuthorities = URL(filePath: "/ca.pem")
            },
        ] + Self.times + Self.certificates + Self.messages

    private static let times = [
        Row("a time-out of the transport", ["CONNECTTIMEOUT_MS": "1500"]) { options, _ in
            options.timeout = .milliseconds(1500)
        },
        Row("a time-out of the call", ["CONNECTTIMEOUT_MS": "250"]) { options, call in
            (options.timeout, call.timeout) = (.seconds(60), .milliseconds(250))
        },
        // The value 0 would be libcurl's default limit of five minutes.
        Row("less than a millisecond", ["CONNECTTIMEOUT_MS": "1"]) { options, _ in
            options.timeout = .microseconds(400)
        },
        Row("a time beyond 32 bits", ["CONNECTTIMEOUT_MS": "2000000000"]) { options, _ in
            options.timeout = .seconds(1 << 40)
        },
        // Only the exchange measures a deadline.
        Row("a deadline", [:]) { options, call in (options.deadline, call.deadline) = (.seconds(1), .seconds(2)) },
    ]

    private static let certificates = [
        Row("a certificate in files", ["SSLCERT": "/chain.pem", "SSLKEY": "/key.pem", "KEYPASSWD": "p"]) { options, _ in
            let (chain, key) = (URL(filePath: "/chain.pem"), URL(filePath: "/key.pem"))
            options.clientCertificate = .files(chain: chain, key: key, password: "p")
        },
        Row("a certificate in memory", ["SSLCERT_BLOB": "chain", "SSLKEY_BLOB": "key", "KEYPASSWD": ""]) { options, _ in
            options.clientCertificate = .pem(chain: Data("chain".utf8), key: Data("key".utf8))
        },
        Row("an archive", ["SSLCERTTYPE": "P12", "SSLCERT_BLOB": "archive", "KEYPASSWD": "p"]) { options, _ in
            options.clientCertificate = .pkcs12(Data("archive".utf8), password: "p")
        },
    ]

    private static let messages = [
        Row("HEAD", method: "HEAD", ["NOBODY": "1", "CUSTOMREQUEST": "HEAD"]),
        Row("DELETE", method: "DELETE", ["CUSTOMREQUEST": "DELETE"]),
        Row(
            "POST without a body",
            method: "POST",
            ["UPLOAD": "1", "INFILESIZE_LARGE": "0", "CUSTOMREQUEST": "POST"]
        ),
        Row(
            "PUT",
            method: "PUT",
            body: .data(Data("body".utf8)),
            ["UPLOAD": "1", "INFILESIZE_LARGE": "4", "CUSTOMREQUEST": "PUT"]
        ),
        Row(
            "GET with a body",
            body: .data(Data("body".utf8)),
            ["UPLOAD": "1", "INFILESIZE_LARGE": "4", "CUSTOMREQUEST": "GET"]
        ),
        Row(
            "a stream of unknown length",
            method: "PATCH",
            body: .stream(.init { AsyncStream<Data> { $0.finish() } }),
            ["UPLOAD": "1", "INFILESIZE_LARGE": "-1", "CUSTOMREQUEST": "PATCH"]
        ),
        Row("fields", ["HTTPHEADER": "\(Self.fields) | X-Empty; | X-One: 1 | X-One: 1 2 | accept: a | Expect:"]) {
            _,
            call in
            call.headers.append("", for: "X-Empty")
            call.headers.append("1", for: "X-One")
            call.headers.append("1 2", for: "X-One")
            call.headers.append("a", for: "accept")
        },
        Row("no TLS", ["URL": "http://host.example/"]) { _, call in
            call.url = URL(string: "http://host.example/") ?? call.url
        },
    ]

    @Test(arguments: Self.rows)
    private func `PT-04 libcurl gets exactly the expected options`(row: Row) async throws {
        let recorder = try #require(CurlRecorder())

        await #expect(throws: HTTPError.self) {
            try await recorder.send(row.call, row.options)
        }

        let recorded = recorder.take()
        let expected = Self.defaults.merging(row.changes) { $1 }
        for name in Set(expected.keys).union(recorded.options.keys).sorted() {
            #expect(recorded.options[name] == expected[name], "\(name)")
        }
        // CURLMOPT_PIPELINING: one call at a time on a connection.
        #expect(recorded.multi == [3: 0])
        #expect(recorded.startCount == 1)
    }

    @Test func `PT-04 a transfer that libcurl cannot check before sending has a new connection`() async throws {
        let recorder = try #require(CurlRecorder())
        recorder.refuse("PREREQFUNCTION")
        let row = Row("", [:])

        await #expect(throws: HTTPError.self) {
            try await recorder.send(row.call, row.options)
        }

        #expect(recorder.take().options["FRESH_CONNECT"] == "1")
    }

    /// Options that a transfer does not require: options of a later version, or options that no version
    /// refuses.
    private static let optional: Set<String> = [
        "QUICK_EXIT", "HTTP09_ALLOWED", "HTTP_VERSION", "PREREQFUNCTION", "PREREQDATA",
        // Refused by a library without a folder of authorities.
        "CAPATH",
        "HEADERFUNCTION", "HEADERDATA", "WRITEFUNCTION", "WRITEDATA", "READFUNCTION", "READDATA", "SEEKFUNCTION",
        "SEEKDATA", "INFILESIZE_LARGE",
    ]

    /// Options that libcurl refuses, and the errors.
    private static let refusals: [(option: String, error: HTTPError)] = [
        ("URL", .invalidURL),
        ("CAINFO", .preparation(.unsupportedOption(name: "certificateAuthorities"))),
        // Before 7.71, libcurl has no certificates in memory.
        ("SSLCERT_BLOB", .preparation(.unsupportedOption(name: "clientCertificate"))),
        ("KEYPASSWD", .preparation(.unsupportedOption(name: "clientCertificate"))),
    ]

    @Test(arguments: Self.refusals)
    func `PT-04 an option that libcurl refuses is a failure of the preparation`(option: String, error: HTTPError)
        async throws
    {
        let recorder = try #require(CurlRecorder())
        let row = Row("", [:]) { options, _ in
            options.certificateAuthorities = URL(filePath: "/ca.pem")
            options.clientCertificate = .pem(chain: Data("chain".utf8), key: Data("key".utf8))
        }
        recorder.refuse(option)

        await #expect(throws: error) { try await recorder.send(row.call, row.options) }

        #expect(recorder.take().startCount == 0)
    }

    /// libcurl with GnuTLS accepts certificates in memory, and does not use them.
    @Test(
        .enabled(if: CurlLibrary(named: "libcurl-gnutls.so.4") != nil, "libcurl with GnuTLS is not installed"),
        arguments: [
            .pem(chain: Data("chain".utf8), key: Data("key".utf8)), .pkcs12(Data("archive".utf8), password: "p"),
        ] as [HTTPTransportConfiguration.ClientCertificate]
    )
    func `PT-04 no request is sent without its certificate by a library that ignores the certificate`(
        certificate: HTTPTransportConfiguration.ClientCertificate
    ) async throws {
        let library = try #require(CurlLibrary(named: "libcurl-gnutls.so.4"))
        var options = HTTPTransportConfiguration()
        options.clientCertificate = certificate
        let transport = SystemTransport(options, clock: VirtualClock(), library: library)
        let call = HTTPCall(url: try #require(URL(string: "https://127.0.0.1:1/")))

        await #expect(throws: HTTPError.preparation(.unsupportedOption(name: "clientCertificate"))) {
            try await transport.send(call)
        }
    }

    @Test(arguments: Self.rows)
    private func `PT-04 no transfer starts if libcurl refuses a required option`(row: Row) async throws {
        let recorder = try #require(CurlRecorder())
        let names = Set(Self.defaults.keys).union(row.changes.keys)
        for name in names.subtracting(Self.optional).sorted() {
            recorder.refuse(name)
            await #expect(throws: HTTPError.self) {
                try await recorder.send(row.call, row.options)
            }
            #expect(recorder.take().startCount == 0, "a transfer without \(name) was started")
        }
    }
}

/// Records the options that libcurl gets, and starts no transfer.
private final class CurlRecorder: Sendable {
    struct Recording: Sendable {
        /// The last value of each option.
        var options: [String: String] = [:]
        /// The values of the options of multi handles.
        var multi: [CInt: Int] = [:]
        /// The number of attempts to start a transfer.
        var startCount = 0
        /// The name of the refused option.
        fileprivate var refused: String?
    }

    let library: CurlLibrary

    init?() {
        guard let library = CurlLibrary(named: "libcurl.so.4"), CurlFunctions.replace(in: library) else { return nil }
        self.library = library
        _ = self.take()
    }

    /// Sends a request over a new transport, while no time passes.
    func send(_ call: HTTPCall, _ options: HTTPTransportConfiguration) async throws -> HTTPReply {
        try await SystemTransport(options, clock: VirtualClock(), library: self.library).send(call)
    }

    /// Makes libcurl refuse the option of this name until ``take()``.
    func refuse(_ name: String) { CurlFunctions.recording.withLock { $0.refused = name } }

    /// Returns the recording since the last call.
    func take() -> Recording {
        CurlFunctions.recording.withLock { recording in
            defer { recording = Recording() }
            return recording
        }
    }
}

/// libcurl's functions, and recording replacements of three functions.
///
/// The replacement of a variadic function has three parameters. On Linux, both receive integers and pointers
/// in the same registers.
private enum CurlFunctions {
    typealias Handle = UnsafeMutableRawPointer
    typealias SetOption = @Sendable @convention(c) (Handle?, CInt, Int) -> CInt
    typealias Add = @Sendable @convention(c) (Handle?, Handle?) -> CInt
    typealias Option = @Sendable @convention(c) (CInt) -> UnsafeRawPointer?

    static let recording = Locked(CurlRecorder.Recording())

    private static let symbols: (set: SetOption, setMulti: SetOption, option: Option)? = {
        guard let set = Self.symbol("curl_easy_setopt"), let multi = Self.symbol("curl_multi_setopt"),
            let option = Self.symbol("curl_easy_option_by_id")
        else { return nil }
        return (
            unsafeBitCast(set, to: SetOption.self), unsafeBitCast(multi, to: SetOption.self),
            unsafeBitCast(option, to: Option.self)
        )
    }()

    private static func symbol(_ name: String) -> UnsafeMutableRawPointer? {
        dlopen("libcurl.so.4", RTLD_NOW).flatMap { dlsym($0, name) }
    }

    /// Replaces functions in the table of `library`, which no other object shares.
    static func replace(in library: CurlLibrary) -> Bool {
        guard self.symbols != nil else { return false }
        let table = unsafeBitCast(library, to: UnsafeMutablePointer<UnsafeMutableRawPointer?>.self)
        let set: SetOption = { CurlFunctions.set($0, $1, $2) }
        let setMulti: SetOption = { handle, option, value in
            CurlFunctions.recording.withLock { $0.multi[option] = value }
            return CurlFunctions.symbols?.setMulti(handle, option, value) ?? 1
        }
        let add: Add = { _, _ in
            CurlFunctions.recording.withLock { $0.startCount += 1 }
            return 3  // CURLM_OUT_OF_MEMORY
        }
        let replacements = [
            ("curl_easy_setopt", unsafeBitCast(set, to: UnsafeMutableRawPointer.self)),
            ("curl_multi_setopt", unsafeBitCast(setMulti, to: UnsafeMutableRawPointer.self)),
            ("curl_multi_add_handle", unsafeBitCast(add, to: UnsafeMutableRawPointer.self)),
        ]
        // The table begins with the functions that every libcurl has.
        for (name, function) in replacements {
            guard let original = self.symbol(name),
                let index = (0..<18).first(where: { table[$0] == original })
            else { return false }
            table[index] = function
        }
        return true
    }

    private static func set(_ handle: Handle?, _ option: CInt, _ value: Int) -> CInt {
        guard let symbols else { return 1 }
        let (name, text) = self.text(option, value, symbols.option(option))
        let isRefused = self.recording.withLock { recording in
            recording.options[name] = text
            return recording.refused == name
        }
        return isRefused ? 48 : symbols.set(handle, option, value)
    }

    /// The name of an option, and its value as a text.
    ///
    /// `description` is libcurl's `curl_easyoption`: a name, an identifier, and a type.
    private static func text(_ option: CInt, _ value: Int, _ description: UnsafeRawPointer?) -> (String, String) {
        guard let description = description else {
            // An option of a later version than this libcurl.
            return (option == 322 ? "QUICK_EXIT" : "\(option)", "\(value)")
        }
        let name = String(cString: description.load(as: UnsafePointer<CChar>.self))
        let type = description.load(fromByteOffset: MemoryLayout<Int>.size + 4, as: CInt.self)
        // CURLOT_LONG, CURLOT_VALUES, CURLOT_OFF_T.
        guard type > 2 else { return (name, "\(value)") }
        guard let pointer = UnsafeRawPointer(bitPattern: value) else { return (name, "none") }
        switch type {
        case 4:  // CURLOT_STRING
            return (name, String(cString: pointer.assumingMemoryBound(to: CChar.self)))
        case 5:  // CURLOT_SLIST
            var lines: [String] = []
            var next = Optional(pointer)
            while let node = next {
                lines.append(String(cString: node.load(as: UnsafePointer<CChar>.self)))
                next = node.load(fromByteOffset: MemoryLayout<Int>.size, as: UnsafeRawPointer?.self)
            }
            return (name, lines.joined(separator: " | "))
        case 7:  // CURLOT_BLOB
            let bytes = pointer.load(as: UnsafeRawPointer.self)
            let count = pointer.load(fromByteOffset: MemoryLayout<Int>.size, as: Int.self)
            return (name, String(decoding: UnsafeRawBufferPointer(start: bytes, count: count), as: UTF8.self))
        default: return (name, "set")
        }
    }
}
#endif
