import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaRequestTests {
    @Test func `AM-01 a hundred callers share a single GET and a single file`() async throws {
        let gate = Gate<Void>()
        try await MediaWorld(answer: { _ in
            try? await gate.pass()
            return nil
        }).run { (world) async throws in
            let media = world.media()
            let files = try await withThrowingTaskGroup { group in
                for _ in 0..<100 { group.addTask { try await media.request(url: world.url) } }
                await world.events.wait(for: .joined, count: 99)
                await gate.waitForCall()
                gate.openForGood(returning: ())
                return try await group.reduce(into: []) { $0.append($1) }
            }

            #expect(world.server.requestCount == 1)
            #expect(files.count == 100 && Set(files).count == 1)
            #expect(try Data(contentsOf: files[0]) == world.file.content)
            #expect(world.names == [files[0].lastPathComponent])
            #expect(media.statistics.misses == 1 && media.statistics.joins == 99)
            await media.expectAtRest()
        }
    }

    @Test func `AM-01 a file on disk is not fetched again in this process nor in another`() async throws {
        try await MediaWorld().run { (world) async throws in
            let media = world.media()
            #expect(media.cachedValue(url: world.url) == nil)
            let file = try await media.request(url: world.url)
            #expect(media.cachedValue(url: world.url) == file)
            #expect(try await media.request(url: world.url) == file)

            let relaunched = world.media()
            #expect(await relaunched.loadCachedValue(url: world.url) == file)
            #expect(relaunched.cachedValue(url: world.url) == file)
            #expect(try await relaunched.request(url: world.url) == file)

            #expect(world.server.requestCount == 1)
            #expect(relaunched.statistics.diskHits == 1 && relaunched.statistics.fetches == 0)
        }
    }

    @Test func `AM-03 watchers see progress that starts at the current size and never decreases`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(faults: [.hold(after: 100_000) { try? await gate.pass() }])
        try await world.run { (world) async throws in
            let media = world.media()
            let begun = Tally()
            let early = Task {
                var states: [AsyncMedia.Progress] = []
                for try await state in media.progress(of: world.url) {
                    states.append(state)
                    begun.add()
                }
                return states
            }
            let request = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            var late = media.progress(of: world.url).makeAsyncIterator()
            // All bytes that the server wrote to the socket arrive. The late watcher sees their arrival.
            var state = try await late.next()
            while let former = state, former.received < 100_000 { state = try await late.next() }
            #expect(state == AsyncMedia.Progress(received: 100_000, total: 300_000))
            await begun.reached(1)

            gate.open()
            _ = try await request.value

            var last = state
            while let next = try await late.next() {
                #expect(next.isComplete || next.received > 100_000)
                last = next
            }
            #expect(last == AsyncMedia.Progress(received: 300_000, total: 300_000, isComplete: true))
            let fractions = try await early.value.map { $0.fraction ?? 0 }
            #expect(fractions == fractions.sorted() && fractions.last == 1 && fractions.count >= 2)
        }
    }

    @Test func `AM-03 a watcher does not see a restart from zero`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let transport = HeldTransport()
            let media = world.media(transport: transport)
            let request = Task { try await media.request(url: world.url) }
            await transport.gate.waitForCall(1)
            let first = try #require(transport.sink.withLock { $0 })
            try await first.receive(head: HTTPReply(status: 200, headers: ["Content-Length": "10", "ETag": "\"1\""]))
            try await first.receive(Data(count: 6))
            let (seen, steps) = (Locked<[Int64]>([]), Tally())
            let watching = Task {
                for try await progress in media.progress(of: world.url) {
                    seen.withLock { $0.append(progress.received) }
                    steps.add()
                }
            }
            await steps.reached(1)

            // The file has changed on the server.
            transport.gate.fail(1, with: HTTPError.timedOut(after: .seconds(1)))
            await transport.gate.waitForCall(2)
            let second = try #require(transport.sink.withLock { $0 })
            try await second.receive(head: HTTPReply(status: 200, headers: ["Content-Length": "10", "ETag": "\"2\""]))
            for _ in 0..<2 {
                try await second.receive(Data(count: 2))
                var late = media.progress(of: world.url).makeAsyncIterator()
                #expect(try await late.next()?.received ?? 9 < 6)
            }
            try await second.receive(Data(count: 6))
            transport.gate.fail(2, with: HTTPError.timedOut(after: .seconds(1)))

            _ = try await request.value
            try await watching.value
            #expect(seen.withLock { $0.first } == 6 && seen.withLock { $0.allSatisfy { $0 >= 6 } })
        }
    }

    @Test func `AM-07 a cancelled caller leaves and the last cancelled caller stops the download`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(faults: [.hold(after: 100_000) { try? await gate.pass() }])
        try await world.run { (world) async throws in
            let media = world.media()
            let first = Task { try await media.request(url: world.url) }
            let second = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            await world.events.wait(for: .joined)
            for try await progress in media.progress(of: world.url) where progress.received >= 100_000 { break }

            first.cancel()
            await #expect(throws: CancellationError.self) { try await first.value }
            #expect(world.server.openConnectionCount == 1)
            second.cancel()
            await #expect(throws: CancellationError.self) { try await second.value }
            await world.server.waitForClosedConnection()

            #expect(world.partialSize == 100_000)
            let file = try await media.request(url: world.url)
            #expect(try Data(contentsOf: file) == world.file.content)
            #expect(world.file.starts == [0, 100_000])
            await media.expectAtRest()
        }
    }
}
