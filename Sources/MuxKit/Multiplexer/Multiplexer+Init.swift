// Stored closures are `@concurrent`: without it, `Multiplexer(onFetch: Backend.profile)` with a static method crashes the compiler
// (6.3.1, `determineClosureIsolation`) in every module that does not use `NonisolatedNonsendingByDefault`. A flight runs on
// the global executor anyway, so the closure is called without a hop.
//
// The forms for a plain value are `@_disfavoredOverload`: a closure that only throws, `{ throw Offline() }`, fits several
// forms, and the compiler calls that ambiguous unless one of them is its last choice.

extension Multiplexer {
    /// The name of a value on disk: any text, the same in every launch, and no other multiplexer's.
    ///
    /// A string literal is one, with or without interpolations, if the value is `Codable`; for other texts there is
    /// ``init(_:)``.
    public struct CacheKey: Sendable {
        @usableFromInline package var persistence: Persistence<SoleKey, Value>

        /// The name `text`.
        public init(_ text: String) where Value: Codable {
            self.persistence = Persistence(domain: text) { _ in nil }
            self.persistence.isShared = true
        }
    }

    /// Makes a multiplexer.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk; `nil`, the default, to keep it in memory.
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs.
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
            persistence: cacheKey?.persistence,
            fetch: .value { _ in try await onFetch() }
        )
    }

    /// Makes a multiplexer whose fetch says how long the value is good, and can ask whether it is still the same.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk; `nil`, the default, to keep it in memory.
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs.
    ///   - onFetch: Fetches the value. It receives what is cached, fresh or not, and returns
    ///     ``FetchedBefore/notModified(timeToLive:staleWhileRevalidate:staleIfError:validator:)`` where that still holds.
    public init(
        cacheKey: CacheKey? = nil,
        policy: MuxPolicy = .init(),
        repository: MuxRepository = .shared,
        onFetch: @escaping @Sendable @concurrent (FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        self.init(
            policy: policy,
            repository: repository,
            persistence: cacheKey?.persistence,
            fetch: .fetched { try await onFetch($1) }
        )
    }

    /// Makes a multiplexer whose fetch needs a dependency, such as an access token: both single-flight, both cached.
    ///
    /// The fetch reports a dependency that is no good by throwing a ``BadDependencyError``; it then runs once more, with a
    /// new one.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk; `nil`, the default, to keep it in memory.
    ///   - dependency: Hands out the dependency, and renews it when it is refused.
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs; `nil`, the default, for that of `dependency`,
    ///     or the shared one where it has none. With another one than the dependency's, requests fail with
    ///     ``MuxError/repositoryMismatch``: a sign-out would not reach both.
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
        let persistence = cacheKey?.persistence
        self.init(
            policy: policy,
            repository: choice.repository,
            persistence: choice.isMismatch ? nil : persistence,
            fetch: .value { _ in
                try choice.check(persistence?.domain)
                return try await dependency.run { .output(try await onFetch($0)) }
            }
        )
    }
}

extension Multiplexer.CacheKey: ExpressibleByUnicodeScalarLiteral where Value: Codable {}

extension Multiplexer.CacheKey: ExpressibleByExtendedGraphemeClusterLiteral where Value: Codable {}

extension Multiplexer.CacheKey: ExpressibleByStringLiteral where Value: Codable {
    /// The name that a literal says.
    public init(stringLiteral value: String) { self.init(value) }
}

extension Multiplexer.CacheKey: ExpressibleByStringInterpolation where Value: Codable {}
