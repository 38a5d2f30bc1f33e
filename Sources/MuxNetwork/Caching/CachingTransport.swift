public import Foundation
public import MuxKit

/// Stores and reuses the responses of another transport as HTTP permits: a private cache (RFC 9111).
///
/// ```swift
/// let client = HTTPClient(transport: .caching())
/// ```
///
/// The cache obeys these rules:
///
/// - A fresh response is returned without a request, if the `Cache-Control` of the request permits the use.
/// - A stale response with an `ETag` or a `Last-Modified` is validated with the server, and returned if
///   unchanged.
/// - `Vary` separates variants.
/// - A stored response is also used for a request for a range of its bytes.
/// - After a request with an unsafe method, such as POST, the stored responses of the URL require validation,
///   if the status is from 200 to 399, or if the request may have reached the server and no response arrives.
///   A POST of a client's multiplexer has no such effect.
/// - Directives in the `Cache-Control` of a request are obeyed.
/// - RFC 5861 defines the use of a stale response during its revalidation, or in place of an error.
///
/// ``HTTPResponse/cacheStatus`` reports the cache's handling of a request.
///
/// A newer response of another version removes the stored response, even if the newer response is not stored.
/// A server error without a lifetime, and an error that concerns only the request, such as 429, removes no
/// stored response. The response with the later `Date` is newer. If the dates do not decide, the response to
/// the later request is newer (RFC 9111, section 4).
///
/// For values of one type, `client.multiplexer` is simpler: a multiplexer caches decoded values.
///
/// **Concurrent calls.** GET requests for one URL with equal `Vary` fields share an exchange. A request with
/// a body, a condition, a range, or one of the directives `no-store`, `no-cache`, `max-age` and `min-fresh`
/// has its own exchange, and so has a request that completes a stored part. The other requests wait for the
/// stored response, no longer than their own time-out and deadline. A request that gets no usable response
/// from an exchange continues with another exchange.
///
/// **A client's steps.** If the authenticator has a session or is a `DependencyRunner`, a client whose
/// transport is a cache gets a token only for a request to the server: a fresh stored response needs neither
/// a token nor a connection. The order is: retry, cache, token, `Retry-After`, transport. With any other
/// authenticator, each call gets its token before the lookup in the cache
/// (``HTTPAuthenticator/sessionRepository``).
///
/// If a stale response may replace a failure, the client uses the stale response without a retry. If the
/// retry budget of the client admits no request to the host, the cache acts as if there were no connection.
///
/// **Accounts.** If the authenticator of the client has a session, the stored responses belong to this
/// session, even if the cache is inside another transport; accounts with separate repositories share no
/// responses. `MuxRepository/clearAll()` removes the stored responses.
///
/// With `Vary: Authorization`, the text of the token identifies the variant. If the client's transport is a
/// cache, an authenticator that has a session or is a `DependencyRunner` identifies the variant instead:
/// separate authenticators share no responses, and a renewed token selects the same response.
///
/// If the cache was made without a repository, and the account of a request with credentials is unknown, the
/// request bypasses the cache. The account is unknown, for example, if the app sends a call without a client,
/// or if an outer transport makes a new call in a detached task.
///
/// **Limits.** For each URL the 16 most recent variants (`Vary`) are stored. `Clear-Site-Data: "cache"`
/// removes the stored responses of the response's origin.
///
/// **A failing server.** Background revalidations pause after a failure (``Configuration/errorBackoff``).
/// After a 403, 429 or 503 with `Retry-After`, the cache sends no request to the origin until the end of the
/// pause, at most for an hour. A fresh response, or a permitted stale response, is used. If the stored
/// response has `must-revalidate` or `no-cache`, the result is a response with status 504. Otherwise the
/// request fails with ``HTTPError/TransportFailure/serverBusy(retryAfter:)``.
///
/// **On disk.** With a ``Configuration/cacheKey``, each save of the repository writes the responses, except
/// responses that depend on credentials (`Vary`). Long bodies are written to files on arrival. Without a key,
/// all responses stay in memory, and long bodies are not stored. The header field `Set-Cookie` is never
/// written to disk.
///
/// **After a failure.** A failure to store a response does not fail the request. If the server cannot be
/// reached, a permitted stored response is used (``Configuration/staleLimit``). If the stored response has
/// `must-revalidate` or `no-cache`, the result is a response with status 504 (RFC 9111, section 5.2.2.2).
/// Otherwise the error of the transport is thrown.
public final class CachingTransport: HTTPTransport {
    /// The cache of the repository of the initialiser; `nil` without a repository.
    private let ownCache: ResponseCache?
    /// Without ``ownCache``: the caches, at most one per repository, so that the end of a session removes
    /// only the responses of this session.
    private let caches = Locked<[ResponseCache]>([])
    private let makeCache: @Sendable (MuxRepository) -> ResponseCache
    fileprivate let base: any HTTPTransport
    /// The mismatch of the first refused call; kept, so that only the first refusal is reported.
    private let mismatch = Locked<RepositoryChoice?>(nil)

    /// Makes a cache.
    ///
    /// - Parameters:
    ///   - base: The transport for requests that need the server.
    ///   - options: The limits and locations of the stored responses.
    ///   - repository: The repository whose saves write the responses, and whose sign-out removes the
    ///     responses. With `nil`, the default, the cache uses the repository of the authenticator of each
    ///     ``HTTPClient`` or ``AsyncMedia`` with this cache, even if the cache is inside other transports:
    ///     the accounts of several repositories share no responses. Without a repository of an authenticator,
    ///     the cache uses the shared repository. If the cache has a repository, or if the caches of two
    ///     repositories would use the same folder (``Configuration/directory``), requests for an account in
    ///     another repository fail with `MuxError.repositoryMismatch`: the sign-out of the account would not
    ///     remove the responses.
    public convenience init(
        _ base: any HTTPTransport = .system,
        options: CachingTransport.Configuration = .init(),
        repository: MuxRepository? = nil
    ) {
        self.init(base, options: options, repository: repository, fileSystem: POSIXFileSystem())
    }

    package init(
        _ base: any HTTPTransport,
        options: CachingTransport.Configuration,
        repository: MuxRepository?,
        fileSystem: any FileSystem
    ) {
        self.base = base
        let makeCache = { @Sendable (repository: MuxRepository) in
            ResponseCache(base.cache(in: repository) ?? base, options, repository, fileSystem)
        }
        self.makeCache = makeCache
        self.ownCache = repository.map { makeCache($0) }
    }

    /// The cache for the session of `account`, or for requests without an account.
    ///
    /// The result may belong to another repository than `account`: to the repository of ``ownCache``, or of
    /// another cache of this transport with the same folder.
    func cache(in account: MuxRepository?) -> ResponseCache {
        if let ownCache { return ownCache }
        let repository = account ?? .shared
        if let cache = self.caches.withLock({ $0.first { $0.repository === repository } }) { return cache }
        // Outside the lock, because the initialiser calls observers. If two calls make a cache at the same
        // time, one of the caches is used.
        let cache = self.makeCache(repository)
        return self.caches.withLock { caches in
            let known = caches.first { $0.repository === repository || $0.hasFolder(of: cache) }
            if known == nil { caches.append(cache) }
            return known ?? cache
        }
    }

    /// ``ownCache``, otherwise all caches; if no request has made a cache, the cache without an account.
    private var allCaches: [ResponseCache] {
        let made = self.ownCache == nil ? self.caches.withLock(\.self) : []
        return made.isEmpty ? [self.cache(in: nil)] : made
    }

    /// The counts since the cache was made: hits, requests to the server, and requests that shared an
    /// exchange.
    public var statistics: MuxRepository.Statistics {
        self.allCaches.reduce(MuxRepository.Statistics()) { $0 + $1.statistics }
    }

    /// Removes all stored responses of a URL.
    ///
    /// A running exchange with the server continues, but the response is not stored.
    ///
    /// - Parameter url: The URL; the fragment is ignored.
    public func clear(_ url: URL) async {
        guard let name = HTTPResourceName(url) else { return }
        for cache in self.allCaches { await cache.remove(name.text) }
    }

    /// Removes all stored responses.
    ///
    /// A running exchange with the server continues, but the response is not stored.
    ///
    /// - Returns: The failures. Files that could not be removed are no longer used. The next save removes the
    ///   remaining entries. The next request to the server removes the remaining files of long bodies.
    @discardableResult
    public func clear() async -> MuxRepository.ClearReport {
        var report = MuxRepository.ClearReport()
        for cache in self.allCaches { report.failures += await cache.removeAll().failures }
        return report
    }

    /// Sends a request, or returns a stored response.
    ///
    /// - Parameter call: The request.
    /// - Returns: The response, with any status.
    /// - Throws: ``HTTPError``, the error of the wrapped transport, `MuxError.repositoryMismatch`, or
    ///   `CancellationError`.
    public func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.transport(for: call).send(call) }

    /// Sends a request and passes the response, or a stored response, to `sink`.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Receives the head, then the body piece by piece.
    /// - Returns: The head of the response, after the end of the body.
    /// - Throws: ``HTTPError``, the error of the wrapped transport or the sink,
    ///   `MuxError.repositoryMismatch`, or `CancellationError`.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        try await self.transport(for: call).stream(call, into: sink)
    }

    /// The numbers of waiting callers, of running flights (at least the number of URLs with a running
    /// exchange), and of names with a flight: zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) {
        self.allCaches.reduce((0, 0, 0)) { sum, cache in
            let occupancy = cache.engine.occupancy
            // A flight may end before its exchange.
            let tasks = max(occupancy.tasks, cache.runningExchanges.withLock(\.count))
            return (sum.0 + occupancy.waiters, sum.1 + tasks, sum.2 + occupancy.keys)
        }
    }

    /// The cache for a call of a custom transport or of an app.
    ///
    /// - Returns: The cache; the wrapped transport for a call with credentials of an unknown repository,
    ///   whose sign-out would not remove the response.
    /// - Throws: `MuxError.repositoryMismatch`.
    private func transport(for call: HTTPCall) throws -> any HTTPTransport {
        guard let session = CallSession.of(call) else {
            return self.hidesAccount(call) ? self.base : self.cache(in: nil)
        }
        let cache = self.cache(in: session.repository)
        guard session.isOfAccount, session.repository !== cache.repository else { return cache }
        let choice = self.mismatch.withLock { mismatch in
            let choice = mismatch ?? RepositoryChoice(given: cache.repository, ofDependency: session.repository)
            mismatch = choice
            return choice
        }
        try choice.check(nil, name: "CachingTransport")
        return cache
    }

    /// Whether a call without a session has credentials of an unknown repository; `false` with ``ownCache``.
    private func hidesAccount(_ call: HTTPCall) -> Bool {
        guard self.ownCache == nil else { return false }
        let names = HTTPTransportConfiguration().credentialHeaders.union(self.base.credentialHeaders)
            .union(call.credentialHeaders)
        let credentials = Set(names.map { HTTPHeaders.Name(stringLiteral: $0) })
        return call.headers.fields.contains { credentials.contains($0.name) }
    }

    /// Whether `transport` is the system transport, directly or below caches.
    ///
    /// Any other transport may contain a cache that needs the session of a call.
    static func endsInSystemTransport(_ transport: any HTTPTransport) -> Bool {
        switch transport {
        case is SystemTransport: true
        case let cache as ResponseCache: self.endsInSystemTransport(cache.base)
        default: false
        }
    }
}

extension HTTPTransport {
    /// The cache of this transport for the session of `account`; `nil` if the transport is no cache.
    func cache(in account: MuxRepository?) -> ResponseCache? {
        (self as? CachingTransport).map { $0.cache(in: account) }
    }
}

extension CachingTransport {
    /// The locations and limits of a cache.
    public struct Configuration: Sendable, Hashable {
        /// The name of the responses on disk; `nil`, the default, for responses in memory only.
        public var cacheKey: String?

        /// The maximum size of all responses in memory, in bytes, for each repository; unsaved responses may
        /// exceed the limit.
        public var memoryLimit: Int

        /// The maximum length of a body in memory, in bytes.
        ///
        /// A longer body is stored in a file, up to ``bodyLimit``, if there is a ``cacheKey`` and the
        /// response does not depend on credentials; otherwise the response is not stored.
        public var memoryBodyLimit: Int

        /// The maximum size of all complete files of long bodies, in bytes, for each repository.
        public var diskLimit: Int

        /// The maximum length of a stored body, in bytes, in memory or in a file.
        public var bodyLimit: Int

        /// The folder of long bodies, which no other cache may use; ignored without a ``cacheKey``.
        ///
        /// `nil` for a folder in the app's caches folder, separate for each ``cacheKey`` and each folder of a
        /// repository. A directory given here belongs to one repository: the repository of the cache,
        /// otherwise of the first client or request. Pass the repository to the cache if clients with and
        /// without an authenticator share the cache.
        public var directory: URL?

        /// The maximum heuristic lifetime, which is used if the server sent `Last-Modified` but no lifetime.
        ///
        /// The heuristic lifetime is a tenth of the time since the last change (RFC 9111, section 4.2.2).
        public var heuristicLimit: Duration

        /// The time after the lifetime in which a response is used if the server cannot be reached.
        ///
        /// See RFC 9111, section 4.2.4. A longer `stale-if-error` extends the time. A stale response that
        /// requires validation, by `no-cache`, by `must-revalidate` or after a change of the resource, is
        /// never used without the server. The body of a response that arrives stale and without a validator
        /// is stored only if `stale-while-revalidate` or `stale-if-error` still permits the use of the
        /// response.
        public var staleLimit: Duration

        /// The pause between a failed background revalidation and the next background revalidation; by
        /// default 1 second.
        ///
        /// The pause does not extend `stale-while-revalidate`. The pause doubles with each further failure of
        /// the same response, up to a minute, or to this value if longer. A longer `Retry-After` of the
        /// server is obeyed, up to an hour.
        public var errorBackoff: Duration

        /// Makes a configuration; each parameter sets the property with its name.
        public init(
            cacheKey: String? = nil,
            memoryLimit: Int = 16 << 20,
            memoryBodyLimit: Int = 256 << 10,
            diskLimit: Int = 256 << 20,
            bodyLimit: Int = 64 << 20,
            directory: URL? = nil,
            heuristicLimit: Duration = .seconds(24 * 60 * 60),
            staleLimit: Duration = .seconds(7 * 24 * 60 * 60),
            errorBackoff: Duration = .seconds(1)
        ) {
            self.cacheKey = cacheKey
            self.memoryLimit = memoryLimit
            self.memoryBodyLimit = memoryBodyLimit
            self.diskLimit = diskLimit
            self.bodyLimit = bodyLimit
            self.directory = directory
            self.heuristicLimit = heuristicLimit
            self.staleLimit = staleLimit
            self.errorBackoff = errorBackoff
        }
    }
}

extension HTTPTransport where Self == CachingTransport {
    /// A private cache in front of another transport.
    ///
    /// - Parameters:
    ///   - base: The transport for requests that need the server.
    ///   - options: The limits and locations of the stored responses.
    ///   - repository: The repository whose saves write the responses, and whose sign-out removes the
    ///     responses; `nil`, the default, for the repository of the client's authenticator, or the shared
    ///     repository: see ``CachingTransport/init(_:options:repository:)``.
    /// - Returns: The cache.
    public static func caching(
        _ base: any HTTPTransport = .system,
        options: CachingTransport.Configuration = .init(),
        repository: MuxRepository? = nil
    ) -> CachingTransport {
        CachingTransport(base, options: options, repository: repository)
    }
}

extension HTTPTransport {
    /// The names of the header fields with credentials in the configuration of the transport below all
    /// caches; empty for a custom transport.
    var credentialHeaders: Set<String> {
        if let caching = self as? CachingTransport { return caching.base.credentialHeaders }
        return (self as? any ValidatedTransport)?.options.credentialHeaders ?? []
    }
}
