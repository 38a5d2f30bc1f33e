#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import Testing

/// TLS, HTTP/2 and proxies against nginx.
@Suite(
    .standard,
    .enabled(if: Interop.nginx != nil, "Tests/Interop/run starts the server that this needs"),
    .serialized
)
struct TransportInteropTests {
    /// A transport that trusts the certificate authority of the test servers.
    private func trusting() -> SystemTransport {
        var options = HTTPTransportConfiguration()
        options.certificateAuthorities = Interop.authority
        return SystemTransport(options)
    }

    @Test(.enabled(if: Interop.tls != nil))
    func `TR-06 a configured certificate authority is trusted, and HTTP 2 is negotiated`() async throws {
        let url = try #require(Interop.tls)
        let transport = self.trusting()

        let reply = try await transport.send(HTTPCall(url: url))
        #expect(String(decoding: reply.body, as: UTF8.self) == "HTTP/2.0 GET")
        let body = HTTPCall.Body.data(Data(count: 300_000))
        let post = try await transport.send(HTTPCall(method: "POST", url: url, body: body))
        #expect(String(decoding: post.body, as: UTF8.self) == "HTTP/2.0 POST")
        try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<100 { group.addTask { try await transport.send(HTTPCall(url: url)).status } }
            for try await status in group { #expect(status == 200) }
        }
    }

    @Test(.enabled(if: Interop.tls != nil))
    func `TR-06 an untrusted server is a security error and not a connectivity failure`() async throws {
        let attempts: [(URL?, any HTTPTransport)] = [
            (Interop.tls, SystemTransport()), (Interop.tlsOfAnotherName, self.trusting()),
            (Interop.expiredTLS, self.trusting()),
        ]
        for (url, transport) in attempts {
            let url = try #require(url)
            let error = await #expect(throws: HTTPError.self, "\(url)") { try await transport.send(HTTPCall(url: url)) }
            guard case .transport(.insecureConnection, _)? = error else {
                Issue.record("\(url): \(error as Any)")
                continue
            }
            #expect(error?.isConnectivityFailure == false)
        }
    }

    @Test func `TR-06 a TLS handshake with a server without TLS is a security error`() async throws {
        let plain = try #require(Interop.nginx)
        let url = try #require(URL(string: "https://127.0.0.1:\(plain.port ?? 0)/"))

        let error = await #expect(throws: HTTPError.self) { try await SystemTransport().send(HTTPCall(url: url)) }

        guard case .transport(.insecureConnection, _)? = error else {
            Issue.record("\(error as Any)")
            return
        }
    }

    @Test(.ownThreads) func `TR-06 the proxy of the environment is used unless proxies are switched off`() async {
        await #expect(processExitsWith: .success) {
            guard let server = Interop.nginx, let proxy = Interop.proxy else { exit(1) }
            setenv("http_proxy", proxy.absoluteString, 1)
            var options = HTTPTransportConfiguration()
            let through = try await SystemTransport(options).send(HTTPCall(url: server.appending(path: "echo")))
            options.usesProxies = false
            let direct = try await SystemTransport(options).send(HTTPCall(url: server.appending(path: "echo")))
            guard through.status == 200, through.headers["X-Proxy"] == "yes" else { exit(2) }
            guard direct.status == 200, direct.headers["X-Proxy"] == nil else { exit(3) }
        }
    }

    @Test(.enabled(if: Interop.mutual != nil))
    func `WR-10 the client's certificate is sent to a server that requires a certificate`() async throws {
        let folder = try #require(Interop.authority?.deletingLastPathComponent())
        func file(_ name: String) -> URL { folder.appending(component: name) }
        let pem = try Data(contentsOf: file("client.pem"))
        let certificates: [HTTPTransportConfiguration.ClientCertificate] = [
            .files(chain: file("client.pem"), key: file("key.pem")),
            .files(chain: file("client.pem"), key: file("locked.pem"), password: "secret"),
            .pem(chain: pem, key: try Data(contentsOf: file("key.pem"))),
            .pem(chain: pem, key: try Data(contentsOf: file("locked.pem")), password: "secret"),
            .pkcs12(try Data(contentsOf: file("client.p12")), password: "secret"),
        ]
        for url in [Interop.mutual, Interop.mutualOfOpenSSL].compactMap(\.self) {
            for certificate in certificates {
                var options = HTTPTransportConfiguration()
                options.certificateAuthorities = Interop.authority
                options.clientCertificate = certificate
                let reply = try await SystemTransport(options).send(HTTPCall(url: url))
                #expect(reply.status == 200)
                let name = String(decoding: reply.body, as: UTF8.self).replacing(" ", with: "")
                #expect(name.contains("CN=client"), "\(url), \(certificate)")
            }
        }
    }

    @Test(.enabled(if: Interop.mutual != nil))
    func `WR-10 a wrong certificate, key or password is a security error, not a lost connection`() async throws {
        let folder = try #require(Interop.authority?.deletingLastPathComponent())
        func file(_ name: String) -> URL { folder.appending(component: name) }
        let unreadable: [HTTPTransportConfiguration.ClientCertificate] = [
            .files(chain: file("client.pem"), key: file("locked.pem"), password: "wrong"),
            .files(chain: file("client.pem"), key: file("locked.pem")),
            .files(chain: file("missing.pem"), key: file("key.pem")),
            .files(chain: file("client.pem"), key: file("ca.key")),
            .pem(chain: Data("none".utf8), key: Data()),
            .pkcs12(try Data(contentsOf: file("client.p12")), password: "wrong"),
        ]
        let refused: [HTTPTransportConfiguration.ClientCertificate?] = [
            nil, .files(chain: file("stranger.pem"), key: file("key.pem")),
        ]
        let attempts =
            unreadable.map { (Interop.mutual, $0) } + unreadable.map { (Interop.mutualOfOpenSSL, $0) }
            + refused.map { (Interop.mutualOfOpenSSL, $0) }
        for (url, certificate) in attempts {
            guard let url else { continue }
            var options = HTTPTransportConfiguration()
            options.certificateAuthorities = Interop.authority
            options.clientCertificate = certificate
            let error = await #expect(throws: HTTPError.self) {
                try await SystemTransport(options).send(HTTPCall(url: url))
            }
            guard case .transport(.insecureConnection, _)? = error else {
                Issue.record("\(url), \(certificate as Any): \(error as Any)")
                continue
            }
            #expect(error?.isConnectivityFailure == false)
            #expect(error.map { "\($0)" }?.contains("wrong") == false)
        }
        // Without a client certificate, nginx completes the handshake and responds with 400.
        var options = HTTPTransportConfiguration()
        options.certificateAuthorities = Interop.authority
        let url = try #require(Interop.mutual)
        #expect(try await SystemTransport(options).send(HTTPCall(url: url)).status == 400)
    }
}
#endif
