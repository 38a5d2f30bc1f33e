import MuxKit

/// Loads the pages of a ``MuxPages``.
final class PageLoader<Item: Identifiable & Sendable, Cursor: Hashable & Sendable>: Sendable where Item.ID: Sendable {
    typealias Page = MuxPages<Item, Cursor>.Page
    typealias Window = MuxPages<Item, Cursor>.Window
    /// Fetches the page at a cursor; also receives the ID of the last item before the page.
    typealias Source = @Sendable @concurrent (Cursor?, Item.ID?) async throws -> Page

    /// A request of a page; equal concurrent requests share one fetch.
    private struct PageRequest: Hashable, Sendable {
        enum Load: Hashable, Sendable {
            /// A load of the visible pages, by the number of the load.
            case visiblePages(UInt64)
            /// A load of the next page, by the revision of the window.
            case nextPage(UInt64)
        }

        let load: Load
        let cursor: Cursor?
        let last: Item.ID?
    }

    /// The items that appeared last in an ``ObservedPages``.
    private struct Appeared: Sendable {
        /// The number of clears of the list at the appearance.
        var clears: UInt64
        var ids: [Item.ID]
    }

    private struct State: Sendable {
        /// The number of loads of the visible pages.
        var loads: UInt64 = 0
        /// Set if the next load of the visible pages must begin with the page before the window.
        ///
        /// The cursor is of the first page in the window.
        var requiredPage: (cursor: Cursor?, clears: UInt64)?
        var appeared: [ObjectIdentifier: Appeared] = [:]
        /// The window in memory and the number of clears.
        var current: (@Sendable () -> (window: Window?, clears: UInt64))?
    }

    /// Shares the running fetches of pages between callers; keeps no page.
    private let pages: MultiplexerMap<PageRequest, Page>
    private let maximumPages: Int
    private let state = Locked(State())

    /// The maximum number of loads for one call, because the list may change during each load.
    static var maximumAttempts: Int { 3 }
    /// The maximum number of successive pages that one call of ``appendPage(at:to:_:)`` loads.
    private static var maximumEmptyPages: Int { 10 }
    /// The number of recorded items of one ``ObservedPages``; the pages with these items count as visible.
    private static var maximumAppeared: Int { 30 }
    /// The maximum number of further pages to load for visible items that have moved.
    private static var maximumMove: Int { 2 }

    init(maximumPages: Int, policy: MuxPolicy, repository: MuxRepository, _ source: @escaping Source) {
        var policy = policy
        policy.remembersFailure = { _ in nil }
        self.pages = MultiplexerMap(policy: policy, repository: repository) { request, _ in
            Fetched(try await source(request.cursor, request.last), isKept: false)
        }
        self.maximumPages = max(3, maximumPages)
    }

    /// Sets the function that reads the window in memory and the number of clears.
    func connect(_ current: @escaping @Sendable () -> (window: Window?, clears: UInt64)) {
        self.state.withLock { $0.current = current }
    }

    var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.pages.occupancy }

    // MARK: - Demand

    /// Makes the next load of the visible pages begin with the page before the window.
    func requirePage(before window: Window) {
        let clears = self.clears
        self.state.withLock { state in state.requiredPage = window.parts.first.map { ($0.cursor, clears) } }
    }

    /// Records that an item has appeared in an ``ObservedPages``.
    func appeared(_ id: Item.ID, in object: ObjectIdentifier) {
        let clears = self.clears
        self.state.withLock { state in
            let former = state.appeared[object].flatMap { $0.clears == clears ? $0.ids : nil }
            var appeared = Appeared(clears: clears, ids: former ?? [])
            appeared.ids.removeAll { $0 == id }
            appeared.ids.append(id)
            if appeared.ids.count > Self.maximumAppeared { appeared.ids.removeFirst() }
            state.appeared[object] = appeared
        }
    }

    /// Removes the recorded items of an ``ObservedPages``.
    func forgetItems(of object: ObjectIdentifier) {
        self.state.withLock { _ = $0.appeared.removeValue(forKey: object) }
    }

    /// The IDs of the items that appeared last in one ``ObservedPages``, or in all, since the last clear.
    func visible(in object: ObjectIdentifier? = nil) -> Set<Item.ID> {
        Set(self.appeared(in: object).flatMap(\.ids))
    }

    /// The records for ``visible(in:)``; removes the records from before the last clear.
    private func appeared(in object: ObjectIdentifier? = nil) -> [Appeared] {
        let clears = self.clears
        return self.state.withLock { state in
            state.appeared = state.appeared.filter { $0.value.clears == clears }
            return object.map { [state.appeared[$0]].compactMap(\.self) } ?? Array(state.appeared.values)
        }
    }

    /// The number of clears of the list.
    private var clears: UInt64 { self.state.withLock { $0.current }?().clears ?? 0 }

    // MARK: - Loading

    /// The window with the next page, limited to the maximum number of pages.
    func nextPage(of window: Window, _ revision: UInt64) async throws -> Window {
        guard let next = window.next else { return window }
        var window = window
        try await self.appendPage(at: next, to: &window, .nextPage(revision))
        window.limit(to: self.maximumPages, keeping: self.visible())
        return window
    }

    /// The visible pages of `former`, with the page before `former` after ``requirePage(before:)``.
    ///
    /// - Parameter former: The window in memory or on disk; `nil` without a window.
    /// - Returns: The new window.
    /// - Throws: The error of the request of a page; ``MuxPagesError``.
    func visiblePages(of former: Window?) async throws -> Window {
        let (load, wanted) = self.state.withLock { state in
            state.loads += 1
            return (PageRequest.Load.visiblePages(state.loads), state.requiredPage.take())
        }
        let isEarlier = wanted.map { $0.clears == self.clears && $0.cursor == former?.parts.first?.cursor } ?? false
        var (start, earlier) = (former?.parts.first?.cursor ?? nil, former?.earlier ?? [])
        if !isEarlier, self.visible().isEmpty { (start, earlier) = (nil, []) }
        if isEarlier, let before = earlier.popLast() { start = before }
        var attempt = 1
        while true {
            var window = Window(earlier: earlier)
            do {
                try await self.appendPage(at: start, to: &window, load)
                while let next = window.next, self.needsPage(window, former, isEarlier: isEarlier) {
                    let count = window.parts.count
                    try await self.appendPage(at: next, to: &window, load)
                    if window.parts.count == count { break }
                }
                if !window.items.isEmpty || earlier.isEmpty {
                    let first = isEarlier ? window.items.first.map { [$0.id] } ?? [] : []
                    window.limit(to: self.maximumPages, keeping: self.visible().union(first))
                    return window
                }
                (start, earlier) = (nil, [])  // the server has no items from the cursor `start` on
            } catch let error as MuxPagesError where error == .repeatedCursor && !earlier.isEmpty {
                (start, earlier) = (nil, [])  // a page before the window has moved into the window
            } catch let error where error.isOutdatedCursor && attempt < Self.maximumAttempts {
                attempt += 1
                // The server no longer accepts the cursor `start`.
                if window.parts.isEmpty { (start, earlier) = (nil, []) }
            }
        }
    }

    /// Whether a load of the visible pages needs the next page; items can appear during a load.
    private func needsPage(_ window: Window, _ former: Window?, isEarlier: Bool) -> Bool {
        let (visible, count) = (self.visible(), window.parts.count)
        let isFound = { (id: Item.ID) in window.items.contains { $0.id == id } }
        guard let former = self.state.withLock({ $0.current })?().window ?? former else {
            // Neither memory nor disk has the window: load up to the item that appeared last in each
            // ``ObservedPages``.
            return count < self.maximumPages && !self.appeared().allSatisfy { $0.ids.last.map(isFound) ?? true }
        }
        guard let shown = former.parts(with: visible) else { return count < former.parts.count + (isEarlier ? 1 : 0) }
        let pages = shown.upperBound + (isEarlier ? 2 : 1)
        let last = former.items.last { visible.contains($0.id) }
        return count < pages || count < pages + Self.maximumMove && !(last.map { isFound($0.id) } ?? true)
    }

    /// Appends the page at `cursor`, and the following pages until a page has new items; at most
    /// ``maximumEmptyPages`` pages.
    private func appendPage(at cursor: Cursor?, to window: inout Window, _ load: PageRequest.Load) async throws {
        var (cursor, skipped) = (cursor, Set<Cursor>())
        for _ in 0..<Self.maximumEmptyPages {
            let page = try await self.pages.request(
                key: PageRequest(load: load, cursor: cursor, last: window.items.last?.id)
            )
            let hasItems = try window.append(page, at: cursor)
            guard !hasItems, let next = window.next else { return }
            guard skipped.insert(next).inserted else { throw MuxPagesError.repeatedCursor }
            cursor = next
        }
    }
}

extension Error {
    /// Whether this error is, or wraps, ``MuxPagesError/outdatedCursor``.
    var isOutdatedCursor: Bool {
        self.firstDecision { ($0 as? MuxPagesError).map { $0 == .outdatedCursor } } ?? false
    }
}
