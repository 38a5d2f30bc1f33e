import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Folders that a cache refuses for stored bodies.
@Suite(.standard)
struct BodyFolderRulesTests {
    /// A cache that stores bodies of more than ten bytes in files.
    private func cache(
        _ directory: URL?,
        _ repository: MuxRepository,
        _ fileSystem: any FileSystem = POSIXFileSystem(),
        key: String = "HTTP"
    ) -> (CachingTransport, ClosureTransport) {
        var options = CachingTransport.Configuration()
        options.cacheKey = key
        options.memoryBodyLimit = 10
        options.directory = directory
        let server = ClosureTransport { _ in
            let body = Data(String(repeating: "x", count: 100).utf8)
            return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60"], body: body)
        }
        return (CachingTransport(server, options: options, repository: repository, fileSystem: fileSystem), server)
    }

    private let call = HTTPCall(url: CacheFolder.url("/long"))

    @Test(arguments: UnusableURLs.texts)
    func `AC-04 a cache refuses a folder whose URL has no usable path and writes nothing`(text: String) async throws {
        let calls = RecordingFileSystem()
        let events = EventTally()
        let repository = MuxRepository(store: MemoryStore(), observer: events)
        let url = try #require(URL(string: text))
        let (cache, server) = self.cache(url, repository, calls)

        for _ in 0..<2 { #expect(try await cache.send(self.call).body.count == 100) }
        #expect(server.calls.count == 2, "a long body is not stored")
        await events.wait(for: .storageFailed)
        #expect(events.count(of: .storageFailed) == 1)
        let report = await cache.clear()
        #expect(report.failures.contains { $0 as? MuxStoreError == .unusableURL })
        #expect(calls.calls.isEmpty)
    }

    @Test(arguments: [0, 50, 99])
    func `PT-03 a body that a power cut has shortened is fetched again`(count: Int) async throws {
        let folder = try CacheFolder()
        let (cache, server) = self.cache(folder.url, MuxRepository(store: MemoryStore()))
        let body = Data(repeating: UInt8(ascii: "x"), count: 100)
        #expect(try await cache.send(self.call).body == body)
        let file = try #require(try folder.files().first)
        #expect(try Data(contentsOf: file) == body)

        // Bodies are not synchronized, because a body can be fetched again.
        try Data(count: count).write(to: file)

        for _ in 0..<2 { #expect(try await cache.send(self.call).body == body) }
        #expect(server.calls.count == 2)
    }

    @Test(arguments: ["/own", "/own/bodies-0"], [true, false])
    func `AC-03 a cache refuses a folder that another user may have written`(end: String, isOwned: Bool) async throws {
        let folder = try CacheFolder()
        let own = folder.url.appending(component: "own")
        let (first, _) = self.cache(own, MuxRepository(store: MemoryStore()))
        _ = try await first.send(self.call)
        let before = try folder.files().map(\.path).sorted()
        #expect(before.count == 1)

        let events = EventTally()
        let files = RecordingFileSystem(sees: { path, status in
            guard path.hasSuffix(end) else { return status }
            var status = status
            if isOwned { status.owner = 4242 } else { status.mode |= 0o020 }
            return status
        })
        let (cache, server) = self.cache(own, MuxRepository(store: MemoryStore(), observer: events), files)
        for _ in 0..<2 { #expect(try await cache.send(self.call).body.count == 100) }
        #expect(server.calls.count == 2, "a long body is not stored")
        await events.wait(for: .storageFailed)
        #expect(try folder.files().map(\.path).sorted() == before)
    }

    @Test func `DS-03 a cache works where folders cannot be synchronized`() async throws {
        let folder = try CacheFolder()
        let files = RecordingFileSystem { _, call in call.operation == .synchronizeFolder ? .refuse(EINVAL) : nil }
        let own = folder.url.appending(path: "new/own")
        let (cache, server) = self.cache(own, MuxRepository(store: MemoryStore()), files)
        for _ in 0..<2 { #expect(try await cache.send(self.call).body.count == 100) }
        #expect(server.calls.count == 1)
        #expect(await cache.clear().failures.isEmpty)
    }

    @Test func `AC-02 a folder of bodies of another cache is neither used nor removed`() async throws {
        let folder = try CacheFolder()
        let repository = MuxRepository(directory: folder.url.appending(component: "alice"))
        let paths = ["a/b", "a_b"].map { repository.folder(.bodies, for: $0).path }
        defer { for path in paths { try? FileManager.default.removeItem(atPath: path) } }
        let (first, _) = self.cache(nil, repository, key: "a/b")
        _ = try await first.send(self.call)
        try FileManager.default.copyItem(atPath: paths[0], toPath: paths[1])
        let before = try #require(FileManager.default.enumerator(atPath: paths[1])?.allObjects as? [String])
        #expect(before.contains("owner") && before.contains { $0.hasPrefix("bodies-0/") })

        let (second, server) = self.cache(nil, repository, key: "a_b")
        for _ in 0..<2 { #expect(try await second.send(self.call).body.count == 100) }
        #expect(server.calls.count == 2, "a long body is not stored")
        #expect(await second.clear().failures.contains { $0 as? MuxStoreError == .otherName })

        let after = try #require(FileManager.default.enumerator(atPath: paths[1])?.allObjects as? [String])
        #expect(after.sorted() == before.sorted())
        #expect(await first.clear().failures.isEmpty)
        #expect(!FileManager.default.fileExists(atPath: paths[0] + "/bodies-0"))
    }
}
