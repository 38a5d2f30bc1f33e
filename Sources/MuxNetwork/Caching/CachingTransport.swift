public import Foundation
public import MuxKit

/// Keeps the answers of another transport, and uses them again as HTTP permits: a private cache (RFC 9111).
///
/// ```swift
/// let client = HTTPClient(transport: .caching())
/// ```
///
/// Whole answers are kept, with their header fields: a fresh one is returned without a request, a stale one is validated with the
/// server (`ETag`, `Last-Modified`) and returned if it has not changed. `Vary` keeps variants apart, a range is cut from a whole
/// answer, a change (POST, PUT, PATCH, DELETE) makes the answers of its URL stale, and RFC 5861 says when a stale answer is used while
/// it is renewed, or in place of an error. The directives of a request's own `Cache-Control` are obeyed. What happened is said by
/// ``HTTPResponse/cacheStatus``.
///
/// A newer response replaces the stored one even if the newer response is not stored. The more recent response by `Date`, then by the start of the
/// request, counts, whichever arrives last (RFC 9111, section 4).
///
/// For values of one type, `client.multiplexer` is simpler: it caches what was decoded.
///
/// **Concurrent calls.** Requests for one URL share an exchange: the first one's task performs it, and the others wait for the stored
/// answer, but no longer than the silence that the transport permits a server.
///
/// **Accounts.** A cache belongs to one account at a time, that of its client's authenticator, also inside another transport:
/// `MuxRepository/clearAll()` removes what is stored. For several accounts at once, make one for each. If nothing says to which repository a
/// request with credentials belongs, its response is not stored: a transport that makes a new call in a detached task hides the
/// account.
///
/// **Limits.** For each URL the 16 most recent variants (`Vary`) are stored. `Clear-Site-Data: "cache"` removes the responses of the origin
/// that sent it.
///
/// **A failing server.** Background revalidations pause after a failure (``Options/errorBackoff``). After a 403, 429 or 503 with `Retry-After`, no
/// request goes to that origin until the time has passed: a stored response is used where a stale one is permitted, and otherwise the
/// request fails with ``HTTPError/TransportFailure/serverBusy(retryAfter:)``.
///
/// **On disk.** With a ``Options/cacheKey`` answers are written when the repository saves; long bodies go to files at once. A header field
/// `Set-Cookie` stays in memory. Otherwise everything stays in memory.
///
/// **After a failure.** Storing never fails a request: what cannot be stored is not. Where the server cannot be reached, a stale answer is
/// used (``Options/staleLimit``); if the stored one may be used with the server's consent alone, the answer has status 504 (RFC 9111,
/// section 5.2.2.2), and if there is none, the error of the transport is thrown.
public final class CachingTransport: HTTPTransport {
    /// The cache; `nil` until it is known in which repository.
    private let made: Locked<ResponseCache?>
    private let makeCache: @Sendable (MuxRepository) -> ResponseCache
    /// What sends, if it is of this library.
    private let base: (any ValidatedTransport)?
    private let sender: any HTTPTransport
    /// Whether the repository was given.
    private let isGiven: Bool
    /// Reports once that calls of another repository's session are refused.
    private let mismatch = Locked<RepositoryChoice?>(nil)
    package let options: HTTPTransportOptions

    /// Makes a cache.
    ///
    /// - Parameters:
    ///   - base: Sends what the cache cannot answer.
    ///   - options: Its limits, and where it keeps answers.
    ///   - repository: The repository whose saves write the responses, and whose sign-out removes them. `nil`, the default, for that of the
    ///     authenticator of the first ``HTTPClient``, or of the first ``AsyncMedia``, that is made with this cache or sends a request through
    ///     it, however many transports are between; or else the shared one, from the first request or use of another member. Requests for
    ///     an account in another repository fail with `MuxError.repositoryMismatch`: a sign-out would not reach both.
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

    /// The cache; made in the shared repository if no client has settled it in another one.
    var cache: ResponseCache { self.made.withLock { $0 } ?? self.make(in: nil) }

    /// The repository of the cache, which is made in `session` unless it was made before.
    func settled(in session: MuxRepository) -> MuxRepository {
        self.made.withLock { $0?.repository } ?? self.make(in: session).repository
    }

    private func make(in session: MuxRepository?) -> ResponseCache {
        // Outside the lock, for it tells observers; of two made at the same time, one is dropped before it is used.
        let cache = self.makeCache(session ?? .shared)
        return self.made.withLock { made in
            let chosen = made ?? cache
            made = chosen
            return chosen
        }
    }

    /// What was counted since the cache was made: hits, requests that went to the server, and those that shared an exchange.
    public var statistics: MuxRepository.Statistics { self.cache.statistics }

    /// Forgets what is stored for a URL, in all its variants; running requests get their answers, which are not stored.
    ///
    /// - Parameter url: The URL; its fragment does not count.
    public func remove(_ url: URL) async {
        guard let name = HTTPResourceName(url) else { return }
        await self.cache.remove(name.text)
    }

    /// Forgets everything; running requests get their answers, which are not stored.
    ///
    /// - Returns: What could not be removed from disk. It is not used any more, and is removed by the next save, or when the next long body is
    ///   stored.
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

    /// That of a new cache is 0.
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
        // A call of a session that has ended has nothing to do with what is stored since, and is not stored.
        if let session, !session.isCurrent { limits.session = .max }
        return try await cache.perform(call, limits, into: sink)
    }

    private var known: ResponseCache? { self.made.withLock(\.self) }

    /// The cache for a call, made in the repository of the call's session unless it was made before.
    ///
    /// - Returns: The cache; `nil` if the call has credentials and nothing says to which repository they belong, so that no sign-out would
    ///   reach its response.
    private func cache(for call: ValidatedCall, in session: CallSession?) -> ResponseCache? {
        if let session { return self.known ?? self.make(in: session.repository) }
        return self.hidesAccount(call) ? nil : self.cache
    }

    /// Whether a call without a session has credentials, and nothing says to which repository they belong.
    private func hidesAccount(_ call: ValidatedCall) -> Bool {
        // Any client has noted a session.
        guard call.session == nil, !self.isGiven else { return false }
        let names = HTTPTransportOptions().credentialHeaders.union(self.options.credentialHeaders)
            .union(call.call.credentialHeaders)
        let credentials = Set(names.map { HTTPHeaders.Name(stringLiteral: $0) })
        return call.call.headers.fields.contains { credentials.contains($0.name) }
    }

    /// Whether no cache is behind `transport` that a client cannot see, and that would have to ask for a repository.
    static func isKnown(_ transport: any HTTPTransport) -> Bool {
        switch transport {
        case is SystemTransport: true
        case let caching as CachingTransport: self.isKnown(caching.sender)
        default: false
        }
    }
}

extension CachingTransport {
    /// What a cache keeps, where, and how much.
    public struct Options: Sendable, Hashable {
        /// Names the answers on disk; `nil`, the default, to keep them in memory.
        public var cacheKey: String?

        /// What the answers in memory may take together, in bytes.
        public var memoryLimit: Int

        /// The longest body that is kept in memory, in bytes; with a ``cacheKey``, longer ones are kept in files.
        public var memoryBodyLimit: Int

        /// What the files of long bodies may take together, in bytes.
        public var diskLimit: Int

        /// The longest body that is kept at all, in bytes.
        public var bodyLimit: Int

        /// The folder of long bodies, used by this cache alone; `nil` for one in the app's caches folder, another for each folder of a
        /// repository.
        public var directory: URL?

        /// The longest freshness that is derived from the last change alone: a tenth of the time since then (RFC 9111, section 4.2.2).
        public var heuristicLimit: Duration

        /// For how long after its freshness an answer is used where the server cannot be reached (RFC 9111, section 4.2.4).
        ///
        /// An answer that must be validated, by `no-cache` or `must-revalidate`, never is. A response that arrives stale and has no validator is not
        /// stored.
        public var staleLimit: Duration

        /// How long after a failed background revalidation the stale response is used without another one; 1 second.
        ///
        /// The pause doubles with each further failure of the same response, up to a minute. A server that asks for more with `Retry-After` gets
        /// up to an hour.
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
    ///   - base: Sends what the cache cannot answer.
    ///   - options: Its limits, and where it keeps answers.
    ///   - repository: The repository whose saves write the answers, and whose sign-out removes them; `nil`, the default, for that of
    ///     the client's authenticator, or the shared one: see ``CachingTransport/init(_:options:repository:)``.
    /// - Returns: The cache.
    public static func caching(
        _ base: any HTTPTransport = .system,
        options: CachingTransport.Options = .init(),
        repository: MuxRepository? = nil
    ) -> CachingTransport {
        CachingTransport(base, options: options, repository: repository)
    }
}
