import Foundation
import MuxKit
import MuxTesting

@testable import MuxUI

/// An item of a list.
struct Entry: Identifiable, Codable, Hashable, Sendable {
    var id: Int
    /// The place in the order of the server.
    var rank: Int
    /// The number of changes of the list before the response with the item.
    var seenAt: Int
}

/// A list of a server, with the ranks of items as cursors, or with offsets.
final class ServerList: Sendable {
    struct FetchFailed: Error {}

    /// An item of the server.
    struct Item: Sendable {
        var id: Int
        var rank: Int
        /// The number of changes of the list at the insertion.
        var createdAt: Int
    }

    private struct State {
        var items: [Item]
        var changes = 0
        var requests: [Int?] = []
        var onRequest: (@Sendable @concurrent (Int?) async throws -> Void)?
        var replaceNext: (@Sendable (inout MuxPages<Entry, Int>.Page) -> Void)?
        var replaceFurther: (@Sendable (inout MuxPages<Entry, Int>.Page) -> Void)?
    }

    private let state: Locked<State>

    /// Makes a list of items with the IDs from 0 on, and ranks at a distance of 1,000.
    init(count: Int) {
        self.state = Locked(State(items: (0..<count).map { Item(id: $0, rank: 1_000 * $0, createdAt: 0) }))
    }

    /// The cursors or offsets of the requests.
    var requests: [Int?] { self.state.withLock { $0.requests } }
    var items: [Item] { self.state.withLock { $0.items } }

    /// Calls `work` before each response.
    func onRequest(_ work: @escaping @Sendable @concurrent (Int?) async throws -> Void) {
        self.state.withLock { $0.onRequest = work }
    }

    /// Changes the responses after the next response.
    func replaceFurtherPages(_ change: @escaping @Sendable (inout MuxPages<Entry, Int>.Page) -> Void) {
        self.state.withLock { $0.replaceFurther = change }
    }

    /// Changes the next response with a cursor.
    func replaceNextPage(_ change: @escaping @Sendable (inout MuxPages<Entry, Int>.Page) -> Void) {
        self.state.withLock { $0.replaceNext = change }
    }

    // MARK: - Changes

    /// Inserts an item before the item at `place`, or at the end.
    func insert(_ id: Int, at place: Int) {
        self.state.withLock { state in
            state.changes += 1
            let before = place > 0 ? state.items[place - 1].rank : (state.items.first?.rank ?? 0) - 2_000
            let after = place < state.items.count ? state.items[place].rank : before + 2_000
            guard after - before > 1 else { return }
            state.items.insert(Item(id: id, rank: (before + after) / 2, createdAt: state.changes), at: place)
        }
    }

    func remove(_ id: Int) {
        self.state.withLock { state in
            state.changes += 1
            state.items.removeAll { $0.id == id }
        }
    }

    // MARK: - Responses

    func page(after cursor: Int?, limit: Int) async throws -> MuxPages<Entry, Int>.Page {
        try await self.began(cursor)
        return self.state.withLock { state in
            let rest = state.items.filter { $0.rank > cursor ?? .min }
            let items = rest.prefix(limit).map { Entry(id: $0.id, rank: $0.rank, seenAt: state.changes) }
            var page = MuxPages<Entry, Int>.Page(items, next: rest.count > limit ? items.last?.rank : nil)
            if let change = state.replaceNext.take() ?? state.replaceFurther { change(&page) }
            return page
        }
    }

    func items(from offset: Int, limit: Int) async throws -> [Entry] {
        try await self.began(offset)
        return self.state.withLock { state in
            state.items.dropFirst(offset).prefix(limit).map { Entry(id: $0.id, rank: $0.rank, seenAt: state.changes) }
        }
    }

    private func began(_ cursor: Int?) async throws {
        let work = self.state.withLock { state in
            state.requests.append(cursor)
            return state.onRequest
        }
        try await work?(cursor)
    }
}

/// A list that a user scrolls and reloads while the server's list changes.
final class PagesScenario: Sendable {
    private struct Violation: Error, CustomStringConvertible { var description: String }

    private struct State {
        var last = 1_000
        var windows = 0
        var changes = true
    }

    private let schedule: SeededExecutor
    private let repository: MuxRepository
    private let list: ServerList
    private let feed: MuxPages<Entry, Int>
    private let isByOffset: Bool
    private let isAlone: Bool
    private let isUnlimited: Bool
    private let state = Locked(State())

    var stepCount: Int { self.state.withLock { $0.windows } }

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        self.repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
        self.isByOffset = schedule.draw(0..<2) == 0
        self.isAlone = schedule.draw(0..<3) == 0
        let list = ServerList(count: schedule.draw(0..<30))
        self.list = list
        let (size, state) = (schedule.draw(2..<7), self.state)
        let policy = MuxPolicy(timeToLive: .seconds(schedule.draw(0..<30)), fetchTimeout: .longest)
        let maximumPages = [3, 5, 100][schedule.draw(0..<3)]
        self.isUnlimited = maximumPages == 100
        @Sendable func change() {
            guard state.withLock({ $0.changes }), schedule.draw(0..<3) == 0 else { return }
            let items = list.items
            if schedule.draw(0..<2) == 0, let id = items.isEmpty ? nil : items[schedule.draw(0..<items.count)].id {
                list.remove(id)
            } else {
                let id = state.withLock { state in
                    state.last += 1
                    return state.last
                }
                list.insert(id, at: schedule.draw(0..<(items.count + 1)))
            }
        }
        list.onRequest { _ in
            change()
            try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<500)))
            change()
            guard state.withLock({ $0.changes }) else { return }
            switch schedule.draw(0..<40) {
            case 0: throw ServerList.FetchFailed()
            case 1: throw URLError(.notConnectedToInternet)
            default: break
            }
        }
        self.feed =
            self.isByOffset
            ? MuxPages(
                cacheKey: "Feed",
                pageSize: size,
                maximumPages: maximumPages,
                policy: policy,
                repository: self.repository
            ) { try await list.items(from: $0, limit: $1) }
            : MuxPages(
                cacheKey: "Feed",
                maximumPages: maximumPages,
                policy: policy,
                repository: self.repository
            ) { try await list.page(after: $0, limit: size) }
    }

    func play() async throws {
        try await withThrowingTaskGroup { group in
            for _ in 0..<(self.isAlone ? 1 : self.schedule.draw(2..<4)) { group.addTask { try await self.scroll() } }
            try await group.waitForAll()
        }
        self.state.withLock { $0.changes = false }
        try await self.playAtRest()
        try await self.schedule.clock.sleep(for: .seconds(5))  // loads without callers end
    }

    /// Scrolls to the end of a list that does not change: each page needs one request.
    private func playAtRest() async throws {
        await self.feed.window.clear()
        self.feed.loader.forgetItems(of: ObjectIdentifier(self.list))
        let (before, ids) = (self.list.requests.count, self.list.items.map(\.id))
        var (pages, seen) = (1, try await self.feed.window.request().items.map(\.id))
        while self.feed.window.cachedValue?.hasMore == true {
            try await self.feed.loadMore()
            pages += 1
            try self.check()
            seen += self.feed.window.cachedValue?.items.map(\.id).filter { !seen.contains($0) } ?? []
        }
        let requests = self.list.requests.count - before
        guard requests == pages else { throw Violation(description: "\(requests) requests of \(pages) pages") }
        guard seen == ids else { throw Violation(description: "\(seen) at the end, not \(ids)") }
        while let window = self.feed.window.cachedValue, window.hasEarlier {
            self.feed.loader.forgetItems(of: ObjectIdentifier(self))
            if let first = window.items.first { self.feed.loader.appeared(first.id, in: ObjectIdentifier(self)) }
            try await self.feed.loadEarlier()
            try self.check()
            let first = self.feed.window.cachedValue?.items.first?.id
            guard first != window.items.first?.id else { throw Violation(description: "no earlier page: \(window)") }
        }
        let first = self.feed.window.cachedValue?.items.first?.id
        guard first == ids.first else { throw Violation(description: "\(String(describing: first)) at the start") }
    }

    private func scroll() async throws {
        for _ in 0..<self.schedule.draw(1..<12) {
            do {
                switch self.schedule.draw(0..<15) {
                case 0: self.feed.window.refresh()
                case 1: _ = await self.repository.saveAll()
                case 2: self.feed.window.clearMemory()
                case 3: _ = try await self.feed.window.reload()
                case 4: _ = try await self.feed.window.request([.init(), .reload][self.schedule.draw(0..<2)])
                case 7: await self.feed.window.clear(endingRequests: self.schedule.draw(0..<2) == 0)
                case 5: try await self.feed.loadEarlier()
                case 6:
                    try await withThrowingTaskGroup { group in
                        group.addTask { try await self.feed.loadMore() }
                        try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<500)))
                        group.cancelAll()
                        try await group.waitForAll()
                    }
                default: try await self.loadMore()
                }
            } catch is ServerList.FetchFailed {
            } catch is URLError {
            } catch is CancellationError {
            } catch MuxError.cleared {
            } catch MuxPagesError.outdatedCursor where self.isByOffset {
            }
            try self.check()
            if let items = self.feed.window.cachedValue?.items, !items.isEmpty {
                let id = items[self.schedule.draw(0..<items.count)].id
                self.feed.loader.appeared(
                    id,
                    in: self.schedule.draw(0..<3) == 0 ? ObjectIdentifier(self.list) : ObjectIdentifier(self)
                )
            }
            try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<2_000)))
            try self.check()
        }
    }

    /// Loads the next page; without other calls and with cursors, the window gets items, or ends.
    private func loadMore() async throws {
        let former = self.feed.window.cachedValue
        try await self.feed.loadMore()
        guard self.isAlone, !self.isByOffset, self.isUnlimited, let former, let last = former.items.last else { return }
        let current = self.feed.window.cachedValue
        let isLonger = current?.items.last.map { $0.rank > last.rank } ?? false
        guard isLonger || current?.hasMore == false else {
            throw Violation(description: "no new items: \(former), \(String(describing: current))")
        }
    }

    private func check() throws {
        guard let window = self.feed.window.cachedValue else { return }
        self.state.withLock { $0.windows += 1 }
        let items = window.items
        let description = "\(items.map { ($0.id, $0.rank) }), the server has \(self.list.items)"
        guard Set(items.map(\.id)).count == items.count else { throw Violation(description: "twice: \(description)") }
        guard zip(items, items.dropFirst()).allSatisfy({ $0.rank < $1.rank }) else {
            throw Violation(description: "not in order: \(description)")
        }
        guard let first = items.first, let last = items.last, let seenAt = items.map(\.seenAt).min() else { return }
        // Items of the server that existed during all requests of the window. A window that does not begin
        // with the first page begins somewhere between two items.
        let start = window.hasEarlier ? first.rank : .min
        let end = window.hasMore ? last.rank : .max
        let ids = Set(items.map(\.id))
        let missing = self.list.items.filter {
            $0.createdAt <= seenAt && (start...end).contains($0.rank) && !ids.contains($0.id)
        }
        guard missing.isEmpty else { throw Violation(description: "missing \(missing) in \(description)") }
    }
}
