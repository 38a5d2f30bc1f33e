import Foundation
public import MuxKit

extension HTTPClient {
    /// Makes a multiplexer that fetches one resource and caches the value by the server's rules, in memory
    /// and on disk.
    ///
    /// ```swift
    /// let profile = client.multiplexer(cacheKey: "Profile", GetProfile()).register()
    /// let me = try await profile.request()
    /// ```
    ///
    /// - `Cache-Control`, `Expires`, `Age` and `Date` determine the lifetime of the value (RFC 9111) and the
    ///   use of a stale value (RFC 5861). With `Last-Modified` alone, the lifetime is a tenth of the time
    ///   since the last change, up to ``HTTPClient/Configuration/heuristicLimit``. With an `ETag` alone, the
    ///   value is validated each time (``HTTPClient/Configuration/validatesWithoutLifetime``). Otherwise
    ///   `policy` determines the lifetime.
    /// - A stale value with an `ETag` or a `Last-Modified` is validated with the server. A 304 renews the
    ///   value without decoding.
    /// - A value from the target of a redirection is stale at once, and is never validated.
    /// - A request of this client with an unsafe method, such as POST, to the same URL makes the value stale,
    ///   if the status is from 200 to 399, or if the request fails without a response.
    /// - The response to a POST request, such as a GraphQL query or a search, is cached for the lifetime of
    ///   the server's fields, otherwise of `policy`. Such a value is never validated: with an `ETag` alone,
    ///   the value is fetched each time. The request makes no value stale.
    /// - Responses to methods other than GET, HEAD and POST are not cached.
    /// - A server that responds with 500, 502, 503 or 504 counts as unreachable, so a stale value may replace
    ///   the response.
    /// - Accounts do not share values: the ``HTTPClient/Configuration/viewer`` is part of the name on disk,
    ///   and a value belongs to one session of the repository.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the value on disk; `nil`, the default, for a value in memory only.
    ///   - policy: The rules for a value without server rules, and for the fetch.
    ///   - repository: The repository whose saves and sign-outs include the multiplexer; `nil`, the default,
    ///     for the repository of the authenticator, otherwise the shared repository. If the authenticator has
    ///     another repository, requests fail with `MuxError.repositoryMismatch`: a sign-out would not reach
    ///     both repositories.
    ///   - request: Makes the request: for each fetch, for each value that is read from disk, and, on the
    ///     caller's executor, for each call of `store`, and for each use of a value that depends on request
    ///     fields (`Vary`).
    /// - Returns: The multiplexer.
    public func multiplexer<Request: HTTPRequest>(
        cacheKey: Multiplexer<Request.Output>.CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ request: @escaping @autoclosure @Sendable () -> Request
    ) -> Multiplexer<Request.Output> {
        let name = cacheKey?.persistence.domain
        let resource = CachedResources<Bool, Request.Output, Request>(self, policy, repository, name) { _ in request() }
        let multiplexer = Multiplexer(
            policy: resource.policy,
            repository: resource.repository,
            persistence: resource.persistence(like: cacheKey?.solePersistence) { _ in true },
            selection: resource.selection { _ in true },
            fetch: .fetched { try await resource.fetch(true, $1) }
        )
        // Makes the value stale after a change of the resource, until the multiplexer's deallocation.
        resource.index.attach(
            refresh: { [weak multiplexer] _ in multiplexer?.refresh() },
            isInUse: { [weak multiplexer] _ in multiplexer != nil }
        )
        return multiplexer
    }

    /// Makes a multiplexer of the resource at a path below the client's base URL:
    /// `let me: Multiplexer<User> = client.multiplexer(cacheKey: "Me", "/me")`.
    ///
    /// The values are cached as by ``multiplexer(cacheKey:policy:repository:_:)``.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the value on disk; `nil`, the default, for a value in memory only.
    ///   - policy: The rules for a value without server rules, and for the fetch.
    ///   - repository: The repository of the multiplexer; `nil`, the default, for the repository of the
    ///     authenticator, otherwise the shared repository.
    ///   - path: The path below ``HTTPClient/baseURL``.
    ///   - query: The query parameters, after the parameters of the base URL.
    /// - Returns: The multiplexer; its value is the body as `Data`, or decoded from JSON.
    public func multiplexer<Value: Decodable & Sendable>(
        cacheKey: Multiplexer<Value>.CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ path: HTTPPath,
        query: HTTPQuery = []
    ) -> Multiplexer<Value> {
        let request = PlainRequest<Value>(.get, path, query)
        return self.multiplexer(cacheKey: cacheKey, policy: policy, repository: repository, request)
    }

    /// Makes a map that fetches resources by key and caches the values by the server's rules, in memory and
    /// on disk.
    ///
    /// ```swift
    /// let users = client.multiplexerMap(cacheKey: "Users") { id in GetUser(id: id) }.register()
    /// let user = try await users.request(key: "42")
    /// ```
    ///
    /// Each key behaves as ``multiplexer(cacheKey:policy:repository:_:)``. The key has to include everything
    /// that the request depends on, such as a language.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the values on disk; `nil`, the default, for values in memory only.
    ///   - policy: The rules for a value without server rules, and for the fetch.
    ///   - repository: The repository whose saves and sign-outs include the map; `nil`, the default, for the
    ///     repository of the authenticator, otherwise the shared repository. If the authenticator has another
    ///     repository, requests fail with `MuxError.repositoryMismatch`: a sign-out would not reach both
    ///     repositories.
    ///   - request: Makes the request of a key, on the same occasions as for
    ///     ``multiplexer(cacheKey:policy:repository:_:)``.
    /// - Returns: The map.
    public func multiplexerMap<Key: Hashable & Sendable, Request: HTTPRequest>(
        cacheKey: MultiplexerMap<Key, Request.Output>.CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ request: @escaping @Sendable (Key) -> Request
    ) -> MultiplexerMap<Key, Request.Output> {
        let resources = CachedResources<Key, Request.Output, Request>(
            self,
            policy,
            repository,
            cacheKey?.persistence.domain,
            request
        )
        let map = MultiplexerMap(
            policy: resources.policy,
            repository: resources.repository,
            persistence: resources.persistence(like: cacheKey?.persistence) { $0.key },
            selection: resources.selection { $0.key },
            fetch: .fetched { try await resources.fetch($0.key, $1) }
        )
        // Makes the value of a key stale after a change of the key's resource, until the map's deallocation.
        resources.index.attach(
            refresh: { [weak map] in _ = map?.refresh(key: $0) },
            isInUse: { [weak map] in map?.isKnown(key: $0) ?? false }
        )
        return map
    }

    /// Makes a map that fetches many resources with one request.
    ///
    /// ```swift
    /// let users = client.multiplexerMap(cacheKey: "Users", batching: .init()) { ids in GetUsers(ids: ids) }
    /// let some = try await users.request(keys: ["1", "2", "3"])
    /// ```
    ///
    /// One request includes the keys of simultaneous calls, within `MuxPolicy.Batching.window` and up to
    /// `MuxPolicy.Batching.maximumSize`. The response determines the lifetime of all of its values, as for
    /// ``multiplexer(cacheKey:policy:repository:_:)``; `policy` determines the lifetime if the response does
    /// not. Such a value is never validated. No request with an unsafe method makes a value of the map stale.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the values on disk; `nil`, the default, for values in memory only.
    ///   - policy: The rules for a value without server rules, and for the fetch.
    ///   - batching: The limits of batches.
    ///   - repository: The repository whose saves and sign-outs include the map; `nil`, the default, for the
    ///     repository of the authenticator, otherwise the shared repository. If the authenticator has another
    ///     repository, requests fail with `MuxError.repositoryMismatch`: a sign-out would not reach both
    ///     repositories.
    ///   - request: Makes the request of some keys. A key without a value in the output fails alone, with
    ///     `MuxError.notFound`.
    /// - Returns: The map.
    public func multiplexerMap<Key: Hashable & Sendable, Value: Sendable, Request: HTTPRequest>(
        cacheKey: MultiplexerMap<Key, Value>.CacheKey? = nil,
        policy: MuxPolicy = .init(),
        batching: MuxPolicy.Batching,
        repository: MuxRepository? = nil,
        _ request: @escaping @Sendable ([Key]) -> Request
    ) -> MultiplexerMap<Key, Value> where Request.Output == [Key: Value] {
        let resources = CachedResources<Key, Value, Request>(
            self,
            policy,
            repository,
            cacheKey?.persistence.domain
        ) { request([$0]) }
        return MultiplexerMap(
            policy: resources.policy,
            batching: batching,
            repository: resources.repository,
            persistence: resources.named(cacheKey?.persistence),
            selection: resources.selection(recordsStores: false) { $0.key },
            fetchMany: { try await resources.fetchMany(request($0), isReload: $1) }
        )
    }
}

/// The parts of a multiplexer for a client's resources: the fetch, and the rules that make values stale.
private struct CachedResources<Key: Hashable & Sendable, Value: Sendable, Request: HTTPRequest>: Sendable {
    let policy: MuxPolicy
    private let cacheKey: String?
    private let choice: RepositoryChoice
    private let conditionalFetch: ConditionalFetch
    let index: HTTPResourceIndex<Key>
    private let request: @Sendable (Key) -> Request

    init(
        _ client: HTTPClient,
        _ policy: MuxPolicy,
        _ repository: MuxRepository?,
        _ cacheKey: String?,
        _ request: @escaping @Sendable (Key) -> Request
    ) {
        self.choice = RepositoryChoice(given: repository, ofDependency: client.authenticator?.sessionRepository)
        self.policy = StaleIfError.applied(to: policy)
        self.cacheKey = cacheKey
        self.conditionalFetch = ConditionalFetch(client: client)
        self.index = HTTPResourceIndex(client.chain.invalidation, time: self.choice.repository.time)
        self.request = request
    }

    var repository: MuxRepository { self.choice.repository }

    /// `persistence` with the viewer in its name; `nil` without `persistence`, or if the repositories do not
    /// match.
    func named<EntryKey: Sendable>(
        _ persistence: Persistence<EntryKey, Value>?
    ) -> Persistence<EntryKey, Value>? {
        guard var persistence, !self.choice.isMismatch else { return nil }
        if let viewer = self.conditionalFetch.client.configuration.viewer { persistence.domain += "\u{1f}\(viewer)" }
        return persistence
    }

    /// The result of ``named(_:)``, with a `changedAt` that reports changes of resources.
    ///
    /// An entry is stale if this client changed the resource after the fetch of the entry.
    func persistence<EntryKey: Sendable>(
        like persistence: Persistence<EntryKey, Value>?,
        key: @escaping @Sendable (EntryKey) -> Key
    ) -> Persistence<EntryKey, Value>? {
        guard var persistence = self.named(persistence) else { return nil }
        persistence.changedAt = { entry in
            let key = key(entry)
            return self.recordResource(of: key, self.request(key)).flatMap { self.index.changedAt($0) }
        }
        return persistence
    }

    /// The rule by which a value matches requests with the same `Vary` fields: RFC 9111, section 4.1.
    ///
    /// By default, a change of the resource also makes a value stale that the app has stored.
    func selection<EntryKey: Sendable>(
        recordsStores: Bool = true,
        key: @escaping @Sendable (EntryKey) -> Key
    ) -> EntrySelection<EntryKey> {
        EntrySelection(
            concerns: { HTTPVariant.isVarying($0) },
            selects: { self.conditionalFetch.isSelected($1, by: self.request(key($0))) },
            willStore: { if recordsStores { _ = self.recordResource(of: key($0), self.request(key($0))) } }
        )
    }

    @concurrent
    func fetchMany(
        _ request: Request,
        isReload: Bool
    ) async throws -> [Key: Fetched<Value>] where Request.Output == [Key: Value] {
        try self.choice.check(self.cacheKey)
        return try await self.conditionalFetch.values(of: request, isReload: isReload)
    }

    @Sendable @concurrent
    func fetch(_ key: Key, _ before: FetchedBefore<Value>?) async throws -> Fetched<Value>
    where Request.Output == Value {
        try self.choice.check(self.cacheKey)
        let request = self.request(key)
        _ = self.recordResource(of: key, request)
        return try await self.conditionalFetch(request, before)
    }

    /// Records the resource of `key` for invalidation; `nil` if `request` has no valid URL.
    private func recordResource(of key: Key, _ request: Request) -> HTTPResourceName? {
        let name = (try? self.conditionalFetch.client.url(of: request)).flatMap { HTTPResourceName($0) }
        if let name { self.index.recordKey(key, of: name) }
        return name
    }
}
