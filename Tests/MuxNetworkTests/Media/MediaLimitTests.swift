import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaLimitTests {
    @Test func `AM-09 the least recently used file is evicted`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1000))
        try await world.run { (world) async throws in
            let media = world.media(limits: AsyncMedia.Limits { $0.maximumBytes = 3500 })
            for number in 0..<3 { _ = try await media.request(url: world.url(number)) }
            _ = try await media.request(url: world.url(0))

            _ = try await media.request(url: world.url(3))
            #expect((0...3).map { media.cachedValue(url: world.url($0)) != nil } == [true, false, true, true])

            // The order survives a relaunch. A lookup counts as a use, so file 2 is then the least recently
            // used.
            let relaunched = world.media(limits: AsyncMedia.Limits { $0.maximumBytes = 3500 })
            _ = try await relaunched.request(url: world.url(0))
            _ = try await relaunched.request(url: world.url(3))
            _ = try await relaunched.request(url: world.url(4))
            let kept = (0...4).map { relaunched.cachedValue(url: world.url($0)) != nil }
            #expect(kept == [true, false, false, true, true])
        }
    }

    @Test(arguments: [0.0, -3_600.0])
    func `PT-01 files are evicted in order of use although the clock stands still or is set back`(
        step: TimeInterval
    ) async throws {
        let folder = try CacheFolder()
        let date = Locked(Date(timeIntervalSince1970: 1_000_000_000))
        let transport = ClosureTransport { _ in HTTPReply(status: 200, body: Data(count: 1_000)) }
        let media = AsyncMedia(
            directory: folder.url,
            limits: AsyncMedia.Limits { $0.maximumBytes = 2_500 },
            durability: .relaxed,
            repository: MuxRepository(store: MemoryStore(), wallTime: { date.withLock { $0 } }),
            fileSystem: POSIXFileSystem()
        ) { call, sink in
            _ = try await transport.exchange(call, into: sink)
        }
        // Of files with equal times, the first by name is evicted: here the file that is used last.
        let urls = ["/a.jpg", "/b.jpg"].map { CacheFolder.url($0) }.sorted { MediaName($0).file > MediaName($1).file }
        for url in urls {
            _ = try await media.request(url: url)
            date.withLock { $0 += step }
        }

        _ = try await media.request(url: CacheFolder.url("/c.jpg"))

        let names = try folder.files().map(\.lastPathComponent)
        #expect(urls.map { names.contains(MediaName($0).file) } == [false, true])
        await media.expectAtRest()
    }

    @Test func `PT-01 files are evicted in order of use although the clock is set back before a relaunch`() async throws
    {
        let folder = try CacheFolder()
        let store = MemoryStore()
        let transport = ClosureTransport { _ in HTTPReply(status: 200, body: Data(count: 1_000)) }
        func media(_ seconds: TimeInterval) -> AsyncMedia {
            AsyncMedia(
                directory: folder.url,
                limits: AsyncMedia.Limits { $0.maximumBytes = 2_500 },
                durability: .relaxed,
                repository: MuxRepository(store: store, wallTime: { Date(timeIntervalSince1970: seconds) }),
                fileSystem: POSIXFileSystem()
            ) { call, sink in
                _ = try await transport.exchange(call, into: sink)
            }
        }
        let urls = ["/a.jpg", "/b.jpg", "/c.jpg"].map { CacheFolder.url($0) }
        _ = try await media(4_000_000_000).request(url: urls[0])
        let relaunched = media(1_000_000_000)
        for url in urls.dropFirst() { _ = try await relaunched.request(url: url) }

        let names = try folder.files().map(\.lastPathComponent)
        #expect(urls.map { names.contains(MediaName($0).file) } == [false, true, true])
        await relaunched.expectAtRest()
    }

    @Test func `AM-09 a file in use is not evicted`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1000))
        try await world.run { (world) async throws in
            let media = world.media(limits: AsyncMedia.Limits { $0.maximumBytes = 1500 })
            try await media.withFile(url: world.url(0)) { file in
                _ = try await media.request(url: world.url(1))
                _ = try await media.request(url: world.url(2))
                #expect(try Data(contentsOf: file) == world.file.content)
                #expect(media.cachedValue(url: world.url(1)) == nil)
            }
            _ = try await media.request(url: world.url(3))
            #expect(media.cachedValue(url: world.url(0)) == nil)
            #expect(media.cachedValue(url: world.url(3)) != nil)
        }
    }

    @Test func `AM-09 a partial file is evicted after a cancelled download, not during a download`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(
            LoopbackServer.File(size: 100_000),
            faults: [.hold(after: 60_000) { try? await gate.pass() }]
        )
        try await world.run { (world) async throws in
            let media = world.media(limits: AsyncMedia.Limits { $0.maximumBytes = 150_000 })
            let first = Task { try await media.request(url: world.url(0)) }
            await gate.waitForCall()
            for try await progress in media.progress(of: world.url(0)) where progress.received == 60_000 { break }

            _ = try await media.request(url: world.url(1))
            gate.open()
            _ = try await first.value
            #expect(world.file.starts == [0, 0])
            #expect(world.names.count == 1)

            world.faults.withLock { $0 = [.hold(after: 60_000) { try? await gate.pass() }] }
            let second = Task { try await media.request(url: world.url(2)) }
            await gate.waitForCall(2)
            for try await progress in media.progress(of: world.url(2)) where progress.received == 60_000 { break }
            second.cancel()
            _ = await second.result
            await world.server.waitForClosedConnection()
            _ = try await media.request(url: world.url(3))
            _ = try await media.request(url: world.url(4))
            #expect(world.names == [MediaName(world.url(4)).file])
        }
    }

    @Test(arguments: [true, false])
    func `AM-09 a file above the limit is an error, with and without an announced length`(isAnnounced: Bool)
        async throws
    {
        let world = try MediaWorld(LoopbackServer.File(size: 10_000), faults: isAnnounced ? [] : [.unannounced])
        try await world.run { (world) async throws in
            let media = world.media(limits: AsyncMedia.Limits { $0.maximumFileBytes = 9_999 })
            await #expect(throws: MediaError.tooLarge(limit: 9_999)) { try await media.request(url: world.url) }
            #expect(world.names == [])
        }
    }

    @Test func `AM-09 no more than six downloads run at a time`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(
            LoopbackServer.File(size: 1000),
            answer: { _ in
                try? await gate.pass()
                return nil
            }
        )
        try await world.run { (world) async throws in
            let media = world.media()
            try await withThrowingTaskGroup { group in
                for number in 0..<20 { group.addTask { try await media.request(url: world.url(number)) } }
                await world.events.wait(for: .missed, count: 20)
                await gate.waitForCall(6)
                for finished in 1...14 {
                    gate.open()
                    await gate.waitForCall(6 + finished)
                    #expect(gate.heldCount <= 6 && gate.callCount == 6 + finished)
                }
                gate.openForGood(returning: ())
                try await group.waitForAll()
            }
            #expect(media.downloadSlots.free == 6)
            await media.expectAtRest()
        }
    }

    @Test func `AM-09 files are evicted for the reserve, and a disk that stays full is a clear error`() async throws {
        let free = Locked<Int64>(10_000)
        let world = try MediaWorld(LoopbackServer.File(size: 1000))
        try await world.run { (world) async throws in
            let limits = AsyncMedia.Limits { $0.freeSpaceReserve = 5_000 }
            let media = world.media(limits: limits, fileSystem: CrampedFileSystem(free))
            for number in 0..<3 { _ = try await media.request(url: world.url(number)) }
            free.withLock { $0 = 4_500 }

            // The download needs 1000 bytes and the reserve lacks 500, so two files of 1000 bytes are
            // evicted.
            _ = try await media.request(url: world.url(3))
            #expect((0...3).map { media.cachedValue(url: world.url($0)) != nil } == [false, false, true, true])

            free.withLock { $0 = 100 }
            let large = AsyncMedia.Limits {
                $0.freeSpaceReserve = 1_000_000
                $0.maximumBytes = 2_000
            }
            let greedy = world.media(limits: large, fileSystem: CrampedFileSystem(free))
            await #expect(throws: MediaError.diskFull) { try await greedy.request(url: world.url(4)) }
            let isCached = (2...3).map { media.cachedValue(url: world.url($0)) != nil }
            #expect(isCached == [true, true], "no file is evicted in vain")
            free.withLock { $0 = 6_000 }
            _ = try await media.request(url: world.url(4))
            await media.expectAtRest()
        }
    }

    @Test func `AM-09 a disk that fills during a download is a clear error and received bytes are kept`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let isFull = Locked(true)
            let writes = Locked(0)
            let fileSystem = RecordingFileSystem { _, call in
                guard isFull.withLock({ $0 }), call.operation == .write, call.name.hasPrefix("partial-") else {
                    return nil
                }
                let count = writes.withLock { count in
                    count += 1
                    return count
                }
                // The first write may contain the complete file, because data that arrives while the sink is
                // busy is passed on in a single piece.
                return count == 1 ? .shorten(to: 1000) : .refuse(POSIXFileSystem.noSpace)
            }
            let media = world.media(fileSystem: fileSystem)

            await #expect(throws: MediaError.diskFull) { try await media.request(url: world.url) }
            let kept = world.partialSize
            #expect(kept == 1000)

            isFull.withLock { $0 = false }
            let file = try await media.request(url: world.url)
            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, kept])
            await media.expectAtRest()
        }
    }

    @Test func `PT-01 files are evicted before a body of unknown length is written`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1_000))
        try await world.run { (world) async throws in
            let limits = AsyncMedia.Limits {
                ($0.maximumBytes, $0.maximumFileBytes) = (3_500, 3_000)
            }
            let media = world.media(limits: limits)
            for number in 0..<2 { _ = try await media.request(url: world.url(number)) }
            let sizes = Locked<[Int64]>([])
            let transport = EndlessTransport(piece: 1_000) { sizes.withLock { $0.append(world.totalSize) } }

            await #expect(throws: MediaError.tooLarge(limit: 3_000)) {
                try await world.media(transport: transport, limits: limits).request(url: world.url)
            }

            // A file is evicted for each later piece.
            #expect(sizes.withLock(\.self) == [2_000, 3_000, 3_000, 3_000])
            #expect(world.names == [])
        }
    }

    @Test func `PT-01 a body is not written beyond its announced length`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let transport = EndlessTransport(piece: 1_000, announced: 2_500) {}

            await #expect(throws: MediaError.contradiction) {
                try await world.media(transport: transport).request(url: world.url)
            }

            #expect(transport.pieceCount == 3)
            #expect(world.names == [])
        }
    }
}

/// Sends up to 100 pieces, without a validator, until the sink throws an error.
private final class EndlessTransport: HTTPTransport {
    private let piece: Int
    private let announced: Int?
    private let look: @Sendable () -> Void
    private let pieces = Locked(0)

    init(piece: Int, announced: Int? = nil, _ look: @escaping @Sendable () -> Void) {
        (self.piece, self.announced, self.look) = (piece, announced, look)
    }

    /// The number of pieces passed to the sink, refused pieces included.
    var pieceCount: Int { self.pieces.withLock { $0 } }

    func send(_ call: HTTPCall) async throws -> HTTPReply { throw HTTPError.notHTTP }

    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        let headers: HTTPHeaders = self.announced.map { [.contentLength: "\($0)"] } ?? [:]
        let head = HTTPReply(status: 200, headers: headers, url: call.url)
        try await sink.receive(head: head)
        for _ in 0..<100 {
            self.look()
            self.pieces.withLock { $0 += 1 }
            try await sink.receive(Data(count: self.piece))
        }
        return head
    }
}
