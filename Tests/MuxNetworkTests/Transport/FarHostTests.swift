#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Hosts that respond late.
///
/// A fast host on loopback does not reveal a wrong unit of a time limit.
@Suite(.standard(.waiting))
struct FarHostTests {
    /// A port with a full queue of connections, to which no other connection succeeds, as to a distant host.
    private final class FullQueue: Sendable {
        let port: UInt16
        private let descriptors: [Int32]

        init() throws {
            let (listener, port) = try Socket.listen(on: .ipv4, port: 0, buffers: nil)
            try #require(listen(listener, 0) == 0)
            var place = sockaddr_in()
            place.sin_family = sa_family_t(AF_INET)
            place.sin_port = port.bigEndian
            place.sin_addr = in_addr(s_addr: UInt32(0x7f00_0001).bigEndian)
            var descriptors = [listener]
            for _ in 0..<8 {
                let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
                descriptors.append(descriptor)
                _ = withUnsafePointer(to: place) { place in
                    place.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                        connect(descriptor, address, socklen_t(MemoryLayout<sockaddr_in>.size))
                    }
                }
            }
            (self.port, self.descriptors) = (port, descriptors)
        }

        deinit { for descriptor in self.descriptors { close(descriptor) } }
    }

    @Test func `PT-04 a slow host has the full time-out for a connection`() async throws {
        let host = try FullQueue()
        var options = HTTPTransportConfiguration()
        (options.usesProxies, options.timeout, options.deadline) = (false, .seconds(2), nil)
        let call = HTTPCall(url: try #require(URL(string: "http://127.0.0.1:\(host.port)/")))
        let start = ContinuousClock.now

        let error = await #expect(throws: HTTPError.self) { try await SystemTransport(options).send(call) }

        #expect(error?.isConnectivityFailure == true)
        let elapsed = start.duration(to: .now)
        #expect(elapsed > .seconds(1), "given up after \(elapsed)")
        withExtendedLifetime(host) {}
    }
}
#endif
