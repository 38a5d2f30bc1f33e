extension MultiplexerCore {
    /// Options in an object: few calls have any.
    @usableFromInline
    final class Unusual: Sendable {
        @usableFromInline let options: RequestOptions

        @usableFromInline
        init(_ options: RequestOptions) { self.options = options }
    }

    /// A request that has to go the long way.
    ///
    /// An object, for what is on the stack of an asynchronous function takes several times its memory while it waits.
    @usableFromInline
    final class PendingRequest {
        @usableFromInline let core: MultiplexerCore
        @usableFromInline let key: Key
        /// What the caller wants, if it is not what is usual.
        @usableFromInline let options: Unusual?
        @usableFromInline let ticket: Ticket
        /// What is to be undone after the wait.
        @usableFromInline var loose: FlightWaiter.WaitCleanup?

        @inlinable
        @inline(never)
        init(_ core: MultiplexerCore, _ key: Key) {
            self.core = core
            self.key = key
            self.options = nil
            self.ticket = core.engine.nextID()
        }

        @inlinable
        @inline(never)
        init(_ core: MultiplexerCore, _ key: Key, _ options: RequestOptions) {
            self.core = core
            self.key = key
            self.options = options == .init() ? nil : Unusual(options)
            self.ticket = core.engine.nextID()
        }

        /// Looks for the entry, and joins or starts the key's flight if there is none that is good enough.
        ///
        /// If it is not `isAlone`, its maker sees to the caller's patience.
        @inlinable
        @inline(never)
        func arrive(_ waiter: FlightWaiter, isAlone: Bool = true) {
            let (core, key, ticket, options) = (self.core, self.key, self.ticket, self.options?.options)
            let now = core.repository.time.now
            let limits = options?.limits(core.policy) ?? core.usualLimits
            var met: MuxEvent.Kind?
            self.loose = core.engine.arrive(
                waiter,
                ticket,
                at: key,
                now: now,
                decide: { state in
                    let decision = MultiplexerCore.decide(state.slots.requestedSlot(of: key), at: now, limits)
                    switch decision {
                    case .answer(let entry), .answerAndFly(let entry):
                        state.statistics.hit(isStale: entry.staleReason != nil)
                        met = entry.staleReason != nil ? .servedStale : .hit
                    case .fail:
                        state.statistics.hit(isStale: false)
                        met = .hit
                    case .fly, .flyNoLonger:
                        guard isAlone, let waitLimit = options?.waitLimit else { break }
                        return .flyNoLonger(than: waitLimit) {
                            MultiplexerCore.instead(in: &$0, key, ticket, at: $1).map(Result.success)
                        }
                    }
                    return decision
                },
                joined: { state, isRunning in
                    if isRunning { state.statistics.joins += 1 } else { state.statistics.misses += 1 }
                    if let options {
                        state.waiterOptions[ticket] = WaiterOptions(
                            limits: limits,
                            waitLimitEnds: options.waitLimit.map(now.advanced)
                        )
                    }
                    met = isRunning ? .joined : .missed
                },
                left: { state in
                    state.statistics.misses += 1
                    met = .missed
                },
                arrived: { if let met { core.tell(met, key) } }
            )
        }

        /// What a request ends with that was answered, and wants no more than the value.
        @inlinable
        @inline(never)
        func value(_ answer: FlightWaiter.Answer) throws -> Value { try self.departed(answer).value }

        /// What a request ends with that was answered.
        @inlinable
        @inline(never)
        func departed(_ answer: FlightWaiter.Answer) throws -> MuxEntry<Value> {
            let core = self.core
            if self.options != nil { core.engine.withState { $0.waiterOptions[self.ticket] = nil } }
            guard case .output(let entry) = try core.engine.landing(answer, self.loose) else {
                throw CancellationError()
            }
            if entry.staleReason == .outOfPatience {
                core.engine.withState { $0.statistics.staleServed += 1 }
                core.tell(.servedStale, self.key)
            }
            return entry
        }
    }
}

@available(*, unavailable)
extension MultiplexerCore.PendingRequest: Sendable {}

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
