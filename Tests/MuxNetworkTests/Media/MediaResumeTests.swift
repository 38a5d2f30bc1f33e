import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaResumeTests {
    @Test func `AM-04 after cuts at a hundred offsets the file is right and no byte is fetched twice`() async throws {
        var random = SplitMix64(state: 4)
        let size: Int64 = 2_000_000
        // The cuts are at least 9,001 bytes apart, which is more than the 4,096 bytes that count as progress.
        let cuts = (1...100).map { Int64($0) * 19_000 + Int64.random(in: 0..<10_000, using: &random) }
        var faults: [LoopbackServer.File.Fault] = []
        var start: Int64 = 0
        for cut in cuts {
            faults.append(.cut(after: cut - start))
            start = cut
        }
        let world = try MediaWorld(LoopbackServer.File(size: size), faults: faults)
        try await world.run { (world) async throws in
            let media = world.media()

            let file = try await media.request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0] + cuts)
            #expect(world.file.bytesSent == size)
            #expect(world.names == [file.lastPathComponent])
            await media.expectAtRest()
        }
    }
}
