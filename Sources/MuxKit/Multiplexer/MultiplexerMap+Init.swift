extension MultiplexerMap {
    /// The name of a map's values on disk: any text, the same in every launch, and no other multiplexer's.
    ///
    /// A string literal is one, with or without interpolations, if the keys are ``MuxKey`` and the values `Codable`; for
    /// other texts there is ``init(_:)``.
    public struct CacheKey: Sendable {
        @usableFromInline package var persistence: Persistence<ExactKey<Key>, Value>

        /// The name `text`.
        public init(_ text: String) where Key: MuxKey, Value: Codable {
            self.persistence = Persistence(domain: text) { $0.key.keyText }
            self.persistence.isShared = true
        }

        /// The name `text` of values that have tags, for ``MuxRepository/clear(tags:)``.
        ///
        /// - Parameters:
        ///   - text: The name.
        ///   - tags: What the value of a key belongs to, such as a city or a viewer; always the same for a key.
        public init(_ text: String, tags: @escaping @Sendable (Key) -> [String]) where Key: MuxKey, Value: Codable {
            self.init(text)
            self.persistence.tags = { tags($0.key) }
        }
    }

    /// Makes a map.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk; `nil`, the default, to keep them in memory.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value of a key.
    @inlinable
    @_disfavoredOverload
    public init(
        cacheKey: CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key) async throws -> Value
    ) {
        self.init(
            policy: policy,
            repository: repository,
            persistence: cacheKey?.persistence,
            fetch: .value { try await onFetch($0.key) }
        )
    }

    /// Makes a map whose fetch says how long a value is good, and can ask whether it is still the same.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk; `nil`, the default, to keep them in memory.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value of a key. It receives what is cached of it, fresh or not, and returns
    ///     ``FetchedBefore/notModified(timeToLive:staleWhileRevalidate:staleIfError:validator:)`` where that still holds.
    public init(
        cacheKey: CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key, FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        self.init(
            policy: policy,
            repository: repository,
            persistence: cacheKey?.persistence,
            fetch: .fetched { try await onFetch($0.key, $1) }
        )
    }

    /// Makes a map whose fetch needs a dependency, such as an access token: both single-flight, both cached.
    ///
    /// The fetch reports a dependency that is no good by throwing a ``BadDependencyError``; it then runs once more, with a
    /// new one.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk; `nil`, the default, to keep them in memory.
    ///   - dependency: Hands out the dependency, and renews it when it is refused.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs; `nil`, the default, for that of `dependency`, or the
    ///     shared one where it has none. With another one than the dependency's, requests fail with
    ///     ``MuxError/repositoryMismatch``: a sign-out would not reach both.
    ///   - onFetch: Fetches the value of a key.
    @inlinable
    public init<Runner: DependencyRunner>(
        cacheKey: CacheKey? = nil,
        dependency: Runner,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        onFetch: @escaping @Sendable @concurrent (Key, Runner.Dependency) async throws -> Value
    ) {
        let choice = RepositoryChoice(given: repository, ofDependency: dependency.sessionRepository)
        let persistence = cacheKey?.persistence
        self.init(
            policy: policy,
            repository: choice.repository,
            persistence: choice.isMismatch ? nil : persistence,
            fetch: .value { key in
                try choice.check(persistence?.domain)
                return try await dependency.run { .output(try await onFetch(key.key, $0)) }
            }
        )
    }
}

extension MultiplexerMap.CacheKey: ExpressibleByUnicodeScalarLiteral where Key: MuxKey, Value: Codable {}

extension MultiplexerMap.CacheKey: ExpressibleByExtendedGraphemeClusterLiteral where Key: MuxKey, Value: Codable {}

extension MultiplexerMap.CacheKey: ExpressibleByStringLiteral where Key: MuxKey, Value: Codable {
    /// The name that a literal says.
    public init(stringLiteral value: String) { self.init(value) }
}

extension MultiplexerMap.CacheKey: ExpressibleByStringInterpolation where Key: MuxKey, Value: Codable {}
