import AsyncHTTPClient
import Foundation
import MuxConformance
import MuxNetwork
import MuxTesting
import NIOCore
import Testing

@testable import MuxAsyncHTTPClient

/// The transport over async-http-client.
@Suite(.timeLimit(.minutes(5)))
struct AsyncHTTPClientTransportTests {
    @Test func `TR-10 the transport passes the conformance tests for transports`() async throws {
        try await HTTPTransportConformance.run(within: .seconds(60), excluding: [.trailers, .fieldBytes]) { options in
            AsyncHTTPClientTransport(options: options)
        }
    }

    @Test func `OB-02 a lost route of an established connection does not count as an unsent request`() {
        for code in [EHOSTUNREACH, ENETUNREACH, ENETDOWN, ECONNRESET] {
            let error = IOError(errnoCode: code, reason: "connection reset (error set)")
            let failure = AsyncHTTPClientTransport.failure(error)
            guard case .closedWithoutResponse? = failure else {
                Issue.record("\(code): \(String(describing: failure))")
                continue
            }
        }
        let refused = AsyncHTTPClientTransport.failure(IOError(errnoCode: ECONNREFUSED, reason: "connect"))
        guard case .notConnected? = refused else {
            Issue.record("\(String(describing: refused))")
            return
        }
    }
}
