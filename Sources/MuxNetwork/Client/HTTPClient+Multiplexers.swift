import Foundation
public import MuxKit

extension HTTPClient {
    /// Makes a multiplexer that fetches one resource and caches it by the server's rules, in memory and on disk.
    ///
    /// ```swift
    /// let profile = client.multiplexer(cacheKey: "Profile", GetProfile()).register()
    /// let me = try await profile.request()
    /// ```
    ///
    /// - `Cache-Control`, `Expires`, `Age` and `Date` determine how long the value is fresh (RFC 9111), and for how long it may
    ///   be used when it is stale (RFC 5861). An answer with a `Last-Modified` alone is fresh for a tenth of the time since then, up to
    ///   ``HTTPClient/Configuration/heuristicLimit``; one with an `ETag` alone is validated each time
    ///   (``HTTPClient/Configuration/validatesWithoutLifetime``). Where the server says nothing at
    ///   all, `policy` determines.
    /// - A stale value with an `ETag` or a `Last-Modified` is validated with the server. A 304 renews it without decoding.
    /// - A POST, PUT, PATCH or DELETE of this client to the same URL makes the value stale.
    /// - A request whose method is POST, such as a GraphQL query or a search, is cached for as long as the server's fields say,
    ///   or else `policy`. It is never validated, so one with an `ETag` alone is fetched each time. It makes no value stale.
    ///   Other methods are not cached.
    /// - A server that answers 500, 502, 503 or 504 counts as one that cannot be reached.
    /// - The ``HTTPClient/Configuration/viewer`` and the session are part of the key, so accounts do not share values.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk; `nil`, the default, to keep it in memory.
    ///   - policy: Applies where the server says nothing, and to the fetch itself.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs; `nil`, the default, for the repository of the
    ///     authenticator, or the shared one where it has none. With another one than the authenticator's, requests fail with
    ///     `MuxError.repositoryMismatch`: a sign-out would not reach both.
    ///   - request: Makes the request: for each fetch, and for each use of a value whose answer has `Vary`, on the caller's executor.
    /// - Returns: The multiplexer.
    public func multiplexer<Request: HTTPRequest>(
        cacheKey: Multiplexer<Request.Output>.CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ request: @escaping @autoclosure @Sendable () -> Request
    ) -> Multiplexer<Request.Output> {
        let name = cacheKey?.persistence.domain
        let resource = CachedResources<Bool, Request>(self, policy, repository, name) { _ in request() }
        let multiplexer = Multiplexer(
            policy: resource.policy,
            repository: resource.repository,
            persistence: resource.persistence(like: cacheKey?.persistence) { _ in true },
            selection: resource.selection { _ in true },
            fetch: .fetched { try await resource.fetch(true, $1) }
        )
        resource.attach(multiplexer)
        return multiplexer
    }

    /// Makes a map that fetches resources by key and caches them by the server's rules, in memory and on disk.
    ///
    /// ```swift
    /// let users = client.multiplexerMap(cacheKey: "Users") { id in GetUser(id: id) }.register()
    /// let user = try await users.request(key: "42")
    /// ```
    ///
    /// Each key behaves as ``multiplexer(cacheKey:policy:repository:_:)``. It has to include everything that the request depends
    /// on, such as a language.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk; `nil`, the default, to keep them in memory.
    ///   - policy: Applies where the server says nothing, and to the fetch itself.
    ///   - repository: Where the map takes part in saves and sign-outs; `nil`, the default, for the repository of the
    ///     authenticator, or the shared one where it has none. With another one than the authenticator's, requests fail with
    ///     `MuxError.repositoryMismatch`: a sign-out would not reach both.
    ///   - request: Makes the request of a key.
    /// - Returns: The map.
    public func multiplexerMap<Key: Hashable & Sendable, Request: HTTPRequest>(
        cacheKey: MultiplexerMap<Key, Request.Output>.CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ request: @escaping @Sendable (Key) -> Request
    ) -> MultiplexerMap<Key, Request.Output> {
        let resources = CachedResources(self, policy, repository, cacheKey?.persistence.domain, request)
        let map = MultiplexerMap(
            policy: resources.policy,
            repository: resources.repository,
            persistence: resources.persistence(like: cacheKey?.persistence) { $0.key },
            selection: resources.selection { $0.key },
            fetch: .fetched { try await resources.fetch($0.key, $1) }
        )
        resources.attach(map)
        return map
    }
}

/// The parts of a multiplexer whose values are resources of a client: its fetch, and its rules for values that changed.
private struct CachedResources<Key: Hashable & Sendable, Request: HTTPRequest>: Sendable {
    let policy: MuxPolicy
    private let cacheKey: String?
    /// The name on disk, of which the viewer is a part; `nil` to keep nothing there.
    private let domain: String?
    private let choice: RepositoryChoice
    private let conditionalFetch: ConditionalFetch
    private let index: HTTPResourceIndex<Key>
    private let request: @Sendable (Key) -> Request

    init(
        _ client: HTTPClient,
        _ policy: MuxPolicy,
        _ repository: MuxRepository?,
        _ cacheKey: String?,
        _ request: @escaping @Sendable (Key) -> Request
    ) {
        self.choice = RepositoryChoice(given: repository, ofDependency: client.authenticator?.sessionRepository)
        let domain =
            client.configuration.viewer.flatMap { viewer in cacheKey.map { "\($0)\u{1f}\(viewer)" } } ?? cacheKey
        self.domain = self.choice.isMismatch ? nil : domain
        self.policy = StaleIfError.applied(to: policy)
        self.cacheKey = cacheKey
        self.conditionalFetch = ConditionalFetch(client: client)
        self.index = HTTPResourceIndex(client.invalidation, time: self.choice.repository.time)
        self.request = request
    }

    var repository: MuxRepository { self.choice.repository }

    /// `persistence` under the viewer's name, where an entry is stale that was fetched before its resource was last changed by
    /// this client; `nil` to keep nothing on disk.
    func persistence<EntryKey: Sendable>(
        like persistence: Persistence<EntryKey, Request.Output>?,
        key: @escaping @Sendable (EntryKey) -> Key
    ) -> Persistence<EntryKey, Request.Output>? {
        guard var persistence, let domain else { return nil }
        persistence.domain = domain
        persistence.changedAt = { entry in
            let key = key(entry)
            return self.noted(key, self.request(key)).flatMap { self.index.changedAt($0) }
        }
        return persistence
    }

    /// A value is for the requests that its answer's `Vary` selects: RFC 9111, section 4.1.
    func selection<EntryKey: Sendable>(
        key: @escaping @Sendable (EntryKey) -> Key
    ) -> EntrySelection<EntryKey> {
        EntrySelection(
            concerns: { HTTPVariant.isVarying($0) },
            selects: { self.conditionalFetch.isSelected($1, by: self.request(key($0))) }
        )
    }

    @Sendable @concurrent
    func fetch(_ key: Key, _ before: FetchedBefore<Request.Output>?) async throws -> Fetched<Request.Output> {
        try self.choice.check(self.cacheKey)
        let request = self.request(key)
        _ = self.noted(key, request)
        return try await self.conditionalFetch(request, before)
    }

    private func noted(_ key: Key, _ request: Request) -> HTTPResourceName? {
        let name = (try? request.url()).flatMap { HTTPResourceName($0) }
        if let name { self.index.note(key, name) }
        return name
    }

    /// Passes changes on to `multiplexer`, as long as it lives.
    func attach(_ multiplexer: Multiplexer<Request.Output>) {
        self.index.attach(
            refresh: { [weak multiplexer] _ in multiplexer?.refresh() },
            isKnown: { [weak multiplexer] _ in multiplexer != nil }
        )
    }

    /// Passes changes on to `map`, as long as it lives.
    func attach(_ map: MultiplexerMap<Key, Request.Output>) {
        self.index.attach(
            refresh: { [weak map] in _ = map?.refresh(key: $0) },
            isKnown: { [weak map] in map?.isKnown(key: $0) ?? false }
        )
    }
}
