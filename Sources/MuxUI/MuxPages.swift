public import Foundation
public import MuxKit

/// A list that a server returns in pages.
///
/// ```swift
/// static let feed = MuxPages<Post, String>(cacheKey: "Feed") { cursor in
///     let response = try await api.posts(after: cursor)
///     return .init(response.posts, next: response.next)
/// }
/// ```
///
/// The loaded pages are one value, ``window``. With a `cacheKey`, a relaunch shows the same items first.
/// Views use ``observed(loadingDelay:activity:)``.
///
/// **Concurrent calls.** At most one load runs: of the next page, or of all visible pages. Each loaded page
/// needs one request.
///
/// **Reloads.** A reload, a renewal or a load of earlier pages fetches the visible pages in order, and then
/// replaces all pages in one step. The visible pages end with the page after the item that appeared last
/// (``ObservedPages/appeared(_:)``), because a part of this page can be on the screen. Without such an item,
/// only the first page is visible.
///
/// **Items that move.** An item with the ID of an earlier item is left out. If a cursor identifies an item,
/// such as the last item of the page before, no item is missing. If a cursor is a number of a page or an
/// offset, an insertion or a removal on the server moves the items after it: use an initialiser with
/// `pageSize`, which detects the move.
///
/// **Limits.** The window has at most `maximumPages` pages. A further page removes the first page, which is
/// loaded again when its neighbours appear.
///
/// **Errors.** A page that fails leaves the window unchanged. A cursor that the server has returned before
/// would never end: the load throws ``MuxPagesError/repeatedCursor``.
public final class MuxPages<Item: Identifiable & Sendable, Cursor: Hashable & Sendable>: Sendable
where Item.ID: Sendable {
    /// A page of the server.
    public struct Page: Sendable {
        /// The items, in the order of the server.
        public var items: [Item]
        /// The cursor of the next page; `nil` after the last page.
        public var next: Cursor?

        /// Makes a page.
        ///
        /// - Parameters:
        ///   - items: The items, in the order of the server.
        ///   - next: The cursor of the next page; `nil` after the last page.
        public init(_ items: [Item], next: Cursor?) {
            self.items = items
            self.next = next
        }
    }

    /// The name of the pages on disk.
    public typealias CacheKey = Multiplexer<Window>.CacheKey

    /// The loaded pages.
    ///
    /// For requests, reloads, saves and clears without a view:
    ///
    /// ```swift
    /// let newest = try await Backend.feed.window.reload().items
    /// ```
    public let window: Multiplexer<Window>
    private let loader: PageLoader<Item, Cursor>

    private init(
        maximumPages: Int,
        policy: MuxPolicy,
        repository: MuxRepository,
        cacheKey: CacheKey?,
        _ source: @escaping PageLoader<Item, Cursor>.Source
    ) {
        let loader = PageLoader(maximumPages: maximumPages, isRenewed: policy.timeToLive > .zero, source)
        self.loader = loader
        self.window = Multiplexer(cacheKey: cacheKey, policy: policy, repository: repository) { before in
            try await loader.load(before)
        }
    }

    /// Makes a list with cursors.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the pages on disk; `nil`, the default, to keep the pages in memory only.
    ///   - maximumPages: The maximum number of pages in memory and on disk, at least 3.
    ///   - policy: The lifetime of the pages, and the rules for fetches and failures.
    ///   - repository: The repository of the list, for common saves and sign-outs.
    ///   - onFetch: Fetches the page at a cursor; `nil` for the first page. If the server no longer accepts
    ///     the cursor, throw ``MuxPagesError/outdatedCursor``: the visible pages are then loaded again.
    public convenience init(
        cacheKey: CacheKey? = nil,
        maximumPages: Int = 10,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Cursor?) async throws -> Page
    ) {
        self.init(maximumPages: maximumPages, policy: policy, repository: repository, cacheKey: cacheKey) { cursor, _ in
            try await onFetch(cursor)
        }
    }

    /// Makes a list with cursors, whose fetch needs a dependency, such as an access token.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the pages on disk; `nil`, the default, to keep the pages in memory only.
    ///   - dependency: The runner, which provides the dependency, and renews a rejected dependency.
    ///   - maximumPages: The maximum number of pages in memory and on disk, at least 3.
    ///   - policy: The lifetime of the pages, and the rules for fetches and failures.
    ///   - repository: The repository of the list; `nil`, the default, for the repository of `dependency`.
    ///     With another repository than the dependency's, requests fail with
    ///     `MuxError.repositoryMismatch`.
    ///   - onFetch: Fetches the page at a cursor; `nil` for the first page.
    public convenience init<Runner: DependencyRunner>(
        cacheKey: CacheKey? = nil,
        dependency: Runner,
        maximumPages: Int = 10,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        onFetch: @escaping @Sendable @concurrent (Cursor?, Runner.Dependency) async throws -> Page
    ) {
        self.init(
            dependency: dependency,
            maximumPages: maximumPages,
            policy: policy,
            repository: repository,
            cacheKey: cacheKey
        ) { cursor, _, dependency in try await onFetch(cursor, dependency) }
    }

    private convenience init<Runner: DependencyRunner>(
        dependency: Runner,
        maximumPages: Int,
        policy: MuxPolicy,
        repository: MuxRepository?,
        cacheKey: CacheKey?,
        _ source: @escaping @Sendable @concurrent (Cursor?, Item.ID?, Runner.Dependency) async throws -> Page
    ) {
        let choice = RepositoryChoice(given: repository, ofDependency: dependency.sessionRepository)
        self.init(
            maximumPages: maximumPages,
            policy: policy,
            repository: choice.repository,
            cacheKey: choice.isMismatch ? nil : cacheKey
        ) { cursor, last in
            try choice.check(cacheKey?.persistence.domain)
            return try await dependency.run { .output(try await source(cursor, last, $0)) }
        }
    }

    // MARK: - Loading

    /// Loads the next page, and appends its items to the window; without a window, loads the first page.
    ///
    /// Concurrent calls share one request. The call has no effect after the last page. A view calls
    /// ``ObservedPages/appeared(_:)`` instead.
    ///
    /// - Throws: The error of the fetch; ``MuxPagesError``; `CancellationError`.
    public nonisolated(nonsending) func loadMore() async throws {
        try await self.load { $0.next.map { .after($0) } }
    }

    /// Loads the page before the window, and again the visible pages.
    package nonisolated(nonsending) func loadEarlier() async throws { try await self.load(\.pageBefore) }

    /// Sets the item that appeared last in an object of views; `nil` at the end of the object.
    package func setPosition(_ id: Item.ID?, of object: ObjectIdentifier) { self.loader.setPosition(id, of: object) }

    /// Loads a page at an end of the window.
    ///
    /// A load that is already running may be another load, so the call can need several loads.
    private nonisolated(nonsending) func load(_ wanted: (Window) -> PageLoader<Item, Cursor>.Wanted?) async throws {
        var former: PageLoader<Item, Cursor>.Wanted?
        for _ in 0..<PageLoader<Item, Cursor>.maximumAttempts {
            guard let window = await self.window.loadCachedValue() else {
                _ = try await self.window.request()
                return
            }
            guard let page = wanted(window), page == former ?? page else { return }
            former = page
            self.loader.add(page)
            defer { self.loader.remove(page) }
            let entry = try await self.window.requestEntry(.reload)
            if entry.staleReason == .fetchFailed, let failure = self.loader.failure { throw failure }
            if entry.staleReason != .fenced, wanted(entry.value) != page { return }
        }
        throw MuxPagesError.outdatedCursor
    }

    /// The list for views; starts and registers nothing.
    ///
    /// - Parameters:
    ///   - loadingDelay: The duration of a fetch after which ``ObservedPages/isLoading`` becomes `true`; zero
    ///     for at once.
    ///   - activity: Reports activations and reconnections; see `MuxPolicy.refetch`.
    /// - Returns: A new object; it retains the list.
    @MainActor
    public func observed(
        loadingDelay: Duration = .milliseconds(150),
        activity: AppActivity = .shared
    ) -> ObservedPages<Item, Cursor> {
        ObservedPages(self, self.window.observed(loadingDelay: loadingDelay, activity: activity))
    }
}

extension MuxPages where Cursor == Int {
    /// Makes a list of a server that returns `limit` items from an offset on.
    ///
    /// Each page but the first overlaps the page before by one item. If this item is at another place,
    /// because of an insertion or a removal on the server, the visible pages are loaded again. So no item is
    /// missing, and the last page is a page with fewer than `pageSize` items.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the pages on disk; `nil`, the default, to keep the pages in memory only.
    ///   - pageSize: The number of items of a page, from 2 to the server's maximum.
    ///   - maximumPages: The maximum number of pages in memory and on disk, at least 3.
    ///   - policy: The lifetime of the pages, and the rules for fetches and failures.
    ///   - repository: The repository of the list, for common saves and sign-outs.
    ///   - onFetch: Fetches at most `limit` items from an offset on.
    public convenience init(
        cacheKey: CacheKey? = nil,
        pageSize: Int,
        maximumPages: Int = 10,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (_ offset: Int, _ limit: Int) async throws -> [Item]
    ) {
        self.init(maximumPages: maximumPages, policy: policy, repository: repository, cacheKey: cacheKey) {
            try await Self.page(at: $0, after: $1, size: pageSize, onFetch)
        }
    }

    /// Makes a list of a server that returns `limit` items from an offset on, whose fetch needs a dependency.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the pages on disk; `nil`, the default, to keep the pages in memory only.
    ///   - dependency: The runner, which provides the dependency, and renews a rejected dependency.
    ///   - pageSize: The number of items of a page, from 2 to the server's maximum.
    ///   - maximumPages: The maximum number of pages in memory and on disk, at least 3.
    ///   - policy: The lifetime of the pages, and the rules for fetches and failures.
    ///   - repository: The repository of the list; `nil`, the default, for the repository of `dependency`.
    ///   - onFetch: Fetches at most `limit` items from an offset on.
    public convenience init<Runner: DependencyRunner>(
        cacheKey: CacheKey? = nil,
        dependency: Runner,
        pageSize: Int,
        maximumPages: Int = 10,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        onFetch: @escaping @Sendable @concurrent (_ offset: Int, _ limit: Int, Runner.Dependency) async throws -> [Item]
    ) {
        self.init(
            dependency: dependency,
            maximumPages: maximumPages,
            policy: policy,
            repository: repository,
            cacheKey: cacheKey
        ) { offset, last, dependency in
            try await Self.page(at: offset, after: last, size: pageSize) { try await onFetch($0, $1, dependency) }
        }
    }

    /// Fetches the page from `offset` on, after the item `last`.
    ///
    /// - Throws: ``MuxPagesError/outdatedCursor`` if `last` is not in the response.
    @concurrent
    private static func page(
        at offset: Int?,
        after last: Item.ID?,
        size: Int,
        _ fetch: @Sendable @concurrent (_ offset: Int, _ limit: Int) async throws -> [Item]
    ) async throws -> Page {
        let size = max(2, size)
        let start = max(0, last == nil ? offset ?? 0 : (offset ?? 0).subtractingReportingOverflow(1).partialValue)
        let items = try await fetch(start, size)
        let (end, isTooLarge) = start.addingReportingOverflow(items.count)
        var new = items[...]
        if let last {
            guard let place = items.firstIndex(where: { $0.id == last }) else { throw MuxPagesError.outdatedCursor }
            new = items[(place + 1)...]
        }
        return Page(Array(new), next: items.count < size || isTooLarge ? nil : end)
    }
}

/// An error of the pages of a server.
public enum MuxPagesError: Error, Hashable, Sendable {
    /// The server no longer accepts a cursor, or the list has changed during each of several loads.
    case outdatedCursor
    /// The cursor of the next page is the cursor of an earlier page.
    case repeatedCursor
}

extension MuxPagesError: LocalizedError, CustomStringConvertible {
    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// A sentence for people.
    public var errorDescription: String? {
        switch self {
        case .outdatedCursor: "The list changed while its pages were loaded."
        case .repeatedCursor: "The server returned a cursor of an earlier page as the cursor of the next page."
        }
    }
}

extension MuxPagesError: RetryableError {
    /// Permanent: the load has been repeated.
    public var retryAdvice: RetryAdvice { .permanent }
}
