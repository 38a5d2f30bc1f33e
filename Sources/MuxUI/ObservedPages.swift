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
/// while ``follow()`` runs, and until a clear or a sign-out. ``appeared(_:)`` loads further pages.
///
/// **Lifetime.** The object retains the list. Until the end of the object, or a clear, the list keeps the
/// IDs of the 30 items that appeared last.
@MainActor
@Observable
public final class ObservedPages<Item: Identifiable & Sendable, Cursor: Hashable & Sendable> where Item.ID: Sendable {
    @ObservationIgnored private nonisolated let pages: MuxPages<Item, Cursor>
    /// The loaded pages, for `PhaseView` and for members of ``ObservedValue`` that this class does not have.
    @ObservationIgnored public let window: ObservedValue<MuxPages<Item, Cursor>.Window>
    /// The load of the next page or of the page before, with the number of clears at its start.
    @ObservationIgnored private var load: (task: Task<Void, Never>, clears: UInt64)?
    /// Whether one of the first items has appeared since the last successful load of the page before.
    @ObservationIgnored private var mustLoadEarlier = false
    /// The earliest times at which the appearance of an item may load the next page, or the page before.
    @ObservationIgnored private var mayLoadNextAt = Moment.distantPast
    @ObservationIgnored private var mayLoadEarlierAt = Moment.distantPast
    /// The error of the last load of the next page, with the number of clears and the revision of the window
    /// at the failure.
    private var loadProblem: (error: any Error, clears: UInt64, revision: UInt64?)?

    /// Whether this object is loading the next page.
    public private(set) var isLoadingMore = false

    init(_ pages: MuxPages<Item, Cursor>, _ window: ObservedValue<MuxPages<Item, Cursor>.Window>) {
        self.pages = pages
        self.window = window
        window.afterChange = { [weak self] in self?.windowChanged() }
    }

    deinit { self.pages.loader.forgetItems(of: ObjectIdentifier(self)) }

    // MARK: - Reading

    /// The items of the loaded pages, in the order of the server; empty before the first page.
    public var items: [Item] { self.window.value?.items ?? [] }

    /// Whether the server may have items after ``items``; `false` before the first page.
    public var hasMore: Bool { self.window.value?.hasMore ?? false }

    /// Whether the items are stale; `false` without a window.
    public var isStale: Bool { self.window.isStale }

    /// Whether a load of the visible pages has been running for the loading delay.
    public var isLoading: Bool { self.window.isLoading }

    /// The error of the last reload or renewal, or else of the last load of the next page; `nil` after a
    /// success.
    ///
    /// An error that reports the end of the session is not shown. Without ``follow()`` and ``reload()``,
    /// later errors of reloads and renewals are not shown.
    public var problem: (any Error)? { self.window.problem ?? self.pageProblem }

    /// The error of the last load of the next page; `nil` after a success, and after a later change of the
    /// window, such as a reload or a sign-out.
    public var pageProblem: (any Error)? {
        _ = self.window.value  // views observe the window, because a change of the window ends the problem
        guard let problem = self.loadProblem, problem.clears == self.pages.window.clearCount else { return nil }
        return problem.revision == self.pages.window.serverEntry?.revision ? problem.error : nil
    }

    // MARK: - Following

    /// Requests the pages, and follows their changes until the task is cancelled; see
    /// ``ObservedValue/follow()``.
    public func follow() async { await self.window.follow() }

    /// Loads the visible pages, as for a pull to refresh; the load continues if the task is cancelled.
    public func reload() async { await self.window.reload() }

    /// Loads the next page, as for a button at the end of the list.
    ///
    /// Concurrent calls share one load. A failure becomes ``pageProblem``. The call has no effect before the
    /// first page, and after the last page.
    public func loadMore() async {
        // A load of the page before the window must end first.
        while !self.isLoadingMore, let load = self.load { await load.task.value }
        self.startLoad(ofNext: true)
        await self.load?.task.value
    }

    /// Reports that the view of an item has appeared.
    ///
    /// The appearance of one of the last five items of the last page loads the next page. The appearance of
    /// one of the first five items of the first page loads the page before the window, if this page was
    /// removed (``MuxPages``). During one second after a load that failed or added no page,
    /// the appearance of an item does not repeat the load: at the end of the list, show a button that calls
    /// ``loadMore()``.
    ///
    /// - Parameter item: An item of ``items``.
    public func appeared(_ item: Item) {
        self.pages.loader.appeared(item.id, in: ObjectIdentifier(self))
        guard let window = self.currentWindow else { return }
        let margin = min(Self.margin, window.parts.first { $0.count > 0 }?.count ?? 0)
        if window.hasEarlier, window.items.prefix(margin).contains(where: { $0.id == item.id }) {
            self.mustLoadEarlier = true
        }
        self.loadIfNeeded([item.id])
    }

    /// The maximum number of items at each end of the window whose appearance loads a page.
    private static var margin: Int { 5 }

    /// The window in memory, or else on the screen: without ``follow()``, the screen is not up to date.
    private var currentWindow: MuxPages<Item, Cursor>.Window? {
        self.pages.window.serverEntry?.value ?? self.window.value
    }

    /// Called after each update of the window's state: abandons a load from before a clear, and loads a page
    /// if visible items need the page.
    private func windowChanged() {
        if let load = self.load, load.clears != self.pages.window.clearCount {
            load.task.cancel()
            self.load = nil
            self.mustLoadEarlier = false
            if self.isLoadingMore { self.isLoadingMore = false }
        }
        self.loadIfNeeded(self.pages.loader.visible(in: ObjectIdentifier(self)))
    }

    /// Loads the next page if one of the last items is visible, or the page before if wanted.
    private func loadIfNeeded(_ visible: Set<Item.ID>) {
        guard self.load == nil, let window = self.currentWindow else { return }
        let now = self.pages.window.repository.time.now
        // Only items of the last page: a visible item before a small last page must not load page after page.
        let margin = min(Self.margin, window.parts.last { $0.count > 0 }?.count ?? 0)
        if window.hasMore, now >= self.mayLoadNextAt,
            window.items.suffix(margin).contains(where: { visible.contains($0.id) })
        {
            self.startLoad(ofNext: true)
        } else if self.mustLoadEarlier, window.hasEarlier, now >= self.mayLoadEarlierAt {
            self.startLoad(ofNext: false)
        }
    }

    private func startLoad(ofNext isNext: Bool) {
        guard self.load == nil, let former = self.currentWindow else { return }
        if isNext { self.isLoadingMore = true } else { self.mustLoadEarlier = false }
        let clears = self.pages.window.clearCount
        let task = self.pages.window.repository.spawn(name: "mux.pages") { @MainActor [weak self, pages] in
            var problem: (any Error)?
            do {
                try await isNext ? pages.loadMore(since: clears) : pages.loadEarlier()
            } catch { problem = error.unlessEndOfSession }
            // A clear has ended this load, and another load may be running.
            guard clears == pages.window.clearCount else { return self?.windowChanged() ?? () }
            self?.finishLoad(ofNext: isNext, former, problem)
        }
        self.load = (task, clears)
    }

    private func finishLoad(ofNext isNext: Bool, _ former: MuxPages<Item, Cursor>.Window, _ problem: (any Error)?) {
        self.load = nil
        if isNext {
            self.isLoadingMore = false
            let window = self.pages.window
            if problem != nil || self.loadProblem != nil {
                self.loadProblem = problem.map { ($0, window.clearCount, window.serverEntry?.revision) }
            }
        }
        // After a failure, a page without new items, or a page that the limit has removed, the appearance of
        // an item loads the page again, but not within one second.
        let time = self.pages.window.repository.time.now.advanced(by: .seconds(1))
        if isNext, problem != nil || self.currentWindow?.parts == former.parts { self.mayLoadNextAt = time }
        if !isNext, self.currentWindow?.parts.first == former.parts.first {
            (self.mayLoadEarlierAt, self.mustLoadEarlier) = (time, true)
        }
        self.loadIfNeeded(self.pages.loader.visible(in: ObjectIdentifier(self)))
    }
}
