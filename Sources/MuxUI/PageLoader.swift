import MuxKit

extension MuxPages {
    /// The loaded pages of a list.
    public struct Window: Sendable {
        /// One page of the window.
        struct Part: Sendable, Hashable {
            /// The cursor; `nil` for the first page of the list.
            var cursor: Cursor?
            /// The number of items of the page.
            var count: Int
        }

        /// The items, in the order of the server; no two items have the same ID.
        public private(set) var items: [Item] = []
        private(set) var parts: [Part] = []
        /// The cursor of the next page; `nil` after the last page.
        private(set) var next: Cursor?
        /// The cursors of the pages before the window, in order.
        private(set) var earlier: [Cursor?]

        /// The maximum number of ``earlier``.
        static var maximumEarlier: Int { 1_000 }

        init(earlier: [Cursor?] = []) { self.earlier = earlier }

        /// Whether the server has items after ``items``.
        public var hasMore: Bool { self.next != nil }

        /// Whether the window does not begin with the first page of the list.
        package var hasEarlier: Bool { !self.earlier.isEmpty }

        /// The page before the window; `nil` if the window begins with the first page.
        var pageBefore: PageLoader<Item, Cursor>.Wanted? {
            self.hasEarlier ? self.parts.first.map { .before($0.cursor) } : nil
        }

        /// The IDs of the first and the last item.
        var ends: [Item.ID?] { [self.items.first?.id, self.items.last?.id] }

        /// The indices of an item and of its page; `nil` without the item.
        ///
        /// - Complexity: O(*n*) for *n* items.
        func place(of id: Item.ID) -> (item: Int, part: Int)? {
            guard let item = self.items.firstIndex(where: { $0.id == id }) else { return nil }
            var rest = item
            let part = self.parts.firstIndex { part in
                rest -= part.count
                return rest < 0
            }
            return part.map { (item, $0) }
        }

        /// Appends the new items of a page.
        ///
        /// A page without new items becomes part of the page before.
        ///
        /// - Returns: Whether the page has new items.
        mutating func append(_ page: Page, at cursor: Cursor?) throws -> Bool {
            if let next = page.next {
                let former = [cursor] + self.earlier + self.parts.map(\.cursor)
                if former.contains(next) { throw MuxPagesError.repeatedCursor }
            }
            var ids = Set(self.items.lazy.map(\.id))
            let new = page.items.filter { ids.insert($0.id).inserted }
            self.items += new
            self.next = page.next
            if let last = self.parts.indices.last, new.isEmpty || self.parts[last].count == 0 {
                self.parts[last].count += new.count
            } else {
                self.parts.append(Part(cursor: cursor, count: new.count))
            }
            return !new.isEmpty
        }

        /// Removes the first pages above the maximum number of pages.
        mutating func limit(to maximumPages: Int) {
            while self.parts.count > maximumPages {
                let first = self.parts.removeFirst()
                self.items.removeFirst(first.count)
                self.earlier.append(first.cursor)
                // The first page of the list stays, so that a load of all earlier pages ends there.
                if self.earlier.count > Self.maximumEarlier { self.earlier.remove(at: 1) }
            }
        }
    }
}

extension MuxPages.Window: Equatable where Item: Equatable {}

extension MuxPages.Window: Codable where Item: Codable, Cursor: Codable {
    private enum CodingKeys: CodingKey { case items, parts, next, earlier }

    /// Decodes the pages of a former process.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        self.items = try values.decode([Item].self, forKey: .items)
        self.parts = try values.decode([Part].self, forKey: .parts)
        self.next = try values.decodeIfPresent(Cursor.self, forKey: .next)
        self.earlier = try values.decode([Cursor?].self, forKey: .earlier)
        var rest = self.items.count
        for part in self.parts where rest >= 0 { rest = (0...rest).contains(part.count) ? rest - part.count : -1 }
        guard rest == 0 else {
            throw DecodingError.dataCorruptedError(forKey: .parts, in: values, debugDescription: "Wrong counts.")
        }
    }
}

extension MuxPages.Window.Part: Codable where Cursor: Codable {}

/// Loads the pages of a ``MuxPages``.
final class PageLoader<Item: Identifiable & Sendable, Cursor: Hashable & Sendable>: Sendable where Item.ID: Sendable {
    typealias Window = MuxPages<Item, Cursor>.Window
    /// Fetches the page at a cursor; also receives the ID of the last item before the page.
    typealias Source = @Sendable @concurrent (Cursor?, Item.ID?) async throws -> MuxPages<Item, Cursor>.Page

    /// A page that callers wait for.
    enum Wanted: Hashable, Sendable {
        /// The page at a cursor, after the window.
        case after(Cursor)
        /// The page before a window whose first page is at a cursor.
        case before(Cursor?)
    }

    private struct State: Sendable {
        /// The wanted pages, with the numbers of callers.
        var wanted: [Wanted: Int] = [:]
        /// The item that appeared last in each object of views.
        var positions: [ObjectIdentifier: Item.ID] = [:]
        /// The error of the last load; `nil` after a success.
        var failure: (any Error)?
    }

    private let source: Source
    private let maximumPages: Int
    /// Whether a stale window is renewed.
    private let isRenewed: Bool
    private let state = Locked(State())

    /// The maximum number of loads for one call, because the list may change during each load.
    static var maximumAttempts: Int { 3 }
    /// The maximum number of successive pages without new items in one load.
    private static var maximumEmptyPages: Int { 10 }

    init(maximumPages: Int, isRenewed: Bool, _ source: @escaping Source) {
        self.source = source
        self.maximumPages = max(3, maximumPages)
        self.isRenewed = isRenewed
    }

    // MARK: - Demand

    func add(_ page: Wanted) { self.state.withLock { $0.wanted[page, default: 0] += 1 } }

    func remove(_ page: Wanted) {
        self.state.withLock { state in
            guard let count = state.wanted[page] else { return }
            state.wanted[page] = count > 1 ? count - 1 : nil
        }
    }

    private func isWanted(_ page: Wanted?) -> Bool {
        guard let page else { return false }
        return self.state.withLock { $0.wanted[page] != nil }
    }

    /// See ``MuxPages/setPosition(_:of:)``.
    func setPosition(_ id: Item.ID?, of object: ObjectIdentifier) {
        self.state.withLock { $0.positions[object] = id }
    }

    /// The error of the last load; `nil` after a success.
    var failure: (any Error)? { self.state.withLock { $0.failure } }

    // MARK: - Loading

    /// Loads the next page if the page is wanted, and otherwise the visible pages.
    func load(_ before: FetchedBefore<Window>?) async throws -> Fetched<Window> {
        do {
            let fetched = try await self.loaded(before)
            self.state.withLock { $0.failure = nil }
            return fetched
        } catch {
            self.state.withLock { $0.failure = error }
            throw error
        }
    }

    private func loaded(_ before: FetchedBefore<Window>?) async throws -> Fetched<Window> {
        guard let before else { return Fetched(try await self.visiblePages(of: Window())) }
        // A refresh requires new pages. On disk, a refreshed window has no lifetime.
        let isRefreshed = before.isRefreshed || self.isRenewed && before.timeToLive <= .zero
        var window = before.value
        if !isRefreshed, let next = window.next, self.isWanted(.after(next)) {
            do {
                try await self.appendPage(at: next, to: &window)
                window.limit(to: self.maximumPages)
                // The other pages do not become younger.
                let rest = max(before.timeToLive - before.age, self.isRenewed ? .nanoseconds(1) : .zero)
                return Fetched(window, timeToLive: rest)
            } catch let error where error.isOutdatedCursor {}
        }
        return Fetched(try await self.visiblePages(of: before.value))
    }

    /// Loads the visible pages of `former`, and the page before or after if wanted.
    private func visiblePages(of former: Window) async throws -> Window {
        var (start, earlier) = (former.parts.first?.cursor ?? nil, former.earlier)
        let isEarlier = self.isWanted(former.pageBefore)
        if isEarlier, let before = earlier.popLast() { start = before }
        var attempt = 1
        while true {
            var window = Window(earlier: earlier)
            do {
                try await self.appendPage(at: start, to: &window)
                while let next = window.next, window.parts.count < self.pageCount(of: former, isEarlier: isEarlier) {
                    let count = window.parts.count
                    try await self.appendPage(at: next, to: &window)
                    if window.parts.count == count { break }
                }
                window.limit(to: self.maximumPages)
                if !window.items.isEmpty || earlier.isEmpty { return window }
                (start, earlier) = (nil, [])  // the server has no items from the start on
            } catch let error where error.isOutdatedCursor && attempt < Self.maximumAttempts {
                attempt += 1
                if window.parts.isEmpty { (start, earlier) = (nil, []) }
            }
        }
    }

    /// The number of pages to load; items can appear during a load.
    private func pageCount(of former: Window, isEarlier: Bool) -> Int {
        if self.isWanted(former.next.map { .after($0) }) { return min(former.parts.count, self.maximumPages) + 1 }
        let positions = self.state.withLock { Array($0.positions.values) }
        let visible = positions.compactMap { former.place(of: $0)?.part }.max()
        let count = visible.map { min($0 + 2, former.parts.count) } ?? 1
        return min(count + (isEarlier ? 1 : 0), self.maximumPages)
    }

    /// Appends the page at `cursor`, and the next page if a page has no new items.
    private func appendPage(at cursor: Cursor?, to window: inout Window) async throws {
        var cursor = cursor
        for _ in 0..<Self.maximumEmptyPages {
            let page = try await self.source(cursor, window.items.last?.id)
            try Task.checkCancellation()
            let hasItems = try window.append(page, at: cursor)
            guard !hasItems, let next = window.next else { return }
            cursor = next
        }
    }
}

extension Error {
    /// Whether this error is, or wraps, ``MuxPagesError/outdatedCursor``.
    fileprivate var isOutdatedCursor: Bool {
        self.firstDecision { ($0 as? MuxPagesError).map { $0 == .outdatedCursor } } ?? false
    }
}
