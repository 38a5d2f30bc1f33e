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
/// The loaded pages are one value, ``window``. With a `cacheKey`, a relaunch first shows the saved items.
/// Views use ``observed(loadingDelay:activity:)``.
///
/// **Next page.** Concurrent calls of ``loadMore()`` share one request. The items of the page are appended to
/// the window, and the age of the window is not reset. After ``MuxPagesError/outdatedCursor``, the visible
/// pages are loaded again; any other failed request leaves the window unchanged.
///
/// **Reloads.** A reload or a renewal fetches the visible pages in order, and then replaces all pages in one
/// step. The visible pages are the pages from the first page of the window to the page with the last visible
/// item. The visible items are the 30 items that appeared last in each ``ObservedPages``, see
/// ``ObservedPages/appeared(_:)``; if these items have moved, at most two further pages are loaded. If no
/// item has appeared, as many pages as the window has are loaded, from the first page of the list on.
///
/// **Items that move.** An item with the ID of an earlier item is left out. If a cursor identifies an item,
/// such as the last item of the page before, no item is missing. If a cursor is a number of a page or an
/// offset, an insertion or a removal on the server moves the later items: use an initialiser with
/// `pageSize`, which detects the move.
///
/// **Limits.** Above `maximumPages` pages, the window drops pages at its start and at its end, but no page
/// with a visible item, and no page between such pages. When the user scrolls back, a removed page is
/// loaded again, with the visible pages.
///
/// **Errors.** A list whose cursors repeat would never end: the load throws
/// ``MuxPagesError/repeatedCursor``. The time-out and the retries of the policy apply to each page.
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
    /// Use this multiplexer for requests, reloads, changes, saves and clears without a view. After a clear,
    /// the list begins again with the first page.
    public let window: Multiplexer<Window>
    let loader: PageLoader<Item, Cursor>

    private init(
        maximumPages: Int,
        policy: MuxPolicy,
        repository: MuxRepository,
        cacheKey: CacheKey?,
        _ source: @escaping PageLoader<Item, Cursor>.Source
    ) {
        let loader = PageLoader(maximumPages: maximumPages, policy: policy, repository: repository, source)
        var policy = policy
        (policy.fetchTimeout, policy.retry) = (.longest, nil)  // apply to each page
        self.loader = loader
        var cacheKey = cacheKey
        cacheKey?.persistence.isShared = false  // the window depends on the views of this process
        self.window = Multiplexer(cacheKey: cacheKey, policy: policy, repository: repository) { before in
            Fetched(try await loader.visiblePages(of: before?.value))
        }
        loader.connect { [weak window] in (window?.serverEntry?.value, window?.clearCount ?? 0) }
    }

    /// Makes a list with cursors.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the pages on disk; `nil`, the default, to keep the pages in memory only.
    ///   - maximumPages: The number of pages above which pages are removed; a number below 3 counts as 3.
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
    ///   - maximumPages: The number of pages above which pages are removed; a number below 3 counts as 3.
    ///   - policy: The lifetime of the pages, and the rules for fetches and failures.
    ///   - repository: The repository of the list; `nil`, the default, for the repository of `dependency`.
    ///     With another repository than the dependency's, requests fail with
    ///     `MuxError.repositoryMismatch`.
    ///   - onFetch: Fetches the page at a cursor; `nil` for the first page. If the server no longer accepts
    ///     the cursor, throws ``MuxPagesError/outdatedCursor``: the visible pages are then loaded again.
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

    /// Loads the next page, and appends the items to the window; without a window, requests the window.
    ///
    /// The call has no effect after the last page. Above the maximum number of pages, the window can drop the
    /// new page at once, if views show only much earlier pages. A view calls ``ObservedPages/appeared(_:)``
    /// instead.
    ///
    /// - Throws: The error of the fetch; ``MuxPagesError``; `MuxError`, such as `MuxError.cleared` after a
    ///   clear, and `MuxError.sessionEnded` or `MuxError.cleared` after a sign-out, during the load;
    ///   `CancellationError`.
    public nonisolated(nonsending) func loadMore() async throws {
        let clears = self.window.clearCount
        if try await self.loadWindow(since: clears) { return }
        try await self.loadMore(since: clears)
    }

    /// If memory does not have the window, reads the window from disk, or else requests the visible pages.
    ///
    /// - Returns: Whether the pages were requested.
    private nonisolated(nonsending) func loadWindow(since clears: UInt64) async throws -> Bool {
        if self.window.serverEntry != nil { return false }
        if await self.window.loadCachedValue() != nil { return false }
        guard self.window.clearCount == clears else { throw MuxError.cleared }
        _ = try await self.window.request()
        return true
    }

    /// Loads the next page, unless the list has been cleared since `clears`.
    nonisolated(nonsending) func loadMore(since clears: UInt64) async throws {
        for _ in 0..<PageLoader<Item, Cursor>.maximumAttempts {
            _ = try await self.loadWindow(since: clears)
            guard self.window.clearCount == clears else { throw MuxError.cleared }
            guard let entry = self.window.serverEntry, entry.value.hasMore else { return }
            do {
                let window = try await self.loader.nextPage(of: entry.value, entry.revision)
                if self.window.replaceValue(by: window, ifRevision: entry.revision) { return }
                // Another call or a reload has added the page first.
                if let current = self.window.serverEntry?.value, current.next == window.next { return }
            } catch let error where error.isOutdatedCursor {
                guard self.window.clearCount == clears else { throw MuxError.cleared }
                _ = try await self.window.reload()
                if self.window.serverEntry?.revision == entry.revision { throw error }
            }
        }
        throw MuxPagesError.outdatedCursor
    }

    /// Loads the page before the window, and the visible pages.
    package nonisolated(nonsending) func loadEarlier() async throws {
        _ = try await self.loadWindow(since: self.window.clearCount)
        for _ in 0..<PageLoader<Item, Cursor>.maximumAttempts {
            guard let former = self.window.serverEntry, former.value.hasEarlier else { return }
            self.loader.requirePage(before: former.value)
            _ = try await self.window.requestEntry(.reload)
            // A load that was running may have begun without the page.
            guard let current = self.window.serverEntry, current.revision != former.revision,
                current.value.parts.first?.cursor == former.value.parts.first?.cursor
            else { return }
        }
    }

    /// The list for views; starts and registers nothing.
    ///
    /// - Parameters:
    ///   - loadingDelay: The duration of a fetch after which ``ObservedPages/isLoading`` becomes `true`; zero
    ///     for at once.
    ///   - activity: Reports activations and reconnections; see `MuxPolicy.refetch`.
    /// - Returns: A new object, which retains the list.
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
    /// Each response but the first of a window overlaps the page before by one item. If the response does not
    /// contain this item, for example because of a removal on the server, the visible pages are loaded again.
    /// A response with fewer than `limit` items ends the list.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the pages on disk; `nil`, the default, to keep the pages in memory only.
    ///   - pageSize: The `limit` of each request, from 2 to the server's maximum; a smaller number counts as
    ///     2.
    ///   - maximumPages: The number of pages above which pages are removed; a number below 3 counts as 3.
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
    ///   - pageSize: The `limit` of each request, from 2 to the server's maximum; a smaller number counts as
    ///     2.
    ///   - maximumPages: The number of pages above which pages are removed; a number below 3 counts as 3.
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
    /// - Throws: ``MuxPagesError/outdatedCursor`` if `last` is not in the response; the error of `fetch`.
    @concurrent
    private static func page(
        at offset: Int?,
        after last: Item.ID?,
        size: Int,
        _ fetch: @Sendable @concurrent (_ offset: Int, _ limit: Int) async throws -> [Item]
    ) async throws -> Page {
        let size = max(2, size)
        let start = last == nil ? max(0, offset ?? 0) : max(1, offset ?? 0) - 1
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
    /// A page names its own cursor, or the cursor of an earlier page, as the cursor of the next page.
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
    /// Permanent: the server repeats its cursors, or the load has been repeated.
    public var retryAdvice: RetryAdvice { .permanent }
}
