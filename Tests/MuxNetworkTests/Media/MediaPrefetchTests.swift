import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaPrefetchTests {
    @Test func `AM-13 requested files are downloaded before prefetched files`() async throws {
        let gate = Gate<Void>()
        let order = Locked<[String]>([])
        let world = try MediaWorld(
            LoopbackServer.File(size: 1000),
            answer: { request in
                order.withLock { $0.append(request.path) }
                try? await gate.pass()
                return nil
            }
        )
        try await world.run { (world) async throws in
            var limits = AsyncMedia.Limits()
            limits.parallelDownloads = 1
            let media = world.media(limits: limits)
            let urls = (0..<4).map { world.server.url.appending(path: "\($0)") }
            let first = Task { try await media.request(url: urls[0]) }
            await gate.waitForCall()
            let wishes = Task { await media.prefetch([urls[1], urls[2]]) }
            await world.events.wait(for: .missed, count: 3)
            // Two later requests, and the second is for a prefetched file. Both precede the remaining
            // prefetch.
            let third = Task { try await media.request(url: urls[3]) }
            await world.events.wait(for: .missed, count: 4)
            let raised = Task { try await media.request(url: urls[2]) }
            await world.events.wait(for: .joined)
            await world.events.wait(for: .queued, count: 3)
            gate.openForGood(returning: ())

            _ = try await (first.value, third.value, raised.value)
            await wishes.value

            let served = order.withLock { $0 }
            #expect(served.first == "/0" && served.last == "/1" && Set(served).count == 4 && served.count == 4)
            await media.expectAtRest()
        }
    }

    @Test func `AM-13 a cancelled prefetch stops and a failed prefetch affects no other download`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(
            LoopbackServer.File(size: 1000),
            answer: { request in
                if request.path == "/missing" { return .text("", status: 404) }
                if request.path == "/held" { try? await gate.pass() }
                return nil
            }
        )
        try await world.run { (world) async throws in
            let media = world.media()
            let base = world.server.url
            let good = base.appending(path: "good")
            await media.prefetch([base.appending(path: "missing"), good])
            #expect(media.cachedValue(url: good) != nil)

            let held = Task { await media.prefetch([base.appending(path: "held")]) }
            await gate.waitForCall()
            held.cancel()
            await held.value
            await world.server.waitForClosedConnection()
            #expect(gate.heldCount == 0)
            await world.events.wait(for: .fetchFailed, count: 2)
            await media.expectAtRest()
        }
    }

    /// A deviation of an order from the expected outcome.
    private struct Violation: Error { let what: String }

    @Test func `PT-01 a download that is cancelled before it queues for a slot does not queue`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let folder = try CacheFolder()
            let (gate, events) = (Gate<Void>(), EventTally())
            let urls = ["/a.jpg", "/b.jpg"].map { CacheFolder.url($0) }
            let second = Locked<Task<URL, any Error>?>(nil)
            // The caller leaves while its download looks for the file, just before the request for a slot.
            let look = FileCall(.status, MediaName(urls[1]).file)
            let fileSystem = RecordingFileSystem { _, call in
                guard call == look else { return nil }
                return .perform { second.withLock { $0 }?.cancel() }
            }
            let transport = ClosureTransport { _ in
                try await gate.pass()
                return HTTPReply(status: 200, body: Data("picture".utf8))
            }
            let media = AsyncMedia(
                directory: folder.url,
                limits: AsyncMedia.Limits { $0.parallelDownloads = 1 },
                durability: .relaxed,
                repository: MuxRepository(store: MemoryStore(), observer: events, clock: schedule.clock),
                fileSystem: fileSystem
            ) { call, sink in
                _ = try await transport.exchange(call, into: sink)
            }
            let first = Task(executorPreference: schedule) { try await media.request(url: urls[0]) }
            await gate.waitForCall()
            let cancelled = Task(executorPreference: schedule) { try await media.request(url: urls[1]) }
            second.withLock { $0 = cancelled }
            // The schedule runs one job at a time, so the job that sent the event has left the queue or waits
            // in the queue.
            await events.wait(for: .queued)
            let waiting = media.downloadSlots.waiting

            gate.openForGood(returning: ())
            _ = try await first.value
            let outcome = await cancelled.result
            await media.expectAtRest()
            // A failed order with work outside the schedule is repeated. The body therefore throws an error
            // and records no issue.
            guard case .failure(is CancellationError) = outcome, waiting == 0, media.statistics.fetches == 1 else {
                throw Violation(what: "\(outcome), \(waiting) in the queue, \(media.statistics.fetches) fetches")
            }
        }
    }

    // MARK: - Cancellation by URL

    @Test func `WR-09 a prefetch is cancelled by its URL and other prefetches continue`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(
            LoopbackServer.File(size: 1000),
            answer: { request in
                if request.path == "/held" { try? await gate.pass() }
                return nil
            }
        )
        try await world.run { (world) async throws in
            var limits = AsyncMedia.Limits()
            limits.parallelDownloads = 1
            let media = world.media(limits: limits)
            let urls = ["held", "queued", "good"].map { world.server.url.appending(path: $0) }
            let first = Task { await media.prefetch([urls[0]]) }
            await gate.waitForCall()
            let others = Task { await media.prefetch(urls[1...]) }
            await world.events.wait(for: .queued, count: 2)

            media.cancelPrefetch([urls[1], urls[0], world.server.url.appending(path: "unknown")])
            await first.value
            await world.server.waitForClosedConnection()
            await others.value

            #expect(urls.map { media.cachedValue(url: $0) != nil } == [false, false, true])
            #expect(world.server.requestCount("GET /queued") == 0)
            #expect(gate.heldCount == 0)
            await media.expectAtRest()

            // A cancellation affects running prefetches, and no later prefetch.
            await media.prefetch([urls[1]])
            #expect(media.cachedValue(url: urls[1]) != nil)
        }
    }

    @Test func `WR-09 a request for a file whose prefetch is cancelled continues`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(answer: { _ in
            try? await gate.pass()
            return nil
        })
        try await world.run { (world) async throws in
            let media = world.media()
            let prefetches = (0..<3).map { _ in Task { await media.prefetch([world.url]) } }
            await gate.waitForCall()
            let request = Task { try await media.request(url: world.url) }
            await world.events.wait(for: .joined, count: 3)

            media.cancelPrefetch([world.url])
            for prefetch in prefetches { await prefetch.value }
            gate.openForGood(returning: ())

            #expect(try Data(contentsOf: await request.value) == world.file.content)
            #expect(world.server.requestCount == 1)
            await media.expectAtRest()
        }
    }

    @Test func `WR-09 a cancelled prefetch keeps the received bytes`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(faults: [.hold(after: 100_000) { try? await gate.pass() }])
        try await world.run { (world) async throws in
            let media = world.media()
            var progress = media.progress(of: world.url).makeAsyncIterator()
            let prefetch = Task { await media.prefetch([world.url]) }
            while let step = try await progress.next(), step.received < 100_000 {}

            media.cancelPrefetch([world.url])
            await prefetch.value
            await media.expectAtRest()

            #expect(try Data(contentsOf: await media.request(url: world.url)) == world.file.content)
            #expect(world.file.starts == [0, 100_000])
        }
    }

    // MARK: - Decoded values

    @Test func `WR-09 a prefetch decodes values`() async throws {
        let world = try MediaWorld(answer: { request in
            request.path == "/missing" ? .text("", status: 404) : .text(String(request.path.dropFirst()))
        })
        try await world.run { (world) async throws in
            let count = Locked(0)
            let media = world.media()
            let texts = DecodedMedia(media: media) { file in
                count.withLock { $0 += 1 }
                return (try String(contentsOf: file, encoding: .utf8), cost: 1)
            }
            let urls = ["a", "missing", "b"].map { world.server.url.appending(path: $0) }
            _ = try await media.request(url: urls[2])

            await texts.prefetch(urls)

            #expect(urls.map { texts.cachedValue(url: $0) } == ["a", nil, "b"])
            #expect(count.withLock { $0 } == 2)
            await texts.prefetch(urls)
            #expect(try await texts.request(url: urls[0]) == "a")
            #expect(count.withLock { $0 } == 2)
            #expect(world.server.requestCount("GET /a") == 1 && world.server.requestCount("GET /b") == 1)
            await media.expectAtRest()
        }
    }

    @Test func `WR-09 a cancelled prefetch decodes nothing`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(answer: { _ in
            try? await gate.pass()
            return nil
        })
        try await world.run { (world) async throws in
            let count = Locked(0)
            let media = world.media()
            let sizes = DecodedMedia(media: media) { file in
                count.withLock { $0 += 1 }
                return (try Data(contentsOf: file).count, cost: 1)
            }
            let prefetch = Task { await sizes.prefetch([world.url]) }
            await gate.waitForCall()

            media.cancelPrefetch([world.url])
            await prefetch.value

            #expect(count.withLock { $0 } == 0 && sizes.cachedValue(url: world.url) == nil)
            await media.expectAtRest()
        }
    }
}
