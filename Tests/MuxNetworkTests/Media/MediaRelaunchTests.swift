#if compiler(>=6.3) && (os(macOS) || os(Linux))
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaRelaunchTests {
    /// Kills the process in the write `number` to a partial file, after `bytes` bytes of the write.
    private static func killer(_ number: Int, _ bytes: Int) -> RecordingFileSystem {
        let writes = Locked(0)
        return RecordingFileSystem { _, call in
            guard call.operation == .write, call.name.hasPrefix("partial-") else { return nil }
            let count = writes.withLock { count in
                count += 1
                return count
            }
            return count == number ? .performInWrite(after: bytes) { raise(SIGKILL) } : nil
        }
    }

    /// The work of a process that is killed during the fetch; the repository's store is next to `folder`.
    private static func fetch(
        _ url: String,
        _ folder: String,
        _ fileSystem: any FileSystem,
        durability: MuxDurability = .relaxed
    ) async throws -> URL {
        let transport = SystemTransport()
        let media = AsyncMedia(
            directory: URL(filePath: folder, directoryHint: .isDirectory),
            limits: .init(),
            durability: durability,
            repository: MuxRepository(directory: URL(filePath: folder + ".store", directoryHint: .isDirectory)),
            fileSystem: fileSystem
        ) { call, sink in
            _ = try await transport.stream(call, into: sink)
        }
        return try await media.request(url: try #require(URL(string: url)))
    }

    @Test(.ownThreads, .onlyInWholeRuns) func `AM-05 after ten kills the file is right and no byte is fetched twice`()
        async throws
    {
        var random = SplitMix64(state: 5)
        let world = try MediaWorld(LoopbackServer.File(size: 12_000_000))
        try await world.run { (world) async throws in
            let (url, folder) = (world.url.absoluteString, world.folder.path)
            var sizes: [Int64] = [0]
            for _ in 0..<10 {
                // A write has up to 320 KB.
                let number = Int.random(in: 1...3, using: &random)
                let bytes = Int.random(in: 1...3000, using: &random)
                await #expect(processExitsWith: .signal(SIGKILL)) {
                    [url = url as String, folder = folder as String, number = number as Int, bytes = bytes as Int] in
                    _ = try await Self.fetch(url, folder, Self.killer(number, bytes))
                }
                sizes.append(world.partialSize)
            }

            let file = try await Self.fetch(url, folder, POSIXFileSystem())

            #expect(sizes == sizes.sorted() && Set(sizes).count == 11, "each process came further")
            #expect(world.file.starts == sizes, "each began where the one before was killed")
            #expect(SHA256.hash(try Data(contentsOf: file)) == SHA256.hash(world.file.content))
            #expect(world.names == [file.lastPathComponent])
        }
    }

    @Test(.ownThreads) func `AM-05 a file that changes between two processes is fetched again from the start`()
        async throws
    {
        let world = try MediaWorld(LoopbackServer.File(size: 1_000_000))
        try await world.run { (world) async throws in
            let (url, folder) = (world.url.absoluteString, world.folder.path)
            await #expect(processExitsWith: .signal(SIGKILL)) {
                [url = url as String, folder = folder as String] in
                _ = try await Self.fetch(url, folder, Self.killer(1, 100))
            }
            #expect(world.partialSize > 0)
            world.file.replace(size: 900_000, seed: 9, etag: "\"2\"")

            let file = try await Self.fetch(url, folder, POSIXFileSystem())

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 0])
            #expect(world.names == [file.lastPathComponent])
        }
    }

    @Test(.ownThreads) func `AM-05 a kill between the last byte and the rename causes no second fetch`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 100_000))
        try await world.run { (world) async throws in
            let (url, folder) = (world.url.absoluteString, world.folder.path)
            await #expect(processExitsWith: .signal(SIGKILL)) {
                [url = url as String, folder = folder as String] in
                let fileSystem = RecordingFileSystem { _, call in
                    // The complete file is named by the URL's hash. Sidecar files are renamed too.
                    call.operation == .rename && call.name.hasSuffix(".jpg") && !call.name.hasPrefix("state-")
                        ? .perform { raise(SIGKILL) } : nil
                }
                _ = try await Self.fetch(url, folder, fileSystem)
            }
            #expect(world.partialSize == 100_000)

            let file = try await Self.fetch(url, folder, POSIXFileSystem())

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.server.requestCount == 1)
            #expect(world.names == [file.lastPathComponent])
        }
    }

    @Test func `PT-03 a download is synchronized before its rename, and its folder afterwards`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 40_000))
        try await world.run { (world) async throws in
            let files = RecordingFileSystem()
            let (url, folder) = (world.url.absoluteString, world.folder.path)
            let file = try await Self.fetch(url, folder, files, durability: .full)

            let name = file.lastPathComponent
            let calls = files.calls
            let rename = try #require(calls.lastIndex { $0.operation == .rename && $0.name.hasPrefix(name.prefix(16)) })
            let before = calls[..<rename].map(\.operation)
            let written = try #require(before.lastIndex(of: .write))
            #expect(before.lastIndex(of: .synchronize).map { $0 > written } ?? false)
            #expect(calls[rename...].contains { $0.operation == .synchronizeFolder })
            #expect(!calls[rename...].contains { $0.operation == .write && $0.name.hasPrefix(name.prefix(16)) })
        }
    }

    @Test func `PT-03 the truncation of a changed file is synchronized before its new sidecar`() async throws {
        let file = LoopbackServer.File(size: 40_000)
        let world = try MediaWorld(file, faults: [.cut(after: 10_000)]) { request in
            if request.header("Range") != nil { file.replace(size: 30_000, seed: 9, etag: "\"2\"") }
            return nil
        }
        try await world.run { (world) async throws in
            let files = RecordingFileSystem()
            _ = try await Self.fetch(world.url.absoluteString, world.folder.path, files, durability: .full)

            let (calls, name) = (files.calls, MediaName(world.url))
            let truncation = try #require(calls.firstIndex(of: FileCall(.truncate, name.partial)))
            let later = calls[truncation...]
            let sidecar = try #require(later.firstIndex(of: FileCall(.rename, name.sidecar)))
            #expect(later[..<sidecar].contains(FileCall(.synchronize, name.partial)))
        }
    }

    @Test func `AM-05 after a failure of any call to the disk the next process gets the right file`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 40_000))
        try await world.run { (world) async throws in
            let url = world.url.absoluteString
            let clean = RecordingFileSystem()
            _ = try await Self.fetch(url, world.folder.path, clean)
            let calls = clean.calls.count
            #expect(calls > 10)
            // TR-08: a file system may start to write a truncated file to the disk when the file is closed.
            #expect(!clean.calls.contains { $0.operation == .truncate })

            for number in 1...calls {
                for bytes in [0, 1, 500] {
                    let folder = world.folder.appending(component: "\(number)-\(bytes)").path
                    let fileSystem = RecordingFileSystem { count, _ in
                        count == number ? .fail(after: bytes, POSIXFileSystem.ioError) : nil
                    }
                    _ = try? await Self.fetch(url, folder, fileSystem)

                    let file = try await Self.fetch(url, folder, POSIXFileSystem())

                    #expect(
                        try Data(contentsOf: file) == world.file.content,
                        "call \(number), \(clean.calls[number - 1])"
                    )
                    #expect(
                        try FileManager.default.contentsOfDirectory(atPath: folder).sorted() == ["media", "session"]
                            && FileManager.default.contentsOfDirectory(atPath: folder + "/media").count == 1,
                        "call \(number), \(clean.calls[number - 1])"
                    )
                }
            }
        }
    }
}
#endif
