extension MuxPolicy {
    /// How a ``MultiplexerMap`` gathers keys that are asked for at about the same time into one fetch.
    ///
    /// **Concurrent calls.** A key that is on its way in a batch is joined by every request, and goes into no other batch.
    ///
    /// **Cancellation.** A batch is cancelled when no caller waits for any of its keys.
    ///
    /// **After a failure.** A key that the reply has not fails alone; an error of the batch is an error of each of its keys.
    public struct Batching: Sendable, Hashable {
        /// How long the first key of a batch waits for others; 5 milliseconds.
        public var window: Duration

        /// How many keys a batch has at most, at least 1; 100.
        ///
        /// A full batch does not wait.
        public var maximumSize: Int

        /// Makes a description of batches.
        ///
        /// - Parameters:
        ///   - window: How long the first key of a batch waits for others.
        ///   - maximumSize: How many keys a batch has at most.
        public init(window: Duration = .milliseconds(5), maximumSize: Int = 100) {
            self.window = window
            self.maximumSize = maximumSize
        }
    }
}

extension MultiplexerMap {
    /// Makes a map that fetches many keys at a time.
    ///
    /// Keys that are asked for within ``MuxPolicy/Batching/window``, by one request or by many, go in one fetch.
    ///
    /// - Parameters:
    ///   - cacheKey: Names the values on disk; `nil`, the default, to keep them in memory.
    ///   - policy: How long a value stays good, and what happens around a fetch.
    ///   - batching: How keys are gathered.
    ///   - repository: Where the map takes part in saves and sign-outs.
    ///   - onFetchMany: Fetches the values of some keys. A key that is not in the result fails alone, with
    ///     ``MuxError/notFound``; a thrown error fails the keys of the batch.
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

    fileprivate static func batcher(
        _ batching: MuxPolicy.Batching,
        _ repository: MuxRepository,
        _ fetch: @escaping @Sendable @concurrent ([Key]) async throws -> [Key: Value]
    ) -> Batcher<ExactKey<Key>, Value> {
        Batcher(batching, time: repository.time, spawn: repository.spawn) { keys in
            var values: [ExactKey<Key>: Value] = [:]
            var rest = keys
            while !rest.isEmpty {
                // Texts that differ in Unicode form are one key to a dictionary, so they cannot share one.
                var asked: Set<Key> = []
                let now = rest.filter { asked.insert($0.key).inserted }
                let reply = try await fetch(now.map(\.key))
                for key in now { values[key] = reply[key.key] }
                rest.removeAll(where: Set(now).contains)
            }
            return values
        }
    }

    /// Returns the values of `keys`: fresh ones from memory or disk, the others fetched beside one another.
    ///
    /// A key that is being fetched is joined, by this and by any other request. Only a fetch has a task of its own, and no more
    /// than 8,192 keys are fetched at a time, or than one batch can have: others follow when half of these are done.
    ///
    /// - Parameters:
    ///   - keys: Any keys that are equal to themselves.
    ///   - options: What counts as good enough for this request.
    /// - Returns: The values by key. A key for which there is none (``MuxError/notFound``) is left out.
    /// - Throws: The error of one of the keys that failed otherwise, or `CancellationError`. What the others brought is kept.
    /// - Complexity: O(*n*), and no suspension, if memory has fresh values for all *n* keys.
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

    /// Returns what requests for `keys`, made at the same time, lead to: for each a value, or its own error.
    ///
    /// - Parameters:
    ///   - keys: Any keys.
    ///   - options: What counts as good enough for this request.
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

    /// The values of `keys` that memory has, the keys that have to be asked for, each once, and those that are not equal to
    /// themselves.
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
            // The first of equal keys counts, also of texts that differ in Unicode form alone.
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
