#if os(macOS) || os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The memory use of a long response on the way through the cache, measured in a separate process.
@Suite(.standard)
struct CachingMemoryTests {
    /// The body has 64 MB, or 1 GB with `MUX_FUZZ=16` or more.
    @Test(.ownThreads) func `HC-06 storing and reading a long body each use less than 16 megabytes of memory`() async {
        await #expect(processExitsWith: .success) {
            let size = FuzzRun().factor >= 16 ? 1 << 30 : 64 << 20
            let folder = try CacheFolder()
            var options = CachingTransport.Configuration()
            options.cacheKey = "HTTP"
            options.directory = folder.url
            (options.diskLimit, options.bodyLimit) = (2 * size, size)
            let cache = CachingTransport(
                Self.longAnswers,
                options: options,
                repository: MuxRepository(store: MemoryStore())
            )
            // Memory that is allocated once is not counted.
            _ = try await cache.stream(HTTPCall(url: CacheFolder.url("/1000000")), into: CountingSink())
            let before = ProcessMemory.resident
            for isHit in [false, true] {
                let sink = CountingSink()
                let reply = try await cache.stream(HTTPCall(url: CacheFolder.url("/\(size)")), into: sink)
                #expect(reply.headers.cacheStatuses.last?.isHit == isHit)
                #expect(sink.count == size)
                #expect(sink.most - before < 16 << 20, "\(sink.most - before) bytes")
            }
            #expect(before > 0)
        }
    }

    /// A server in memory that takes the length of a response from the path of the request.
    private static let longAnswers = ExchangeTransport { call, sink in
        let length = Int(call.url.lastPathComponent) ?? 0
        let headers: HTTPHeaders = [.cacheControl: "max-age=60", .contentLength: String(length)]
        try await sink.receive(head: HTTPReply(status: 200, headers: headers))
        let piece = Data(repeating: 7, count: 64 << 10)
        var rest = length
        while rest > 0 {
            try await sink.receive(rest >= piece.count ? piece : Data(piece.prefix(rest)))
            rest -= min(rest, piece.count)
        }
        return [:]
    }

    /// Counts bytes, and samples the resident memory every four megabytes.
    private final class CountingSink: HTTPSink {
        private let state = Locked((count: 0, most: Int64(0)))

        var count: Int { self.state.withLock { $0.count } }
        var most: Int64 { self.state.withLock { $0.most } }

        func receive(head: HTTPReply) {}

        func receive(_ bytes: Data) {
            self.state.withLock { state in
                let former = state.count >> 22
                state.count += bytes.count
                if state.count >> 22 != former { state.most = max(state.most, ProcessMemory.resident) }
            }
        }
    }
}
#endif
