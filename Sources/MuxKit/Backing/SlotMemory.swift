import Synchronization

/// A change for the watchers of a key.
@usableFromInline
enum SlotChange: Sendable {
    /// The entry may have been stored, changed or removed; not sent for an eviction alone.
    case entry
    /// The entry has become stale, or the key has gained or lost its current flight.
    case activity
}

/// The entries of a multiplexer in memory: slots and flights under one lock, with watchers and events.
///
/// The multiplexer and its backing share the object. The object does not retain the multiplexer.
@usableFromInline
final class SlotMemory<Slots: SlotStorage>: Sendable {
    @usableFromInline typealias Key = Slots.Key
    @usableFromInline typealias Value = Slots.Value
    @usableFromInline typealias State = SlotState<Slots>

    @usableFromInline let engine: FlightEngine<Key, MuxEntry<Value>, State>
    @usableFromInline let policy: MuxPolicy
    /// The limits of a request without options.
    @usableFromInline let usualLimits: Freshness.Limits
    @usableFromInline let repository: MuxRepository
    @usableFromInline let selection: EntrySelection<Key>?
    /// A notification of a watcher does not contain the entry: the watcher reads the newest entry.
    @usableFromInline let watchers = Broadcast<Key, SlotChange>()
    @usableFromInline let isObserved: Bool
    /// Whether the observer receives hits.
    @usableFromInline let tellsHits: Bool
    private let cacheKey: String?
    /// The multiplexer's name, for events; `nil` without an observer.
    private let name: String?
    private let keyText: @Sendable (Key) -> String?
    /// The tags of a key, independent of its value; `nil` without such tags.
    @usableFromInline let tagsOfKey: (@Sendable (Key) -> [String])?
    /// Whether the multiplexer is a member of the repository's ``TagLog``.
    let hasJoinedTagLog = Atomic(false)

    private struct Owner: Sendable {
        weak var participant: (any SessionParticipant)?
    }

    private let owner = Locked(Owner())

    init(
        engine: FlightEngine<Key, MuxEntry<Value>, State>,
        policy: MuxPolicy,
        usualLimits: Freshness.Limits,
        repository: MuxRepository,
        selection: EntrySelection<Key>?,
        persistence: Persistence<Key, Value>?,
        keyText: @escaping @Sendable (Key) -> String?
    ) {
        self.engine = engine
        self.policy = policy
        self.usualLimits = usualLimits
        self.repository = repository
        self.selection = selection
        self.isObserved = repository.observer != nil
        self.tellsHits = repository.observer?.observesHits ?? false
        let cacheKey = persistence?.domain
        self.cacheKey = cacheKey
        self.name = self.isObserved ? policy.name ?? cacheKey ?? "\(Value.self)" : nil
        self.keyText = keyText
        self.tagsOfKey = persistence?.tags
    }

    /// The multiplexer, for saves and changes of tags; `nil` before the end of the initialiser, and from the
    /// start of `deinit`.
    var participant: (any SessionParticipant)? {
        get { self.owner.withLock { $0.participant } }
        set { self.owner.withLock { $0.participant = newValue } }
    }

    // MARK: - Changes of slots

    /// The usual maximum number of entries in one critical section, which limits the wait of a request for
    /// the lock.
    @inlinable static var portion: Int { 128 }

    /// Changes slots, then calls ``release(_:)`` outside the lock.
    @inlinable
    func withSlots<R>(_ body: (inout State) -> sending R) -> sending R {
        let (result, work) = self.engine.withState { (body(&$0), $0.takePendingWork()) }
        self.release(work)
        return result
    }

    /// Calls `body` for each key, in several critical sections.
    func inPortions(_ keys: some Collection<Key>, _ body: (inout State, Key) -> Void) {
        var rest = keys[...]
        while !rest.isEmpty {
            self.withSlots { state in for key in rest.prefix(Self.portion) { body(&state, key) } }
            rest = rest.dropFirst(Self.portion)
        }
    }

    /// The keys with an entry or a failure, read in several critical sections; see
    /// ``SlotStorage/keys(before:atMost:)``.
    var keys: [Key] {
        var keys: [Key] = []
        var place: Int?
        repeat {
            let (portion, next) = self.engine.withState { $0.slots.keys(before: place, atMost: Self.portion) }
            keys += portion
            place = next
        } while place != nil
        return keys
    }

    /// Changes the entry of `key`; a remembered failure stays, and a running flight continues.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - change: Changes the entry under the lock; returns whether the entry has changed. After `true`,
    ///     called again with the server's entry if the key has changes of the app.
    /// - Returns: The result of `change`; `false` without an entry.
    func amend(_ key: Key, _ change: (inout Slot<Value>.Entry) -> Bool) -> Bool {
        let former = self.withSlots { state -> Value? in
            guard var entry = state.slots.slot(of: key)?.entry else { return nil }
            let former = entry.value
            guard change(&entry) else { return nil }
            state.withSlot(of: key) { $0.replaceEntry(with: entry) }
            if var base = state.layers[key]?.base, change(&base) { state.layers[key]?.base = base }
            return former
        }
        return former != nil  // released outside the lock
    }

    /// Makes all entries stale, and fences all flights.
    ///
    /// - Parameter record: Called under the lock, with the sequence number of the refresh; see
    ///   ``Slot/Entry/sequence``.
    func refreshAll(_ record: (inout State, UInt64) -> Void) {
        let removed = self.engine.fenceAll { state in
            var removed: [any Sendable] = []
            let number = state.nextRevision()
            state.slots.refreshAll(number) { removed.append($0) }
            state.countRefresh(of: nil)
            record(&state, number)
            return removed
        }
        withExtendedLifetime(removed) {}  // released outside the lock
        self.releaseEvicted()
        self.watchers.sendToAll(.activity)
    }

    /// Calls ``release(_:)`` after a change of slots without ``withSlots(_:)``; not under the lock.
    @inlinable
    func releaseEvicted() { self.release(self.engine.withState { $0.takePendingWork() }) }

    /// Releases and reports evicted slots, and starts the due work of ``SlotState/takePendingWork()``.
    @inlinable
    func release(_ work: State.PendingWork?) {
        guard let work else { return }
        if work.hasTooManyMarks { self.foldMarks() }
        if work.writesBack { self.writeBack() }
        for (key, slot) in work.slots {
            guard let entry = slot.entry, slot.hasEntry else { continue }
            self.tell(.evicted, key)
            if entry.isDirty { self.tell(.evictedUnsaved, key) }
        }
    }

    // MARK: - Entries

    /// Whether the entry in memory is a variant that a request of `key` must not use now.
    @usableFromInline
    func isOtherVariant(_ key: Key) -> Bool {
        guard let selection else { return false }
        // Outside the lock, because the selection runs code of the app.
        let validator = self.engine.withState { $0.shownEntry(key)?.validator }
        return !selection.includes(key, validator)
    }

    /// The age at which an early renewal of an entry is due; `nil` for no early renewal.
    @usableFromInline
    func renewalAge(_ timeToLive: Duration) -> Duration? {
        self.policy.renewalAge(timeToLive, random: self.repository.random())
    }

    /// See ``Slot/Entry/needsSelection``.
    @usableFromInline
    func needsSelection(_ validator: String?) -> Bool {
        validator.flatMap { self.selection?.concerns($0) } ?? false
    }

    // MARK: - Events

    /// Reports an event to the repository's observer; does nothing without an observer.
    @inlinable
    func tell(_ kind: MuxEvent.Kind, _ key: Key? = nil, _ duration: Duration? = nil) {
        if self.isObserved { self.sendEvent(kind, key, duration) }
    }

    @usableFromInline
    func sendEvent(
        _ kind: MuxEvent.Kind,
        _ key: Key?,
        _ duration: Duration? = nil,
        because reason: MuxEvent.Reason? = nil
    ) {
        guard kind != .hit || self.tellsHits, let observer = self.repository.observer else { return }
        let event = MuxEvent(
            kind,
            name: self.name,
            cacheKey: self.cacheKey,
            key: key.flatMap(self.keyText),
            duration: duration,
            reason: reason
        )
        observer.tell(event)
    }

    @usableFromInline
    func tell(_ kind: MuxEvent.Kind, _ key: Key, _ duration: Duration?, because error: any Error) {
        if self.isObserved { self.sendEvent(kind, key, duration, because: MuxEvent.Reason(of: error)) }
    }
}
