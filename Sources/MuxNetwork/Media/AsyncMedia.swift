public import Foundation
public import MuxKit

/// Downloads large files that do not change, such as images, audio, video and documents, once, and keeps them on disk.
///
/// ```swift
/// let file = try await AsyncMedia.shared.request(url: photo)
/// for try await progress in AsyncMedia.shared.progress(of: photo) { bar.value = progress.fraction ?? 0 }
/// let have = AsyncMedia.shared.cachedValue(url: photo)
/// ```
///
/// A file is written while it arrives, so it may be larger than memory. A download that breaks off resumes, also in another
/// process, if the server supports ranges (RFC 9110, sections 13.1.5 and 14) and the representation is the same; otherwise it
/// restarts from zero.
///
/// **Concurrent calls.** For one URL, without its fragment, at most one download runs. At most ``AsyncMedia/Limits/parallelDownloads``
/// run at a time.
///
/// **Cancellation.** A cancelled caller leaves at once with `CancellationError`. A download without callers stops and keeps what
/// has arrived.
///
/// **After a failure.** What has arrived is kept for the next request, if it can be resumed. Lost connections and transient
/// statuses are retried as the retry policy says.
///
/// **On disk.** A file gets its name when it is complete: a hash of the URL, or of a key that the app chooses, with the URL's extension.
/// The system, or another ``AsyncMedia`` with the same folder, may remove files at any time; ``withFile(url:_:)`` keeps this one from
/// removing a file in use. A folder that was removed is made again by the next request.
///
/// **At sign-out.** `MuxRepository/clearAll()` ends requests with `MuxError/sessionEnded` and removes all files, complete or
/// not. Media with a dependency belong to the dependency's repository.
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
    /// - Throws: ``MediaError``, ``HTTPError``, `MuxError/sessionEnded`, `MuxError/repositoryMismatch`, what the runner of the
    ///   dependency threw, or `CancellationError`.
    public nonisolated(nonsending) func request(url: URL, sha256: String? = nil) async throws -> URL {
        try await self.core.request(url, sha256: sha256)
    }

    /// Fetches files ahead of their use, after all requests.
    ///
    /// Returns when all are fetched or have failed. A request for one of them joins its download, which then precedes the other
    /// prefetches. Cancel the task to stop all of them, or some by ``cancelPrefetch(_:)``.
    ///
    /// - Parameter urls: Where the files are.
    public nonisolated func prefetch(_ urls: some Sequence<URL>) async {
        let core = self.core
        await withDiscardingTaskGroup { group in
            for url in urls {
                // Registered before the task begins, so that a cancellation in between has its effect.
                let cancellations = core.cancellations.stream(of: core.name(of: url))
                group.addTask(priority: .low) {
                    await withTaskGroup(of: Void.self) { race in
                        race.addTask { _ = try? await core.request(url, isUrgent: false) }
                        race.addTask { for await _ in cancellations { return } }
                        await race.next()
                        race.cancelAll()
                    }
                }
            }
        }
    }

    /// Stops prefetches that run, such as those of cells that have scrolled away; requests for the same files go on.
    ///
    /// What has arrived of a file is kept, and a later request resumes it.
    ///
    /// - Parameter urls: Where the files are.
    public nonisolated func cancelPrefetch(_ urls: some Sequence<URL>) {
        for url in urls { self.core.cancellations.send((), to: self.core.name(of: url)) }
    }

    /// Runs `body` with a local copy of the file at `url`, which meanwhile is not removed to free space.
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
        let name = self.core.name(of: url)
        self.core.folder.beginUse(name)
        defer { self.core.folder.endUse(name) }
        return try await body(try await self.core.request(url))
    }

    // MARK: - Looking

    /// The local copy of the file at `url`, if it is complete.
    ///
    /// `nil` until a request, or ``loadCachedValue(url:)``, has opened the folder: its files may belong to a session that has ended.
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

    /// The progress of the file at `url`: the present state, then every step forward.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: A sequence for any number of watchers.
    public nonisolated func progress(of url: URL) -> AsyncMedia.ProgressSequence { self.core.progress(url) }

    /// The counts since this object was made; a file that was on disk counts as `MuxRepository.Statistics/diskHits`.
    public nonisolated var statistics: MuxRepository.Statistics { self.core.statistics }

    // MARK: - Removing

    /// Removes the file at `url`, complete or not.
    ///
    /// A waiting request gets a file that is fetched after this.
    ///
    /// - Parameter url: Where the file is.
    /// - Throws: ``MediaError/disk(_:)``; `MuxError/sessionEnded` if a sign-out comes between.
    public func remove(url: URL) async throws { try await self.core.remove(self.core.name(of: url)) }

    /// Removes all files, complete or not.
    ///
    /// Waiting requests get files that are fetched after this.
    ///
    /// - Throws: ``MediaError/disk(_:)``; `MuxError/sessionEnded` if a sign-out comes between.
    public func removeAll() async throws { try await self.core.removeAll() }

    /// The numbers of waiting callers, running downloads and known files: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    /// The numbers of downloads that wait for their turn, and of free places: none and all at rest.
    package nonisolated var downloadSlots: (waiting: Int, free: Int) { self.core.downloadSlots }
}

extension AsyncMedia {
    /// Makes media that need no sign-in.
    ///
    /// ```swift
    /// var limits = AsyncMedia.Limits()
    /// limits.minimumFileBytes = 100
    /// let photos = AsyncMedia(limits: limits, accepts: [.anyImage], cacheKey: { $0.path() })
    /// let file = try await photos.request(url: signedURL)
    /// ```
    ///
    /// - Parameters:
    ///   - directory: The folder, used by this object alone and made on demand; `nil` for one in the app's caches folder,
    ///     another for each folder of a repository. Of repositories without a folder only one may leave it out.
    ///   - transport: Sends the requests.
    ///   - limits: Bounds the use of disk and network.
    ///   - accepts: The media types that are files; `nil` for any. A response of another type, such as the page of a captive portal, is
    ///     ``MediaError/wrongType(_:)``.
    ///   - cacheKey: Returns the key that identifies the file of a URL, for signed URLs, whose query changes; `nil` for the URL without its
    ///     fragment. URLs with one key have one content and one extension: a download resumes with the newest of them.
    ///   - retry: How often a request is sent again after a transient failure. A connection that breaks off with some of the file
    ///     received is none; the download resumes at once.
    ///   - budget: Bounds the retries to a host; `nil` for no bound.
    ///   - durability: Whether a complete file survives a power failure.
    ///   - repository: The repository whose sign-out removes the files.
    public init(
        directory: URL? = nil,
        transport: any HTTPTransport = .system,
        limits: AsyncMedia.Limits = .init(),
        accepts: [HTTPMediaType]? = nil,
        cacheKey: (@Sendable (URL) -> String)? = nil,
        retry: RetryPolicy = .web,
        budget: RetryBudget? = .shared,
        durability: MuxDurability = .full,
        repository: MuxRepository = .shared
    ) {
        self.init(
            directory: directory,
            limits: limits,
            accepts: accepts,
            cacheKey: cacheKey,
            retry: retry,
            budget: budget,
            durability: durability,
            repository: repository,
            transport: transport,
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
    ///   - directory: The folder, used by this object alone and made on demand; `nil` for one in the app's caches folder,
    ///     another for each folder of a repository. Of repositories without a folder only one may leave it out.
    ///   - dependency: Runs every request; a 401 makes it renew the dependency, once for all downloads, which then resume.
    ///   - transport: Sends the requests.
    ///   - limits: Bounds the use of disk and network.
    ///   - accepts: The media types that are files; `nil` for any. A response of another type, such as the page of a captive portal, is
    ///     ``MediaError/wrongType(_:)``.
    ///   - cacheKey: Returns the key that identifies the file of a URL, for signed URLs, whose query changes; `nil` for the URL without its
    ///     fragment. URLs with one key have one content and one extension: a download resumes with the newest of them.
    ///   - retry: How often a request is sent again after a transient failure. A connection that breaks off with some of the file
    ///     received is none; the download resumes at once.
    ///   - budget: Bounds the retries to a host; `nil` for no bound.
    ///   - durability: Whether a complete file survives a power failure.
    ///   - repository: The repository whose sign-out removes the files; `nil`, the default, for that of `dependency`, or the shared
    ///     one where it has none. With another one than the dependency's, requests fail with `MuxError.repositoryMismatch`: a
    ///     sign-out would not reach both.
    ///   - authorize: Adds the dependency to a request. Called for every URL, so check the host before you add a token. The header
    ///     fields that it sets are not sent on when a redirection leads to another server.
    public init<Dependency: Sendable>(
        directory: URL? = nil,
        dependency: any DependencyRunner<Dependency>,
        transport: any HTTPTransport = .system,
        limits: AsyncMedia.Limits = .init(),
        accepts: [HTTPMediaType]? = nil,
        cacheKey: (@Sendable (URL) -> String)? = nil,
        retry: RetryPolicy = .web,
        budget: RetryBudget? = .shared,
        durability: MuxDurability = .full,
        repository: MuxRepository? = nil,
        authorize: @escaping @Sendable (inout HTTPCall, Dependency) -> Void
    ) {
        self.init(
            directory: directory,
            limits: limits,
            accepts: accepts,
            cacheKey: cacheKey,
            retry: retry,
            budget: budget,
            durability: durability,
            repository: repository,
            ofDependency: dependency.sessionRepository,
            transport: transport,
            fileSystem: POSIXFileSystem()
        ) { call, sink in
            _ = try await dependency.run { value in
                var authorized = call
                authorize(&authorized, value)
                let added = Set(authorized.headers.fields).subtracting(call.headers.fields)
                authorized.credentialHeaders.formUnion(added.map(\.name.rawValue))
                return .output(try await transport.exchange(authorized, into: sink))
            }
        }
    }

    package init(
        directory: URL?,
        limits: AsyncMedia.Limits,
        accepts: [HTTPMediaType]? = nil,
        cacheKey: (@Sendable (URL) -> String)? = nil,
        retry: RetryPolicy = .immediate(),
        budget: RetryBudget? = nil,
        durability: MuxDurability,
        repository: MuxRepository?,
        ofDependency dependency: MuxRepository? = nil,
        transport: (any HTTPTransport)? = nil,
        fileSystem: any FileSystem,
        exchange: @escaping @Sendable @concurrent (HTTPCall, any HTTPSink) async throws -> Void
    ) {
        let own = repository ?? dependency ?? .shared
        let cached = dependency == nil ? nil : (transport as? CachingTransport)?.settled(in: own)
        let sessions = SessionWatch(own, isOfAccount: dependency != nil, for: transport)
        let choice = RepositoryChoice(given: own, ofDependency: dependency, ofCache: cached)
        let folder = MediaFolder(
            directory.map { StoreFolder($0) } ?? own.folder(.media),
            limits: limits,
            durability: durability,
            fileSystem: fileSystem,
            problems: own.problems,
            wallTime: own.wallTime
        )
        self.init(
            core: MediaCore(
                folder: folder,
                accepts: accepts,
                cacheKey: cacheKey,
                choice: choice,
                retry: retry,
                budget: budget
            ) { call, sink in
                guard let session = sessions?.current else { return try await exchange(call, sink) }
                var call = call
                call.account = session
                try await CallSession.$current.withValue(session) { try await exchange(call, sink) }
            }
        )
    }
}
