public import Foundation
public import MuxKit

/// Downloads large immutable files, such as images, audio, video and documents, and stores the files on disk.
///
/// ```swift
/// let file = try await AsyncMedia.shared.request(url: photo)
/// for try await progress in AsyncMedia.shared.progress(of: photo) { bar.value = progress.fraction ?? 0 }
/// let have = AsyncMedia.shared.cachedValue(url: photo)
/// ```
///
/// A download writes the file while the response arrives, so the file may be larger than memory. An
/// interrupted download resumes, even in another process, if the server sends a strong `ETag`, supports
/// ranges (RFC 9110, sections 13.1.5 and 14), and the representation is unchanged; otherwise the download
/// restarts from zero.
///
/// **Concurrent calls.** Concurrent requests for one URL (ignoring the fragment), or for one key of the app,
/// share a download. An object runs at most ``AsyncMedia/Limits/parallelDownloads`` downloads at the same
/// time.
///
/// **Cancellation.** A cancelled caller throws `CancellationError` at once. A download without callers stops;
/// the received part is kept as after a failure.
///
/// **After a failure.** The received part is kept if a later request can resume the download. Lost
/// connections and transient statuses are retried according to the retry policy.
///
/// **On disk.** A complete file is named after a hash of the URL, or of a key of the app, and has the URL's
/// extension if short and alphanumeric. The system, or another process with the same folder, may remove files
/// at any time. ``withFile(url:_:)`` prevents this object from evicting a file in use. The next request
/// recreates a removed folder.
///
/// **At sign-out.** `MuxRepository/clearAll()` ends waiting requests with `MuxError/sessionEnded` and removes
/// all files, complete or not. An ``AsyncMedia`` with a dependency belongs to the dependency's repository.
public final actor AsyncMedia {
    /// The shared object for an app with one account; the files are in the caches folder.
    public static let shared = AsyncMedia()

    nonisolated let core: MediaCore

    init(core: MediaCore) { self.core = core }

    // MARK: - Requests

    /// Returns a local copy of the file at `url`, fetched if absent.
    ///
    /// - Parameters:
    ///   - url: The URL of the file. A URL with the scheme `file` is returned unchanged and unchecked.
    ///   - sha256: The expected SHA-256 of the file, as 64 hexadecimal digits; `nil` without an expectation.
    ///     A file on disk with a different SHA-256 is removed and fetched once more, unless another request
    ///     expects the SHA-256 of the file on disk. A request that joins another request after this check
    ///     removes the file and throws ``MediaError/wrongDigest``; the next request fetches the file.
    /// - Returns: The URL of a complete file.
    /// - Throws: ``MediaError``, ``HTTPError``, `MuxError`, the error of the transport, of the repository's
    ///   store or of the dependency's runner, or `CancellationError`.
    public nonisolated(nonsending) func request(url: URL, sha256: String? = nil) async throws -> URL {
        try await self.core.request(url, sha256: sha256)
    }

    /// Fetches files in advance, with a lower priority than requests.
    ///
    /// Returns when, for each file, the fetch has ended or the prefetch is cancelled. A request for one of
    /// the files joins the download of the file, which then takes precedence over other prefetches. A
    /// cancellation of the task stops all prefetches of the call; ``cancelPrefetch(_:)`` stops prefetches of
    /// single files.
    ///
    /// - Parameter urls: The URLs of the files.
    public nonisolated func prefetch(_ urls: some Sequence<URL>) async {
        let core = self.core
        await withDiscardingTaskGroup { group in
            for url in urls {
                // Registered before the task starts, so that a call of ``cancelPrefetch(_:)`` in between has
                // an effect.
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

    /// Stops running prefetches, such as for cells that have scrolled away; requests for the same files
    /// continue.
    ///
    /// The received part of a file is kept as after a failure.
    ///
    /// - Parameter urls: The URLs of the files.
    public nonisolated func cancelPrefetch(_ urls: some Sequence<URL>) {
        for url in urls { self.core.cancellations.send((), to: self.core.name(of: url)) }
    }

    /// Runs `body` with a local copy of the file at `url`, which this object does not evict during the call.
    ///
    /// - Parameters:
    ///   - url: The URL of the file.
    ///   - body: Uses the file.
    /// - Returns: The result of `body`.
    /// - Throws: The error of ``request(url:sha256:)`` or of `body`.
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

    /// The local copy of the file at `url`, if complete.
    ///
    /// The result is `nil` until the folder is open: until then, the files may belong to an ended session. A
    /// request, ``loadCachedValue(url:)``, an iteration over ``progress(of:)``, or a clear opens the folder.
    ///
    /// - Parameter url: The URL of the file. A URL with the scheme `file` is returned unchanged.
    /// - Returns: The URL of a complete file, or `nil`.
    /// - Complexity: O(1), two calls to the file system on the caller's thread, after a wait for a running
    ///   operation on the folder, such as an eviction.
    public nonisolated func cachedValue(url: URL) -> URL? { self.core.cached(url) }

    /// The local copy of the file at `url`, if complete; opens the folder if necessary, and never fetches.
    ///
    /// Finds the file as ``cachedValue(url:)``, with calls to the file system on the caller's executor.
    ///
    /// - Parameter url: The URL of the file. A URL with the scheme `file` is returned unchanged.
    /// - Returns: The URL of a complete file, or `nil`.
    public nonisolated func loadCachedValue(url: URL) async -> URL? {
        if url.isFileURL { return url }
        guard (try? await self.core.open()) != nil else { return nil }
        return self.core.findAndRecord(url)
    }

    /// The progress of the file at `url`: the current progress, then increases.
    ///
    /// - Parameter url: The URL of the file.
    /// - Returns: A sequence for any number of iterators.
    public nonisolated func progress(of url: URL) -> AsyncMedia.ProgressSequence { self.core.progress(url) }

    /// The states of the file at `url`: the current state, then every change, for a screen.
    ///
    /// The entry is the URL of the complete file. The state has no entry until the folder is open: a request,
    /// ``loadCachedValue(url:)``, an iteration over ``progress(of:)``, or a clear opens the folder. If the
    /// file is evicted, or removed by another program, the state changes only when the next request finds
    /// that the file is absent.
    ///
    /// - Parameter url: The URL of the file.
    /// - Returns: A sequence for any number of iterators. The sequence does not retain this object, and
    ///   starts no download.
    public nonisolated func states(of url: URL) -> MuxStates<URL> { self.core.states(of: url) }

    /// The counts since the initialisation.
    ///
    /// A flight that finds the file on disk counts at most once in `MuxRepository.Statistics/diskHits`; each
    /// request of the flight also counts as a miss or a join.
    public nonisolated var statistics: MuxRepository.Statistics { self.core.statistics }

    // MARK: - Removing

    /// Removes the file at `url`, complete or not.
    ///
    /// A waiting request gets a file that is fetched again after the removal; a request whose download has
    /// just ended may throw ``MediaError/removed``.
    ///
    /// - Parameter url: The URL of the file.
    /// - Throws: ``MediaError``; the error of the repository's store; `MuxError/sessionEnded` if a sign-out
    ///   ends the session during the removal.
    public func clear(url: URL) async throws { try await self.core.remove(self.core.name(of: url)) }

    /// Removes all files, complete or not.
    ///
    /// Waiting requests behave as after ``clear(url:)``.
    ///
    /// - Throws: The errors of ``clear(url:)``.
    public func clear() async throws { try await self.core.removeAll() }

    /// The numbers of waiting callers, running flights and files with a flight: all zero without activity.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    /// The number of files with consumers of states: zero at rest.
    package nonisolated var followedCount: Int { self.core.engine.withState { $0.followed.count } }

    /// The numbers of queued downloads and of free download slots; without activity, no download is queued
    /// and all slots are free.
    package nonisolated var downloadSlots: (waiting: Int, free: Int) { self.core.semaphore.occupancy }
}

extension AsyncMedia {
    /// Makes an object for files without a sign-in.
    ///
    /// ```swift
    /// var limits = AsyncMedia.Limits()
    /// limits.minimumFileBytes = 100
    /// let photos = AsyncMedia(limits: limits, accepts: [.anyImage], key: { $0.path() })
    /// let file = try await photos.request(url: signedURL)
    /// ```
    ///
    /// - Parameters:
    ///   - directory: The folder, created on demand; no other object of the process may use the folder. `nil`
    ///     for a folder in the app's caches folder: repositories whose stores have different folders get
    ///     different folders. All repositories without a store folder get the same folder, so at most one of
    ///     these repositories may use `nil`.
    ///   - transport: Sends the requests.
    ///   - limits: Bounds the use of disk and network.
    ///   - accepts: The media types of acceptable files; `nil` for any type. A response with another type,
    ///     such as the page of a captive portal, throws ``MediaError/wrongType(_:)``.
    ///   - key: Returns the key that identifies the file of a URL, for signed URLs, whose query changes;
    ///     `nil` for the URL without its fragment. URLs with the same key must have the same content and the
    ///     same extension: a download resumes with the newest URL.
    ///   - retry: The policy for retries after a transient failure. A transport error after at least 4,096
    ///     new bytes of the file does not count as a failure; the download resumes at once.
    ///   - budget: Limits the number of retries for each host; `nil` for no limit.
    ///   - durability: Whether a complete file survives a power failure.
    ///   - repository: The repository whose sign-out removes the files.
    public init(
        directory: URL? = nil,
        transport: any HTTPTransport = .system,
        limits: AsyncMedia.Limits = .init(),
        accepts: [HTTPMediaType]? = nil,
        key: (@Sendable (URL) -> String)? = nil,
        retry: RetryPolicy = .web,
        budget: RetryBudget? = .shared,
        durability: MuxDurability = .full,
        repository: MuxRepository = .shared
    ) {
        let transport = transport.cache(in: repository) ?? transport
        self.init(
            directory: directory,
            limits: limits,
            accepts: accepts,
            key: key,
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

    /// Makes an object for files that need a sign-in.
    ///
    /// ```swift
    /// let media = AsyncMedia(dependency: oauth) { call, token in
    ///     if call.url.host() == "media.example.org" { call.headers["Authorization"] = "Bearer \(token)" }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - directory: The folder, created on demand; no other object of the process may use the folder. `nil`
    ///     for a folder in the app's caches folder: repositories whose stores have different folders get
    ///     different folders. All repositories without a store folder get the same folder, so at most one of
    ///     these repositories may use `nil`.
    ///   - dependency: Runs every request. After a 401 the runner renews the dependency, once for all
    ///     downloads, which then resume.
    ///   - transport: Sends the requests.
    ///   - limits: Bounds the use of disk and network.
    ///   - accepts: The media types of acceptable files; `nil` for any type. A response with another type,
    ///     such as the page of a captive portal, throws ``MediaError/wrongType(_:)``.
    ///   - key: Returns the key that identifies the file of a URL, for signed URLs, whose query changes;
    ///     `nil` for the URL without its fragment. URLs with the same key must have the same content and the
    ///     same extension: a download resumes with the newest URL.
    ///   - retry: The policy for retries after a transient failure. A transport error after at least 4,096
    ///     new bytes of the file does not count as a failure; the download resumes at once.
    ///   - budget: Limits the number of retries for each host; `nil` for no limit.
    ///   - durability: Whether a complete file survives a power failure.
    ///   - repository: The repository whose sign-out removes the files; `nil`, the default, for the
    ///     repository of `dependency`, or otherwise the shared repository. If `dependency` has a different
    ///     repository, requests fail with `MuxError.repositoryMismatch`, because a sign-out would not include
    ///     both.
    ///   - authorize: Adds the dependency to a request. `authorize` is called for every URL, so check the
    ///     host before adding a token. A redirection to another server removes the added header fields.
    public init<Dependency: Sendable>(
        directory: URL? = nil,
        dependency: any DependencyRunner<Dependency>,
        transport: any HTTPTransport = .system,
        limits: AsyncMedia.Limits = .init(),
        accepts: [HTTPMediaType]? = nil,
        key: (@Sendable (URL) -> String)? = nil,
        retry: RetryPolicy = .web,
        budget: RetryBudget? = .shared,
        durability: MuxDurability = .full,
        repository: MuxRepository? = nil,
        authorize: @escaping @Sendable (inout HTTPCall, Dependency) -> Void
    ) {
        let transport = transport.cache(in: repository ?? dependency.sessionRepository) ?? transport
        self.init(
            directory: directory,
            limits: limits,
            accepts: accepts,
            key: key,
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
        key: (@Sendable (URL) -> String)? = nil,
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
        let cached = dependency == nil ? nil : (transport as? ResponseCache)?.repository
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
                key: key,
                choice: choice,
                retry: retry,
                budget: budget
            ) { call, sink in
                guard let session = sessions?.current else { return try await exchange(call, sink) }
                var call = call
                call.callSession = session
                try await CallSession.$current.withValue(session) { try await exchange(call, sink) }
            }
        )
    }
}
