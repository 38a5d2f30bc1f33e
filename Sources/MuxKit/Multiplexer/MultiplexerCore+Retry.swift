extension MultiplexerCore {
    /// Fetches, as often as the policy says; throws what the last attempt threw.
    @inlinable
    func fetched(_ key: Key, _ before: FetchedBefore<Value>?) async throws -> Fetched<Value> {
        guard let policy = self.policy.retry else { return try await self.fetch(key, before) }
        return try await self.fetched(key, before, policy)
    }

    @usableFromInline
    func fetched(_ key: Key, _ before: FetchedBefore<Value>?, _ policy: RetryPolicy) async throws -> Fetched<Value> {
        let course = RetryLoop(
            policy,
            time: self.repository.time,
            random: self.repository.random,
            spawn: self.repository.spawn
        )
        return try await course.runPlainly { attempt in
            if attempt.index > 0 {
                self.engine.withState { $0.statistics.retries += 1 }
                self.tell(.fetchRetried, key)
            }
            return try await self.fetch(key, before)
        }
    }
}
