/// The state of a value for a screen: the entry, a running fetch, and the last failure.
public struct MuxState<Value: Sendable>: Sendable {
    /// The entry, fresh or stale; `nil` before the first value, and after a removal.
    ///
    /// A removal is an event such as a clear, a sign-out, an invalidation by another machine, or a fetched
    /// value that must not be kept. An entry that memory pressure or a limit removes from memory stays here.
    public let entry: MuxEntry<Value>?

    /// Whether a fetch is running, including renewals in the background and reads before a fetch.
    ///
    /// A fetch that began before a fence, such as ``Multiplexer/refresh()``, does not count.
    public let isLoading: Bool

    /// The error of the last fetch that no fence has made outdated, including renewals in the background;
    /// `nil` after a value, a store or a removal.
    ///
    /// Errors are recorded while at least one consumer follows the key, including errors that
    /// ``MuxPolicy/isSilenceable`` hides from requests.
    public let failure: (any Error)?

    /// Whether ``entry`` is stale; `false` without an entry.
    public var isStale: Bool { self.entry?.isStale ?? false }

    package let failureNumber: UInt64?
    package let counts: StateCounts
}

extension MuxState {
    fileprivate init(_ reading: StateFollower<Value>.Reading) {
        var counts = reading.facts.counts
        counts.clears = reading.clears
        self.init(
            entry: reading.entry,
            isLoading: reading.isLoading,
            failure: reading.facts.failure?.error,
            failureNumber: reading.facts.failure?.number,
            counts: counts
        )
    }

    /// Whether a consumer of `other` can skip this state.
    package func isEqual(to other: MuxState) -> Bool {
        self.entry?.revision == other.entry?.revision && self.isStale == other.isStale
            && self.isLoading == other.isLoading && self.failureNumber == other.failureNumber
    }

    package func holding(_ entry: MuxEntry<Value>) -> MuxState {
        MuxState(
            entry: entry,
            isLoading: self.isLoading,
            failure: self.failure,
            failureNumber: self.failureNumber,
            counts: self.counts
        )
    }

    /// This state with the entry of `former`, a state that is `time` old.
    package func keepingEntry(of former: MuxState, for time: Duration) -> MuxState {
        let isStale = self.counts.refreshes > former.counts.refreshes
        return former.entry.map { self.holding($0.aged(by: time, isStale: isStale)) } ?? self
    }
}

/// The states of a multiplexer, or of one key of a map: the current state, then the changes.
///
/// ```swift
/// for await state in profile.states {
///     spinner.isHidden = !state.isLoading
///     label.text = state.entry?.value.name ?? state.failure?.localizedDescription
/// }
/// ```
///
/// A state changes when a fetch starts or ends, when the entry is replaced or removed, and when the entry
/// becomes stale. For a renewal of a fresh, unchanged value (HTTP 304), only the start and the end of the
/// fetch are changes. A consumer starts no fetch. Consecutive states differ.
///
/// **Concurrent calls.** Any number of consumers may iterate. A slow consumer skips to the newest state; its
/// memory is constant.
///
/// **Cancellation.** The sequence ends when the consumer's task is cancelled or the consumer stops; other
/// consumers are not affected. A cancelled consumer does not cancel a fetch.
///
/// **Lifetime.** The sequence does not retain the multiplexer, and ends when the multiplexer is deallocated.
/// Each consumer with a fresh entry has at most one timer, which ends with the consumer.
///
/// **On disk.** A consumer does not read the disk; an entry that a request loads from disk is a change.
public struct MuxStates<Value: Sendable>: AsyncSequence, Sendable {
    /// The elements.
    public typealias Element = MuxState<Value>
    /// The sequence does not throw.
    public typealias Failure = Never

    /// Starts to follow; `nil` if the multiplexer was deallocated.
    let follow: @Sendable () -> StateFollower<Value>?
    /// Reads the facts about the key; `nil` if the multiplexer was deallocated.
    let read: @Sendable () -> StateFollower<Value>.Reading?
    /// Reads an entry from disk to memory; `nil` for a multiplexer without values on disk.
    package let load: (@Sendable @concurrent () async -> Void)?
    /// The part of the multiplexer's policy for consumers that request values.
    package let refetch: MuxPolicy.Refetch
    /// Whether consecutive states may differ only in their counts.
    var includesCounts = false

    /// The current state, which has a ``MuxState/failure`` only if a consumer follows the key.
    package var current: MuxState<Value> {
        self.read().map { MuxState($0) }
            ?? MuxState(entry: nil, isLoading: false, failure: nil, failureNumber: nil, counts: StateCounts())
    }

    /// The states, including states that differ only in their counts, for one consumer.
    ///
    /// The call registers the consumer.
    package func registered() -> MuxStates {
        let follower = self.follow()
        var states = MuxStates(follow: { follower }, read: self.read, load: self.load, refetch: self.refetch)
        states.includesCounts = true
        return states
    }

    /// Starts to follow the states.
    ///
    /// - Returns: An iterator for one consumer.
    public func makeAsyncIterator() -> Iterator { Iterator(self.follow(), includesCounts: self.includesCounts) }

    /// Iterates over the states.
    public struct Iterator: AsyncIteratorProtocol {
        /// The elements.
        public typealias Element = MuxState<Value>
        /// The sequence does not throw.
        public typealias Failure = Never

        private let follower: StateFollower<Value>?
        private let includesCounts: Bool
        private var signals: AsyncStream<Void>.Iterator?
        private var last: MuxState<Value>?

        init(_ follower: StateFollower<Value>?, includesCounts: Bool) {
            self.follower = follower
            self.includesCounts = includesCounts
            self.signals = follower?.signals.makeAsyncIterator()
        }

        /// Suspends until the state differs from the last element.
        ///
        /// The first call returns at once, even in a cancelled task.
        ///
        /// - Parameter actor: The isolation of the consumer.
        /// - Returns: The state; `nil` if the task is cancelled or the multiplexer deallocated.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> MuxState<Value>? {
            while true {
                if self.last != nil { guard await self.signals?.next(isolation: actor) != nil else { return nil } }
                guard let state = self.follower?.current() else { return nil }
                if let last, state.isEqual(to: last), !self.includesCounts || state.counts == last.counts { continue }
                self.last = state
                return state
            }
        }

        /// Suspends until the state differs from the last element.
        ///
        /// The first call returns at once, even in a cancelled task.
        ///
        /// - Returns: The state; `nil` if the task is cancelled or the multiplexer deallocated.
        public mutating func next() async -> MuxState<Value>? { await self.next(isolation: #isolation) }
    }
}

extension MuxStates {
    /// The facts about a value that is not in a multiplexer; each number identifies the value or the failure.
    package typealias Facts = (
        value: (Value, revision: UInt64)?, isLoading: Bool, failure: (any Error, number: UInt64)?
    )

    /// The states of a value that is not in a multiplexer, and is never stale.
    ///
    /// - Parameters:
    ///   - repository: The repository of the value.
    ///   - read: Reads the facts; returns `nil` if the owner of the value was deallocated.
    ///   - follow: Registers a consumer. The first parameter is called after each change, the second when no
    ///     change can follow. Returns a closure that removes the consumer.
    package init(
        in repository: MuxRepository,
        read: @escaping @Sendable () -> Facts?,
        follow:
            @escaping @Sendable (
                _ changed: @escaping @Sendable () -> Void, _ finish: @escaping @Sendable () -> Void
            ) -> @Sendable () -> Void
    ) {
        let (time, spawn) = (repository.time, repository.spawn)
        let read: @Sendable () -> StateFollower<Value>.Reading? = {
            guard let facts = read() else { return nil }
            let entry = facts.value.map { value, revision in
                MuxEntry(
                    value: value,
                    age: .zero,
                    timeToLive: .longest,
                    source: .disk,
                    isStale: false,
                    staleReason: nil,
                    revision: revision
                )
            }
            var followed = FollowedKey()
            followed.failure = facts.failure
            // An entry is never evicted: a state without an entry is a removal.
            followed.counts.replacements = entry == nil ? .max : 0
            return StateFollower.Reading(
                entry: entry,
                isLoading: facts.isLoading,
                facts: followed,
                clears: 0,
                now: time.now
            )
        }
        self.init(
            follow: {
                let follower = StateFollower<Value>(time, spawn, read: read)
                follower.setEnd(
                    follow({ [weak follower] in follower?.changed() }) { [weak follower] in follower?.finish() }
                )
                return follower
            },
            read: read,
            load: nil,
            refetch: MuxPolicy.Refetch()
        )
    }
}

@available(*, unavailable)
extension MuxStates.Iterator: Sendable {}

/// One consumer of the states of a key.
final class StateFollower<Value: Sendable>: Sendable {
    /// The current facts about a key.
    struct Reading: Sendable {
        var entry: MuxEntry<Value>?
        var isLoading: Bool
        var facts: FollowedKey
        var clears: UInt64
        var now: Moment
    }

    private struct State: Sendable {
        /// The last reading, which also has the entry if memory has evicted the entry.
        var last: Reading?
        /// The timer of ``staleAt``.
        var timer: Task<Void, Never>?
        /// The time at which the entry becomes stale; `nil` without an entry, and for an entry that is stale
        /// or has an unlimited lifetime.
        var staleAt: Moment?
    }

    /// Signals changes; see ``Broadcast/stream(of:where:)``.
    let signals: AsyncStream<Void>
    private let signal: AsyncStream<Void>.Continuation
    private let read: @Sendable () -> Reading?
    private let time: TimeSource
    private let spawn: TaskLauncher
    private let state = Locked(State())
    private let end = Locked<(@Sendable () -> Void)?>(nil)

    init(_ time: TimeSource, _ spawn: TaskLauncher, read: @escaping @Sendable () -> Reading?) {
        (self.signals, self.signal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.read = read
        self.time = time
        self.spawn = spawn
    }

    /// Sets the closure that `deinit` calls to end the registration.
    func setEnd(_ end: @escaping @Sendable () -> Void) { self.end.withLock { $0 = end } }

    deinit {
        self.state.withLock { $0.timer }?.cancel()
        self.end.withLock { $0 }?()
    }

    func changed() { self.signal.yield() }

    func finish() { self.signal.finish() }

    /// The current state; `nil` if the multiplexer was deallocated.
    func current() -> MuxState<Value>? {
        guard var reading = self.read() else { return nil }
        let (timer, former) = self.state.withLock { state in
            let former = state.last
            if reading.entry == nil, let former,
                former.facts.counts.replacements == reading.facts.counts.replacements
            {
                // Evicted: the entry stays, and ages.
                let isStale = former.facts.counts.refreshes != reading.facts.counts.refreshes
                reading.entry = former.entry?.aged(by: reading.now.duration(since: former.now), isStale: isStale)
            }
            state.last = reading
            return (self.startTimer(for: reading.entry, at: reading.now, &state), former)
        }
        timer?.cancel()
        withExtendedLifetime(former) {}  // released outside the lock
        return MuxState(reading)
    }

    /// Replaces the timer if the entry becomes stale at another time than the previous entry.
    ///
    /// - Returns: The previous timer, to be cancelled outside the lock; `nil` if no timer was replaced.
    private func startTimer(for entry: MuxEntry<Value>?, at now: Moment, _ state: inout State) -> Task<Void, Never>? {
        let staleAt = entry.flatMap { entry -> Moment? in
            guard !entry.isStale, entry.timeToLive < .longest else { return nil }
            let rest = entry.timeToLive - entry.age
            let end = now.advanced(by: rest)
            // A moment is in whole nanoseconds: the timer must not end before the entry becomes stale.
            return end.duration(since: now) < rest ? end.advanced(by: .nanoseconds(1)) : end
        }
        guard staleAt != state.staleAt else { return nil }
        let former = state.timer
        state.staleAt = staleAt
        state.timer = staleAt.map { end in
            self.spawn(name: "mux.stale") { [time, signal] in
                while time.now < end {
                    guard (try? await time.sleep(for: end.duration(since: time.now))) != nil else { return }
                }
                signal.yield()
            }
        }
        return former
    }
}

extension MuxEntry {
    /// A copy of the entry that is older by `time`; also stale if `isStale` is `true`.
    fileprivate func aged(by time: Duration, isStale: Bool) -> MuxEntry {
        let age = Duration.sum(self.age, time)
        return MuxEntry(
            value: self.value,
            age: age,
            timeToLive: self.timeToLive,
            source: self.source,
            isStale: self.isStale || isStale || age >= self.timeToLive,
            staleReason: self.staleReason,
            revision: self.revision
        )
    }
}

extension MultiplexerCore {
    /// The sequence for ``Multiplexer/states``.
    func states(_ key: Key) -> MuxStates<Value> {
        let load: @Sendable @concurrent () async -> Void = { [weak self] in _ = await self?.loadCachedEntry(key) }
        return MuxStates(
            follow: { [weak self] in self?.follow(key) },
            read: { [weak memory] in memory?.reading(of: key) },
            load: self.isOnDisk ? load : nil,
            refetch: self.policy.refetch
        )
    }

    private func follow(_ key: Key) -> StateFollower<Value> {
        let follower = StateFollower<Value>(self.repository.time, self.repository.spawn) { [weak memory] in
            memory?.reading(of: key)
        }
        guard key == key else {
            follower.finish()  // no change can concern the key
            return follower
        }
        let finish: @Sendable () -> Void = { [weak follower] in follower?.finish() }
        let remove = self.watchers.add(to: key, finish: finish) { [weak follower] _ in follower?.changed() }
        self.memory.addConsumer(of: key)
        follower.setEnd { [weak memory] in
            remove()
            memory?.removeConsumer(of: key)
        }
        return follower
    }
}

extension SlotMemory {
    /// The current facts about `key`.
    fileprivate func reading(of key: Key) -> StateFollower<Value>.Reading {
        let now = self.repository.time.now
        return self.engine.read(key) { state, isFlying in
            StateFollower.Reading(
                entry: state.slots.slot(of: key)?.snapshot(at: now, source: .memory),
                isLoading: isFlying,
                facts: state.followed[key] ?? FollowedKey(),
                clears: state.clearCount,
                now: now
            )
        }
    }

    /// Counts a consumer of the states of `key`.
    fileprivate func addConsumer(of key: Key) {
        self.engine.follow(key) { [weak watchers] keys in
            for key in keys { watchers?.send(.activity, to: key) }
        } _: { state in
            state.followed[key, default: FollowedKey()].count += 1
        }
    }

    /// Uncounts a consumer of the states of `key`.
    fileprivate func removeConsumer(of key: Key) {
        self.engine.unfollow(key) { state in
            guard let place = state.followed.index(forKey: key) else { return nil }
            state.followed.values[place].count -= 1
            guard state.followed.values[place].count == 0 else { return nil }
            let removed = state.followed.remove(at: place)
            return (removed.key, removed.value)
        }
    }
}
