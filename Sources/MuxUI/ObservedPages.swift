import MuxKit
public import Observation

/// The items of a ``MuxPages`` for views.
///
/// ```swift
/// struct FeedView: View {
///     @State private var feed = Backend.feed.observed()
///
///     var body: some View {
///         List(feed.items) { post in
///             PostRow(post).onAppear { feed.appeared(post) }
///         }
///         .task { await feed.follow() }
///         .refreshable { await feed.reload() }
///     }
/// }
/// ```
///
/// The object shows the window of the list as an ``ObservedValue`` shows its value: at once, with renewals
/// while ``follow()`` runs, and until a sign-out. ``appeared(_:)`` loads further pages.
///
/// **Lifetime.** The object retains the list. Until its end, the list keeps the ID of the item that appeared
/// last.
@MainActor
@Observable
public final class ObservedPages<Item: Identifiable & Sendable, Cursor: Hashable & Sendable> where Item.ID: Sendable {
    @ObservationIgnored private nonisolated let pages: MuxPages<Item, Cursor>
    @ObservationIgnored private let window: ObservedValue<MuxPages<Item, Cursor>.Window>
    /// The item that appeared last.
    @ObservationIgnored private var position: Item.ID?
    /// The load of a page.
    @ObservationIgnored private var load: Task<Void, Never>?
    /// The earliest time of the next load for an item that appears.
    @ObservationIgnored private var mayLoadAt: Moment = .distantPast

    /// Whether a page after or before ``items`` is loading.
    public private(set) var isLoadingMore = false

    init(_ pages: MuxPages<Item, Cursor>, _ window: ObservedValue<MuxPages<Item, Cursor>.Window>) {
        self.pages = pages
        self.window = window
        window.afterChange = { [weak self] in self?.loadIfNeeded() }
    }

    deinit { self.pages.setPosition(nil, of: ObjectIdentifier(self)) }

    // MARK: - Reading

    /// The items of the loaded pages, in the order of the server; empty before the first page.
    public var items: [Item] { self.window.value?.items ?? [] }

    /// Whether the server has items after ``items``; `false` before the first page.
    public var hasMore: Bool { self.window.value?.hasMore ?? false }

    /// Whether the items are stale; `false` without a window.
    public var isStale: Bool { self.window.isStale }

    /// Whether a load of the visible pages is running, and has been running for the loading delay.
    public var isLoading: Bool { self.window.isLoading && !self.isLoadingMore }

    /// The error of the last load, while ``follow()`` runs; `nil` after a success.
    public var problem: (any Error)? { self.window.problem }

    // MARK: - Following

    /// Requests the pages, and follows their changes until the task is cancelled; see
    /// ``ObservedValue/follow()``.
    public func follow() async { await self.window.follow() }

    /// Loads the visible pages, as for a pull to refresh; the load continues if the task is cancelled.
    public func reload() async { await self.window.reload() }

    /// Loads the next page at once, as for a button after a failure.
    ///
    /// Concurrent calls share one load. A failure becomes ``problem``.
    public func loadMore() async {
        self.startLoad { try await $0.loadMore() }
        await self.load?.value
    }

    /// Reports that the view of an item has appeared.
    ///
    /// For one of the last five items, the next page is loaded; for one of the first five, the page before,
    /// if the list has removed this page. After a load without new items, such as a failure, the next load
    /// begins at least one second later.
    ///
    /// - Parameter item: An item of ``items``.
    /// - Complexity: O(*n*) for *n* items.
    public func appeared(_ item: Item) {
        self.position = item.id
        self.pages.setPosition(item.id, of: ObjectIdentifier(self))
        self.loadIfNeeded()
    }

    /// The number of items at each end of the window whose appearance loads a page.
    private static var margin: Int { 5 }

    private func loadIfNeeded() {
        guard self.load == nil, let position = self.position, self.pages.window.repository.time.now >= self.mayLoadAt,
            let window = self.pages.window.cachedValue, let place = window.place(of: position)
        else { return }
        // A load removes the page at the other end, and must not remove the page on the screen.
        if window.hasMore, place.part == window.parts.count - 1, place.item >= window.items.count - Self.margin {
            self.startLoad { try await $0.loadMore() }
        } else if window.hasEarlier, place.part == 0, place.item < Self.margin {
            self.startLoad { try await $0.loadEarlier() }
        }
    }

    private func startLoad(_ load: @escaping @Sendable @concurrent (MuxPages<Item, Cursor>) async throws -> Void) {
        guard self.load == nil else { return }
        self.isLoadingMore = true
        self.load = self.pages.window.repository.spawn(name: "mux.pages") { @MainActor [weak self, pages] in
            let former = pages.window.cachedValue?.ends
            try? await load(pages)  // an error is a problem of the window
            guard let self else { return }
            self.load = nil
            self.isLoadingMore = false
            let hasNewItems = pages.window.cachedValue?.ends != former
            if !hasNewItems { self.mayLoadAt = pages.window.repository.time.now.advanced(by: .seconds(1)) }
            self.loadIfNeeded()
        }
    }
}
