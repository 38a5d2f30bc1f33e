import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxUI

/// Lists in pages, without views.
@Suite(.standard(minutes: 60))
struct PagesTests {
    private let clock = VirtualClock()
    private let store = MemoryStore()
    private let repository: MuxRepository
    private let list = ServerList(count: 40)
    private let policy = MuxPolicy(timeToLive: .seconds(60), fetchTimeout: .longest)

    init() { self.repository = MuxRepository(store: self.store, clock: self.clock) }

    private func feed(cacheKey: MuxPages<Entry, Int>.CacheKey? = nil, maximumPages: Int = 10) -> MuxPages<Entry, Int> {
        MuxPages(
            cacheKey: cacheKey,
            maximumPages: maximumPages,
            policy: self.policy,
            repository: self.repository
        ) { [list] in try await list.page(after: $0, limit: 5) }
    }

    /// Makes `ids` the items that appeared last.
    private func show(_ feed: MuxPages<Entry, Int>, _ ids: Int...) {
        feed.loader.forgetItems(of: ObjectIdentifier(self.list))
        for id in ids { feed.loader.appeared(id, in: ObjectIdentifier(self.list)) }
    }

    private func ids(_ feed: MuxPages<Entry, Int>) -> [Int] { feed.window.cachedValue?.items.map(\.id) ?? [] }

    @Test func `SC-06 no item is missing or shown twice, in the order of the server, whatever changes`() async throws {
        let steps = Locked(0)
        let count = try await SeededExecutor.explore(400) { schedule in
            let scenario = PagesScenario(schedule)
            try await scenario.play()
            steps.withLock { $0 += scenario.stepCount }
        }
        print("SC-06: \(count) schedules, \(steps.withLock { $0 }) windows")
    }

    // MARK: - Loads

    @Test func `SC-06 N pages need N requests, and concurrent calls share a request`() async throws {
        let feed = self.feed()
        #expect(try await feed.window.request().items.map(\.id) == Array(0..<5))
        for pages in 2...8 {
            let gate = Gate<Void>()
            self.list.onRequest { _ in try await gate.pass() }
            let calls = (0..<2).map { _ in Task { try await feed.loadMore() } }
            #expect(await settled({ feed.loader.occupancy.waiters }, when: { $0 == 2 }) == 2)
            gate.openForGood(returning: ())
            for call in calls { try await call.value }
            #expect(self.list.requests.count == pages && self.ids(feed) == Array(0..<(5 * pages)))
        }
        #expect(feed.window.cachedValue?.hasMore == false)
        try await feed.loadMore()
        #expect(self.list.requests.count == 8, "no request after the last page")
    }

    @Test func `SC-06 the first call of loadMore loads the first page`() async throws {
        let feed = self.feed()
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<5) && self.list.requests == [nil])
    }

    @Test func `SC-06 a reload requests the visible pages only, and replaces all pages in one step`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        for _ in 0..<4 { try await feed.loadMore() }
        let windows = Locked<[Int]>([])
        let gate = Gate<Void>()
        self.list.onRequest { cursor in
            windows.withLock { $0.append(feed.window.cachedValue?.items.count ?? 0) }
            if cursor != nil { try await gate.pass() }
        }
        self.show(feed, 7)
        self.list.insert(-1, at: 0)
        let reload = Task { try await feed.window.reload() }
        await gate.waitForCall()
        #expect(self.ids(feed) == Array(0..<25), "the old pages until the last new page")
        gate.openForGood(returning: ())
        _ = try await reload.value
        #expect(self.ids(feed) == Array(-1..<9) && self.list.requests.count == 5 + 2, "the second page has item 7")
        #expect(windows.withLock { $0 } == [25, 25])

        for id in 2...13 { self.list.insert(-id, at: 0) }
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(-13..<7) && self.list.requests.count == 7 + 4, "two further pages at most")
    }

    @Test func `SC-06 a reload of a list without views, or of other items, loads all pages of the window`() async throws
    {
        let feed = self.feed()
        _ = try await feed.window.request()
        for _ in 0..<3 { try await feed.loadMore() }
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(0..<20) && self.list.requests.count == 8)
        self.show(feed, 100)
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(0..<20) && self.list.requests.count == 12)

        let short = self.feed(maximumPages: 3)
        _ = try await short.window.request()
        for _ in 0..<4 { try await short.loadMore() }
        #expect(self.ids(short) == Array(10..<25))
        _ = try await short.window.reload()
        #expect(self.ids(short) == Array(0..<15), "from the first page on")

        self.show(feed, 0)
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(0..<5))
    }

    @Test func `SC-06 a further page does not make the others younger, and a refresh is not lost`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        self.clock.advance(by: .seconds(50))
        try await feed.loadMore()
        #expect(feed.window.cachedEntry?.isStale == false && feed.window.cachedEntry?.age == .seconds(50))
        self.clock.advance(by: .seconds(10))
        #expect(feed.window.cachedEntry?.isStale == true)
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<15) && feed.window.cachedEntry?.age == .seconds(60))
        #expect(feed.window.cachedEntry?.isStale == true)

        _ = try await feed.window.request()
        self.list.remove(0)
        feed.window.refresh()
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<20) && feed.window.cachedEntry?.isStale == true)
        #expect(try await feed.window.request().items.map(\.id) == Array(1...20))
    }

    @Test func `SC-06 a request during the load of a further page does not get old pages as new pages`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        let gate = Gate<Void>()
        self.list.onRequest { cursor in if cursor != nil { try await gate.pass() } }
        let more = Task { try await feed.loadMore() }
        await gate.waitForCall()
        self.list.remove(0)
        #expect(try await feed.window.request(.reload).items.map(\.id) == Array(1...5))
        gate.openForGood(returning: ())
        try await more.value
        #expect(self.ids(feed) == Array(1...10))
    }

    @Test func `SC-06 a cancelled load of a further page leaves the window`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        try await feed.loadMore()
        let gate = Gate<Void>()
        self.list.onRequest { _ in try await gate.pass() }
        let more = Task { try await feed.loadMore() }
        await gate.waitForCall()
        more.cancel()
        await #expect(throws: CancellationError.self) { try await more.value }
        gate.openForGood(returning: ())
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<15))
    }

    @Test func `SC-06 a window that memory has lost is read from disk, or loaded up to the visible items`() async throws
    {
        for key in [nil, "Feed"] as [MuxPages<Entry, Int>.CacheKey?] {
            let count = self.list.requests.count
            let feed = self.feed(cacheKey: key)
            _ = try await feed.window.request()
            for _ in 0..<3 { try await feed.loadMore() }
            self.show(feed, 12)
            await self.repository.saveAll()
            feed.window.clearMemory()
            #expect(feed.window.cachedValue == nil)
            try await feed.loadMore()
            #expect(self.ids(feed) == Array(0..<(key == nil ? 15 : 25)))
            #expect(self.list.requests.count - count == (key == nil ? 4 + 3 : 5))
        }
    }

    @Test func `SC-06 the number of pages is limited, and earlier pages are loaded again`() async throws {
        let feed = self.feed(maximumPages: 3)
        _ = try await feed.window.request()
        for _ in 0..<5 { try await feed.loadMore() }
        #expect(self.ids(feed) == Array(15..<30) && feed.window.cachedValue?.hasEarlier == true)
        self.show(feed, 15)
        try await feed.loadEarlier()
        #expect(self.ids(feed) == Array(10..<20))
        for first in [10, 5] {
            self.show(feed, first)
            try await feed.loadEarlier()
        }
        #expect(self.ids(feed) == Array(0..<10) && feed.window.cachedValue?.hasEarlier == false)
        let count = self.list.requests.count
        try await feed.loadEarlier()
        #expect(self.list.requests.count == count)
    }

    @Test func `SC-06 the limit keeps the pages on the screen, and their neighbours`() async throws {
        let feed = self.feed(maximumPages: 3)
        _ = try await feed.window.request()
        self.show(feed, 2)
        for _ in 0..<4 { try await feed.loadMore() }
        #expect(self.ids(feed) == Array(0..<15), "the screen shows the first page: the last pages are removed")
        self.show(feed, 2, 12)
        for _ in 0..<4 { try await feed.loadMore() }
        #expect(self.ids(feed) == Array(0..<20), "the pages between, and one more")
        self.show(feed, 17)
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(10..<25) && feed.window.cachedValue?.hasMore == true)
    }

    @Test func `SC-06 the memory for earlier pages is limited, and the first page stays reachable`() async throws {
        let list = ServerList(count: 1_200)
        let feed = MuxPages<Entry, Int>(maximumPages: 0, policy: self.policy, repository: self.repository) {
            try await list.page(after: $0, limit: 1)
        }
        _ = try await feed.window.request()
        while feed.window.cachedValue?.hasMore == true { try await feed.loadMore() }
        #expect(self.ids(feed) == Array(1_197..<1_200), "at least three pages")
        struct Stored: Decodable { var earlier: [Int?] }
        let stored = try JSONDecoder().decode(Stored.self, from: JSONEncoder().encode(feed.window.cachedValue))
        #expect(stored.earlier.count == 1_000 && stored.earlier.first == .some(nil))
        while let window = feed.window.cachedValue, window.hasEarlier {
            if let first = window.items.first { self.show(feed, first.id) }
            try await feed.loadEarlier()
        }
        #expect(self.ids(feed).first == 0)
    }

    @Test func `SC-06 a load of a page is repeated after a reload that replaces its window`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        let (gate, count) = (Gate<Void>(), Locked(0))
        self.list.onRequest { _ in
            let isFirst = count.withLock { count in
                count += 1
                return count == 1
            }
            if isFirst { try await gate.pass() }
        }
        let more = Task { try await feed.loadMore() }
        await gate.waitForCall()
        self.list.remove(0)
        _ = try await feed.window.reload()
        gate.openForGood(returning: ())
        try await more.value
        #expect(self.ids(feed) == Array(1...10))
    }

    @Test func `SC-06 a window whose items were all removed begins again at the first page`() async throws {
        let feed = self.feed(maximumPages: 3)
        _ = try await feed.window.request()
        for _ in 0..<5 { try await feed.loadMore() }
        for id in 12..<40 { self.list.remove(id) }
        self.show(feed, 16)
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(0..<12) && feed.window.cachedValue?.hasEarlier == false)
    }

    // MARK: - Disk

    @Test func `SC-06 a relaunch shows the same window first, without a request`() async throws {
        let feed = self.feed(cacheKey: "Feed", maximumPages: 3)
        _ = try await feed.window.request()
        for _ in 0..<4 { try await feed.loadMore() }
        await self.repository.saveAll()
        let window = feed.window.cachedValue
        let relaunched = MuxRepository(store: self.store, clock: self.clock)
        let other = MuxPages<Entry, Int>(
            cacheKey: "Feed",
            maximumPages: 3,
            policy: self.policy,
            repository: relaunched
        ) { [list] in try await list.page(after: $0, limit: 5) }
        #expect(await other.window.loadCachedValue() == window && self.list.requests.count == 5)
        try await other.loadMore()
        #expect(self.ids(other) == Array(15..<30) && self.list.requests.count == 6)
    }

    @Test func `SC-06 a further page after a relaunch does not end a refresh`() async throws {
        func feed(_ repository: MuxRepository) -> MuxPages<Entry, Int> {
            MuxPages(cacheKey: "Feed", policy: self.policy, repository: repository) { [list] in
                try await list.page(after: $0, limit: 5)
            }
        }
        let former = feed(self.repository)
        _ = try await former.window.request()
        former.window.refresh()
        await self.repository.saveAll()
        self.list.remove(0)
        let next = feed(MuxRepository(store: self.store, clock: self.clock))
        try await next.loadMore()
        #expect(self.ids(next) == Array(0..<10) && next.window.cachedEntry?.isStale == true)
        #expect(try await next.window.request().items.map(\.id) == Array(1...10))
    }

    @Test func `SC-06 a shared store does not have the window, which depends on the views of a process`() async throws {
        let store = MemorySharedStore()
        func feed() -> MuxPages<Entry, Int> {
            MuxPages(cacheKey: "Feed", repository: MuxRepository(sharedStore: store.connection())) { [list] in
                try await list.page(after: $0, limit: 5)
            }
        }
        let (one, other) = (feed(), feed())
        _ = try await one.window.request()
        #expect(await other.window.loadCachedValue() == nil)
        try await other.loadMore()
        try await other.loadMore()
        #expect(self.ids(other) == Array(0..<10) && self.ids(one) == Array(0..<5))
    }

    @Test func `SC-06 a list without owners is released`() async throws {
        weak var window: Multiplexer<MuxPages<Entry, Int>.Window>?
        do {
            let feed = self.feed()
            _ = try await feed.window.request()
            try await feed.loadMore()
            window = feed.window
        }
        #expect(await settled({ window == nil }, when: { $0 }))
    }

    @Test func `SC-06 a window with wrong counts is not decoded`() throws {
        typealias Window = MuxPages<Entry, Int>.Window
        func decoded(_ counts: [Int], ids: [Int] = [1], earlier: Int = 0) -> Window? {
            let parts = counts.map { #"{"count": \#($0)}"# }.joined(separator: ",")
            let items = ids.map { #"{"id": \#($0), "rank": 1, "seenAt": 0}"# }.joined(separator: ",")
            let cursors = (0..<earlier).map(String.init).joined(separator: ",")
            let text = #"{"items": [\#(items)], "parts": [\#(parts)], "earlier": [\#(cursors)]}"#
            return try? JSONDecoder().decode(Window.self, from: Data(text.utf8))
        }
        #expect(decoded([1])?.items.count == 1)
        for counts in [[], [0], [2], [1, 1], [-1, 2], [2, -1], [.max, .max, 3], [.min, 1]] {
            #expect(decoded(counts) == nil)
        }
        #expect(decoded([], ids: []) == nil && decoded([2], ids: [1, 1]) == nil)
        #expect(decoded([1], earlier: 1_000) != nil && decoded([1], earlier: 1_001) == nil)
    }

    // MARK: - Bad pages

    @Test func `SC-06 a repeated cursor is an error, and the window stays`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        self.list.replaceNextPage { $0.next = 4_000 }  // the cursor of the page itself
        await #expect(throws: MuxPagesError.repeatedCursor) { try await feed.loadMore() }
        #expect(self.ids(feed) == Array(0..<5) && feed.window.cachedValue?.hasMore == true)
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<10))
        try await feed.loadMore()
        self.list.replaceNextPage { $0.next = 4_000 }  // the cursor of the second page
        await #expect(throws: MuxPagesError.repeatedCursor) { try await feed.loadMore() }
        #expect(self.ids(feed) == Array(0..<15))
    }

    @Test func `SC-06 pages without new items are skipped, up to a limit`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        self.list.replaceNextPage { $0 = .init([], next: 9_000) }
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<5) + Array(10..<15) && self.list.requests.count == 3)

        let cursors = Locked(100)
        let endless = MuxPages<Entry, Int>(repository: self.repository) { _ in
            .init(
                [],
                next: cursors.withLock { cursor in
                    cursor += 1
                    return cursor
                }
            )
        }
        #expect(try await endless.window.request().items.isEmpty)
        let count = cursors.withLock { $0 }
        #expect(count <= 110)
        try await endless.loadMore()
        #expect(cursors.withLock { $0 } <= count + 10)

        self.list.onRequest { _ in }
        self.show(feed, 10)
        self.list.replaceNextPage { page in page.next = 4_001 }
        self.list.replaceFurtherPages { page in
            page.next = cursors.withLock { cursor in
                cursor += 1
                return cursor
            }
            page.items = []
        }
        let requests = self.list.requests.count
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(0..<5) && self.list.requests.count == requests + 11)
    }

    @Test func `SC-06 an outdated cursor loads the visible pages again`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        try await feed.loadMore()
        self.show(feed, 6)
        self.list.remove(2)
        self.list.onRequest { cursor in if cursor == 9_000 { throw MuxPagesError.outdatedCursor } }
        try await feed.loadMore()
        #expect(self.ids(feed) == [0, 1] + Array(3...15))

        self.list.onRequest { cursor in if cursor != nil { throw MuxPagesError.outdatedCursor } }
        await #expect(throws: MuxPagesError.outdatedCursor) { try await feed.loadMore() }
        #expect(self.ids(feed) == [0, 1] + Array(3...15))
    }

    @Test func `SC-06 a window whose first cursor is outdated begins again at the first page`() async throws {
        let feed = self.feed(maximumPages: 3)
        _ = try await feed.window.request()
        for _ in 0..<5 { try await feed.loadMore() }
        self.list.onRequest { cursor in if cursor == 14_000 { throw MuxPagesError.outdatedCursor } }
        self.show(feed, 16)
        _ = try await feed.window.reload()
        #expect(self.ids(feed).starts(with: 0..<5) && feed.window.cachedValue?.hasEarlier == false)
    }

    @Test func `SC-06 a cursor that becomes outdated during a reload repeats the reload`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        try await feed.loadMore()
        let refusals = Locked(2)
        self.list.onRequest { cursor in
            let isRefused =
                cursor == 4_000
                && refusals.withLock { count in
                    count -= 1
                    return count >= 0
                }
            if isRefused { throw MuxPagesError.outdatedCursor }
        }
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(0..<10))
    }

    @Test func `SC-06 an item of an earlier page that moves into the window begins the list again`() async throws {
        let feed = self.feed(maximumPages: 3)
        _ = try await feed.window.request()
        for _ in 0..<5 { try await feed.loadMore() }
        self.show(feed, 16)
        self.list.replaceNextPage { $0.next = 4_000 }  // a cursor before the window
        _ = try await feed.window.reload()
        #expect(self.ids(feed).starts(with: 0..<5) && feed.window.cachedValue?.hasEarlier == false)
    }

    @Test func `SC-06 a load of the page before joins a reload, and is then repeated`() async throws {
        let feed = self.feed(maximumPages: 3)
        _ = try await feed.window.request()
        for _ in 0..<5 { try await feed.loadMore() }
        self.show(feed, 15)
        let gate = Gate<Void>()
        self.list.onRequest { _ in try await gate.pass() }
        let reload = Task { try await feed.window.reload() }
        await gate.waitForCall()
        let earlier = Task { try await feed.loadEarlier() }
        #expect(await settled({ feed.window.occupancy.waiters }, when: { $0 == 2 }) == 2)
        gate.openForGood(returning: ())
        _ = try await reload.value
        try await earlier.value
        #expect(self.ids(feed).first == 10)
    }

    @Test func `SC-06 an outdated cursor during a change is an error at once, because no reload is kept`() async throws
    {
        let feed = self.feed()
        _ = try await feed.window.request()
        let change = feed.window.change { $0[3]?.seenAt = 7 }
        self.list.onRequest { cursor in if cursor == 4_000 { throw MuxPagesError.outdatedCursor } }
        await #expect(throws: MuxPagesError.outdatedCursor) { try await feed.loadMore() }
        #expect(self.list.requests.count == 3)
        change.undo()
    }

    @Test func `SC-06 pages without items whose cursors repeat are an error`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        let count = Locked(0)
        self.list.replaceNextPage { $0 = .init([], next: 4_100) }
        self.list.replaceFurtherPages { page in
            let isOdd = count.withLock { count in
                count += 1
                return count % 2 == 1
            }
            page = .init([], next: isOdd ? 4_200 : 4_100)
        }
        await #expect(throws: MuxPagesError.repeatedCursor) { try await feed.loadMore() }
        #expect(self.list.requests.count == 4)
    }

    @Test func `SC-06 offsets of a list that changes miss no item`() async throws {
        let feed = MuxPages<Entry, Int>(pageSize: 5, policy: self.policy, repository: self.repository) { [list] in
            try await list.items(from: $0, limit: $1)
        }
        #expect(try await feed.window.request().items.map(\.id) == Array(0..<5))
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<9) && self.list.requests == [0, 4], "an overlap of one item")

        self.list.insert(-1, at: 0)
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<12) && self.list.requests.count == 3, "the response has the last item")

        self.show(feed, 11)
        self.list.remove(1)
        self.list.remove(3)
        try await feed.loadMore()
        #expect(self.ids(feed) == [-1, 0, 2] + Array(4...17))
        try await feed.loadMore()
        #expect(Set(self.ids(feed)).isSuperset(of: 4...20))
    }

    @Test func `SC-06 offsets and page sizes without sense are corrected or end the list`() async throws {
        let list = self.list
        for size in [.min, -1, 0, 1] as [Int] {
            let feed = MuxPages<Entry, Int>(pageSize: size, policy: self.policy, repository: self.repository) {
                try await list.items(from: $0, limit: $1)
            }
            try await feed.loadMore()
            try await feed.loadMore()
            #expect(self.ids(feed) == [0, 1, 2])
        }
        typealias Window = MuxPages<Entry, Int>.Window
        for offset in [Int.min, -1, .max] {
            let item = #"{"id": 0, "rank": 0, "seenAt": 0}"#
            let text = #"{"items": [\#(item)], "parts": [{"count": 1}], "next": \#(offset), "earlier": []}"#
            let window = try JSONDecoder().decode(Window.self, from: Data(text.utf8))
            let feed = MuxPages<Entry, Int>(pageSize: 2, policy: self.policy, repository: self.repository) { [list] in
                guard $0 < 1_000 else { return [Entry(id: 0, rank: 0, seenAt: 0), Entry(id: 1, rank: 1, seenAt: 0)] }
                return try await list.items(from: $0, limit: $1)
            }
            feed.window.store(window)
            try await feed.loadMore()
            #expect(self.ids(feed).starts(with: [0, 1]) && feed.window.cachedValue?.hasMore == (offset < 0))
        }
    }

    @Test func `SC-06 a failure of a further page is thrown, and the window stays`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        self.list.onRequest { _ in throw ServerList.FetchFailed() }
        await #expect(throws: ServerList.FetchFailed.self) { try await feed.loadMore() }
        #expect(self.ids(feed) == Array(0..<5))
        self.list.onRequest { _ in throw URLError(.notConnectedToInternet) }
        await #expect(throws: URLError.self) { try await feed.loadMore() }
        #expect(self.ids(feed) == Array(0..<5) && self.list.requests.count == 3, "one request for each call")
    }

    @Test func `SC-06 retries and the time-out apply to each page`() async throws {
        _ = try await SeededExecutor.explore(1) { schedule in
            let (list, repository) = (ServerList(count: 40), MuxRepository(store: MemoryStore(), clock: schedule.clock))
            let policy = MuxPolicy(fetchTimeout: .seconds(30), retry: RetryPolicy(maxAttempts: 2))
            let feed = MuxPages<Entry, Int>(policy: policy, repository: repository) { cursor in
                try await schedule.clock.sleep(for: .seconds(9))
                return try await list.page(after: cursor, limit: 5)
            }
            let failures = Locked(1)
            list.onRequest { cursor in
                let fails =
                    cursor == 9_000
                    && failures.withLock { count in
                        count -= 1
                        return count == 0
                    }
                if fails { throw URLError(.networkConnectionLost) }
            }
            _ = try await feed.window.request()
            for _ in 0..<3 { try await feed.loadMore() }
            _ = try await feed.window.reload()
            #expect(self.ids(feed) == Array(0..<20) && list.requests.count == 4 + 1 + 4)
        }
    }

    @Test func `SC-06 each page has the dependency, and a rejected dependency repeats one page`() async throws {
        struct Rejected: BadDependencyError { let isBadDependency = true }
        struct Session: DependencyRunner {
            let sessionRepository: MuxRepository?
            let runner: DependentRunner<Int>

            nonisolated(nonsending) func run<Output: Sendable>(
                _ task: (Int) async throws -> RunResult<Output>
            ) async throws -> Output {
                try await self.runner.run(task)
            }
        }
        let tokens = Locked(0)
        let tokenRunner = DependentRunner<Int> {
            tokens.withLock { token in
                token += 1
                return token
            }
        }
        let runner = Session(sessionRepository: self.repository, runner: tokenRunner)
        let feed = MuxPages<Entry, Int>(dependency: runner, policy: self.policy) { [list] cursor, token in
            if cursor != nil, token == 1 { throw Rejected() }
            return try await list.page(after: cursor, limit: 5)
        }
        #expect(feed.window.repository === self.repository)
        _ = try await feed.window.request()
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<10) && self.list.requests.count == 2 && tokens.withLock { $0 } == 2)
        let numbers = MuxPages<Entry, Int>(dependency: runner, pageSize: 5) { [list] in
            #expect($2 == 2)
            return try await list.items(from: $0, limit: $1)
        }
        #expect(try await numbers.window.request().items.count == 5)

        let other = MuxPages<Entry, Int>(dependency: runner, repository: MuxRepository(store: MemoryStore())) { _, _ in
            .init([], next: nil)
        }
        await #expect(throws: MuxError.repositoryMismatch) { try await other.window.request() }

        let saved = self.feed(cacheKey: "Feed")
        _ = try await saved.window.request()
        await self.repository.saveAll()
        let foreign = Session(sessionRepository: MuxRepository(store: MemoryStore()), runner: tokenRunner)
        let relaunched = MuxRepository(store: self.store, clock: self.clock)
        let mismatched = MuxPages<Entry, Int>(cacheKey: "Feed", dependency: foreign, repository: relaunched) { _, _ in
            .init([], next: nil)
        }
        await #expect(throws: MuxError.repositoryMismatch) { try await mismatched.window.request() }
    }

    @Test func `SC-06 a clear during a load leaves nothing, and requests nothing`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        let gate = Gate<Void>()
        self.list.onRequest { _ in try await gate.pass() }
        let more = Task { try await feed.loadMore() }
        await gate.waitForCall()
        await feed.window.clear()
        gate.openForGood(returning: ())
        await #expect(throws: MuxError.cleared) { try await more.value }
        #expect(feed.window.cachedValue == nil && self.list.requests.count == 2)
    }

    @Test func `SC-06 a page that was requested before a clear is not appended after the clear`() async throws {
        for error in [nil, MuxPagesError.outdatedCursor] {
            let list = ServerList(count: 40)
            let feed = MuxPages<Entry, Int>(policy: self.policy, repository: self.repository) {
                try await list.page(after: $0, limit: 5)
            }
            _ = try await feed.window.request()
            let gate = Gate<Void>()
            list.onRequest { cursor in
                guard cursor != nil else { return }
                try await gate.pass()
                if let error { throw error }
            }
            let more = Task { try await feed.loadMore() }
            await gate.waitForCall()
            await feed.window.clear()
            if error == nil { _ = try await feed.window.request() }
            let count = list.requests.count
            gate.openForGood(returning: ())
            await #expect(throws: MuxError.cleared) { try await more.value }
            #expect(list.requests.count == count && feed.window.cachedValue?.items.count == (error == nil ? 5 : nil))
        }
    }

    @Test func `SC-06 items can be changed before the server has the change`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        let change = feed.window.change { window in
            window[3]?.seenAt = 7
            window[4] = nil
            window[100]?.seenAt = 7
            window[2] = window[1]
        }
        #expect(self.ids(feed) == Array(0..<4) && feed.window.cachedValue?[3]?.seenAt == 7)
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<4) + Array(5..<10) && feed.window.cachedValue?[3]?.seenAt == 7)
        let changed = try JSONEncoder().encode(feed.window.cachedValue)
        let decoded = try JSONDecoder().decode(MuxPages<Entry, Int>.Window.self, from: changed)
        #expect(decoded == feed.window.cachedValue, "the counts of the pages are those of their items")
        change.undo()
        #expect(self.ids(feed) == Array(0..<10) && feed.window.cachedValue?[3]?.seenAt == 0)
    }

    @Test func `SC-06 a change that ends while a page is appended is not shown again`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        let first = feed.window.change { $0[0]?.seenAt = 5 }
        let mustUndo = Locked(false)
        let second = feed.window.change { window in
            let isFirstCall = mustUndo.withLock { isSet in
                defer { isSet = false }
                return isSet
            }
            if isFirstCall { first.undo() }
            window[1]?.seenAt = 6
        }
        mustUndo.withLock { $0 = true }
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<10))
        #expect(feed.window.cachedValue?[0]?.seenAt == 0 && feed.window.cachedValue?[1]?.seenAt == 6)
        second.undo()
    }

    @Test func `SC-06 an appended page is saved, although the window was saved before`() async throws {
        let feed = self.feed(cacheKey: "Feed")
        _ = try await feed.window.request()
        await self.repository.saveAll()
        try await feed.loadMore()
        await self.repository.saveAll()
        let relaunched = MuxRepository(store: self.store, clock: self.clock)
        let next = MuxPages<Entry, Int>(cacheKey: "Feed", policy: self.policy, repository: relaunched) { _ in
            throw ServerList.FetchFailed()
        }
        let window = await next.window.loadCachedValue()
        #expect(window?.items.map(\.id) == Array(0..<10))
    }

    @Test func `SC-06 a failed page is requested again, even if the policy remembers failures`() async throws {
        let policy = MuxPolicy(remembersFailure: { _ in .seconds(60) }, fetchTimeout: .longest)
        let list = self.list
        let feed = MuxPages<Entry, Int>(policy: policy, repository: self.repository) {
            try await list.page(after: $0, limit: 5)
        }
        _ = try await feed.window.request()
        list.onRequest { _ in throw ServerList.FetchFailed() }
        await #expect(throws: ServerList.FetchFailed.self) { try await feed.loadMore() }
        list.onRequest { _ in }
        try await feed.loadMore()
        #expect(self.ids(feed) == Array(0..<10))
    }

    @Test func `SC-06 the 30 items that appeared last are 30 different items of the session`() async throws {
        let feed = self.feed()
        let view = ObjectIdentifier(self.list)
        _ = try await feed.window.request()
        for _ in 0..<3 { try await feed.loadMore() }
        self.show(feed, 12)
        for _ in 0..<40 { feed.loader.appeared(0, in: view) }
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(0..<15), "the list still shows item 12")

        await feed.window.clear()
        feed.loader.appeared(2, in: view)
        _ = try await feed.window.request()
        for _ in 0..<2 { try await feed.loadMore() }
        _ = try await feed.window.reload()
        #expect(self.ids(feed) == Array(0..<5), "after the clear, only item 2 has appeared")
    }

    @Test func `SC-06 the places of views end with the session`() async throws {
        let feed = self.feed()
        _ = try await feed.window.request()
        for _ in 0..<3 { try await feed.loadMore() }
        self.show(feed, 17)
        await self.repository.clearAll()
        #expect(try await feed.window.request().items.map(\.id) == Array(0..<5))
    }

    @Test func `SC-06 a sign-out during a load leaves nothing of the list`() async throws {
        let feed = self.feed(cacheKey: "Feed")
        _ = try await feed.window.request()
        let gate = Gate<Void>()
        self.list.onRequest { _ in try await gate.pass() }
        let more = Task { try await feed.loadMore() }
        await gate.waitForCall()
        await self.repository.clearAll()
        gate.openForGood(returning: ())
        await #expect(throws: MuxError.sessionEnded) { try await more.value }
        #expect(feed.window.cachedValue == nil)
        let onDisk = await feed.window.loadCachedValue()
        #expect(onDisk == nil)
    }
}
