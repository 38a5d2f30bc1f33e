extension Multiplexer where Value: Codable {
    /// Makes a multiplexer whose entry on disk may be out of date for reasons that somebody else knows.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the value on disk; `nil` to keep it in memory.
    ///   - policy: How long the value stays good, and what happens around a fetch.
    ///   - repository: Where the multiplexer takes part in saves and sign-outs.
    ///   - changedAt: Asked for each entry that comes from disk: when it went out of date; `nil` if that is not known.
    ///   - onFetch: Fetches the value.
    package init(
        cacheKey: String?,
        policy: MuxPolicy,
        repository: MuxRepository,
        changedAt: @escaping @Sendable () -> Moment?,
        onFetch: @escaping @Sendable @concurrent (FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        var persistence = cacheKey.map { Persistence<SoleKey, Value>(domain: $0) { _ in nil } }
        persistence?.changedAt = { _ in changedAt() }
        self.init(policy: policy, repository: repository, persistence: persistence, fetch: onFetch)
    }
}

extension MultiplexerMap where Key: MuxKey, Value: Codable {
    /// Makes a map whose entries on disk may be out of date for reasons that somebody else knows.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk; `nil` to keep them in memory.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - repository: Where the map takes part in saves and sign-outs.
    ///   - changedAt: Asked for each entry that comes from disk: when it went out of date; `nil` if that is not known.
    ///   - onFetch: Fetches the value of a key.
    package init(
        cacheKey: String?,
        policy: MuxPolicy,
        repository: MuxRepository,
        changedAt: @escaping @Sendable (Key) -> Moment?,
        onFetch: @escaping @Sendable @concurrent (Key, FetchedBefore<Value>?) async throws -> Fetched<Value>
    ) {
        var persistence = cacheKey.map { Persistence<ExactKey<Key>, Value>(domain: $0) { $0.key.keyText } }
        persistence?.changedAt = { changedAt($0.key) }
        self.init(policy: policy, repository: repository, persistence: persistence, fetch: onFetch)
    }
}
