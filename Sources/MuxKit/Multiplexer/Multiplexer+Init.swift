// Stored closures are `@concurrent`: without it, `Multiplexer(onFetch: Backend.profile)` with a static method crashes the compiler
// (6.3.1, `determineClosureIsolation`) in every module that does not use `NonisolatedNonsendingByDefault`. A flight runs on
// the global executor anyway, so the closure is called without a hop.
//
// The forms for a plain value are `@_disfavoredOverload`: a closure that only throws, `{ throw Offline() }`, and one that
// returns a `Fetched`, fit several forms, and the compiler calls that ambiguous unless one of them is its last choice.

extension Multiplexer {
    /// Makes a multiplexer that keeps its value in memory.
    ///
    /// - Parameters:
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer registers.
    ///   - onFetch: Fetches the value.
    @_disfavoredOverload
    public init(
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent () async throws -> Value
    ) {
        self.init(policy: policy, repository: repository, persistence: nil) { _ in Fetched(try await onFetch()) }
    }

    /// Makes a multiplexer that keeps its value in memory, where the fetch says how long the value is good.
    ///
    /// - Parameters:
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer registers.
    ///   - onFetch: Fetches the value.
    public init(
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent () async throws -> Fetched<Value>
    ) {
        self.init(policy: policy, repository: repository, persistence: nil) { _ in try await onFetch() }
    }

    /// Makes a multiplexer that keeps its value in memory, where the fetch can ask whether the value is still the same.
    ///
    /// - Parameters:
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer registers.
    ///   - onFetch: Fetches the value. It receives what is cached, fresh or not, and returns
    ///     ``FetchedBefore/notModified(timeToLive:staleWhileRevalidate:staleIfError:validator:)`` where that still holds.
    public init(
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        self.init(policy: policy, repository: repository, persistence: nil, fetch: onFetch)
    }
}

extension Multiplexer where Value: Codable {
    /// Makes a multiplexer that can keep its value on disk.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value.
    @_disfavoredOverload
    public init(
        cacheKey: String,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent () async throws -> Value
    ) {
        let persistence = Persistence<SoleKey, Value>(domain: cacheKey) { _ in nil }
        self.init(policy: policy, repository: repository, persistence: persistence) { _ in
            Fetched(try await onFetch())
        }
    }

    /// Makes a multiplexer that can keep its value on disk, where the fetch says how long the value is good.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value.
    public init(
        cacheKey: String,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent () async throws -> Fetched<Value>
    ) {
        let persistence = Persistence<SoleKey, Value>(domain: cacheKey) { _ in nil }
        self.init(policy: policy, repository: repository, persistence: persistence) { _ in try await onFetch() }
    }

    /// Makes a multiplexer that can keep its value on disk, where the fetch can ask whether the value is still the same.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value. It receives what is cached, fresh or not, and returns
    ///     ``FetchedBefore/notModified(timeToLive:staleWhileRevalidate:staleIfError:validator:)`` where that still holds.
    public init(
        cacheKey: String,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        let persistence = Persistence<SoleKey, Value>(domain: cacheKey) { _ in nil }
        self.init(policy: policy, repository: repository, persistence: persistence, fetch: onFetch)
    }

    /// Makes a multiplexer whose fetch needs a dependency, such as an access token: both single-flight, both cached.
    ///
    /// The fetch reports a dependency that is no good by throwing a ``BadDependencyError``; it then runs once more, with a
    /// new one.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk: any text, the same in every launch, and no other multiplexer's.
    ///   - dependency: Hands out the dependency, and renews it when it is refused.
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs; `nil`, the default, for that of `dependency`,
    ///     or the shared one where it has none. With another one than the dependency's, requests fail with
    ///     ``MuxError/repositoryMismatch``: a sign-out would not reach both.
    ///   - onFetch: Fetches the value.
    public init<Runner: DependencyRunner>(
        cacheKey: String,
        dependency: Runner,
        policy: MuxPolicy = .init(),
        repository: MuxRepository? = nil,
        onFetch: @escaping @Sendable @concurrent (Runner.Dependency) async throws -> Value
    ) {
        let choice = RepositoryChoice(given: repository, ofDependency: dependency.sessionRepository)
        let persistence = Persistence<SoleKey, Value>(domain: cacheKey) { _ in nil }
        self.init(
            policy: policy,
            repository: choice.repository,
            persistence: choice.isMismatch ? nil : persistence
        ) { _ in
            try choice.check(cacheKey)
            return Fetched(try await dependency.run { .output(try await onFetch($0)) })
        }
    }
}
