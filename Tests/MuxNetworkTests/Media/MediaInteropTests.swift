import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Downloads from nginx, which serves `film.mp4` at full speed, and slowly under `slow/`.
@Suite(.standard, .enabled(if: Interop.nginx != nil, "Tests/Interop/media starts the server that this needs"))
struct MediaInteropTests {
    private let store = MemoryStore()

    private func media(_ folder: URL) -> AsyncMedia {
        AsyncMedia(
            directory: folder,
            budget: nil,
            durability: .relaxed,
            repository: MuxRepository(store: self.store)
        )
    }

    @Test func `AM-04 AM-05 a download from nginx resumes, and starts again after the file has changed`()
        async throws
    {
        let url = try #require(Interop.nginx)
        let file = URL(filePath: try #require(Interop.nginxFolder)).appending(path: "film.mp4")
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxMedia-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let film = url.appending(path: "slow/film.mp4")

        // The download is cancelled twice. Each `AsyncMedia` acts on the folder like a new process.
        var received: Int64 = 0
        for _ in 0..<2 {
            let media = self.media(folder)
            let request = Task { try await media.request(url: film) }
            for try await progress in media.progress(of: film) where progress.received > received + 300_000 {
                received = progress.received
                break
            }
            request.cancel()
            await #expect(throws: CancellationError.self) { try await request.value }
        }
        let media = self.media(folder)
        var watcher = media.progress(of: film).makeAsyncIterator()
        #expect(try await watcher.next()?.received ?? 0 >= received)
        let local = try await media.request(url: film)
        #expect(try Data(contentsOf: local) == Data(contentsOf: file))

        // New content: nginx derives the entity tag from the modification time and the length.
        let other = film.appending(queryItems: [URLQueryItem(name: "again", value: nil)])
        let request = Task { try await media.request(url: other) }
        for try await progress in media.progress(of: other) where progress.received > 300_000 { break }
        request.cancel()
        _ = await request.result
        try Data(repeating: 7, count: 4_000_000).write(to: file)
        #expect(try Data(contentsOf: await media.request(url: other)) == Data(contentsOf: file))
        #expect(try await media.request(url: url.appending(path: "film.mp4")).pathExtension == "mp4")
        await #expect(throws: HTTPError.self) { try await media.request(url: url.appending(path: "missing.mp4")) }
    }
}
