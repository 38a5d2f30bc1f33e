public import Foundation
public import MuxKit

/// Stores the responses of another transport and reuses them as HTTP permits: a private cache (RFC 9111).
///
/// ```swift
/// let client = HTTPClient(transport: .caching())
/// ```
///
/// Complete responses are stored with their header fields:
///
/// - A fresh response is returned without a request.
/// - A stale response is validated with the server (`ETag`, `Last-Modified`), and returned if unchanged.
/// - `Vary` separates variants.
/// - A range is cut from a complete response.
/// - A change (POST, PUT, PATCH, DELETE) makes the stored responses of its URL stale.
/// - RFC 5861 defines the use of a stale response during its revalidation, or in place of an error.
/// - The directives of a request's own `Cache-Control` are obeyed.
///
/// ``HTTPResponse/cacheStatus`` reports the cache's handling of a request.
///
/// A newer response replaces the stored response even if the newer response is not stored. The newer response
/// is the response with the later `Date`, otherwise the response to the later request, in any order of
/// arrival (RFC 9111, section 4).
///
/// For values of one type, `client.multiplexer` is simpler: a multiplexer caches decoded values.
///
/// **Concurrent calls.** Requests for one URL share an exchange. The task of the first request performs the
/// exchange. Other requests wait for the stored response, no longer than the time-out for a silent server.
///
/// **Accounts.** A cache belongs to one account at a time: the account of its client's authenticator, even if
/// the cache is inside another transport. `MuxRepository/clearAll()` removes the stored responses. Several
/// simultaneous accounts need separate caches. If the repository for a request with credentials is unknown,
/// its response is not stored: a transport that makes a new call in a detached task hides the account.
///
/// **Limits.** For each URL the 16 most recent variants (`Vary`) are stored. `Clear-Site-Data: "cache"`
/// removes the stored responses of the origin of the response.
///
/// **A failing server.** Background revalidations pause after a failure (``Options/errorBackoff``). After a
/// 403, 429 or 503 with `Retry-After`, the cache sends no request to the origin until the end of the pause: a
/// stored response is used if a stale response is permitted; otherwise the request fails with
/// ``HTTPError/TransportFailure/serverBusy(retryAfter:)``.
///
/// **On disk.** With a ``Options/cacheKey``, each save of the repository writes the responses; long bodies
/// are written to files at once. Without a key, all responses stay in memory. A header field `Set-Cookie`
/// always stays in memory.
///
/// **After a failure.** A failure to store a response never fails the request. If the server cannot be
/// reached, a stale response is used (``Options/staleLimit``). If the stored response requires validation
/// before reuse, the response has status 504 (RFC 9111, section 5.2.2.2). Without a usable stored response,
/// the error of the transport is thrown.
public final class CachingTransport: HTTPTransport {
    /// The cache; `nil` until its repository is known.
    private let made: Locked<ResponseCache?>
    private let makeCache: @Sendable (MuxRepository) -> ResponseCache
    /// The wrapped transport, if the transport is a ``ValidatedTransport``.
    private let base: (any ValidatedTransport)?
    private let sender: any HTTPTransport
    /// Whether the initialiser received a repository.
    private let isGiven: Bool
    /// The refusal of calls for another repository's session, kept for a single report.
    private let mismatch = Locked<RepositoryChoice?>(nil)
    package let options: HTTPTransportOptions

    /// Makes a cache.
    ///
    /// - Parameters:
    ///   - base: The transport for requests that need the server.
    ///   - options: The limits and locations of the stored responses.
    ///   - repository: The repository whose saves write the responses, and whose sign-out removes the
    ///     responses. `nil`, the default, for the repository of the authenticator of the first ``HTTPClient``
    ///     or ``AsyncMedia`` with this cache: made with the cache, or sending a request through the cache,
    ///     even through other transports. Otherwise the shared repository, from the first request or use of
    ///     another member. Requests for an account in another repository fail with
    ///     `MuxError.repositoryMismatch`: a sign-out would not reach both.
    public convenience init(
        _ base: any HTTPTransport = .system,
        options: CachingTransport.Options = .init(),
        repository: MuxRepository? = nil
    ) {
        self.init(base, options: options, repository: repository, fileSystem: POSIXFileSystem())
    }

    package init(
        _ base: any HTTPTransport,
        options: CachingTransport.Options,
        repository: MuxRepository?,
        fileSystem: any FileSystem
    ) {
        self.base = base as? any ValidatedTransport
        self.sender = base
        self.isGiven = repository != nil
        self.options = self.base?.options ?? HTTPTransportOptions()
        self.makeCache = { repository in
            _ = (base as? CachingTransport)?.settled(in: repository)
            return ResponseCache(base, options, repository, fileSystem)
        }
        self.made = Locked(repository.map(self.makeCache))
    }

    /// The cache; made in the shared repository if no client has chosen another repository.
    var cache: ResponseCache { self.made.withLock { $0 } ?? self.make(in: nil) }

    /// The repository of the cache; a new cache is made in `session`.
    func settled(in session: MuxRepository) -> MuxRepository {
        self.made.withLock { $0?.repository } ?? self.make(in: session).repository
    }

    private func make(in session: MuxRepository?) -> ResponseCache {
        // Outside the lock, because the initialiser calls observers. Of two simultaneous caches, one is
        // dropped before its first use.
        let cache = self.makeCache(session ?? .shared)
        return self.made.withLock { made in
            let chosen = made ?? cache
            made = chosen
            return chosen
        }
    }

    /// The counts since the cache was made: hits, requests to the server, and requests that shared an
    /// exchange.
    public var statistics: MuxRepository.Statistics { self.cache.statistics }

    /// Removes all variants of the stored response of a URL.
    ///
    /// Running requests get their responses, which are not stored.
    ///
    /// - Parameter url: The URL; the fragment is ignored.
    public func remove(_ url: URL) async {
        guard let name = HTTPResourceName(url) else { return }
        await self.cache.remove(name.text)
    }

    /// Removes all stored responses.
    ///
    /// Running requests get their responses, which are not stored.
    ///
    /// - Returns: The failures. The remaining files are no longer used; the next save, or the next long body
    ///   to be stored, removes the files.
    @discardableResult
    public func removeAll() async -> MuxRepository.ClearReport { await self.cache.removeAll() }
}

extension CachingTransport: ValidatedTransport {
    /// The numbers of waiting callers, URLs with a running exchange or renewal, and flights: zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) {
        var occupancy = self.cache.engine.occupancy
        // A flight may land before its exchange ends.
        occupancy.tasks = max(occupancy.tasks, self.cache.commits.withLock(\.count))
        return occupancy
    }

    package var time: TimeSource { self.base?.time ?? self.known?.time ?? TimeSource(ContinuousClock()) }
    package var pendingCount: Int { self.base?.pendingCount ?? 0 }

    /// The number of ended sessions; 0 for a new cache.
    package var session: UInt64 { self.known?.session ?? 0 }

    package func prepare(for call: ValidatedCall) throws {
        let session = CallSession.of(call)
        guard let cache = self.cache(for: call, in: session) else { return try self.base?.prepare(for: call) ?? () }
        guard let session, session.isOfAccount, session.repository !== cache.repository else { return }
        let choice = self.mismatch.withLock { mismatch in
            let choice = mismatch ?? RepositoryChoice(given: cache.repository, ofDependency: session.repository)
            mismatch = choice
            return choice
        }
        try choice.check(nil, name: "CachingTransport")
    }

    package func stored(for call: ValidatedCall) -> HTTPReply? {
        guard let cache = self.known else { return nil }
        if let session = CallSession.of(call) {
            guard session.isCurrent, !session.isOfAccount || session.repository === cache.repository else { return nil }
        } else if self.hidesAccount(call) {
            return nil
        }
        return cache.fresh(call)
    }

    package func perform(
        _ call: ValidatedCall,
        _ exchange: HTTPExchange,
        into sink: any HTTPSink
    ) async throws -> HTTPReply {
        let session = CallSession.of(call)
        guard let cache = self.cache(for: call, in: session) else {
            guard let base else { return try await self.sender.stream(call.call, into: sink) }
            return try await base.perform(call, HTTPExchange(call, exchange.limits, base.time), into: sink)
        }
        var limits = exchange.limits
        // A call of an ended session gets no stored response, and its response is not stored.
        if let session, !session.isCurrent { limits.session = .max }
        return try await cache.perform(call, limits, into: sink)
    }

    private var known: ResponseCache? { self.made.withLock(\.self) }

    /// The cache for a call; a new cache is made in the repository of the call's session.
    ///
    /// - Returns: The cache; `nil` for a call with credentials and an unknown repository, whose sign-out
    ///   would not remove the response.
    private func cache(for call: ValidatedCall, in session: CallSession?) -> ResponseCache? {
        if let session { return self.known ?? self.make(in: session.repository) }
        return self.hidesAccount(call) ? nil : self.cache
    }

    /// Whether a call without a session has credentials of an unknown repository.
    private func hidesAccount(_ call: ValidatedCall) -> Bool {
        // A call from a client has a session number.
        guard call.session == nil, !self.isGiven else { return false }
        let names = HTTPTransportOptions().credentialHeaders.union(self.options.credentialHeaders)
            .union(call.call.credentialHeaders)
        let credentials = Set(names.map { HTTPHeaders.Name(stringLiteral: $0) })
        return call.call.headers.fields.contains { credentials.contains($0.name) }
    }

    /// Whether `transport` is the system transport, perhaps inside visible caches.
    ///
    /// Otherwise a hidden cache inside `transport` may need the session of a call.
    static func isKnown(_ transport: any HTTPTransport) -> Bool {
        switch transport {
        case is SystemTransport: true
        case let caching as CachingTransport: self.isKnown(caching.sender)
        default: false
        }
    }
}

extension CachingTransport {
    /// The locations and limits of a cache.
    public struct Options: Sendable, Hashable {
        /// The name of the responses on disk; `nil`, the default, for responses in memory only.
        public var cacheKey: String?

        /// The maximum size of all responses in memory, in bytes.
        public var memoryLimit: Int

        /// The maximum length of a body in memory, in bytes.
        ///
        /// Longer bodies are stored in files with a ``cacheKey``, and not stored otherwise.
        public var memoryBodyLimit: Int

        /// The maximum size of all files of long bodies, in bytes.
        public var diskLimit: Int

        /// The maximum length of a stored body, in bytes.
        public var bodyLimit: Int

        /// The folder of long bodies, which no other cache may use.
        ///
        /// `nil` for a folder in the app's caches folder, separate for each folder of a repository.
        public var directory: URL?

        /// The maximum heuristic lifetime, derived from `Last-Modified` alone.
        ///
        /// The heuristic lifetime is a tenth of the time since the last change (RFC 9111, section 4.2.2).
        public var heuristicLimit: Duration

        /// The time after the lifetime in which a response is used if the server cannot be reached.
        ///
        /// See RFC 9111, section 4.2.4. A response that requires validation, by `no-cache` or
        /// `must-revalidate`, is never used without the server. A response that arrives stale and without a
        /// validator is not stored.
        public var staleLimit: Duration

        /// The pause between a failed background revalidation and the next revalidation; 1 second.
        ///
        /// During the pause the stale response is used. The pause doubles with each further failure of the
        /// same response, up to a minute. A longer `Retry-After` of the server is obeyed, up to an hour.
        public var errorBackoff: Duration

        /// The parameters have the names of the properties.
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
        options: CachingTransport.Options = .init(),
        repository: MuxRepository? = nil
    ) -> CachingTransport {
        CachingTransport(base, options: options, repository: repository)
    }
}
