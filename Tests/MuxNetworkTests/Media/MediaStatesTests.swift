import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The states of a file, for a screen.
@Suite(.standard)
struct MediaStatesTests {
    /// Returns the first state that fulfils a condition; `nil` after the end.
    private func next(
        _ states: inout MuxStates<URL>.Iterator,
        where condition: (MuxState<URL>) -> Bool
    ) async -> MuxState<URL>? {
        while let state = await states.next() { if condition(state) { return state } }
        return nil
    }

    @Test func `SC-01 the states of a file show its download, its removal and its return`() async throws {
        let world = try MediaWorld()
        try await world.run { world in
            let media = world.media()
            var states = media.states(of: world.url).makeAsyncIterator()
            let first = try #require(await states.next())
            #expect(first.entry == nil && !first.isLoading && first.failure == nil && !first.isStale)

            let request = Task { try await media.request(url: world.url) }
            let file = try await request.value
            let complete = await self.next(&states) { $0.entry != nil && !$0.isLoading }
            #expect(complete?.entry?.value == file && complete?.isStale == false && complete?.failure == nil)

            try await media.clear(url: world.url)
            #expect(await self.next(&states) { $0.entry == nil && !$0.isLoading } != nil)
            _ = try await media.request(url: world.url)
            #expect(await self.next(&states) { $0.entry?.value == file && !$0.isLoading } != nil)
            try await media.clear()
            #expect(await self.next(&states) { $0.entry == nil && !$0.isLoading } != nil)
            _ = try await media.request(url: world.url)
            #expect(await self.next(&states) { $0.entry?.value == file } != nil)
            await world.repository.clearAll()
            #expect(await self.next(&states) { $0.entry == nil && !$0.isLoading && $0.failure == nil } != nil)
        }
    }

    @Test func `SC-01 a file that was removed and downloaded again between two looks is a change`() async throws {
        let world = try MediaWorld()
        try await world.run { world in
            let media = world.media()
            let file = try await media.request(url: world.url)
            let states = media.states(of: world.url)
            let isSeen = Locked(false)
            let consumer = Task {
                var iterator = states.makeAsyncIterator()
                #expect(await iterator.next()?.entry?.value == file)
                try await media.clear(url: world.url)
                _ = try await media.request(url: world.url)
                #expect(await iterator.next()?.entry?.value == file)
                isSeen.withLock { $0 = true }
            }
            #expect(await settled({ isSeen.withLock { $0 } }, when: { $0 }))
            consumer.cancel()
            try await consumer.value
        }
    }

    @Test func `SC-01 a running download is visible, and an abandoned download is no failure`() async throws {
        let gate = Gate<Void>()
        let file = LoopbackServer.File(size: 10)
        let world = try MediaWorld(file) { request in
            try? await gate.pass()
            return file.response(to: request, fault: nil)
        }
        try await world.run { world in
            let media = world.media()
            var states = media.states(of: world.url).makeAsyncIterator()
            _ = await states.next()
            let request = Task { try await media.request(url: world.url) }
            #expect(await self.next(&states) { $0.isLoading } != nil)
            await gate.waitForCall()
            request.cancel()
            let ended = await self.next(&states) { !$0.isLoading }
            #expect(ended?.failure == nil && ended?.entry == nil)
            gate.openForGood(returning: ())
        }
    }

    @Test func `SC-01 a failed download is a failure until a success`() async throws {
        let isBroken = Locked(true)
        let file = LoopbackServer.File(size: 10)
        let world = try MediaWorld(file) { request in
            isBroken.withLock { $0 } ? .init(status: 404) : file.response(to: request, fault: nil)
        }
        try await world.run { world in
            let media = world.media()
            var states = media.states(of: world.url).makeAsyncIterator()
            _ = await states.next()
            for _ in 0..<2 {
                await #expect(throws: (any Error).self) { try await media.request(url: world.url) }
                let failed = await self.next(&states) { $0.failure != nil && !$0.isLoading }
                #expect(failed?.entry == nil)
            }
            isBroken.withLock { $0 = false }
            _ = try await media.request(url: world.url)
            #expect(await self.next(&states) { $0.entry != nil && $0.failure == nil } != nil)
        }
    }

    @Test func `SC-01 a file on disk is in the first state if the folder is open, and else after its opening`()
        async throws
    {
        let world = try MediaWorld()
        try await world.run { world in
            let file = try await world.media().request(url: world.url)
            let media = world.media()
            var early = media.states(of: world.url).makeAsyncIterator()
            #expect(await early.next()?.entry == nil)
            _ = try await media.request(url: world.url)
            #expect(await self.next(&early) { $0.entry?.value == file } != nil)

            let other = world.media()
            _ = await other.loadCachedValue(url: world.url)
            var late = other.states(of: world.url).makeAsyncIterator()
            #expect(await late.next()?.entry?.value == file)
        }
    }

    @Test func `SC-01 a file URL is its own file, also after a removal of all files`() async throws {
        let world = try MediaWorld()
        try await world.run { world in
            var media: AsyncMedia? = world.media()
            let file = URL(fileURLWithPath: "/photo.jpg")
            let seen = Locked<[URL?]>([])
            let states = try #require(media?.states(of: file))
            let consumer = Task { for await state in states { seen.withLock { $0.append(state.entry?.value) } } }
            #expect(await settled({ seen.withLock { $0 } }, when: { $0 == [file] }) == [file])
            try await media?.clear()
            for _ in 0..<100 { await Task.yield() }
            media = nil
            await consumer.value
            #expect(seen.withLock { $0 } == [file])
        }
    }

    @Test func `SC-01 a file that a look finds, or that another program has removed, is a change`() async throws {
        let (gate, isGated) = (Gate<Void>(), Locked(false))
        let served = LoopbackServer.File(size: 10)
        let world = try MediaWorld(served) { request in
            if isGated.withLock({ $0 }) { try? await gate.pass() }
            return served.response(to: request, fault: nil)
        }
        try await world.run { world in
            let file = try await world.media().request(url: world.url)
            let media = world.media()
            var states = media.states(of: world.url).makeAsyncIterator()
            #expect(await states.next()?.entry == nil, "the folder is not open")
            _ = await media.loadCachedValue(url: world.url)
            #expect(await self.next(&states) { $0.entry?.value == file } != nil)

            try FileManager.default.removeItem(at: file)
            isGated.withLock { $0 = true }
            let request = Task { try await media.request(url: world.url) }
            #expect(await self.next(&states) { $0.entry == nil && $0.isLoading } != nil)
            gate.openForGood(returning: ())
            #expect(try await request.value == file)
            #expect(await self.next(&states) { $0.entry?.value == file && !$0.isLoading } != nil)
        }
    }

    @Test func `SC-01 consumers of a file leave nothing, and do not retain the media`() async throws {
        let world = try MediaWorld()
        try await world.run { world in
            var media: AsyncMedia? = world.media()
            weak var former: AsyncMedia?
            former = media
            let states = try #require(media?.states(of: world.url))
            do {
                var one = states.makeAsyncIterator()
                var two = states.makeAsyncIterator()
                #expect(await one.next() != nil)
                #expect(await two.next() != nil)
                #expect(media?.followedCount == 1)
            }
            #expect(media?.followedCount == 0)
            var last = states.makeAsyncIterator()
            #expect(await last.next() != nil)
            media = nil
            #expect(former == nil)
            #expect(await last.next() == nil)
        }
    }
}
