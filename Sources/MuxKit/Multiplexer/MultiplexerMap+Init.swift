extension MultiplexerMap {
    /// The name of the values of a map or multiplexer in the repository's store: on disk, or in a shared
    /// store.
    ///
    /// The name may be any text. The name must be the same in every launch, and differ from the names of
    /// other multiplexers and maps of the repository.
    ///
    /// If the keys conform to ``MuxKey`` and the values to `Codable`, a string literal, with or without
    /// interpolations, is a name; ``init(_:)`` makes a name from a variable or the case of an enum.
    public struct CacheKey: Sendable {
        @usableFromInline package var persistence: Persistence<ExactKey<Key>, Value>

        /// Makes a name from a text, or from the text of a key such as the case of an enum.
        public init(_ name: some MuxKey) where Key: MuxKey, Value: Codable {
            self.persistence = Persistence(domain: name.keyText) { $0.key.keyText }
            self.persistence.isShared = true
        }

        /// Makes a name for values with tags, for ``MuxRepository/refresh(tags:)`` and
        /// ``MuxRepository/clear(tags:)``.
        ///
        /// ``Fetched/tags`` can add tags for the value.
        ///
        /// A ``Multiplexer`` has no keys, so its value has only the tags of ``Fetched/tags``: the compiler
        /// warns that the closure is never called.
        ///
        /// - Parameters:
        ///   - name: The name.
        ///   - tags: Returns the tags of a key's value, such as a city or a viewer; always the same tags for
        ///     a key.
        public init(
            _ name: some MuxKey,
            tags: @escaping @Sendable (Key) -> [String]
        ) where Key: MuxKey, Value: Codable {
            self.init(name)
            self.persistence.tags = { tags($0.key) }
        }
    }

    /// Makes a map.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values; `nil`, the default, to keep values in memory only.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - repository: The repository of the map, for common saves and sign-outs.
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

    /// Makes a map with a fetch that returns lifetimes, and can revalidate a cached value.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values; `nil`, the default, to keep values in memory only.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - repository: The repository of the map, for common saves and sign-outs.
    ///   - onFetch: Fetches the value of a key. The closure receives the cached value, fresh or stale, and
    ///     returns ``FetchedBefore/notModified(timeToLive:staleWhileRevalidate:staleIfError:validator:)`` if
    ///     the server confirms the cached value.
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

    /// Makes a map with a fetch that needs a dependency, such as an access token.
    ///
    /// If the server rejects the dependency, the fetch has to throw a ``BadDependencyError``, so that the
    /// runner can renew the dependency and run the fetch again.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values; `nil`, the default, to keep values in memory only.
    ///   - dependency: The runner, which provides the dependency, and renews a rejected dependency.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - repository: The repository of the map, for common saves and sign-outs; `nil`, the default, for the
    ///     repository of `dependency`, or ``MuxRepository/shared`` if `dependency` has no repository. With a
    ///     repository that differs from the dependency's repository, fetches fail with
    ///     ``MuxError/repositoryMismatch``, because no sign-out would include both values and dependency.
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
        self.init(
            policy: policy,
            repository: choice.repository,
            persistence: choice.isMismatch ? nil : cacheKey?.persistence,
            fetch: .value { key in
                try choice.check(cacheKey?.persistence.domain)
                return try await dependency.run { .output(try await onFetch(key.key, $0)) }
            }
        )
    }
}

// The initialisers whose `cacheKey` may be a variable or the case of an enum: see `Multiplexer+Init.swift`.

extension MultiplexerMap where Key: MuxKey, Value: Codable {
    /// Makes a map with a `cacheKey`.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values: a text, or the case of an enum that is a ``MuxKey``.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - repository: The repository of the map, for common saves and sign-outs.
    ///   - onFetch: Fetches the value of a key.
    @inlinable
    @_disfavoredOverload
    public init(
        cacheKey: some MuxKey,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key) async throws -> Value
    ) {
        self.init(cacheKey: CacheKey(cacheKey), policy: policy, repository: repository, onFetch: onFetch)
    }

    /// Makes a map with a `cacheKey`, and with a fetch that returns lifetimes.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values: a text, or the case of an enum that is a ``MuxKey``.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - repository: The repository of the map, for common saves and sign-outs.
    ///   - onFetch: Fetches the value of a key; receives the cached value, fresh or stale.
    public init(
        cacheKey: some MuxKey,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (Key, FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        self.init(cacheKey: CacheKey(cacheKey), policy: policy, repository: repository, onFetch: onFetch)
    }

    /// Makes a map with a `cacheKey`, and with a fetch that needs a dependency.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values: a text, or the case of an enum that is a ``MuxKey``.
    ///   - dependency: The runner, which provides the dependency, and renews a rejected dependency.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - repository: The repository of the map; `nil`, the default, for the repository of `dependency`, or
    ///     ``MuxRepository/shared`` if `dependency` has no repository.
    ///   - onFetch: Fetches the value of a key.
    @inlinable
    public init<Runner: DependencyRunner>(
        cacheKey: some MuxKey,
        dependency: Runner,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        onFetch: @escaping @Sendable @concurrent (Key, Runner.Dependency) async throws -> Value
    ) {
        self.init(
            cacheKey: CacheKey(cacheKey),
            dependency: dependency,
            policy: policy,
            repository: repository,
            onFetch: onFetch
        )
    }
}

extension MultiplexerMap.CacheKey: ExpressibleByUnicodeScalarLiteral where Key: MuxKey, Value: Codable {}

extension MultiplexerMap.CacheKey: ExpressibleByExtendedGraphemeClusterLiteral where Key: MuxKey, Value: Codable {}

extension MultiplexerMap.CacheKey: ExpressibleByStringLiteral where Key: MuxKey, Value: Codable {
    /// Makes a name from a literal.
    public init(stringLiteral value: String) { self.init(value) }
}

extension MultiplexerMap.CacheKey: ExpressibleByStringInterpolation where Key: MuxKey, Value: Codable {}

/// The key type of ``Multiplexer/CacheKey``: a multiplexer has no keys.
extension Never: MuxKey {
    /// Never called.
    public var keyText: String { switch self {} }
}

extension MultiplexerMap.CacheKey where Key == Never {
    /// The persistence of the only value of a ``Multiplexer``.
    @usableFromInline package var solePersistence: Persistence<SoleKey, Value> { Persistence(ofSole: self.persistence) }
}
