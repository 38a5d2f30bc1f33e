extension MuxPolicy {
    /// The limits of the batches in which a ``MultiplexerMap`` fetches simultaneously requested keys.
    ///
    /// **Concurrent calls.** A request for a key in a running batch waits for this batch. Only after a fence
    /// of the key (see ``Multiplexer``), or after the cancellation of the key's fetch, may the key be in
    /// another batch at the same time.
    ///
    /// **Cancellation.** A batch is cancelled when the fetches of all its keys are cancelled: see
    /// ``MuxPolicy/whenAbandoned``.
    ///
    /// **After a failure.** If the result has no value for a key, only the fetch of this key fails. An error
    /// of the batch fails the fetches of all keys of the batch.
    public struct Batching: Sendable, Hashable {
        /// The time that the first key of a batch waits for other keys.
        ///
        /// Default: 5 milliseconds.
        public var window: Duration

        /// The maximum number of keys in a batch; a number below 1 counts as 1.
        ///
        /// Default: 100.
        ///
        /// A full batch is fetched at once, without the rest of the ``window``.
        public var maximumSize: Int

        /// Makes limits of batches.
        ///
        /// - Parameters:
        ///   - window: The time that the first key of a batch waits for other keys.
        ///   - maximumSize: The maximum number of keys in a batch.
        public init(window: Duration = .milliseconds(5), maximumSize: Int = 100) {
            self.window = window
            self.maximumSize = maximumSize
        }
    }
}

extension MultiplexerMap {
    /// Makes a map that fetches many keys at a time.
    ///
    /// The first key of a batch waits for other keys until ``MuxPolicy/Batching/window`` has passed or the
    /// batch has ``MuxPolicy/Batching/maximumSize`` keys.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values; `nil`, the default, to keep values in memory only.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - batching: The limits of batches.
    ///   - repository: The repository of the map, for common saves and sign-outs.
    ///   - onFetchMany: Fetches the values of the given keys. The fetch of a key without a value in the
    ///     result fails with ``MuxError/notFound``; a thrown error fails the fetches of all keys of the
    ///     batch.
    @_disfavoredOverload
    public init(
        cacheKey: CacheKey? = nil,
        policy: MuxPolicy = .init(),
        batching: MuxPolicy.Batching = .init(),
        repository: MuxRepository = .shared,
        onFetchMany: @escaping @Sendable @concurrent ([Key]) async throws -> [Key: Value]
    ) {
        let batcher = Self.batcher(batching, repository, onFetchMany)
        self.init(
            policy: policy,
            repository: repository,
            persistence: cacheKey?.persistence,
            largestBatch: batching.maximumSize,
            fetch: .value { try await batcher.value(of: $0) }
        )
    }

    /// Makes a map that fetches many keys at a time with a dependency, such as an access token.
    ///
    /// All keys of a call of `onFetchMany` are fetched with the same dependency. If the server rejects the
    /// dependency, the closure has to throw a ``BadDependencyError``, so that the runner can renew the
    /// dependency and call the closure again for the same keys.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values; `nil`, the default, to keep values in memory only.
    ///   - dependency: The runner, which provides the dependency, and renews a rejected dependency.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - batching: The limits of batches.
    ///   - repository: The repository of the map, for common saves and sign-outs; `nil`, the default, for the
    ///     repository of `dependency`, or ``MuxRepository/shared`` if `dependency` has no repository. With a
    ///     repository that differs from the dependency's repository, fetches fail with
    ///     ``MuxError/repositoryMismatch``, because no sign-out would include both values and dependency.
    ///   - onFetchMany: Fetches the values of the given keys. The fetch of a key without a value in the
    ///     result fails with ``MuxError/notFound``; a thrown error fails the fetches of all keys of the
    ///     batch.
    @_disfavoredOverload
    public init<Runner: DependencyRunner>(
        cacheKey: CacheKey? = nil,
        dependency: Runner,
        policy: MuxPolicy = .init(),
        batching: MuxPolicy.Batching = .init(),
        repository: MuxRepository? = nil,
        onFetchMany: @escaping @Sendable @concurrent ([Key], Runner.Dependency) async throws -> [Key: Value]
    ) {
        let choice = RepositoryChoice(given: repository, ofDependency: dependency.sessionRepository)
        self.init(
            cacheKey: choice.isMismatch ? nil : cacheKey,
            policy: policy,
            batching: batching,
            repository: choice.repository,
            onFetchMany: { keys in
                try choice.check(cacheKey?.persistence.domain)
                return try await dependency.run { .output(try await onFetchMany(keys, $0)) }
            }
        )
    }

    /// Makes a map whose batches return the values with their lifetimes.
    ///
    /// The flag for `fetchMany` tells whether a cached value of the batch is within its lifetime: then the
    /// fetch has to reach the server, because a response cache could return the same value.
    package init(
        policy: MuxPolicy,
        batching: MuxPolicy.Batching,
        repository: MuxRepository,
        persistence: Persistence<ExactKey<Key>, Value>?,
        selection: EntrySelection<ExactKey<Key>>?,
        fetchMany: @escaping @Sendable @concurrent ([Key], Bool) async throws -> [Key: Fetched<Value>]
    ) {
        // The number of running fetches of each key whose cached value is within its lifetime. After a fence,
        // fetches of a key can overlap.
        let reloads = Locked<[ExactKey<Key>: Int]>([:])
        let batcher = Self.batcher(batching, repository) { keys in
            let isReload = reloads.withLock { reloads in keys.contains { reloads[ExactKey($0)] != nil } }
            return try await fetchMany(keys, isReload)
        }
        self.init(
            policy: policy,
            repository: repository,
            persistence: persistence,
            selection: selection,
            largestBatch: batching.maximumSize,
            fetch: .fetched { key, before in
                guard let before, before.age < before.timeToLive else { return try await batcher.value(of: key) }
                reloads.withLock { $0[key, default: 0] += 1 }
                defer { reloads.withLock { $0[key] = $0[key].flatMap { $0 > 1 ? $0 - 1 : nil } } }
                return try await batcher.value(of: key)
            }
        )
    }

    fileprivate static func batcher<Output: Sendable>(
        _ batching: MuxPolicy.Batching,
        _ repository: MuxRepository,
        _ fetch: @escaping @Sendable @concurrent ([Key]) async throws -> [Key: Output]
    ) -> Batcher<ExactKey<Key>, Output> {
        Batcher(batching, time: repository.time, spawn: repository.spawn) { keys in
            var values: [ExactKey<Key>: Output] = [:]
            var rest = keys
            while !rest.isEmpty {
                // A dictionary cannot have two texts that differ only in Unicode normalization, so each call
                // of `fetch` gets only one of these texts.
                var asked: Set<Key> = []
                let now = rest.filter { asked.insert($0.key).inserted }
                let reply = try await fetch(now.map(\.key))
                for key in now { values[key] = reply[key.key] }
                rest.removeAll(where: Set(now).contains)
            }
            return values
        }
    }

    /// Returns the values of `keys`: cached values that `options` permit, and other values by simultaneous
    /// fetches.
    ///
    /// Simultaneous requests for a key join the key's fetch. The call fetches at most 8,192 keys at a time,
    /// or ``MuxPolicy/Batching/maximumSize`` keys if this number is larger; further fetches begin when half
    /// of these fetches have ended. With ``RequestOptions/within(_:)-swift.type.method``, all fetches begin
    /// at once.
    ///
    /// - Parameters:
    ///   - keys: Any keys that are equal to themselves.
    ///   - options: Limits on the age, the source and the wait.
    /// - Returns: The values by key, without keys that failed with ``MuxError/notFound``.
    /// - Throws: After the end of all fetches, the first error except ``MuxError/notFound``, in the order of
    ///   `keys`; ``MuxError/unusableKey`` if a key is not equal to itself; `CancellationError` if the caller
    ///   is cancelled during the wait for fetches. The values of other keys are cached.
    /// - Complexity: O(*n*) in the number of keys; usually no suspension if memory has fresh values for all
    ///   keys.
    @inlinable
    public nonisolated(nonsending) func request(
        keys: some Sequence<Key> & Sendable,
        _ options: RequestOptions = .init()
    ) async throws -> [Key: Value] {
        var (values, others, unusable) = self.hits(keys, options)
        if !others.isEmpty {
            for (key, result) in zip(others, await self.core.results(others, options)) {
                do {
                    values[key.key] = try result.get()
                } catch MuxError.notFound {
                    continue
                }
            }
        }
        guard unusable.isEmpty else { throw MuxError.unusableKey }
        return values
    }

    /// Returns the result of a request for each of `keys`: a value or an error.
    ///
    /// The requests run as in ``request(keys:_:)``.
    ///
    /// - Parameters:
    ///   - keys: Any keys.
    ///   - options: Limits on the age, the source and the wait.
    /// - Returns: The results by key.
    @inlinable
    public nonisolated(nonsending) func results(
        keys: some Sequence<Key> & Sendable,
        _ options: RequestOptions = .init()
    ) async -> [Key: Result<Value, any Error>] {
        let (values, others, unusable) = self.hits(keys, options)
        var results = values.mapValues { Result<Value, any Error>.success($0) }
        if !others.isEmpty {
            for (key, result) in zip(others, await self.core.results(others, options)) { results[key.key] = result }
        }
        for key in unusable { results[key] = .failure(MuxError.unusableKey) }
        return results
    }

    /// Finds values of `keys` in memory that `options` permit without a flight.
    ///
    /// - Returns: The values, the other keys without duplicates, and the keys that are not equal to
    ///   themselves.
    @inlinable
    nonisolated func hits(
        _ keys: some Sequence<Key>,
        _ options: RequestOptions
    ) -> (values: [Key: Value], others: [ExactKey<Key>], unusable: [Key]) {
        let isPlain = options == .init()
        var values: [Key: Value] = [:]
        values.reserveCapacity(keys.underestimatedCount)
        var others: [ExactKey<Key>] = []
        var asked: Set<Key> = []
        var unusable: [Key] = []
        for key in keys {
            let exact = ExactKey(key)
            guard exact == exact else {
                unusable.append(key)
                continue
            }
            // Only the first of equal keys is requested. Texts that differ only in Unicode normalization are
            // equal.
            guard values[key] == nil, asked.isEmpty || !asked.contains(key) else { continue }
            let value = isPlain ? self.core.hit(exact) : self.core.hit(exact, options)
            if let value = isPlain ? value : value ?? self.core.hitEntry(exact, options)?.value {
                values[key] = value
            } else {
                asked.insert(key)
                others.append(exact)
            }
        }
        return (values, others, unusable)
    }
}

extension MultiplexerCore {
    /// The maximum number of simultaneous reads from the backing, for a cache-only request of many keys.
    private static var readersAtOnce: Int { 16 }

    /// The results of a cache-only request for `keys`, in the order of the keys.
    ///
    /// At most ``readersAtOnce`` tasks read equal shares of the keys.
    @usableFromInline
    func cachedResults(_ keys: [Key], _ options: RequestOptions) async -> [Result<Value, any Error>] {
        let readers = min(keys.count, Self.readersAtOnce)
        return await withTaskGroup(of: [(Int, Result<Value, any Error>)].self) { group in
            for reader in 0..<readers {
                group.addTask {
                    var results: [(Int, Result<Value, any Error>)] = []
                    for index in stride(from: reader, to: keys.count, by: readers) {
                        results.append((index, await self.cachedResult(keys[index], options)))
                    }
                    return results
                }
            }
            var results: [Result<Value, any Error>] = Array(repeating: .failure(MuxError.notCached), count: keys.count)
            for await part in group {
                for (index, result) in part { results[index] = result }
            }
            return results
        }
    }

    private func cachedResult(_ key: Key, _ options: RequestOptions) async -> Result<Value, any Error> {
        do {
            return .success(try await self.cachedOnly(key, options).value)
        } catch {
            return .failure(error)
        }
    }
}

extension MultiplexerMap where Key: MuxKey, Value: Codable {
    /// Makes a map that fetches many keys at a time, with a `cacheKey`.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values: a text, or the case of an enum that is a ``MuxKey``.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - batching: The limits of batches.
    ///   - repository: The repository of the map, for common saves and sign-outs.
    ///   - onFetchMany: Fetches the values of the given keys.
    @_disfavoredOverload
    public init(
        cacheKey: some MuxKey,
        policy: MuxPolicy = .init(),
        batching: MuxPolicy.Batching = .init(),
        repository: MuxRepository = .shared,
        onFetchMany: @escaping @Sendable @concurrent ([Key]) async throws -> [Key: Value]
    ) {
        self.init(
            cacheKey: CacheKey(cacheKey),
            policy: policy,
            batching: batching,
            repository: repository,
            onFetchMany: onFetchMany
        )
    }

    /// Makes a map that fetches many keys at a time, with a dependency and a `cacheKey`.
    ///
    /// - Parameters:
    ///   - cacheKey: The name of the stored values: a text, or the case of an enum that is a ``MuxKey``.
    ///   - dependency: The runner, which provides the dependency, and renews a rejected dependency.
    ///   - policy: The lifetime of values, and the rules for fetches, failures and memory.
    ///   - batching: The limits of batches.
    ///   - repository: The repository of the map; `nil`, the default, for the repository of `dependency`, or
    ///     ``MuxRepository/shared`` if `dependency` has no repository.
    ///   - onFetchMany: Fetches the values of the given keys.
    @_disfavoredOverload
    public init<Runner: DependencyRunner>(
        cacheKey: some MuxKey,
        dependency: Runner,
        policy: MuxPolicy = .init(),
        batching: MuxPolicy.Batching = .init(),
        repository: MuxRepository? = nil,
        onFetchMany: @escaping @Sendable @concurrent ([Key], Runner.Dependency) async throws -> [Key: Value]
    ) {
        self.init(
            cacheKey: CacheKey(cacheKey),
            dependency: dependency,
            policy: policy,
            batching: batching,
            repository: repository,
            onFetchMany: onFetchMany
        )
    }
}
