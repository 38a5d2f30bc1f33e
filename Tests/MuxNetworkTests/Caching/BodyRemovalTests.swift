import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The system removes the folder of long bodies while the process runs, before each file system call in turn.
@Suite(.standard)
struct BodyRemovalTests {
    private static let body = Data((0..<600_000).map { UInt8(truncatingIfNeeded: $0 &* 31 / 7) })

    /// A cache of long bodies in `folder`.
    private static func cache(
        _ world: CachingWorld,
        _ folder: CacheFolder,
        _ fileSystem: any FileSystem = POSIXFileSystem(),
        isAnnounced: Bool = true
    ) -> (CachingTransport, ClosureTransport) {
        var options = CachingTransport.Configuration()
        (options.cacheKey, options.directory, options.memoryBodyLimit) = ("Bodies", folder.url, 1000)
        let server = ClosureTransport { _ in
            var headers: HTTPHeaders = ["Cache-Control": "max-age=1000"]
            if isAnnounced { headers["Content-Length"] = String(Self.body.count) }
            return HTTPReply(status: 200, headers: headers, body: Self.body)
        }
        let cache = CachingTransport(server, options: options, repository: world.repository, fileSystem: fileSystem)
        return (cache, server)
    }

    /// The removed items: the root folder, the folders of sessions, or the files in the session folders.
    enum Target: CaseIterable, Sendable {
        case root, folders, files

        func remove(_ folder: URL) {
            let manager = FileManager.default
            let folders = (try? manager.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)) ?? []
            let gone: [URL] =
                switch self {
                case .root: [folder]
                case .folders: folders
                case .files:
                    folders.flatMap {
                        (try? manager.contentsOfDirectory(at: $0, includingPropertiesForKeys: nil)) ?? []
                    }
                }
            for url in gone { try? manager.removeItem(at: url) }
        }
    }

    private static func isStored(_ reply: HTTPReply) -> Bool { reply.headers.cacheStatuses.last?.isStored ?? false }
    private static func isHit(_ reply: HTTPReply) -> Bool { reply.headers.cacheStatuses.last?.isHit ?? false }

    @Test(arguments: Target.allCases, [true, false])
    func `WR-04 long bodies are stored although their folder is removed at any call`(
        target: Target,
        isAnnounced: Bool
    ) async throws {
        var number = 1
        var isOver = false
        while !isOver {
            let (world, folder) = (CachingWorld(), try CacheFolder())
            let moment = Locked(number)
            let url = folder.url
            let fileSystem = RecordingFileSystem { count, _ in
                guard count == moment.withLock({ $0 }) else { return nil }
                return .perform { target.remove(url) }
            }
            let (cache, _) = Self.cache(world, folder, fileSystem, isAnnounced: isAnnounced)
            let call = HTTPCall(url: world.url)

            let first = try await cache.send(call)
            #expect(first.body == Self.body)
            if moment.withLock({ $0 <= fileSystem.calls.count }) {
                #expect(try folder.files().count == (Self.isStored(first) ? 1 : 0), "removed before call \(number)")
            }
            let second = try await cache.send(call)
            #expect(second.body == Self.body)
            isOver = fileSystem.calls.count < number
            moment.withLock { $0 = .max }

            _ = try await cache.send(call)
            let last = try await cache.send(call)
            #expect(last.body == Self.body)
            #expect(Self.isHit(last), "removed before call \(number)")
            number += 1
        }
        #expect(number > 5)
    }

    @Test(arguments: Target.allCases)
    func `WR-04 long bodies are stored after the folder was removed`(target: Target) async throws {
        let (world, folder) = (CachingWorld(), try CacheFolder())
        let (cache, server) = Self.cache(world, folder)
        let call = HTTPCall(url: world.url)
        #expect(Self.isStored(try await cache.send(call)))
        target.remove(folder.url)

        let again = try await cache.send(call)
        let hit = try await cache.send(call)

        #expect(Self.isStored(again) && Self.isHit(hit))
        #expect(hit.body == Self.body && server.calls.count == 2)
    }

    @Test func `WR-04 the head says that a body is not stored if its file cannot be written`() async throws {
        for isAnnounced in [true, false] {
            let (world, folder) = (CachingWorld(), try CacheFolder())
            let fileSystem = RecordingFileSystem { _, call in
                call.operation == (isAnnounced ? .open : .write) ? .refuse(ENOSPC) : nil
            }
            let (cache, server) = Self.cache(world, folder, fileSystem, isAnnounced: isAnnounced)

            let reply = try await cache.send(HTTPCall(url: world.url))

            #expect(reply.body == Self.body)
            #expect(!Self.isStored(reply))
            #expect(try folder.files().isEmpty)
            #expect(try await cache.send(HTTPCall(url: world.url)).body == Self.body)
            #expect(server.calls.count == 2)
        }
    }

    @Test(arguments: Target.allCases)
    func `WR-04 a sign-out succeeds although the folder is removed at any call`(target: Target) async throws {
        var number = 1
        var isOver = false
        while !isOver {
            let (world, folder) = (CachingWorld(), try CacheFolder())
            let moment = Locked(Int.max)
            let url = folder.url
            let fileSystem = RecordingFileSystem { count, _ in
                guard count == moment.withLock({ $0 }) else { return nil }
                return .perform { target.remove(url) }
            }
            let (cache, _) = Self.cache(world, folder, fileSystem)
            let call = HTTPCall(url: world.url)
            _ = try await cache.send(call)
            fileSystem.restart()
            moment.withLock { $0 = number }

            let report = await world.repository.clearAll()

            #expect(report.failures.isEmpty, "removed before call \(number)")
            isOver = fileSystem.calls.count < number
            moment.withLock { $0 = .max }
            #expect(try folder.files().isEmpty)
            _ = try await cache.send(call)
            #expect(Self.isHit(try await cache.send(call)))
            number += 1
        }
        #expect(number > 2)
    }
}
