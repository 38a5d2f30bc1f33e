#if os(Linux)
import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A connection lost during the TLS handshake is no verdict on a certificate, so no failure of security.
///
/// The results of certificates are tested against nginx (`TransportInteropTests`).
@Suite(.standard)
struct HandshakeTests {
    /// The way in which a server ends the handshake.
    private enum Ending: CaseIterable {
        case end, reset, half, endAtOnce, resetAtOnce
        /// The alert of a server that is not ready, or has no service for the name.
        case alertOfHandshake, alertOfVersion, alertInside, alertOfName, alertClose

        var bytes: [UInt8] {
            switch self {
            case .end, .reset, .endAtOnce, .resetAtOnce: []
            // The header of a record of 200 bytes, and the first bytes of a ServerHello.
            case .half: [22, 3, 3, 0, 200, 2, 0, 0, 196, 3, 3]
            case .alertOfHandshake: [21, 3, 3, 0, 2, 2, 40]
            case .alertOfVersion: [21, 3, 3, 0, 2, 2, 70]
            case .alertInside: [21, 3, 3, 0, 2, 2, 80]
            case .alertOfName: [21, 3, 3, 0, 2, 2, 112]
            case .alertClose: [21, 3, 3, 0, 2, 1, 0]
            }
        }
    }

    private static func server(_ ending: Ending) throws -> (RawServer, URL) {
        let server = RawServer { connection in
            let isReset = ending == .reset || ending == .resetAtOnce
            if isReset { connection.resetAtEnd() }
            if ending == .endAtOnce || ending == .resetAtOnce { return }
            let head = try connection.read(count: 5)
            _ = try connection.read(count: Int(head[3]) << 8 | Int(head[4]))
            try connection.write(ending.bytes)
        }
        let url = try server.start().absoluteString.replacing("http:", with: "https:")
        return (server, try #require(URL(string: url)))
    }

    private static func transport() -> SystemTransport {
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        return SystemTransport(options)
    }

    @Test(arguments: Ending.allCases, ["GET", "POST"])
    private func `WR-02 a connection lost in the handshake is a failure of connectivity`(
        ending: Ending,
        method: String
    ) async throws {
        let (server, url) = try Self.server(ending)
        let body: HTTPCall.Body? = method == "POST" ? .data(Data("body".utf8)) : nil

        let error = await #expect(throws: HTTPError.self) {
            try await Self.transport().send(HTTPCall(method: method, url: url, body: body))
        }

        // Nothing was sent.
        guard case .transport(.notConnected, _)? = error else {
            Issue.record("\(error as Any)")
            return
        }
        #expect(error?.isConnectivityFailure == true)
        #expect(error?.retryAdvice.isTransient == true)
        await server.stop()
    }

    /// Returns a response to the first call, and sends every later call to a server whose handshakes fail.
    private final class LosingTransport: HTTPTransport {
        private let base = HandshakeTests.transport()
        private let count = Locked(0)

        func send(_ call: HTTPCall) async throws -> HTTPReply {
            let number = self.count.withLock { count -> Int in
                count += 1
                return count
            }
            return number == 1 ? .json(#""old""#) : try await self.base.send(call)
        }
    }

    @Test(arguments: [Ending.end, .reset, .alertInside])
    private func `WR-02 after lost handshakes a request is retried and a stale value is served`(
        ending: Ending
    ) async throws {
        let (server, url) = try Self.server(ending)
        let client = HTTPClient(transport: LosingTransport())
        let call = Ask(String.self, errors: Never.self) { request in
            request.endpoint = .init(scheme: .https, host: HTTPHost("127.0.0.1", port: url.port ?? 0))
        }
        var policy = MuxPolicy()
        policy.staleIfError = .seconds(3600)
        let value = client.multiplexer(policy: policy, repository: MuxRepository(store: MemoryStore()), call)
        #expect(try await value.request() == "old")

        #expect(try await value.request(.reload) == "old")

        let attempts = Tally()
        _ = try? await retry(.immediate(maxAttempts: 3)) { _ in
            attempts.add()
            return try await Self.transport().send(HTTPCall(url: url))
        }
        #expect(attempts.value == 3)
        await server.stop()
    }

    @Test func `WR-02 errors of the URL loading system are classified by their codes`() {
        let key = "_kCFStreamErrorCodeKey"
        let table: [(code: Int, detail: Int?, isSecurity: Bool)] = [
            (-1200, nil, false), (-1200, -9806, false), (-1200, -9805, false), (-1200, -9816, false),
            (-1200, -9824, false), (-1200, -9836, false), (-1200, -9807, true), (-1200, -9808, true),
            (-1200, -9812, true), (-1200, -9813, true), (-1200, -9814, true), (-1200, -9815, true),
            (-1200, -9825, true), (-1200, -9829, true), (-1200, -9831, true), (-1200, -9843, true),
            (-1201, nil, true), (-1202, nil, true), (-1203, nil, true), (-1204, nil, true), (-1205, nil, true),
            (-1206, nil, true), (-1022, nil, true),
        ]
        for (code, detail, isSecurity) in table {
            let error = URLError(
                _nsError: NSError(domain: NSURLErrorDomain, code: code, userInfo: detail.map { [key: $0] } ?? [:])
            )
            guard case .transport(let failure, _) = HTTPError(loading: error) else {
                Issue.record("\(code)")
                continue
            }
            switch failure {
            case .insecureConnection: #expect(isSecurity, "\(code), \(detail as Any)")
            case .notConnected: #expect(!isSecurity, "\(code), \(detail as Any)")
            default: Issue.record("\(code): \(failure)")
            }
        }
    }

    @Test func `WR-02 results of libcurl are classified by code and by the text of the alert`() throws {
        let library = try #require(CurlLibrary.system)
        let table: [(result: CInt, detail: String, isSecurity: Bool)] = [
            (35, "", false), (35, "OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to host:443", false),
            (35, "OpenSSL SSL_connect: Connection reset by peer in connection to certificates.example:443", false),
            (35, "error:0A000410:SSL routines::sslv3 alert handshake failure", false),
            (35, "error:0A000412:SSL routines::sslv3 alert bad certificate", true),
            (35, "error:0A000418:SSL routines::tlsv1 alert unknown ca", true),
            (35, "error:0A00010B:SSL routines::wrong version number", true),
            (56, "OpenSSL SSL_read: error:0A00045C:SSL routines::tlsv13 alert certificate required, errno 0", true),
            // A connection lost before the client sent data.
            (55, "", false), (51, "", true), (58, "", true), (60, "", true), (77, "", true), (83, "", true),
            (90, "", true),
            (91, "", true), (98, "", true),
        ]
        for (result, detail, isSecurity) in table {
            let failure = HTTPError(
                result,
                library,
                detail: detail,
                isUnsent: result == 55,
                connectStatus: 0,
                headLimit: nil
            )
            guard case .transport(let error, _) = failure else {
                Issue.record("\(result) \(detail)")
                continue
            }
            #expect(error.isConnectivityFailure != isSecurity, "\(result) \(detail)")
            if case .insecureConnection = error { #expect(isSecurity) } else { #expect(!isSecurity) }
            #expect(failure.isUnsentRequest == true || result != 55)
        }
    }
}
#endif
