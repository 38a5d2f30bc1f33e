#if os(macOS) || os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaMemoryTests {
    @Test(.ownThreads, .onlyInWholeRuns) func `AM-02 a download of a gigabyte uses less than 32 megabytes of memory`()
        async throws
    {
        // In a separate process, because the memory of concurrent tests would count too.
        await #expect(processExitsWith: .success) {
            let size: Int64 = 1 << 30
            let world = try MediaWorld(LoopbackServer.File(size: size, seed: 0))
            let media = world.media()
            let small = try MediaWorld(LoopbackServer.File(size: 1 << 20, seed: 0))
            _ = try await small.media().request(url: small.url)
            let before = ProcessMemory.resident
            let watcher = Task {
                var most = before
                var next: Int64 = 0
                for try await progress in media.progress(of: world.url) where progress.received >= next {
                    next = progress.received + 16 << 20
                    most = max(most, ProcessMemory.resident)
                }
                return most
            }

            let file = try await media.request(url: world.url)

            let most = max(try await watcher.value, ProcessMemory.resident)
            let attributes = try FileManager.default.attributesOfItem(atPath: file.path)
            #expect((attributes[.size] as? NSNumber)?.int64Value == size)
            #expect(before > 0)
            #expect(most - before < 32 << 20, "\((most - before) >> 20) MB more")
            await world.close()
            await small.close()
        }
    }
}
#endif
