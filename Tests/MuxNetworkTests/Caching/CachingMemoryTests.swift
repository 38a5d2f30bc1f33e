#if os(macOS) || os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// What a long answer needs of memory on its way through the cache, in a process of its own.
@Suite(.standard)
struct CachingMemoryTests {
    /// 64 MB, and 1 GB with `MUX_FUZZ=16` or more.
    @Test(.ownThreads) func `HC-06 a long body goes into the cache and out of it through less than 16 megabytes`() async
    {
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
            // What is needed once is not counted.
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

    /// A server in memory whose answers are as long as their paths say.
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

    /// Counts the bytes, and looks at the memory at every fourth megabyte.
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
