import AsyncHTTPClient
import Foundation
import MuxAsyncHTTPClient
import MuxConformance
import MuxNetwork
import MuxTesting
import Testing

/// The transport over async-http-client.
@Suite(.timeLimit(.minutes(5)))
struct AsyncHTTPClientTransportTests {
    @Test func `TR-10 the transport passes the conformance tests for transports`() async throws {
        try await HTTPTransportConformance.run(within: .seconds(60), excluding: [.trailers, .fieldBytes]) { options in
            AsyncHTTPClientTransport(options: options)
        }
    }
}
