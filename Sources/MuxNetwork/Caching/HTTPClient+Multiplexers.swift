import Foundation
public import MuxKit

extension HTTPClient {
    /// Makes a multiplexer that fetches one resource and keeps it by the server's own rules, in memory and on disk.
    ///
    /// ```swift
    /// let profile = client.multiplexer(cacheKey: "Profile", GetProfile()).register()
    /// let me = try await profile.request()
    /// ```
    ///
    /// - `Cache-Control`, `Expires`, `Age` and `Date` say how long the value is fresh (RFC 9111), and for how long it may be
    ///   used when it is stale (RFC 5861). Where they say nothing, `policy` decides.
    /// - A stale value with an `ETag` or a `Last-Modified` is asked about. A 304 renews it without decoding anything, and it
    ///   stays the same value.
    /// - A POST, PUT, PATCH or DELETE of this client to the same URL makes the value stale.
    /// - A server that answers 500, 502, 503 or 504 counts as one that cannot be reached.
    /// - The ``HTTPConfiguration/viewer`` and the session are part of the key: nobody gets what another one may see.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - policy: What the server does not say, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs; `nil`, the default, for the repository of the
    ///     authenticator, or the shared one where it has none. With another one than the authenticator's, requests fail with
    ///     `MuxError.repositoryMismatch`: a sign-out would not reach both.
    ///   - request: What to ask; made anew for each fetch.
    /// - Returns: The multiplexer.
    public func multiplexer<Request: HTTPRequest>(
        cacheKey: String,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ request: @escaping @autoclosure @Sendable () -> Request
    ) -> Multiplexer<Request.Output> where Request.Output: Codable {
        self.multiplexer(policy, repository, cacheKey, request) { choice, changedAt, fetch in
            Multiplexer(
                cacheKey: choice.isMismatch ? nil : self.domain(cacheKey),
                policy: Self.tolerant(policy),
                repository: choice.repository,
                changedAt: changedAt,
                onFetch: fetch
            )
        }
    }

    /// Makes a multiplexer that fetches one resource and keeps it in memory, by the server's own rules.
    ///
    /// What holds for ``multiplexer(cacheKey:policy:repository:_:)`` holds here, too, but nothing is encoded, and nothing is
    /// on disk.
    ///
    /// - Parameters:
    ///   - policy: What the server does not say, and what happens around a fetch.
    ///   - repository: Where the multiplexer registers; `nil`, the default, for the repository of the authenticator.
    ///   - request: What to ask; made anew for each fetch.
    /// - Returns: The multiplexer.
    public func multiplexer<Request: HTTPRequest>(
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ request: @escaping @autoclosure @Sendable () -> Request
    ) -> Multiplexer<Request.Output> {
        self.multiplexer(policy, repository, nil, request) { choice, _, fetch in
            Multiplexer(policy: Self.tolerant(policy), repository: choice.repository, onFetch: fetch)
        }
    }

    private func multiplexer<Request: HTTPRequest>(
        _ policy: MuxPolicy,
        _ repository: MuxRepository?,
        _ cacheKey: String?,
        _ request: @escaping @Sendable () -> Request,
        make: (
            RepositoryChoice,
            _ changedAt: @escaping @Sendable () -> Moment?,
            _ fetch:
                @escaping @Sendable @concurrent (FetchedBefore<Request.Output>?) async throws -> Fetched<
                    Request.Output
                >
        ) -> Multiplexer<Request.Output>
    ) -> Multiplexer<Request.Output> {
        let choice = self.repository(given: repository)
        let fetch = HTTPFetch(client: self, heuristicLimit: policy.timeToLive)
        let index = HTTPResourceIndex<Bool>(self.traffic, time: choice.repository.time)
        let note: @Sendable (Request) -> HTTPResourceName? = { request in
            let name = self.name(of: request)
            if let name { index.note(true, name) }
            return name
        }
        let multiplexer = make(
            choice,
            { note(request()).flatMap { index.changedAt($0) } },
            { before in
                try choice.check(cacheKey)
                let request = request()
                _ = note(request)
                return try await fetch(request, before)
            }
        )
        index.attach(
            refresh: { [weak multiplexer] _ in multiplexer?.refresh() },
            isKnown: { [weak multiplexer] _ in multiplexer != nil }
        )
        return multiplexer
    }

    /// Makes a map of multiplexers that fetch resources and keep them by the server's own rules, in memory and on disk.
    ///
    /// ```swift
    /// let users = client.multiplexerMap(cacheKey: "Users") { id in GetUser(id: id) }.register()
    /// let user = try await users.request(key: "42")
    /// ```
    ///
    /// What holds for ``multiplexer(cacheKey:policy:repository:_:)`` holds for each key. The key has to say everything that
    /// the request depends on, such as a language.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - policy: What the server does not say, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs; `nil`, the default, for the repository of the
    ///     authenticator, or the shared one where it has none. With another one than the authenticator's, requests fail with
    ///     `MuxError.repositoryMismatch`: a sign-out would not reach both.
    ///   - request: What to ask for a key.
    /// - Returns: The map.
    public func multiplexerMap<Key: MuxKey, Request: HTTPRequest>(
        cacheKey: String,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ request: @escaping @Sendable (Key) -> Request
    ) -> MultiplexerMap<Key, Request.Output> where Request.Output: Codable {
        self.multiplexerMap(policy, repository, cacheKey, request) { choice, changedAt, fetch in
            MultiplexerMap(
                cacheKey: choice.isMismatch ? nil : self.domain(cacheKey),
                policy: Self.tolerant(policy),
                repository: choice.repository,
                changedAt: changedAt,
                onFetch: fetch
            )
        }
    }

    /// Makes a map of multiplexers that fetch resources and keep them in memory, by the server's own rules.
    ///
    /// What holds for ``multiplexerMap(cacheKey:policy:repository:_:)`` holds here, too, but nothing is encoded, and nothing is
    /// on disk.
    ///
    /// - Parameters:
    ///   - policy: What the server does not say, and what happens around a fetch.
    ///   - repository: Where the map registers; `nil`, the default, for the repository of the authenticator.
    ///   - request: What to ask for a key.
    /// - Returns: The map.
    public func multiplexerMap<Key: Hashable & Sendable, Request: HTTPRequest>(
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        _ request: @escaping @Sendable (Key) -> Request
    ) -> MultiplexerMap<Key, Request.Output> {
        self.multiplexerMap(policy, repository, nil, request) { choice, _, fetch in
            MultiplexerMap(policy: Self.tolerant(policy), repository: choice.repository, onFetch: fetch)
        }
    }

    private func multiplexerMap<Key: Hashable & Sendable, Request: HTTPRequest>(
        _ policy: MuxPolicy,
        _ repository: MuxRepository?,
        _ cacheKey: String?,
        _ request: @escaping @Sendable (Key) -> Request,
        make: (
            RepositoryChoice,
            _ changedAt: @escaping @Sendable (Key) -> Moment?,
            _ fetch:
                @escaping @Sendable @concurrent (Key, FetchedBefore<Request.Output>?) async throws -> Fetched<
                    Request.Output
                >
        ) -> MultiplexerMap<Key, Request.Output>
    ) -> MultiplexerMap<Key, Request.Output> {
        let choice = self.repository(given: repository)
        let fetch = HTTPFetch(client: self, heuristicLimit: policy.timeToLive)
        let index = HTTPResourceIndex<Key>(self.traffic, time: choice.repository.time)
        let note: @Sendable (Key, Request) -> HTTPResourceName? = { key, request in
            let name = self.name(of: request)
            if let name { index.note(key, name) }
            return name
        }
        let map = make(
            choice,
            { key in note(key, request(key)).flatMap { index.changedAt($0) } },
            { key, before in
                try choice.check(cacheKey)
                let request = request(key)
                _ = note(key, request)
                return try await fetch(request, before)
            }
        )
        index.attach(
            refresh: { [weak map] in _ = map?.refresh(key: $0) },
            isKnown: { [weak map] in map?.isKnown(key: $0) ?? false }
        )
        return map
    }

    /// The repository that was given, or else the one of the authenticator, if that is a runner with one.
    private func repository(given repository: MuxRepository?) -> RepositoryChoice {
        let runner = self.authenticator as? any DependencyRunner
        return RepositoryChoice(given: repository, ofDependency: runner?.sessionRepository)
    }

    private func name(of request: some HTTPRequest) -> HTTPResourceName? {
        (try? self.call(for: request)).flatMap { HTTPResourceName($0.url) }
    }

    /// The name on disk, of which the viewer is a part.
    private func domain(_ cacheKey: String) -> String {
        self.configuration.viewer.map { "\(cacheKey)\u{1f}\($0)" } ?? cacheKey
    }

    /// The policy, by which a server in trouble counts as one that cannot be reached: RFC 5861, section 4.
    private static func tolerant(_ policy: MuxPolicy) -> MuxPolicy {
        var tolerant = policy
        tolerant.isSilenceable = { error in
            if let status = (error as? HTTPError)?.status, [500, 502, 503, 504].contains(status.code) { return true }
            return policy.isSilenceable(error)
        }
        return tolerant
    }
}
