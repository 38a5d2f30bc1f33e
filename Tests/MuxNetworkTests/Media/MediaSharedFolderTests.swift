import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Two processes that fetch the same file into the same folder.
@Suite(.standard)
struct MediaSharedFolderTests {
    /// A file system that runs `deed`, the other process's change, once: before the first `operation` on a
    /// partial file.
    private static func fileSystem(
        _ operation: MuxStoreError.FileOperation,
        _ deed: @escaping @Sendable () -> Void
    ) -> RecordingFileSystem {
        let isDone = Locked(false)
        return RecordingFileSystem { _, call in
            guard call.operation == operation, call.name.hasPrefix("partial-") else { return nil }
            let isFirst = isDone.withLock { isDone in
                defer { isDone = true }
                return !isDone
            }
            return isFirst ? .perform(deed) : nil
        }
    }

    /// The locations of the partial file and of the complete file.
    private static func paths(_ world: MediaWorld) -> (partial: URL, file: URL) {
        let folder = world.folder.appending(path: "media")
        let name = MediaName(world.url)
        return (folder.appending(path: name.partial), folder.appending(path: name.file))
    }

    /// Requests the file, and repeats the request once if another process fetches the file.
    private static func request(_ media: AsyncMedia, _ url: URL) async throws -> URL {
        do {
            return try await media.request(url: url)
        } catch MediaError.fetchedElsewhere {
            return try await media.request(url: url)
        }
    }

    @Test func `AM-06 a partial file that another process recreated is not taken for the fetched file`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let (partial, _) = Self.paths(world)
            let fileSystem = Self.fileSystem(.write) {
                try? FileManager.default.removeItem(at: partial)
                _ = FileManager.default.createFile(atPath: partial.path, contents: Data())
            }

            let file = try await Self.request(world.media(fileSystem: fileSystem), world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 0])
        }
    }

    @Test func `AM-06 a file that another process has just completed is not fetched again`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let media = world.media()
            _ = await media.loadCachedValue(url: world.url)  // opens the folder
            let (partial, file) = Self.paths(world)
            try world.file.content.write(to: partial)
            let fileSystem = Self.fileSystem(.lock) { try? FileManager.default.moveItem(at: partial, to: file) }

            let found = try await Self.request(world.media(fileSystem: fileSystem), world.url)

            #expect(try Data(contentsOf: found) == world.file.content)
            #expect(world.file.starts == [], "it is there")
        }
    }

    @Test func `AM-05 the partial file of another process's running download is not removed`() async throws {
        let world = try MediaWorld(answer: { _ in .init(status: 404) })
        try await world.run { (world) async throws in
            let (partial, _) = Self.paths(world)
            let others = Locked<OpenFile?>(nil)
            let isOver = Locked(false)
            let fileSystem = RecordingFileSystem { _, call in
                if call.operation == .unlock { isOver.withLock { $0 = true } }
                guard call.operation == .open, isOver.withLock({ $0 }) else { return nil }
                return .perform {
                    let system = POSIXFileSystem()
                    guard let file = try? system.openFile(partial.path, for: .append),
                        (try? system.tryLock(file)) == true
                    else { return }
                    others.withLock { $0 = file }
                }
            }

            await #expect(throws: HTTPError.self) {
                try await world.media(fileSystem: fileSystem).request(url: world.url)
            }

            #expect(others.withLock { $0 } != nil)
            #expect(FileManager.default.fileExists(atPath: partial.path))
        }
    }
}
