#if os(macOS) || os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Operations of each kind leave no resources, as measured in a separate process.
@Suite(.standard(minutes: 60), .serialized)
struct NetworkLeakTests {
    @Test(.ownThreads) func `PT-02 exchanges leave no descriptor, thread, connection or timer`() async {
        await #expect(processExitsWith: .success) {
            try await Leftovers.expectNone { count in
                let server = LoopbackServer(immediate: { request in
                    request.path == "/cut"
                        ? LoopbackServer.Response(steps: [.close]) : LoopbackServer.Response(status: 200)
                }) { _ in .text("") }
                let url = try server.start()
                // A hundred exchanges per transport. The thread, multi handle and connections end with the
                // transport.
                for _ in 0..<max(1, count / 100) {
                    let transport = SystemTransport()
                    for number in 0..<100 {
                        let path = number % 20 == 0 ? "cut" : "whole"
                        _ = try? await transport.send(HTTPCall(url: url.appending(path: path)))
                    }
                }
                #expect(server.requestCount >= count)
                await server.stop()
            }
        }
    }

    @Test(.ownThreads) func `PT-02 files of media leave no temporary file, descriptor or task`() async {
        await #expect(processExitsWith: .success) {
            let world = try MediaWorld()
            let held = Gate<Void>()
            let transport = ClosureTransport { call in
                if call.url.lastPathComponent.hasPrefix("-") { try await held.pass() }
                return HTTPReply(status: 200, headers: [:], body: Data("media".utf8))
            }
            try await Leftovers.expectNone(after: 4_000, in: world.folder) { count in
                let media = world.media(transport: transport, limits: .init { $0.maximumBytes = 100 })
                for number in 1...count {
                    _ = try await media.request(url: world.url(number % 50))
                    guard number % 20 == 0 else { continue }
                    let calls = held.callCount
                    let cancelled = Task { try await media.request(url: world.url(-number)) }
                    await held.waitForCall(calls + 1)
                    cancelled.cancel()
                    _ = await cancelled.result
                }
                await media.expectAtRest()
                try await media.clear()
                #expect(world.names == [])
            }
            await world.close()
        }
    }

    @Test(.ownThreads) func `PT-02 cached responses leave no temporary file, descriptor or task`() async {
        await #expect(processExitsWith: .success) {
            let folder = try CacheFolder()
            let world = CachingWorld()
            try await Leftovers.expectNone(in: folder.url) { count in
                var options = CachingTransport.Configuration()
                (options.cacheKey, options.memoryBodyLimit, options.directory) = ("HTTP", 2, folder.url)
                let (cache, _) = world.cache(options) { _ in
                    HTTPReply(status: 200, headers: ["Cache-Control": "max-age=10"], body: Data("body".utf8))
                }
                for number in 0..<count {
                    let url = CacheFolder.url("/\(number % 50)")
                    _ = try await cache.send(HTTPCall(url: url))
                    if number % 2 == 0 { await cache.clear(url) }
                }
                let left = await settledOccupancy { cache.occupancy }
                #expect(left == (0, 0, 0))
                await cache.clear()
                #expect(try folder.files().isEmpty)
            }
        }
    }
}
#endif
