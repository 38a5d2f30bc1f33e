#if os(macOS) || os(Linux)
import Foundation
import MuxKit
import MuxTestSupport
import Testing

/// The shared repository, in a separate process for each test.
@Suite(.standard(endsAtRest: false))
struct SharedRepositoryTests {
    @Test(.ownThreads) func `CO-10 the shared repository can be set up once before its first use`() async {
        await #expect(processExitsWith: .success) {
            let folder = FileManager.default.temporaryDirectory.appending(component: "MuxKit-" + UUID().uuidString)
            defer { try? FileManager.default.removeItem(at: folder) }
            let mine = MuxRepository(directory: folder, byteLimit: 1_000_000)
            try MuxRepository.setUpShared(mine)
            let name = Multiplexer<String>(cacheKey: "Name") { "Alice" }

            _ = try await name.request()
            await MuxRepository.shared.saveAll()

            try #require(MuxRepository.shared === mine)
            try #require(FileManager.default.fileExists(atPath: folder.appending(component: "journal").path))
            #expect(throws: MuxError.sharedRepositoryInUse) {
                try MuxRepository.setUpShared(MuxRepository(store: MemoryStore()))
            }
            try #require(MuxRepository.shared === mine)
        }
    }

    @Test(.ownThreads) func `CO-10 a set-up after the first use is refused`() async {
        await #expect(processExitsWith: .success) {
            let first = MuxRepository.shared

            #expect(throws: MuxError.sharedRepositoryInUse) {
                try MuxRepository.setUpShared(MuxRepository(store: MemoryStore()))
            }

            try #require(MuxRepository.shared === first)
            try #require(MuxError.sharedRepositoryInUse.localizedDescription.hasPrefix("The shared repository"))
        }
    }
}
#endif
