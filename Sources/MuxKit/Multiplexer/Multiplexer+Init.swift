// Stored closures are `@concurrent`. Without `@concurrent`, `Multiplexer(onFetch: Backend.profile)` with a
// static method crashes the compiler (6.3.1, `determineClosureIsolation`) in every module without
// `NonisolatedNonsendingByDefault`. A flight has no isolation anyway, so the call of a `@concurrent` closure
// does not change the executor.
//
// An initialiser without a dependency and with a closure that returns a plain value is
// `@_disfavoredOverload`: a closure that only throws, `{ throw Offline() }`, fits several initialisers, and
// the compiler would report an ambiguity.

extension Multiplexer {
    /// The name of the value in the repository's store: on disk, or in a shared store.
    ///
    /// The type is the type for maps, ``MultiplexerMap/CacheKey``, with `Never` as the type of the keys.
    public typealias CacheKey = MultiplexerMap<Never, Value>.CacheKey

    /// Makes a multiplexer.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored value; `nil`, the default, to keep the value in memory only.
    ///   - policy: The lifetime of the value, and the rules for fetches and failures.
    ///   - repository: The repository of the multiplexer, for common saves and sign-outs.
    ///   - onFetch: Fetches the value.
    @inlinable
    @_disfavoredOverload
    public init(
        cacheKey: CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent () async throws -> Value
    ) {
        self.init(
            policy: policy,
            repository: repository,
            persistence: cacheKey?.solePersistence,
            fetch: .value { _ in try await onFetch() }
        )
    }

    /// Makes a multiplexer with a fetch that returns lifetimes, and can revalidate the cached value.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored value; `nil`, the default, to keep the value in memory only.
    ///   - policy: The lifetime of the value, and the rules for fetches and failures.
    ///   - repository: The repository of the multiplexer, for common saves and sign-outs.
    ///   - onFetch: Fetches the value. The closure receives the cached value, fresh or stale, and returns
    ///     ``FetchedBefore/notModified(timeToLive:staleWhileRevalidate:staleIfError:validator:)`` if the
    ///     server confirms the cached value.
    public init(
        cacheKey: CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        self.init(
            policy: policy,
            repository: repository,
            persistence: cacheKey?.solePersistence,
            fetch: .fetched { try await onFetch($1) }
        )
    }

    /// Makes a multiplexer with a fetch that needs a dependency, such as an access token.
    ///
    /// If the server rejects the dependency, the fetch has to throw a ``BadDependencyError``, so that the
    /// runner can renew the dependency and run the fetch again.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored value; `nil`, the default, to keep the value in memory only.
    ///   - dependency: The runner, which provides the dependency, and renews a rejected dependency.
    ///   - policy: The lifetime of the value, and the rules for fetches and failures.
    ///   - repository: The repository of the multiplexer, for common saves and sign-outs; `nil`, the default,
    ///     for the repository of `dependency`, or ``MuxRepository/shared`` if `dependency` has no repository.
    ///     With a repository that differs from the dependency's repository, fetches fail with
    ///     ``MuxError/repositoryMismatch``, because no sign-out would include both value and dependency.
    ///   - onFetch: Fetches the value.
    @inlinable
    public init<Runner: DependencyRunner>(
        cacheKey: CacheKey? = nil,
        dependency: Runner,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        onFetch: @escaping @Sendable @concurrent (Runner.Dependency) async throws -> Value
    ) {
        let choice = RepositoryChoice(given: repository, ofDependency: dependency.sessionRepository)
        self.init(
            policy: policy,
            repository: choice.repository,
            persistence: choice.isMismatch ? nil : cacheKey?.solePersistence,
            fetch: .value { _ in
                try choice.check(cacheKey?.persistence.domain)
                return try await dependency.run { .output(try await onFetch($0)) }
            }
        )
    }
}

// The initialisers whose `cacheKey` may be a variable or the case of an enum. These initialisers require
// `Value: Codable`, so `cacheKey` is not optional: otherwise a multiplexer without a `cacheKey`, which keeps
// its value in memory only, would require a `Codable` value, too.

extension Multiplexer where Value: Codable {
    /// Makes a multiplexer with a `cacheKey`.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored value: a text, or the case of an enum that is a ``MuxKey``.
    ///   - policy: The lifetime of the value, and the rules for fetches and failures.
    ///   - repository: The repository of the multiplexer, for common saves and sign-outs.
    ///   - onFetch: Fetches the value.
    @inlinable
    @_disfavoredOverload
    public init(
        cacheKey: some MuxKey,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent () async throws -> Value
    ) {
        self.init(cacheKey: CacheKey(cacheKey), policy: policy, repository: repository, onFetch: onFetch)
    }

    /// Makes a multiplexer with a `cacheKey`, and with a fetch that returns lifetimes.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored value: a text, or the case of an enum that is a ``MuxKey``.
    ///   - policy: The lifetime of the value, and the rules for fetches and failures.
    ///   - repository: The repository of the multiplexer, for common saves and sign-outs.
    ///   - onFetch: Fetches the value; receives the cached value, fresh or stale.
    public init(
        cacheKey: some MuxKey,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        self.init(cacheKey: CacheKey(cacheKey), policy: policy, repository: repository, onFetch: onFetch)
    }

    /// Makes a multiplexer with a `cacheKey`, and with a fetch that needs a dependency.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored value: a text, or the case of an enum that is a ``MuxKey``.
    ///   - dependency: The runner, which provides the dependency, and renews a rejected dependency.
    ///   - policy: The lifetime of the value, and the rules for fetches and failures.
    ///   - repository: The repository of the multiplexer; `nil`, the default, for the repository of
    ///     `dependency`, or ``MuxRepository/shared`` if `dependency` has no repository.
    ///   - onFetch: Fetches the value.
    @inlinable
    public init<Runner: DependencyRunner>(
        cacheKey: some MuxKey,
        dependency: Runner,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        onFetch: @escaping @Sendable @concurrent (Runner.Dependency) async throws -> Value
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
