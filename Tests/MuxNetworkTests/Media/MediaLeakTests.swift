import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxNetwork

/// Leftovers of killed processes in the media folder, and state that must not outlive its file.
@Suite(.standard)
struct MediaLeakTests {
    /// The relative paths of all files and subfolders.
    private func everything(_ world: MediaWorld) -> [String] {
        (FileManager.default.enumerator(atPath: world.folder.path)?.allObjects as? [String] ?? []).sorted()
    }

    @Test func `PT-01 the next request removes the leftovers of a killed process`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1_000))
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)
            let media = file.deletingLastPathComponent()
            let removed = world.folder.appending(path: "removed-0123456789abcdef")
            try FileManager.default.createDirectory(at: removed, withIntermediateDirectories: true)
            let orphan = MediaName(world.url(7)).sidecar
            // A file of a former user, the temporary session file, and a sidecar without a partial file.
            for url in [
                removed.appending(path: "private.jpg"), world.folder.appending(path: "session.0123456789abcdef.tmp"),
                media.appending(path: orphan),
            ] { try Data("left".utf8).write(to: url) }

            _ = try await world.media().request(url: world.url)

            #expect(self.everything(world) == ["media", "media/\(file.lastPathComponent)", "session"])
        }
    }

    @Test func `PT-01 the number of digests of verified files is bounded`() {
        var state = MediaCore.State()
        for number in 0..<25_000 { state.verified["\(number)"] = "digest" }
        #expect(state.verified.count <= 10_000)
        #expect(state.verified["24999"] == "digest")
    }

    @Test func `PT-01 the removal of all files leaves only the session file`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1_000))
        try await world.run { (world) async throws in
            let media = world.media()
            _ = try await media.request(url: world.url)
            try await media.clear()
            #expect(self.everything(world) == ["media", "session"])
        }
    }

    @Test func `PT-01 the files of the previous process count against the limit`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1_000))
        try await world.run { (world) async throws in
            let limits = AsyncMedia.Limits { $0.maximumBytes = 3_500 }
            let first = world.media(limits: limits)
            for number in 0..<3 { _ = try await first.request(url: world.url(number)) }

            let next = world.media(limits: limits)
            _ = try await next.request(url: world.url(3))

            #expect(world.totalSize == 3_000)
            #expect(next.cachedValue(url: world.url(0)) == nil)
        }
    }

    @Test func `PT-01 a file that is used twice stays until both uses end`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1_000))
        try await world.run { (world) async throws in
            let media = world.media(limits: AsyncMedia.Limits { $0.maximumBytes = 1_500 })
            try await media.withFile(url: world.url) { file in
                try await media.withFile(url: world.url) { _ in }
                _ = try await media.request(url: world.url(1))
                #expect(try Data(contentsOf: file) == world.file.content)
            }
        }
    }

    @Test(arguments: [404, 410])
    func `PT-01 the part of a file that the server no longer has is removed`(status: Int) async throws {
        let file = LoopbackServer.File(size: 300_000)
        let count = Locked(0)
        let world = try MediaWorld(
            file,
            answer: { request in
                let number = count.withLock { count in
                    count += 1
                    return count
                }
                guard number == 1 else { return .text("gone", status: status) }
                return file.response(to: request, fault: .cut(after: 100_000))
            }
        )
        try await world.run { (world) async throws in
            await #expect(throws: HTTPError.self) { try await world.media().request(url: world.url) }
            #expect(count.withLock(\.self) == 2 && world.names == [])
        }
    }

    @Test(arguments: ["removed", "removed all", "removed by another program"])
    func `PT-01 a verified digest does not apply to the next file of the URL`(how: String) async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1_000))
        try await world.run { (world) async throws in
            let media = world.media()
            let digest = SHA256.text(SHA256.hash(world.file.content))
            let file = try await media.request(url: world.url, sha256: digest)
            switch how {
            case "removed": try await media.clear(url: world.url)
            case "removed all": try await media.clear()
            default: try FileManager.default.removeItem(at: file)
            }
            world.file.replace(size: 1_000, seed: 9, etag: "\"2\"")
            // This request names no digest.
            _ = try await media.request(url: world.url)

            await #expect(throws: MediaError.wrongDigest) { try await media.request(url: world.url, sha256: digest) }
            #expect(world.names == [])
            await media.expectAtRest()
        }
    }

    @Test func `PT-01 a server that sends little and hangs up gets only as many requests as attempts`()
        async throws
    {
        let file = LoopbackServer.File(size: 300_000)
        let count = Locked<Int64>(0)
        let world = try MediaWorld(
            file,
            answer: { request in
                let number = count.withLock { count in
                    count += 1
                    return count
                }
                return file.response(to: request, fault: .cut(after: number * 100))
            }
        )
        try await world.run { (world) async throws in
            await #expect(throws: HTTPError.self) { try await world.media().request(url: world.url) }
            #expect(count.withLock(\.self) == 3)
        }
    }
}
