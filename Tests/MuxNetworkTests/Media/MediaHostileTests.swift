import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaHostileTests {
    @Test func `AM-04 Q-07 a server that ignores ranges is read from the beginning`() async throws {
        let world = try MediaWorld(faults: [.cut(after: 100_000), .ignoreRange])
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 0])
            #expect(world.names == [file.lastPathComponent])
        }
    }

    @Test func `AM-04 a file that changes in the middle is fetched anew`() async throws {
        let served = LoopbackServer.File(size: 300_000)
        let count = Locked(0)
        let world = try MediaWorld(
            served,
            faults: [.cut(after: 100_000)],
            answer: { _ in
                let count = count.withLock { count in
                    count += 1
                    return count
                }
                if count == 2 { served.replace(size: 200_000, seed: 7, etag: "\"2\"") }
                return nil
            }
        )
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)

            #expect(try Data(contentsOf: file) == served.content)
            #expect(served.starts == [0, 0])
        }
    }

    @Test(arguments: ["x\r\ny", "W/\"1\"", "\"\u{7f}\"", "", "\"1\", \"2\""])
    func `AM-05 a note that was tampered with keeps nobody from the file`(validator: String) async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let media = world.media()
            _ = await media.loadCachedValue(url: world.url)  // opens the folder
            let (folder, name) = (world.folder.appending(path: "media"), MediaName(world.url))
            let note: [String: any Sendable] = ["mux": 1, "validator": validator, "total": 300_000]
            try JSONSerialization.data(withJSONObject: note).write(to: folder.appending(path: name.sidecar))
            try Data(count: 1_000).write(to: folder.appending(path: name.partial))

            let file = try await media.request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0])
        }
    }

    @Test func `AM-04 without a validator a download starts again`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 300_000, etag: nil), faults: [.cut(after: 100_000)])
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 0])
        }
    }

    @Test func `AM-04 a part that is not where it should be is not used`() async throws {
        let world = try MediaWorld(faults: [.cut(after: 100_000), .shift(by: 1)])
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 100_000, 0])
        }
    }

    @Test func `AM-04 a download that starts again has its file although somebody is slow to close it`() async throws {
        let world = try MediaWorld(faults: [.cut(after: 100_000), .shift(by: 1)])
        let fileSystem = RecordingFileSystem(holdsFiles: true)
        try await world.run { (world) async throws in
            let file = try await world.media(fileSystem: fileSystem).request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
        }
    }

    @Test func `AM-06 Q-07 a server that keeps lying about its ranges is an error and leaves nothing`() async throws {
        let world = try MediaWorld(
            faults: [.cut(after: 100_000), .shift(by: 1), .cut(after: 150_000), .shift(by: 1)]
        )
        try await world.run { (world) async throws in
            let media = world.media()
            await #expect(throws: MediaError.contradiction) { try await media.request(url: world.url) }

            #expect(world.names == [])
            await media.expectAtRest()
        }
    }

    @Test func `AM-06 Q-07 a length that is never reached is an error and leaves no file`() async throws {
        let world = try MediaWorld(answer: { _ in nil })
        world.faults.withLock { $0 = Array(repeating: .claim(more: 10), count: 9) }
        try await world.run { (world) async throws in
            await #expect(throws: MediaError.contradiction) { try await world.media().request(url: world.url) }

            #expect(world.names == [])
        }
    }

    @Test func `AM-06 Q-07 a part with more than it announced is an error and leaves nothing`() async throws {
        let world = try MediaWorld(faults: [.cut(after: 100_000), .excess(1)])
        try await world.run { (world) async throws in
            await #expect(throws: MediaError.contradiction) { try await world.media().request(url: world.url) }

            #expect(world.names == [])
        }
    }

    @Test func `AM-06 a body without an announced length is complete at its end`() async throws {
        let world = try MediaWorld(faults: [.unannounced])
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
        }
    }

    @Test func `AM-06 a file has its name only when it is complete`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(faults: [.hold(after: 299_999) { try? await gate.pass() }])
        try await world.run { (world) async throws in
            let media = world.media()
            let request = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            for try await progress in media.progress(of: world.url) where progress.received == 299_999 { break }

            let name = MediaName(world.url)
            #expect(world.names == [name.partial, name.sidecar].sorted())
            #expect(media.cachedValue(url: world.url) == nil)

            gate.open()
            _ = try await request.value
            #expect(world.names == [name.file])
        }
    }

    @Test func `AM-06 a digest is checked for new files and for those on disk`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let right = SHA256.text(SHA256.hash(world.file.content))
            let wrong = SHA256.text(SHA256.hash("wrong"))
            let media = world.media()
            await #expect(throws: MediaError.wrongDigest) {
                try await media.request(url: world.url, sha256: wrong)
            }
            #expect(world.names == [] && world.server.requestCount == 1)
            await #expect(throws: MediaError.wrongDigest) {
                try await media.request(url: world.url, sha256: "no digest")
            }
            #expect(world.server.requestCount == 1)

            let file = try await media.request(url: world.url, sha256: right.uppercased())
            #expect(try await media.request(url: world.url, sha256: right) == file)
            #expect(world.server.requestCount == 2)

            // Damaged by somebody else, seen by the next process, fetched once more.
            try Data("damage".utf8).write(to: file)
            let relaunched = world.media()
            #expect(try await relaunched.request(url: world.url, sha256: right) == file)
            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.server.requestCount == 3)
            await media.expectAtRest()
        }
    }

    @Test func `AM-06 a file that is gone before it was checked is not called a wrong one`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let isGone = Locked(false)
            let fileSystem = RecordingFileSystem { _, call in
                guard call.operation == .open, !call.name.hasPrefix("partial-"), call.name.hasSuffix(".jpg") else {
                    return nil
                }
                return isGone.withLock { $0 } ? .refuse(ENOENT) : nil
            }
            let media = world.media(fileSystem: fileSystem)
            let file = try await media.request(url: world.url)
            isGone.withLock { $0 = true }

            let digest = SHA256.text(SHA256.hash(world.file.content))
            await #expect(throws: MediaError.removed) { try await media.request(url: world.url, sha256: digest) }
            #expect(FileManager.default.fileExists(atPath: file.path), "and what is there stays")
        }
    }

    @Test func `AM-06 one who joins with a wrong digest gets no file`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(answer: { _ in
            try? await gate.pass()
            return nil
        })
        try await world.run { (world) async throws in
            let media = world.media()
            let first = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            let wrong = SHA256.text(SHA256.hash("wrong"))
            let second = Task { try await media.request(url: world.url, sha256: wrong) }
            await world.events.wait(for: .joined)
            gate.openForGood(returning: ())

            await #expect(throws: MediaError.wrongDigest) { try await second.value }
            await #expect(throws: MediaError.wrongDigest) { try await first.value }
            #expect(world.names == [])
        }
    }

    @Test func `AM-10 Q-07 a server that stalls is a time-out and what came is kept`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(faults: [.hold(after: 100_000) { try? await gate.pass() }])
        try await world.run { (world) async throws in
            var limits = AsyncMedia.Limits()
            limits.silence = .seconds(7)
            let transport = FailureRecorder(base: SystemTransport(clock: world.clock))
            let media = world.media(transport: transport, limits: limits)
            let request = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            for try await progress in media.progress(of: world.url) where progress.received == 100_000 { break }
            await world.clock.waitForSleepers()

            // The silence counts from when the exchange waits for more, and it may still be at the last piece, which the watcher has
            // seen: its timer sleeps once more then. That of the next exchange sleeps after the failure of this one.
            repeat {
                world.clock.advance(by: .seconds(7))
                await world.clock.waitForSleepers()
            } while transport.failures.isEmpty

            #expect(try Data(contentsOf: await request.value) == world.file.content, "it went on after the time-out")
            #expect(world.file.starts == [0, 100_000])
            #expect(transport.failures == [HTTPError.transport(.timedOut(after: .seconds(7)))])
        }
    }
}

/// Keeps the errors that another transport throws.
private final class FailureRecorder: HTTPTransport {
    private let base: SystemTransport
    private let seen = Locked<[HTTPError?]>([])

    init(base: SystemTransport) { self.base = base }

    /// The errors so far; `nil` for one that is no ``HTTPError``.
    var failures: [HTTPError?] { self.seen.withLock { $0 } }

    func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.base.send(call) }

    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        do {
            return try await self.base.stream(call, into: sink)
        } catch {
            self.seen.withLock { $0.append(error as? HTTPError) }
            throw error
        }
    }
}
