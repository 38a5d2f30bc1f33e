#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import Testing

/// TLS, HTTP/2 and proxies against nginx.
@Suite(
    .enabled(if: Interop.nginx != nil, "Tests/Interop/run starts the server that this needs"),
    .timeLimit(.minutes(15)),
    .takesTurns,
    .serialized
)
struct TransportInteropTests {
    /// A transport that trusts the authority of the test's servers.
    private func trusting() -> SystemTransport {
        var options = HTTPTransportOptions()
        options.certificateAuthorities = Interop.authority
        return SystemTransport(options)
    }

    @Test(.enabled(if: Interop.tls != nil))
    func `TR-06 a given authority is trusted, and HTTP slash 2 is spoken`() async throws {
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
    func `TR-06 a server that cannot be trusted is told apart, and is no lost connection`() async throws {
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

    @Test func `TR-06 TLS to a server without it is a failure of TLS`() async throws {
        let plain = try #require(Interop.nginx)
        let url = try #require(URL(string: "https://127.0.0.1:\(plain.port ?? 0)/"))

        let error = await #expect(throws: HTTPError.self) { try await SystemTransport().send(HTTPCall(url: url)) }

        guard case .transport(.insecureConnection, _)? = error else {
            Issue.record("\(error as Any)")
            return
        }
    }

    @Test(.ownThreads) func `TR-06 a proxy of the environment is used unless that is switched off`() async {
        await #expect(processExitsWith: .success) {
            guard let server = Interop.nginx, let proxy = Interop.proxy else { exit(1) }
            setenv("http_proxy", proxy.absoluteString, 1)
            var options = HTTPTransportOptions()
            let through = try await SystemTransport(options).send(HTTPCall(url: server.appending(path: "echo")))
            options.usesProxies = false
            let direct = try await SystemTransport(options).send(HTTPCall(url: server.appending(path: "echo")))
            guard through.status == 200, through.headers["X-Proxy"] == "yes" else { exit(2) }
            guard direct.status == 200, direct.headers["X-Proxy"] == nil else { exit(3) }
        }
    }
}
#endif
