import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaSessionTests {
    private func bearer(_ call: inout HTTPCall, _ token: String) { call.headers["Authorization"] = "Bearer \(token)" }

    /// Media whose requests carry a token of `runner`.
    private func media(_ world: MediaWorld, _ runner: DependentRunner<String>) -> AsyncMedia {
        AsyncMedia(
            directory: world.folder,
            dependency: runner,
            transport: SystemTransport(clock: world.clock),
            durability: .relaxed,
            repository: world.repository
        ) { call, token in
            call.headers["Authorization"] = "Bearer \(token)"
        }
    }

    @Test func `AM-08 a token that expires during downloads is renewed once and the downloads continue`() async throws {
        let accepted = Locked("old")
        let updates = Locked(0)
        let world = try MediaWorld(answer: { request in
            guard request.bearerToken != accepted.withLock({ $0 }) else { return nil }
            return LoopbackServer.Response(status: 401, headers: ["WWW-Authenticate": "Bearer"])
        })
        try await world.run { (world) async throws in
            let gate = Gate<Void>()
            world.faults.withLock { $0 = [.cut(after: 100_000)] }
            let runner = DependentRunner<String>("old") { _ in
                updates.withLock { $0 += 1 }
                try? await gate.pass()
                return .updatedDependency("new")
            }
            let media = self.media(world, runner)
            let first = URL(string: world.url.absoluteString + "?first") ?? world.url

            // One download has a part when the token expires. The others start with the old token.
            let early = Task { try await media.request(url: first) }
            await world.server.waitForRequest()
            accepted.withLock { $0 = "new" }
            let files = try await withThrowingTaskGroup { group in
                for number in 0..<5 {
                    let url = world.server.url.appending(path: "\(number).jpg")
                    group.addTask { try await media.request(url: url) }
                }
                await world.events.wait(for: .fetchStarted, count: 6)
                gate.openForGood(returning: ())
                return try await group.reduce(into: [try await early.value]) { $0.append($1) }
            }

            #expect(updates.withLock { $0 } == 1)
            for file in files { #expect(try Data(contentsOf: file) == world.file.content) }
            #expect(world.file.starts.sorted() == [0, 0, 0, 0, 0, 0, 100_000])
            await media.expectAtRest()
        }
    }

    @Test func `AM-08 fields that the sign-in adds are not sent to another server after a redirect`() async throws {
        let seen = Locked<[String?]>([])
        let world = try MediaWorld(answer: { request in
            seen.withLock { $0.append(request.header("X-Token")) }
            return nil
        })
        try await world.run { (world) async throws in
            let target = world.url
            let door = LoopbackServer { request in
                seen.withLock { $0.append(request.header("X-Token")) }
                return .redirect(to: target, status: 302)
            }
            let url = try door.start().appending(path: "door.jpg")
            let media = AsyncMedia(
                directory: world.folder,
                dependency: DependentRunner<String>("secret") { _ in .updateFailed },
                transport: SystemTransport(clock: world.clock),
                durability: .relaxed,
                repository: world.repository
            ) { call, token in
                call.headers["X-Token"] = token
            }
            let file = try? await media.request(url: url)
            await door.stop()

            #expect(try Data(contentsOf: #require(file)) == world.file.content)
            #expect(seen.withLock { $0 } == ["secret", nil])
        }
    }

    @Test func `AM-08 a failed renewal of the token throws the runner's error`() async throws {
        let world = try MediaWorld(answer: { _ in .text("", status: 401) })
        try await world.run { (world) async throws in
            let media = self.media(world, DependentRunner<String>("old") { _ in .updateFailed })

            await #expect(throws: RunnerError.self) { try await media.request(url: world.url) }
            #expect(world.names == [])
            await media.expectAtRest()
        }
    }

    @Test func `AM-12 a sign-out ends running downloads and leaves no file`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let media = world.media()
            _ = try await media.request(url: world.server.url.appending(path: "before.jpg"))
            world.faults.withLock { $0 = [.hold(after: 100_000) { try? await gate.pass() }] }
            let request = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            var watcher = media.progress(of: world.url).makeAsyncIterator()
            while let progress = try await watcher.next(), progress.received < 100_000 {}
            #expect(world.names.count == 3)

            #expect(await world.repository.clearAll().isComplete)

            await #expect(throws: MuxError.sessionEnded) { try await request.value }
            await #expect(throws: MuxError.sessionEnded) { try await watcher.next() }
            #expect(world.names == [])
            #expect(try FileManager.default.contentsOfDirectory(atPath: world.folder.path) == [])
            #expect(media.cachedValue(url: world.url) == nil)
            #expect(await media.loadCachedValue(url: world.url) == nil)
            await world.server.waitForClosedConnection()

            // The next session starts without files.
            let file = try await media.request(url: world.url)
            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts.suffix(2) == [0, 0])
            #expect(world.names == [file.lastPathComponent])
            await media.expectAtRest()
        }
    }

    @Test func `AM-12 data that arrives during the sign-out restores no file`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            // The test delivers data to the sink of this transport, before and after the cancellation.
            let transport = HeldTransport()
            let media = world.media(transport: transport)
            let request = Task { try await media.request(url: world.url) }
            await transport.gate.waitForCall()
            let sink = try #require(transport.sink.withLock { $0 })
            let head = HTTPReply(status: 200, headers: ["Content-Length": "10", "ETag": "\"1\""])
            try await sink.receive(head: head)
            try await sink.receive(Data(count: 4))

            let isCleared = Task { await world.repository.clearAll().isComplete }
            await #expect(throws: MuxError.sessionEnded) { try await request.value }
            await #expect(throws: (any Error).self) { try await sink.receive(Data(count: 4)) }
            await #expect(throws: (any Error).self) { try await sink.receive(head: head) }
            #expect(await isCleared.value)
            await #expect(throws: (any Error).self) { try await sink.receive(head: head) }
            transport.gate.open()

            #expect(world.names == [])
        }
    }

    @Test func `AM-07 data that arrives after all callers have left is not written`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let transport = HeldTransport()
            let media = world.media(transport: transport)
            let request = Task { try await media.request(url: world.url) }
            await transport.gate.waitForCall()
            let sink = try #require(transport.sink.withLock { $0 })
            try await sink.receive(head: HTTPReply(status: 200, headers: ["Content-Length": "10", "ETag": "\"1\""]))
            try await sink.receive(Data(count: 4))

            request.cancel()
            await #expect(throws: CancellationError.self) { try await request.value }
            await world.events.wait(for: .fetchFailed)

            await #expect(throws: (any Error).self) { try await sink.receive(Data(count: 4)) }
            #expect(world.partialSize == 4)
        }
    }

    @Test func `AM-12 a download whose file is removed stops at the next piece of data`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let transport = HeldTransport()
            let media = world.media(transport: transport)
            let request = Task { try await media.request(url: world.url) }
            await transport.gate.waitForCall()
            let sink = try #require(transport.sink.withLock { $0 })
            try await sink.receive(head: HTTPReply(status: 200, headers: ["Content-Length": "10", "ETag": "\"1\""]))

            try await media.clear(url: world.url)

            await #expect(throws: (any Error).self) { try await sink.receive(Data(count: 4)) }
            request.cancel()
            _ = await request.result
        }
    }

    @Test func `AM-12 a file that is removed before its final rename is fetched again`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            // Holds the first download between its last byte and its rename.
            let (isFirst, reached, goesOn) = (Locked(true), Tally(), DispatchSemaphore(value: 0))
            let fileSystem = RecordingFileSystem { _, call in
                guard call.operation == .synchronize, call.name.hasPrefix("partial-") else { return nil }
                let isHeld = isFirst.withLock { isFirst in
                    defer { isFirst = false }
                    return isFirst
                }
                guard isHeld else { return nil }
                return .perform {
                    reached.add()
                    goesOn.wait()
                }
            }
            let transport = SystemTransport(clock: world.clock)
            let media = AsyncMedia(
                directory: world.folder,
                limits: .init(),
                durability: .full,
                repository: world.repository,
                fileSystem: fileSystem
            ) { call, sink in
                _ = try await transport.stream(call, into: sink)
            }
            let request = Task { try await media.request(url: world.url) }
            await reached.reached(1)

            try await media.clear(url: world.url)
            goesOn.signal()

            #expect(try Data(contentsOf: await request.value) == world.file.content)
            #expect(world.file.starts == [0, 0])
        }
    }

    @Test func `AM-12 files of a session that ended before a relaunch are not returned`() async throws {
        let store = MemoryStore()
        let world = try MediaWorld(store: store)
        try await world.run { (world) async throws in
            let media = world.media()
            _ = try await media.request(url: world.url)

            // The process dies after the increase of the session's epoch, and before the removal of files.
            await store.raiseSessionEpoch(to: 5)
            let next = try MediaWorld(world.file, folder: world.folder, store: store)
            let relaunched = next.media()

            #expect(relaunched.cachedValue(url: world.url) == nil)
            #expect(await relaunched.loadCachedValue(url: world.url) == nil)
            #expect(world.names == [])
            await next.server.stop()
        }
    }

    @Test(arguments: [false, true])
    func `AM-12 files are not returned after a relaunch if the store has lost the session's number`(
        isOnDisk: Bool
    ) async throws {
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxMedia-\(UUID().uuidString)")
        let caches = URL(filePath: folder.path + ".store", directoryHint: .isDirectory)
        @Sendable func store() -> any MuxStore {
            if isOnDisk { return JournalStore(directory: caches) }
            return MemoryStore()
        }
        let world = try MediaWorld(folder: folder, store: store())
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)
            if isOnDisk {
                let next = try MediaWorld(world.file, folder: world.folder, store: store())
                #expect(await next.media().loadCachedValue(url: world.url) == file, "the session continues")
                await next.server.stop()
                // Another process without media may have signed out before the system removes the store.
                try FileManager.default.removeItem(at: caches)
            }

            let next = try MediaWorld(world.file, folder: world.folder, store: store())
            #expect(await next.media().loadCachedValue(url: world.url) == nil)
            #expect(world.names == [])
            await next.server.stop()
        }
    }

    @Test func `AM-12 the removal of a file fences its running download`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(faults: [.hold(after: 100_000) { try? await gate.pass() }])
        try await world.run { (world) async throws in
            let media = world.media()
            let request = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            for try await progress in media.progress(of: world.url) where progress.received == 100_000 { break }
            world.file.replace(size: 200_000, seed: 3, etag: "\"2\"")

            try await media.clear(url: world.url)
            #expect(world.names == [])
            gate.open()

            let file = try await request.value
            #expect(try Data(contentsOf: file) == world.file.content, "the caller gets what is there after the fence")
            #expect(world.file.starts == [0, 0])
            try await media.clear()
            #expect(world.names == [] && media.cachedValue(url: world.url) == nil)
            await media.expectAtRest()
        }
    }
}

/// A transport that exposes its sink and waits.
final class HeldTransport: HTTPTransport {
    let sink = Locked<(any HTTPSink)?>(nil)
    let gate = Gate<Void>()

    func send(_ call: HTTPCall) async throws -> HTTPReply { throw HTTPError.notHTTP }

    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        self.sink.withLock { $0 = sink }
        try await self.gate.pass()
        throw HTTPError.notHTTP
    }
}
