public import Synchronization

extension MultiplexerCore {
    /// The options of a request, in an object that only a request with options allocates.
    @usableFromInline
    final class BoxedOptions: Sendable {
        @usableFromInline let options: RequestOptions

        @usableFromInline
        init(_ options: RequestOptions) { self.options = options }
    }

    /// A request that may need a flight, such as a request without a hit, or a reload.
    ///
    /// An object, because local variables of a waiting asynchronous function take several times as much
    /// memory.
    @usableFromInline
    final class PendingRequest: ArrivingFlightCaller {
        @usableFromInline let core: MultiplexerCore
        @usableFromInline let key: Key
        /// The options of the caller; `nil` for default options.
        @usableFromInline let givenOptions: BoxedOptions?
        /// Whether the request must not use a stored entry, even if ``givenOptions`` permit the entry.
        @usableFromInline let excludesStored = Atomic(false)
        @usableFromInline let ticket: Ticket
        /// Whether the flight must finish; see ``FlightEngine/Options/linger``.
        @usableFromInline let mustFinish: Bool
        /// The cleanup after the wait, if the caller waits for this request only.
        @usableFromInline let cleanup = AtomicLazyReference<FlightWaiter.WaitCleanup>()

        @inlinable @inline(never)
        init(_ core: MultiplexerCore, _ key: Key, mustFinish: Bool = false) {
            self.core = core
            self.key = key
            self.givenOptions = nil
            self.ticket = core.engine.nextID()
            self.mustFinish = mustFinish
        }

        @inlinable @inline(never)
        init(_ core: MultiplexerCore, _ key: Key, _ options: RequestOptions, _ ticket: Ticket? = nil) {
            self.core = core
            self.key = key
            self.givenOptions = options == .init() ? nil : BoxedOptions(options)
            self.ticket = ticket ?? core.engine.nextID()
            self.mustFinish = false
        }

        /// The options of the request; `nil` for default options.
        @inlinable
        var options: RequestOptions? {
            guard self.excludesStored.load(ordering: .relaxed) else { return self.givenOptions?.options }
            var options = self.givenOptions?.options ?? RequestOptions()
            options.takesStored = false
            return options
        }

        /// The highest priority to which this request can raise its flight.
        ///
        /// A prefetch raises a flight to `low` at most, even if a task of higher priority waits for the
        /// prefetch.
        @inlinable
        var highestPriority: TaskPriority {
            self.options?.isPrefetch ?? false ? .low : TaskPriority(rawValue: .max)
        }

        @inlinable @inline(never)
        func leave() { self.core.engine.leave(self.ticket, self.key) }

        @inlinable @inline(never)
        func raise(to priority: TaskPriority) {
            self.core.engine.raise(self.ticket, self.key, to: min(priority, self.highestPriority))
        }

        @inlinable @inline(never)
        func arrive(_ waiter: FlightWaiter, mayBeginHere: Bool) {
            let cleanup = self.arrive(waiter, mayBeginHere: mayBeginHere, isAlone: true, gather: nil)
            if let cleanup { _ = self.cleanup.storeIfNil(cleanup) }
        }

        /// Resumes the caller at once, or joins or starts the key's flight.
        ///
        /// If the entry is due for a renewal, the caller gets the entry at once, and a flight may start for
        /// which the caller does not wait.
        ///
        /// - Parameters:
        ///   - waiter: The waiter of the caller.
        ///   - mayBeginHere: Whether the flight may begin on the caller's thread.
        ///   - isAlone: Whether this call applies the wait limit; `false` if the caller of this method
        ///     applies one wait limit to several requests.
        ///   - gather: Receives a new flight for which the caller waits; the caller of this method then
        ///     starts the flight. `nil` to start the flight in this call.
        /// - Returns: The cleanup after the wait; `nil` if the wait needs no cleanup.
        @inlinable @inline(never)
        func arrive(
            _ waiter: FlightWaiter,
            mayBeginHere: Bool = false,
            isAlone: Bool,
            gather: ((Launch) -> Void)?
        ) -> FlightWaiter.WaitCleanup? {
            if self.core.hasSelection, self.core.memory.isOtherVariant(self.key) {
                self.excludesStored.store(true, ordering: .relaxed)
            }
            self.core.specialiseFlights()
            let (core, key, ticket, options) = (self.core, self.key, self.ticket, self.options)
            let now = core.repository.time.now
            let limits = options?.limits(core.policy) ?? core.memory.usualLimits
            var met: MuxEvent.Kind?
            return core.engine.arrive(
                waiter,
                at: key,
                now: now,
                mayBeginHere: mayBeginHere,
                mustFinish: self.mustFinish,
                highestPriority: self.highestPriority,
                gather: gather,
                decide: { state in
                    if let outcomes = options?.outcomes, state.followed[key]?.counts.outcomes != outcomes {
                        return .fail(AlreadyAnswered())
                    }
                    let decision = MultiplexerCore.decide(state.slots.requestedSlot(of: key), at: now, limits)
                    // A prefetch starts no early renewal of a fresh entry.
                    if case .answerAndFly(let entry) = decision, options?.isPrefetch ?? false { return .answer(entry) }
                    switch decision {
                    case .answer, .answerAndFly, .fail:
                        state.statistics.hits += 1
                        met = .hit
                    case .fly, .flyNoLonger:
                        guard isAlone, let waitLimit = options?.waitLimit else { break }
                        return .flyNoLonger(than: waitLimit) {
                            MultiplexerCore.resultAfterWaitLimit(in: &$0, $1, $2, at: $3)
                        }
                    }
                    return decision
                },
                joined: { state, isRunning in
                    if isRunning { state.statistics.joins += 1 } else { state.statistics.misses += 1 }
                    if isRunning { state.arrivals.recordJoin(ticket, at: core.repository.tagLog.lastNumber) }
                    if let options {
                        state.waiterOptions[ticket] = WaiterOptions<Value>(
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
                arrived: { if let met { core.memory.tell(met, key) } }
            )
        }

        @inlinable @inline(never)
        func value(_ answer: FlightWaiter.Answer) throws -> Value { try self.endWait(answer).value }

        /// Removes the state of the ended wait, and returns the entry of the outcome.
        @inlinable @inline(never)
        func endWait(_ answer: FlightWaiter.Answer) throws -> MuxEntry<Value> {
            let core = self.core
            if self.options != nil {
                // The slot that was loaded for this request is released outside the lock.
                let gone = core.engine.withState { $0.waiterOptions.removeValue(forKey: self.ticket) }
                withExtendedLifetime(gone) {}
            }
            guard case .output(let entry) = try core.engine.unwrap(answer, self.cleanup.load()) else {
                throw CancellationError()
            }
            if entry.staleReason != nil {
                core.engine.withState { $0.statistics.staleServed += 1 }
                core.memory.tell(.servedStale, self.key)
            }
            return entry
        }
    }

    /// The results of requests for `keys`, in the order of the keys.
    ///
    /// One task waits for at most ``flightsAtOnce`` flights at a time. If `options` have a wait limit, the
    /// task waits for all flights at the same time. A cache-only request starts no flight; see
    /// ``cachedResults(_:_:)``.
    @concurrent
    @inlinable
    func results(_ keys: [Key], _ options: RequestOptions) async -> [Result<Value, any Error>] {
        guard options.mode != .cacheOnly else { return await self.cachedResults(keys, options) }
        let (engine, first) = (self.engine, self.engine.nextIDs(keys.count))
        let calls = keys.indices.map { PendingRequest(self, keys[$0], options, first &+ Ticket($0)) }
        // A wait limit applies to all keys from the start of the call, so all requests must start at once.
        let limit = options.waitLimit == nil ? self.flightsAtOnce : keys.count
        var timer: Task<Void, Never>?
        var launches: [KeyedLaunch] = []
        let looksAtDisk = self.isOnDisk
        let answers = await FlightGathering.answers(first: first, count: keys.count, atOnce: limit) { index, waiter in
            calls[index].arrive(
                waiter,
                isAlone: false,
                gather: looksAtDisk ? { launches.append((keys[index], $0)) } : nil
            )
        } arrived: { areLast in
            self.launch(launches)
            launches = []
            if areLast { timer = options.waitLimit.map { self.startWaitLimit(of: keys, first, $0) } }
        } onCancel: {
            for (index, key) in keys.enumerated() { engine.leave(first &+ Ticket(index), key) }
        } onEscalation: {
            for (index, key) in keys.enumerated() { engine.raise(first &+ Ticket(index), key, to: $0) }
        }
        timer?.cancel()
        return zip(calls, answers).map { call, answer in
            Result {
                guard let answer else { throw CancellationError() }
                return try call.value(answer)
            }
        }
    }

    @usableFromInline
    func startWaitLimit(of keys: [Key], _ first: Ticket, _ waitLimit: Duration) -> Task<Void, Never> {
        let callers = keys.enumerated().map { (first &+ Ticket($0), $1) }
        return self.engine.startWaitLimit(of: callers, waitLimit) { Self.resultAfterWaitLimit(in: &$0, $1, $2, at: $3) }
    }

    /// The result for a caller after its wait limit; `nil` without a usable entry.
    @usableFromInline
    static func resultAfterWaitLimit(
        in state: inout State,
        _ key: Key,
        _ ticket: Ticket,
        at now: Moment
    ) -> Result<MuxEntry<Value>, any Error>? {
        guard let waiter = state.waiterOptions[ticket] else { return nil }
        let known = state.slots.slot(of: key)
        let slot = known?.entry != nil ? known : waiter.loaded?.current
        return slot?.served(on: .waitLimit, at: now, waiter.limits).map { .success($0.entry) }
    }
}
