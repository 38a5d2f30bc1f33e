import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Media folders that are refused.
@Suite(.standard)
struct MediaFolderRulesTests {
    /// Media whose downloads always receive the same bytes.
    private func media(
        _ directory: URL?,
        _ repository: MuxRepository,
        _ fileSystem: any FileSystem = POSIXFileSystem()
    ) -> AsyncMedia {
        AsyncMedia(
            directory: directory,
            limits: .init(),
            durability: .relaxed,
            repository: repository,
            fileSystem: fileSystem
        ) { call, sink in
            _ = try await ClosureTransport { _ in HTTPReply(status: 200, body: Data("picture".utf8)) }
                .exchange(call, into: sink)
        }
    }

    @Test(arguments: UnusableURLs.texts)
    func `AC-04 media refuse a folder whose URL has no usable path and write nothing`(text: String) async throws {
        let calls = RecordingFileSystem()
        let events = EventTally()
        let repository = MuxRepository(store: MemoryStore(), observer: events)
        let directory = try #require(URL(string: text))
        let media = self.media(directory, repository, calls)

        let url = CacheFolder.url("/picture.jpg")
        await #expect(throws: MediaError.disk(.unusableURL)) { try await media.request(url: url) }
        await events.wait(for: .storageFailed)
        #expect(events.count(of: .storageFailed) == 1)
        #expect(media.cachedValue(url: url) == nil)
        #expect(await !repository.clearAll().isComplete)
        #expect(calls.calls.isEmpty)
        await media.expectAtRest()
    }

    @Test func `DS-03 media work on a file system without folder synchronization and report this once`() async throws {
        let folder = try CacheFolder()
        let files = RecordingFileSystem { _, call in call.operation == .synchronizeFolder ? .refuse(EINVAL) : nil }
        let events = EventTally()
        let repository = MuxRepository(store: MemoryStore(), observer: events)
        let media = AsyncMedia(
            directory: folder.url.appending(path: "new/media"),
            limits: .init(),
            durability: .full,
            repository: repository,
            fileSystem: files
        ) { call, sink in
            _ = try await ClosureTransport { _ in HTTPReply(status: 200, body: Data("picture".utf8)) }
                .exchange(call, into: sink)
        }
        for name in ["/a.jpg", "/b.jpg"] {
            let file = try await media.request(url: CacheFolder.url(name))
            #expect(try Data(contentsOf: file) == Data("picture".utf8))
        }
        await events.wait(for: .storageFailed)
        #expect(events.count(of: .storageFailed) == 1)
        #expect(await repository.clearAll().isComplete)
        #expect(files.calls.contains { $0.operation == .synchronizeFolder })
    }

    /// A file system in which another user owns the paths with the suffix `end`, or may write to these paths.
    private func seen(_ end: String, isOwned: Bool) -> RecordingFileSystem {
        RecordingFileSystem(sees: { path, status in
            guard path.hasSuffix(end) else { return status }
            var status = status
            if isOwned { status.owner = 4242 } else { status.mode |= 0o002 }
            return status
        })
    }

    @Test(arguments: ["/own", "/own/media", "/own/session", ".jpg"], [true, false])
    func `AC-03 media refuse a folder or file that another user may have written`(
        end: String,
        isOwned: Bool
    ) async throws {
        let folder = try CacheFolder()
        let own = folder.url.appending(component: "own")
        let url = CacheFolder.url("/picture.jpg")
        let events = EventTally()
        let store = MemoryStore()
        _ = try await self.media(own, MuxRepository(store: store)).request(url: url)
        let before = try folder.files().map(\.path).sorted()

        let repository = MuxRepository(store: store, observer: events)
        let media = self.media(own, repository, self.seen(end, isOwned: isOwned))
        await #expect(throws: MediaError.disk(.notPrivate)) { try await media.request(url: url) }
        #expect(media.cachedValue(url: url) == nil)
        await events.wait(for: .storageFailed)
        #expect(events.count(of: .storageFailed) == 1)
        #expect(try folder.files().map(\.path).sorted() == before)
    }

    @Test func `AC-04 media of an account with a refused folder use no folder of another account`() async throws {
        let calls = RecordingFileSystem()
        let directory = try #require(URL(string: "https://host/account"))
        let account = MuxRepository(directory: directory)
        let media = self.media(nil, account, calls)
        await #expect(throws: MuxStoreError.unusableURL) {
            try await media.request(url: CacheFolder.url("/picture.jpg"))
        }
        #expect(calls.calls.isEmpty)
    }

    @Test func `AC-02 the media folder of another account is neither used nor removed`() async throws {
        let folder = try CacheFolder()
        let accounts = ["alice", "mallory"].map { MuxRepository(directory: folder.url.appending(component: $0)) }
        defer {
            for account in accounts { try? FileManager.default.removeItem(atPath: account.folder(.media).path) }
        }
        let url = CacheFolder.url("/picture.jpg")
        let alice = self.media(nil, accounts[0])
        let file = try await alice.request(url: url)
        let paths = accounts.map { $0.folder(.media).path }
        #expect(file.path.hasPrefix(paths[0] + "/media/"))
        // Simulates equal digests of both accounts.
        try FileManager.default.copyItem(atPath: paths[0], toPath: paths[1])

        let mallory = self.media(nil, accounts[1])
        await #expect(throws: MediaError.disk(.otherName)) { try await mallory.request(url: url) }
        let report = await accounts[1].clearAll()
        #expect(report.failures.contains { $0 as? MediaError == .disk(.otherName) })
        let copy = URL(filePath: paths[1]).appending(path: "media/" + file.lastPathComponent)
        #expect(try Data(contentsOf: copy) == Data("picture".utf8))

        #expect(await accounts[0].clearAll().isComplete)
        #expect(!FileManager.default.fileExists(atPath: file.path))
    }
}
