extension MultiplexerMap {
    /// Makes a map that keeps its values in memory.
    ///
    /// - Parameters:
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map registers.
    ///   - onFetch: Fetches the value of a key.
    @_disfavoredOverload
    public init(
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key) async throws -> Value
    ) {
        self.init(policy: policy, repository: repository, persistence: nil) { key, _ in
            Fetched(try await onFetch(key))
        }
    }

    /// Makes a map that keeps its values in memory, where the fetch says how long a value is good.
    ///
    /// - Parameters:
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map registers.
    ///   - onFetch: Fetches the value of a key.
    public init(
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key) async throws -> Fetched<Value>
    ) {
        self.init(policy: policy, repository: repository, persistence: nil) { key, _ in try await onFetch(key) }
    }

    /// Makes a map that keeps its values in memory, where the fetch can ask whether a value is still the same.
    ///
    /// - Parameters:
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map registers.
    ///   - onFetch: Fetches the value of a key. It receives what is cached of it, fresh or not, and returns
    ///     ``FetchedBefore/notModified(timeToLive:staleWhileRevalidate:staleIfError:validator:)`` where that still holds.
    public init(
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key, FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        self.init(policy: policy, repository: repository, persistence: nil, fetch: onFetch)
    }
}

extension MultiplexerMap where Key: MuxKey, Value: Codable {
    /// Makes a map that can keep its values on disk.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value of a key.
    @_disfavoredOverload
    public init(
        cacheKey: String,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key) async throws -> Value
    ) {
        let persistence = Persistence<ExactKey<Key>, Value>(domain: cacheKey) { $0.key.keyText }
        self.init(policy: policy, repository: repository, persistence: persistence) { key, _ in
            Fetched(try await onFetch(key))
        }
    }

    /// Makes a map that can keep its values on disk, where the fetch says how long a value is good.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value of a key.
    public init(
        cacheKey: String,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key) async throws -> Fetched<Value>
    ) {
        let persistence = Persistence<ExactKey<Key>, Value>(domain: cacheKey) { $0.key.keyText }
        self.init(policy: policy, repository: repository, persistence: persistence) { key, _ in
            try await onFetch(key)
        }
    }

    /// Makes a map that can keep its values on disk, where the fetch can ask whether a value is still the same.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value of a key. It receives what is cached of it, fresh or not, and returns
    ///     ``FetchedBefore/notModified(timeToLive:staleWhileRevalidate:staleIfError:validator:)`` where that still holds.
    public init(
        cacheKey: String,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key, FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        let persistence = Persistence<ExactKey<Key>, Value>(domain: cacheKey) { $0.key.keyText }
        self.init(policy: policy, repository: repository, persistence: persistence, fetch: onFetch)
    }

    /// Makes a map whose fetch needs a dependency, such as an access token: both single-flight, both cached.
    ///
    /// The fetch reports a dependency that is no good by throwing a ``BadDependencyError``; it then runs once more, with a
    /// new one.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - dependency: Hands out the dependency, and renews it when it is refused.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs; `nil`, the default, for that of `dependency`, or the
    ///     shared one where it has none. With another one than the dependency's, requests fail with
    ///     ``MuxError/repositoryMismatch``: a sign-out would not reach both.
    ///   - onFetch: Fetches the value of a key.
    public init<Runner: DependencyRunner>(
        cacheKey: String,
        dependency: Runner,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        onFetch: @escaping @Sendable @concurrent (Key, Runner.Dependency) async throws -> Value
    ) {
        let choice = RepositoryChoice(given: repository, ofDependency: dependency.sessionRepository)
        let persistence = Persistence<ExactKey<Key>, Value>(domain: cacheKey) { $0.key.keyText }
        self.init(
            policy: policy,
            repository: choice.repository,
            persistence: choice.isMismatch ? nil : persistence
        ) { key, _ in
            try choice.check(cacheKey)
            return Fetched(try await dependency.run { .output(try await onFetch(key, $0)) })
        }
    }
}
