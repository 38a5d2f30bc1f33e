import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The system removes a media folder or file while the process runs, before each call to the file system.
@Suite(.standard)
struct MediaRemovalTests {
    /// The removed folder or file.
    enum Target: String, CaseIterable, Sendable {
        case root, folder, session, partial, sidecar, file

        func url(_ world: MediaWorld) -> URL {
            let (name, folder) = (MediaName(world.url), world.folder.appending(path: "media"))
            return switch self {
            case .root: world.folder
            case .folder: folder
            case .session: world.folder.appending(component: "session")
            case .partial: folder.appending(component: name.partial)
            case .sidecar: folder.appending(component: name.sidecar)
            case .file: folder.appending(component: name.file)
            }
        }
    }

    /// The work during the removal.
    enum Scenario: String, CaseIterable, Sendable {
        case fetch, resume, findOnDisk, digest, remove, removeAll, signOut

        var faults: [LoopbackServer.File.Fault] { self == .resume ? [.cut(after: 10_000)] : [] }

        /// Returns the reported file, if the work reports a file.
        func run(_ media: AsyncMedia, _ world: MediaWorld) async throws -> URL? {
            switch self {
            case .fetch, .resume, .findOnDisk: return try await media.request(url: world.url)
            case .digest:
                let digest = SHA256.text(SHA256.hash(world.file.content))
                return try await media.request(url: world.url, sha256: digest)
            case .remove: try await media.clear(url: world.url)
            case .removeAll: try await media.clear()
            case .signOut: #expect(await world.repository.clearAll().failures.isEmpty)
            }
            return nil
        }

        var needsFile: Bool { [.findOnDisk, .remove, .removeAll, .signOut].contains(self) }
    }

    /// Media on `fileSystem` with an open folder, prepared for the scenario.
    private static func prepared(
        _ scenario: Scenario,
        _ fileSystem: RecordingFileSystem,
        _ world: MediaWorld
    ) async throws -> AsyncMedia {
        let media = world.media(fileSystem: fileSystem)
        _ = await media.loadCachedValue(url: world.url)
        if scenario.needsFile { _ = try await media.request(url: world.url) }
        world.faults.withLock { $0 = scenario.faults }
        fileSystem.restart()
        return media
    }

    @Test(arguments: Scenario.allCases, Target.allCases)
    func `WR-04 files removed at a call to the file system are fetched again`(scenario: Scenario, target: Target)
        async throws
    {
        var number = 1
        var isOver = false
        while !isOver {
            let world = try MediaWorld(LoopbackServer.File(size: 20_000))
            try await world.run { (world) async throws in
                let moment = Locked(Int.max)
                let fileSystem = RecordingFileSystem { count, _ in
                    guard count == moment.withLock({ $0 }) else { return nil }
                    return .perform { try? FileManager.default.removeItem(at: target.url(world)) }
                }
                let media = try await Self.prepared(scenario, fileSystem, world)
                moment.withLock { $0 = number }

                if let file = try await scenario.run(media, world) {
                    #expect(try Data(contentsOf: file) == world.file.content, "removed before call \(number)")
                }
                moment.withLock { $0 = .max }
                isOver = fileSystem.calls.count < number

                let next = try await media.request(url: world.url)
                #expect(try Data(contentsOf: next) == world.file.content, "removed before call \(number)")
                #expect(media.cachedValue(url: world.url) == next)
                // The next launch accepts the file too, unless the session file was removed after the
                // download.
                let relaunched = world.media()
                let found = await relaunched.loadCachedValue(url: world.url)
                #expect(found == next || (target == .session && found == nil), "removed before call \(number)")
                #expect(try await relaunched.request(url: world.url) == next)
                #expect(world.names == [next.lastPathComponent])
                await media.expectAtRest()
            }
            number += repetitionStep
        }
        #expect(number > 1 + repetitionStep)
    }

    @Test(arguments: [Target.root, .folder])
    func `WR-04 a folder removed between downloads fails no download`(target: Target) async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let media = world.media()
            let other = world.server.url.appending(path: "other.jpg")
            _ = try await media.request(url: world.url)
            try FileManager.default.removeItem(at: target.url(world))

            #expect(media.cachedValue(url: world.url) == nil)
            let file = try await media.request(url: other)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.server.requestCount == 2)
            #expect(await media.loadCachedValue(url: world.url) == nil)
        }
    }

    @Test func `WR-04 the loss of the session file loses no other file`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let media = world.media()
            let first = try await media.request(url: world.url)
            try FileManager.default.removeItem(at: Target.session.url(world))

            _ = try await media.request(url: world.server.url.appending(path: "other.jpg"))

            #expect(await world.media().loadCachedValue(url: world.url) == first)
        }
    }

    @Test func `WR-04 the loss of the session file during a download loses no other file`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 20_000))
        try await world.run { (world) async throws in
            let isArmed = Locked(false)
            let other = world.server.url.appending(path: "other.jpg")
            let partial = world.folder.appending(path: "media").appending(component: MediaName(other).partial)
            let fileSystem = RecordingFileSystem { _, call in
                guard call.operation == .write, call.name == partial.lastPathComponent,
                    isArmed.withLock({ isArmed in
                        defer { isArmed = false }
                        return isArmed
                    })
                else { return nil }
                return .perform {
                    for file in [partial, Target.session.url(world)] { try? FileManager.default.removeItem(at: file) }
                }
            }
            let media = world.media(fileSystem: fileSystem)
            let first = try await media.request(url: world.url)
            isArmed.withLock { $0 = true }

            _ = try await media.request(url: other)

            #expect(isArmed.withLock { !$0 })
            #expect(await media.loadCachedValue(url: world.url) == first)
            #expect(await world.media().loadCachedValue(url: world.url) == first)
        }
    }

    @Test func `WR-04 a folder that is removed at every attempt is a transient error`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1000))
        try await world.run { (world) async throws in
            let isHostile = Locked(true)
            let fileSystem = RecordingFileSystem { _, call in
                guard call.operation == .write, call.name.hasPrefix("partial-"), isHostile.withLock({ $0 }) else {
                    return nil
                }
                return .perform { try? FileManager.default.removeItem(at: world.folder) }
            }
            let media = world.media(fileSystem: fileSystem)

            let error = await #expect(throws: MediaError.removed) { try await media.request(url: world.url) }
            #expect(error?.retryAdvice == .transient)
            #expect(world.server.requestCount == 3)

            isHostile.withLock { $0 = false }
            #expect(try Data(contentsOf: await media.request(url: world.url)) == world.file.content)
        }
    }

    @Test func `WR-04 concurrent downloads succeed although their shared folder is removed`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(answer: { _ in
            try? await gate.pass()
            return nil
        })
        try await world.run { (world) async throws in
            let media = world.media()
            let urls = (0..<5).map { world.server.url.appending(path: "\($0).jpg") }
            let requests = urls.map { url in Task { try await media.request(url: url) } }
            await gate.waitForCall(5)
            try FileManager.default.removeItem(at: world.folder)
            gate.openForGood(returning: ())

            for request in requests { #expect(try Data(contentsOf: await request.value) == world.file.content) }
            #expect(world.names.count == 5)
            await media.expectAtRest()
        }
    }
}
