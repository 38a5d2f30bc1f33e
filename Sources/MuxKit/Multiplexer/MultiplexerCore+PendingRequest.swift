extension MultiplexerCore {
    /// The options of a request, in an object that only a request with options allocates.
    @usableFromInline
    final class BoxedOptions: Sendable {
        @usableFromInline let options: RequestOptions

        @usableFromInline
        init(_ options: RequestOptions) { self.options = options }
    }

    /// A request that ``MultiplexerCore/hit(_:)`` did not answer.
    ///
    /// An object, because local variables of a waiting asynchronous function take several times as much
    /// memory.
    @usableFromInline
    final class PendingRequest {
        @usableFromInline let core: MultiplexerCore
        @usableFromInline let key: Key
        /// `nil` for default options.
        @usableFromInline var options: BoxedOptions?
        @usableFromInline let ticket: Ticket
        /// Whether the flight continues to its end even if all callers leave.
        @usableFromInline var mustFinish = false
        @usableFromInline var cleanup: FlightWaiter.WaitCleanup?

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
        init(_ core: MultiplexerCore, _ key: Key, _ options: RequestOptions, _ ticket: Ticket? = nil) {
            self.core = core
            self.key = key
            self.options = options == .init() ? nil : BoxedOptions(options)
            self.ticket = ticket ?? core.engine.nextID()
        }

        /// The highest priority to which this request can raise its flight.
        ///
        /// A prefetch raises a flight to `low` at most, even if a task of higher priority waits for the
        /// prefetch.
        @inlinable
        var highestPriority: TaskPriority {
            self.options?.options.isPrefetch ?? false ? .low : TaskPriority(rawValue: .max)
        }

        /// Resumes the caller with an entry or a remembered failure in memory; otherwise joins or starts the
        /// key's flight.
        ///
        /// - Parameters:
        ///   - waiter: The waiter of the caller.
        ///   - mayBeginHere: Whether the flight may begin on the caller's thread.
        ///   - isAlone: Whether this call applies the wait limit; `false` if the caller of this method
        ///     applies one wait limit to several requests.
        ///   - gather: Receives a new flight, which the caller of this method then starts; `nil` to start the
        ///     flight in this call.
        @inlinable
        @inline(never)
        func arrive(
            _ waiter: FlightWaiter,
            mayBeginHere: Bool = false,
            isAlone: Bool = true,
            gather: ((Launch) -> Void)? = nil
        ) {
            if self.core.hasSelection, self.core.memory.isOtherVariant(self.key) { self.takeNothingStored() }
            self.core.specialiseFlights()
            let (core, key, ticket, options) = (self.core, self.key, self.ticket, self.options?.options)
            let now = core.repository.time.now
            let limits = options?.limits(core.policy) ?? core.memory.usualLimits
            var met: MuxEvent.Kind?
            self.cleanup = core.engine.arrive(
                waiter,
                at: key,
                now: now,
                mayBeginHere: mayBeginHere,
                mustFinish: self.mustFinish,
                highestPriority: self.highestPriority,
                gather: gather,
                decide: { state in
                    if let outcomes = options?.outcomes, state.followed[key]?.outcomes != outcomes {
                        return .fail(AlreadyAnswered())
                    }
                    let decision = MultiplexerCore.decide(state.slots.requestedSlot(of: key), at: now, limits)
                    // The entry is fresh, although an early renewal is due.
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
                    if isRunning { state.arrivals.joined(ticket, at: core.repository.tagLog.lastNumber) }
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

        /// Excludes entries in memory and on disk from the request.
        @usableFromInline
        func takeNothingStored() {
            var options = self.options?.options ?? RequestOptions()
            options.takesStored = false
            self.options = BoxedOptions(options)
        }

        /// The value of the outcome.
        @inlinable
        @inline(never)
        func value(_ answer: FlightWaiter.Answer) throws -> Value { try self.departed(answer).value }

        /// Removes the state of the ended wait, and returns the entry of the outcome.
        @inlinable
        @inline(never)
        func departed(_ answer: FlightWaiter.Answer) throws -> MuxEntry<Value> {
            let core = self.core
            if self.options != nil {
                // The slot that was loaded for this request is released outside the lock.
                let gone = core.engine.withState { $0.waiterOptions.removeValue(forKey: self.ticket) }
                withExtendedLifetime(gone) {}
            }
            guard case .output(let entry) = try core.engine.unwrap(answer, self.cleanup) else {
                throw CancellationError()
            }
            if entry.staleReason != nil {
                core.engine.withState { $0.statistics.staleServed += 1 }
                core.memory.tell(.servedStale, self.key)
            }
            return entry
        }
    }
}

@available(*, unavailable)
extension MultiplexerCore.PendingRequest: Sendable {}

extension MultiplexerCore {
    /// The results of simultaneous requests for `keys`, in the order of the keys.
    ///
    /// One task waits for at most ``flightsAtOnce`` flights at a time. If `options` have a wait limit, the
    /// task waits for all flights at the same time. Only the work of flights runs in separate tasks.
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
            let call = calls[index]
            call.arrive(waiter, isAlone: false, gather: looksAtDisk ? { launches.append((keys[index], $0)) } : nil)
            defer { call.cleanup = nil }
            return call.cleanup
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
}

extension MultiplexerCore {
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
