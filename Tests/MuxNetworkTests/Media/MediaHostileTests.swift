import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaHostileTests {
    @Test func `AM-04 Q-07 a file of a server that ignores ranges is read from the beginning`() async throws {
        let world = try MediaWorld(faults: [.cut(after: 100_000), .ignoreRange])
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 0])
            #expect(world.names == [file.lastPathComponent])
        }
    }

    @Test func `AM-04 a file that changes during its download is fetched again`() async throws {
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
    func `AM-05 a manipulated sidecar does not prevent the download of the file`(validator: String) async throws {
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

    @Test func `AM-04 a cut download without a validator starts again`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 300_000, etag: nil), faults: [.cut(after: 100_000)])
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 0])
        }
    }

    @Test func `AM-04 a part with another range than the requested range is not used`() async throws {
        let world = try MediaWorld(faults: [.cut(after: 100_000), .shift(by: 1)])
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 100_000, 0])
        }
    }

    @Test func `AM-04 a download that starts again gets its file although the old handle is still open`() async throws {
        let world = try MediaWorld(faults: [.cut(after: 100_000), .shift(by: 1)])
        let fileSystem = RecordingFileSystem(holdsFiles: true)
        try await world.run { (world) async throws in
            let file = try await world.media(fileSystem: fileSystem).request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
        }
    }

    @Test func `AM-06 Q-07 a server that repeatedly sends wrong ranges is an error and leaves no file`() async throws {
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

    @Test func `AM-06 Q-07 a part that is longer than announced is an error and leaves no file`() async throws {
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

    @Test func `AM-06 a file gets its final name only when it is complete`() async throws {
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

    @Test func `AM-06 a digest is checked for new files and for files on disk`() async throws {
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

            // Another program damages the file. The next process detects the damage and fetches the file
            // again.
            try Data("damage".utf8).write(to: file)
            let relaunched = world.media()
            #expect(try await relaunched.request(url: world.url, sha256: right) == file)
            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.server.requestCount == 3)
            await media.expectAtRest()
        }
    }

    @Test func `AM-06 a file on disk is read once for its digest`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)
            let digest = SHA256.text(SHA256.hash(world.file.content))
            let files = RecordingFileSystem()
            let media = world.media(fileSystem: files)
            for _ in 0..<2 { #expect(try await media.request(url: world.url, sha256: digest) == file) }
            #expect(files.calls.count { $0.operation == .open && $0.name == file.lastPathComponent } == 1)
        }
    }

    @Test func `AM-06 a file that vanishes before its check is reported as removed, not as wrong`() async throws {
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

    @Test func `AM-06 a wrong digest of one caller does not fail a caller with the right digest`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(answer: { _ in
            try? await gate.pass()
            return nil
        })
        try await world.run { (world) async throws in
            let media = world.media()
            let right = SHA256.text(SHA256.hash(world.file.content))
            let first = Task { try await media.request(url: world.url, sha256: right) }
            await gate.waitForCall()
            let wrong = SHA256.text(SHA256.hash("wrong"))
            let second = Task { try await media.request(url: world.url, sha256: wrong) }
            await world.events.wait(for: .joined)
            gate.openForGood(returning: ())

            let file = try await first.value
            await #expect(throws: MediaError.wrongDigest) { try await second.value }
            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.names == [MediaName(world.url).file])
            #expect(world.server.requestCount == 1)
            await media.expectAtRest()
        }
    }

    @Test func `AM-06 a caller that joins with a wrong digest gets no file`() async throws {
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

    @Test func `AM-10 Q-07 a server that stalls is a time-out and the received bytes are kept`() async throws {
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

            // The silence limit starts when the exchange waits for more data. The watcher may see the last
            // piece before that moment. The exchange's timer then sleeps once more. The timer of the next
            // exchange sleeps after the failure of this exchange.
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

/// Records the errors of another transport.
private final class FailureRecorder: HTTPTransport {
    private let base: SystemTransport
    private let seen = Locked<[HTTPError?]>([])

    init(base: SystemTransport) { self.base = base }

    /// The recorded errors, with `nil` for an error of another type than ``HTTPError``.
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
