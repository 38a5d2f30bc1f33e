extension MultiplexerCore {
    /// How many entries a request for many keys reads from disk at once.
    private static var readersAtOnce: Int { 16 }

    /// What requests for `keys`, made at the same time, lead to, in the order of the keys.
    ///
    /// The task waits once, for all flights together; nothing but their work has a task of its own.
    @concurrent
    func results(_ keys: [Key], _ options: RequestOptions) async -> [Result<Value, any Error>] {
        guard options.mode != .cacheOnly else { return await self.cachedResults(keys, options) }
        let calls = keys.map { options == .init() ? PendingRequest(self, $0) : PendingRequest(self, $0, options) }
        let (engine, callers) = (self.engine, calls.map { ($0.ticket, $0.key) })
        var timer: Task<Void, Never>?
        let answers = await FlightGathering.answers(count: calls.count) { index, waiter in
            let call = calls[index]
            call.arrive(waiter, isAlone: false)
            defer { call.loose = nil }
            return call.loose
        } arrived: {
            timer = options.waitLimit.map { waitLimit in
                engine.startWaitLimit(of: callers, waitLimit) { state, key, ticket, now in
                    Self.instead(in: &state, key, ticket, at: now).map(Result.success)
                }
            }
        } onCancel: {
            for (ticket, key) in callers { engine.leave(ticket, key) }
        }
        timer?.cancel()
        return zip(calls, answers).map { call, answer in
            Result {
                guard let answer else { throw CancellationError() }
                return try call.value(answer)
            }
        }
    }

    /// The values in memory or on disk, read by a few tasks, each of which takes every so many of the keys.
    private func cachedResults(_ keys: [Key], _ options: RequestOptions) async -> [Result<Value, any Error>] {
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
