#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The fallback without libcurl, in separate processes whose standard error is read.
@Suite(.standard)
struct MissingLibraryCrashTests {
    private static let line = "MuxKit network: libcurl.so.4 cannot be used"

    @Test(.ownThreads) func `TR-09 without libcurl requests are sent with URLSession, which is reported once`()
        async throws
    {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            let library = CurlLibrary(named: "libcurl-of-another-machine.so.4")
            #expect(library == nil)
            let transports = [SystemTransport(library: library), SystemTransport(library: library)]
            let server = LoopbackServer { _ in .text("here") }
            let url = try server.start()
            for transport in transports {
                #expect(transport.base is URLSessionTransport)
                #expect(try await transport.send(HTTPCall(url: url)).body == Data("here".utf8))
            }
            await server.stop()
        }
        let text = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(text.ranges(of: Self.line).count == 1, "\(text)")
    }

    @Test(.ownThreads) func `TR-09 a library that is not libcurl is refused`() async {
        await #expect(processExitsWith: .success) {
            #expect(CurlLibrary(named: "libc.so.6") == nil)
        }
    }

    @Test(.ownThreads) func `TR-09 with libcurl nothing is reported`() async throws {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            #expect(CurlLibrary.system != nil)
            #expect(SystemTransport().base is CurlTransport)
        }
        let text = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(!text.contains(Self.line), "\(text)")
    }
}
#endif
