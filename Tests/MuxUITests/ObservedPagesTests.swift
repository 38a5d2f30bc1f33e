import MuxKit
import MuxTestSupport
import MuxTesting
import MuxUI
import Testing

/// Lists in pages: what a view sees.
@Suite(.standard)
@MainActor
struct ObservedPagesTests {
    private let clock = VirtualClock()
    private let repository: MuxRepository
    private let list = ServerList(count: 40)

    init() { self.repository = MuxRepository(store: MemoryStore(), clock: self.clock) }

    private func feed(maximumPages: Int = 10) -> MuxPages<Entry, Int> {
        MuxPages(
            maximumPages: maximumPages,
            policy: MuxPolicy(timeToLive: .seconds(60), fetchTimeout: .longest),
            repository: self.repository
        ) { [list] in try await list.page(after: $0, limit: 10) }
    }

    private func until(_ condition: () -> Bool) async { while !condition(), !Task.isCancelled { await Task.yield() } }

    /// Runs all jobs of the main actor that are ready.
    private func settle() async { for _ in 0..<100 { await Task.yield() } }

    /// Follows `feed` until the end of `work`.
    private func following(
        _ feed: ObservedPages<Entry, Int>,
        _ work: @MainActor () async throws -> Void
    ) async rethrows {
        let view = Task { await feed.follow() }
        try await work()
        view.cancel()
        await view.value
    }

    @Test func `SC-06 an object that nothing follows registers and starts nothing`() {
        let feed = self.feed()
        for _ in 0..<10_000 { _ = feed.observed() }
        #expect(feed.window.watcherCount == 0 && feed.window.statistics.requests == 0 && self.clock.sleeperCount == 0)
    }

    @Test func `SC-06 the last five items load the next page, once`() async {
        let feed = self.feed()
        let observed = feed.observed()
        #expect(observed.items.isEmpty && !observed.hasMore && !observed.isStale)
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            #expect(observed.hasMore && !observed.isLoadingMore)
            for item in observed.items.prefix(5) { observed.appeared(item) }
            await self.settle()
            #expect(self.list.requests.count == 1)
            let gate = Gate<Void>()
            self.list.onRequest { _ in try await gate.pass() }
            for item in observed.items.suffix(5) { observed.appeared(item) }
            await gate.waitForCall()
            #expect(observed.isLoadingMore && !observed.isLoading)
            gate.openForGood(returning: ())
            await self.until { observed.items.count == 20 && !observed.isLoadingMore }
            await self.settle()
            #expect(self.list.requests.count == 2)

            for count in [30, 40] {
                observed.items.last.map { observed.appeared($0) }
                await self.until { observed.items.count == count && !observed.isLoadingMore }
            }
            #expect(!observed.hasMore)
            observed.items.last.map { observed.appeared($0) }
            await self.settle()
            #expect(self.list.requests.count == 4 && observed.problem == nil)
        }
        await self.until { feed.window.watcherCount == 0 }
    }

    @Test func `SC-06 a list with a limit scrolls down and up again`() async {
        let list = ServerList(count: 200)
        let feed = MuxPages<Entry, Int>(maximumPages: 3, repository: self.repository) {
            try await list.page(after: $0, limit: 10)
        }
        let observed = feed.observed()
        var largest = 0
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            for id in Array(0..<200) + Array(0..<200).reversed() {
                await self.until { observed.items.contains { $0.id == id } }
                observed.items.first { $0.id == id }.map { observed.appeared($0) }
                largest = max(largest, observed.items.count)
            }
            await self.until { !observed.isLoadingMore && !observed.isLoading }
            #expect(observed.items.first?.id == 0 && observed.items.map(\.id) == Array(0..<observed.items.count))
        }
        #expect((30...60).contains(largest), "the pages with 30 items, and their neighbours")
        #expect(list.requests.count < 20 + 16 * 6)
    }

    @Test func `SC-06 pages shorter than the margin do not load page after page`() async {
        let feed = MuxPages<Entry, Int>(maximumPages: 3, repository: self.repository) { [list] in
            try await list.page(after: $0, limit: 1)
        }
        let observed = feed.observed()
        await self.following(observed) {
            await self.until { observed.items.count == 1 }
            observed.items.last.map { observed.appeared($0) }
            await self.until { observed.items.count == 2 && !observed.isLoadingMore }
            await self.settle()
            #expect(self.list.requests.count == 2)
        }
    }

    @Test func `SC-06 a failed load is a problem, and is repeated after a second at the earliest`() async {
        let feed = self.feed()
        let observed = feed.observed()
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            self.list.onRequest { _ in throw ServerList.FetchFailed() }
            observed.items.last.map { observed.appeared($0) }
            await self.until { observed.problem is ServerList.FetchFailed && !observed.isLoadingMore }
            for item in observed.items.suffix(5) { observed.appeared(item) }
            await self.settle()
            #expect(self.list.requests.count == 2 && observed.items.count == 10)

            await observed.loadMore()
            #expect(self.list.requests.count == 3, "the button does not wait")

            self.list.onRequest { _ in }
            self.clock.advance(by: .seconds(1))
            observed.items.last.map { observed.appeared($0) }
            await self.until { observed.items.count == 20 && observed.problem == nil }
        }
    }

    @Test func `SC-06 pages without new items do not load without end`() async {
        let cursors = Locked(0)
        let feed = MuxPages<Entry, Int>(repository: self.repository) { cursor in
            let next = cursors.withLock { count in
                count += 1
                return count
            }
            return .init((0..<10).map { Entry(id: $0, rank: $0, seenAt: 0) }, next: next)
        }
        let observed = feed.observed()
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            observed.items.last.map { observed.appeared($0) }
            await self.until { cursors.withLock { $0 } >= 11 && !observed.isLoadingMore }
            await self.settle()
            #expect(cursors.withLock { $0 } == 11 && !observed.isLoadingMore && observed.hasMore)
        }
    }

    @Test func `SC-06 a reload ends the problem of a further page`() async {
        let feed = self.feed()
        let observed = feed.observed()
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            self.list.onRequest { cursor in if cursor != nil { throw ServerList.FetchFailed() } }
            observed.items.last.map { observed.appeared($0) }
            await self.until { observed.problem != nil && !observed.isLoadingMore }
            await observed.reload()
            #expect(observed.problem == nil && observed.items.count == 10)
        }
    }

    @Test func `SC-06 a failed load of the page before is repeated, also after a loss of memory`() async {
        let list = ServerList(count: 100)
        let feed = MuxPages<Entry, Int>(maximumPages: 3, repository: self.repository) {
            try await list.page(after: $0, limit: 10)
        }
        let observed = feed.observed()
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            for id in 0..<100 {
                await self.until { observed.items.contains { $0.id == id } }
                observed.items.first { $0.id == id }.map { observed.appeared($0) }
            }
            await self.until { !observed.isLoadingMore }
            let first = observed.items[0].id
            #expect(first >= 40)
            let failures = Locked(0)
            list.onRequest { _ in
                failures.withLock { $0 += 1 }
                throw ServerList.FetchFailed()
            }
            observed.appeared(observed.items[0])
            await self.until { observed.problem != nil && failures.withLock { $0 } == 1 }
            await self.settle()
            #expect(observed.items[0].id == first && failures.withLock { $0 } == 1)

            list.onRequest { _ in }
            self.clock.advance(by: .seconds(1))
            observed.appeared(observed.items[20])
            await self.until { observed.items.first?.id == first - 10 }

            await self.until { !observed.isLoading }
            feed.window.clearMemory()
            observed.appeared(observed.items[0])
            await self.until { observed.items.first.map { $0.id < first - 10 } ?? false }
        }
    }

    @Test func `SC-06 a button for the next page waits for a load of the page before`() async {
        let list = ServerList(count: 200)
        let feed = MuxPages<Entry, Int>(maximumPages: 3, repository: self.repository) {
            try await list.page(after: $0, limit: 10)
        }
        let observed = feed.observed()
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            for id in 0..<92 {
                await self.until { observed.items.contains { $0.id == id } }
                observed.items.first { $0.id == id }.map { observed.appeared($0) }
            }
            await self.until { !observed.isLoadingMore }
            let (gate, loadsNext) = (Gate<Void>(), Locked(false))
            list.onRequest { [weak observed] _ in
                try await gate.pass()
                if await observed?.isLoadingMore == true { loadsNext.withLock { $0 = true } }
            }
            observed.appeared(observed.items[0])
            await gate.waitForCall()
            let count = list.requests.count
            let button = Task { await observed.loadMore() }
            await self.settle()
            #expect(list.requests.count == count && !observed.isLoadingMore)
            gate.openForGood(returning: ())
            await button.value
            #expect(loadsNext.withLock { $0 } && list.requests.count > count)
        }
    }

    @Test func `SC-06 a clear ends a load that hangs, and the list loads again`() async {
        let feed = self.feed()
        let observed = feed.observed()
        let gate = Gate<Void>()
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            self.list.onRequest { cursor in if cursor != nil { try await gate.pass(ignoringCancellation: true) } }
            observed.items.last.map { observed.appeared($0) }
            await gate.waitForCall()
            #expect(observed.isLoadingMore)
            await feed.window.clear()
            await self.until { !observed.isLoadingMore }
            self.list.onRequest { _ in }
            await observed.reload()
            observed.items.last.map { observed.appeared($0) }
            await self.until { observed.items.count == 20 }
            gate.openForGood(returning: ())
            await self.settle()
            #expect(observed.items.count == 20 && observed.problem == nil)
        }
    }

    @Test func `SC-06 a reload keeps the pages of every object`() async {
        let feed = self.feed()
        let (top, deep) = (feed.observed(), feed.observed())
        await self.following(top) {
            await self.following(deep) {
                await self.until { deep.items.count == 10 }
                for count in [20, 30] {
                    deep.items.last.map { deep.appeared($0) }
                    await self.until { deep.items.count == count && !deep.isLoadingMore }
                }
                deep.appeared(deep.items[22])
                top.appeared(top.items[0])
                await top.reload()
                await self.until { self.list.requests.count == 6 }
                #expect(top.items.count == 30)
            }
        }
        // A view that another view covers follows nothing, and keeps its place.
        await top.reload()
        #expect(top.items.count == 30)
        withExtendedLifetime(deep) {}
    }

    @Test func `SC-06 the end of an object ends its place in the list`() async {
        let feed = self.feed()
        let top = feed.observed()
        await self.following(top) {
            await self.until { top.items.count == 10 }
            weak var former: ObservedPages<Entry, Int>?
            do {
                let deep = feed.observed()
                former = deep
                for count in [20, 30] {
                    top.items.last.map { deep.appeared($0) }
                    await self.until { top.items.count == count && !deep.isLoadingMore }
                }
                deep.appeared(top.items[22])
                await top.reload()
                #expect(top.items.count == 30)
            }
            await self.until { former == nil }
            top.appeared(top.items[0])
            await top.reload()
            #expect(top.items.count == 10)
        }
    }

    @Test func `SC-06 a sign-out empties the list, and a new session begins with its own pages`() async {
        let feed = self.feed()
        let observed = feed.observed()
        await self.following(observed) {
            await self.until { observed.items.count == 10 }
            let gate = Gate<Void>()
            self.list.onRequest { _ in try await gate.pass() }
            observed.items.last.map { observed.appeared($0) }
            await gate.waitForCall()
            await self.repository.clearAll()
            #expect(observed.items.isEmpty, "at once")
            gate.openForGood(returning: ())
            await self.until { !observed.isLoadingMore }
            await self.settle()
            #expect(observed.items.isEmpty && observed.problem == nil && feed.window.cachedValue == nil)
            await observed.reload()
            #expect(observed.items.count == 10)
        }
    }
}
