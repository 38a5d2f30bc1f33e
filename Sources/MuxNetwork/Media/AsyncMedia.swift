public import Foundation
public import MuxKit

/// Large files that do not change, such as images, audio, video and documents: fetched once, kept on disk, handed out as
/// local files.
///
/// ```swift
/// let file = try await AsyncMedia.shared.request(url: photo)
/// for try await progress in AsyncMedia.shared.progress(of: photo) { bar.value = progress.fraction ?? 0 }
/// let have = AsyncMedia.shared.cachedValue(url: photo)
/// ```
///
/// A file is written while it arrives, so it may be larger than memory. A download that breaks off goes on where it was,
/// also in another process, if the server can (RFC 9110, sections 13.1.5 and 14): the bytes are those of one representation,
/// or the download starts again from zero.
///
/// **Concurrent calls.** For one URL at most one download runs, whoever asks; a fragment makes no difference. No more than
/// ``MediaLimits/parallelDownloads`` run at a time.
///
/// **Cancellation.** A cancelled caller leaves at once with `CancellationError`. When nobody waits for a download any more, it
/// stops and keeps what it has.
///
/// **After a failure.** What has arrived is kept for the next request, unless it is of no use. Connections that break off,
/// and answers that say that the trouble may pass, are tried again as the retry policy says.
///
/// **On disk.** A file has its name only when it is complete. The names are made of a hash of the URL and keep its extension.
/// The system, or another ``AsyncMedia`` with the same folder, may remove files at any time; use ``withFile(url:_:)`` to keep
/// this one from removing a file that is being used.
///
/// **At sign-out.** `MuxRepository/clearAll()` ends requests with `MuxError/sessionEnded` and removes all files, complete or
/// not.
public final actor AsyncMedia {
    /// The media of an app with one account, in the caches folder.
    public static let shared = AsyncMedia()

    nonisolated let core: MediaCore

    init(core: MediaCore) { self.core = core }

    // MARK: - Requests

    /// Returns a local copy of the file at `url`, fetching it if there is none.
    ///
    /// - Parameters:
    ///   - url: Where the file is. One of the scheme `file` is returned as it is.
    ///   - sha256: The SHA-256 that the file must have, as 64 hexadecimal digits; `nil` if any file will do. A file on disk
    ///     that has another is fetched once more.
    /// - Returns: The URL of a complete file.
    /// - Throws: ``MediaError``, ``HTTPError``, `MuxError/sessionEnded`, what the runner of the dependency threw, or
    ///   `CancellationError`.
    public nonisolated(nonsending) func request(url: URL, sha256: String? = nil) async throws -> URL {
        try await self.core.request(url, sha256: sha256)
    }

    /// Fetches files that will be wanted soon, when nothing else is to be fetched.
    ///
    /// Returns when all are there or have failed. Whoever asks for one of them meanwhile joins its download, which then goes
    /// before those that nobody waits for. Cancel the task to stop.
    ///
    /// - Parameter urls: Where the files are.
    public nonisolated func prefetch(_ urls: some Sequence<URL>) async {
        let core = self.core
        await withDiscardingTaskGroup { group in
            for url in urls {
                group.addTask(priority: .low) { _ = try? await core.request(url, isUrgent: false) }
            }
        }
    }

    /// Runs `body` with a local copy of the file at `url`, which is not removed to make room meanwhile.
    ///
    /// - Parameters:
    ///   - url: Where the file is.
    ///   - body: Uses the file.
    /// - Returns: What `body` returned.
    /// - Throws: What ``request(url:sha256:)`` or `body` threw.
    public nonisolated(nonsending) func withFile<Output>(
        url: URL,
        _ body: (URL) async throws -> Output
    ) async throws -> Output {
        let name = MediaName(url)
        self.core.folder.beginUse(name)
        defer { self.core.folder.endUse(name) }
        return try await body(try await self.core.request(url))
    }

    // MARK: - Looking

    /// The local copy of the file at `url`, if it is complete and known to be there.
    ///
    /// Answers at once, and therefore only after a request, or ``loadCachedValue(url:)``, has looked into the folder once: what
    /// is there might belong to a session that has ended.
    ///
    /// - Parameter url: Where the file is. One of the scheme `file` is returned as it is.
    /// - Returns: The URL of a complete file, or `nil`.
    /// - Complexity: O(1), two calls to the file system.
    public nonisolated func cachedValue(url: URL) -> URL? { self.core.cached(url) }

    /// The local copy of the file at `url`, if it is complete; fetches nothing.
    ///
    /// - Parameter url: Where the file is. One of the scheme `file` is returned as it is.
    /// - Returns: The URL of a complete file, or `nil`.
    public nonisolated func loadCachedValue(url: URL) async -> URL? {
        guard (try? await self.core.open()) != nil else { return nil }
        return self.core.cached(url)
    }

    /// The progress of the file at `url`: how far it is now, then every step forward.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: A sequence for any number of watchers.
    public nonisolated func progress(of url: URL) -> MediaProgressSequence { self.core.progress(url) }

    /// What this object counted since it was made; a file that was on disk is a `MuxStatistics/diskHits`.
    public nonisolated var statistics: MuxStatistics { self.core.statistics }

    // MARK: - Removing

    /// Removes what there is of the file at `url`.
    ///
    /// A request that waits gets a file that was fetched after this.
    ///
    /// - Parameter url: Where the file is.
    /// - Throws: ``MediaError/disk(_:)``; `MuxError/sessionEnded` if a sign-out comes between.
    public func remove(url: URL) async throws { try await self.core.remove(MediaName(url)) }

    /// Removes all files, complete or not.
    ///
    /// Requests that wait get files that were fetched after this.
    ///
    /// - Throws: ``MediaError/disk(_:)``; `MuxError/sessionEnded` if a sign-out comes between.
    public func removeAll() async throws { try await self.core.removeAll() }

    /// How many callers wait, downloads run and files are known: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    /// How many downloads wait for their turn, and how many more could run: none and all at rest.
    package nonisolated var turnstile: (waiting: Int, free: Int) { self.core.turnstileOccupancy }
}

extension AsyncMedia {
    /// Makes media that need no sign-in.
    ///
    /// - Parameters:
    ///   - directory: The folder, used by this object alone; made when it is first needed. `nil` for a folder of this app in
    ///     the caches folder.
    ///   - transport: What fetches.
    ///   - limits: How much of the disk and the network it may take.
    ///   - retry: How often a request is made again that got no answer, or one that says that the trouble may pass. A
    ///     connection that breaks off after some of the file has come is no failure; the download goes on at once.
    ///   - budget: What keeps a host from being asked again and again that is down; `nil` for nothing.
    ///   - durability: Whether a complete file is one that survives a power failure, too.
    ///   - repository: Whose sign-out removes the files.
    public init(
        directory: URL? = nil,
        transport: any HTTPTransport = URLSessionTransport(),
        limits: MediaLimits = .init(),
        retry: RetryPolicy = .web,
        budget: RetryBudget? = .shared,
        durability: MuxDurability = .full,
        repository: MuxRepository = .shared
    ) {
        self.init(
            directory: directory,
            limits: limits,
            retry: retry,
            budget: budget,
            durability: durability,
            repository: repository,
            fileSystem: POSIXFileSystem()
        ) { call, sink in
            _ = try await transport.exchange(call, into: sink)
        }
    }

    /// Makes media that need a sign-in.
    ///
    /// ```swift
    /// let media = AsyncMedia(dependency: oauth) { call, token in
    ///     if call.url.host() == "media.example.org" { call.headers["Authorization"] = "Bearer \(token)" }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - directory: The folder, used by this object alone; made when it is first needed. `nil` for a folder of this app in
    ///     the caches folder.
    ///   - dependency: Runs every request; a status of 401 makes it renew the dependency, once for all, and the download goes
    ///     on.
    ///   - transport: What fetches.
    ///   - limits: How much of the disk and the network it may take.
    ///   - retry: How often a request is made again that got no answer, or one that says that the trouble may pass. A
    ///     connection that breaks off after some of the file has come is no failure; the download goes on at once.
    ///   - budget: What keeps a host from being asked again and again that is down; `nil` for nothing.
    ///   - durability: Whether a complete file is one that survives a power failure, too.
    ///   - repository: Whose sign-out removes the files.
    ///   - authorize: Puts the dependency into a request. Called for every URL, so it looks at the host before it gives a
    ///     token away. The header fields that it sets stay behind when a redirection leads to another server.
    public init<Dependency: Sendable>(
        directory: URL? = nil,
        dependency: any DependencyRunner<Dependency>,
        transport: any HTTPTransport = URLSessionTransport(),
        limits: MediaLimits = .init(),
        retry: RetryPolicy = .web,
        budget: RetryBudget? = .shared,
        durability: MuxDurability = .full,
        repository: MuxRepository = .shared,
        authorize: @escaping @Sendable (inout HTTPCall, Dependency) -> Void
    ) {
        self.init(
            directory: directory,
            limits: limits,
            retry: retry,
            budget: budget,
            durability: durability,
            repository: repository,
            fileSystem: POSIXFileSystem()
        ) { call, sink in
            _ = try await dependency.run { value in
                var authorized = call
                authorize(&authorized, value)
                let added = authorized.headers.filter { call.headers[$0.key] != $0.value }
                authorized.credentialHeaders.formUnion(added.keys)
                return .output(try await transport.exchange(authorized, into: sink))
            }
        }
    }

    package init(
        directory: URL?,
        limits: MediaLimits,
        retry: RetryPolicy = .immediate(),
        budget: RetryBudget? = nil,
        durability: MuxDurability,
        repository: MuxRepository,
        fileSystem: any FileSystem,
        exchange: @escaping @Sendable @concurrent (HTTPCall, any HTTPSink) async throws -> Void
    ) {
        let standard = MuxStoreLocation.standard().deletingLastPathComponent().appending(component: "MuxMedia")
        let folder = MediaFolder(
            directory ?? standard,
            limits: limits,
            durability: durability,
            fileSystem: fileSystem,
            wallTime: repository.wallTime
        )
        self.init(
            core: MediaCore(folder: folder, repository: repository, retry: retry, budget: budget) { call, sink in
                try await exchange(call, sink)
            }
        )
    }
}
