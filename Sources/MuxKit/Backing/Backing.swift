/// The storage from which a multiplexer loads entries that are not in memory.
///
/// A flight calls ``lookUp(_:_:)`` before a fetch. The state of the backing is part of
/// ``SlotState``, under the lock of the multiplexer.
@usableFromInline
enum Backing<Slots: SlotStorage>: Sendable {
    /// Entries are in memory only.
    case none
    /// Entries are saved on disk.
    case disk(DiskBacking<Slots>)
    /// Entries are shared with other machines.
    case sharedStore(SharedStoreBacking<Slots>)

    @usableFromInline typealias Key = Slots.Key
    @usableFromInline typealias Value = Slots.Value

    @inlinable
    var disk: DiskBacking<Slots>? {
        guard case .disk(let disk) = self else { return nil }
        return disk
    }

    @inlinable
    var sharedStore: SharedStoreBacking<Slots>? {
        guard case .sharedStore(let shared) = self else { return nil }
        return shared
    }

    var persistence: Persistence<Key, Value>? {
        switch self {
        case .none: nil
        case .disk(let disk): disk.persistence
        case .sharedStore(let shared): shared.persistence
        }
    }

    /// The text of a key in the backing; `nil` for the key of a ``Multiplexer``, and without a backing.
    func text(of key: Key) -> String? { self.persistence?.text(key) }

    /// Looks up an entry in the backing, and resumes callers for which the entry is good enough.
    ///
    /// The disk is read only if memory has no entry; a shared store is asked even if memory has an entry.
    ///
    /// A call of ``flightEnded(_:)`` must follow at the end of the flight.
    @inlinable
    func lookUp(_ key: Key, _ flight: FlightID) async -> LookUp<Value> {
        switch self {
        case .none: LookUp()
        case .disk(let disk): await disk.lookUp(key, flight)
        case .sharedStore(let shared): await shared.lookUp(key, flight)
        }
    }

    /// Removes the state of a flight from the backing, after a call of ``lookUp(_:_:)``.
    @inlinable
    func flightEnded(_ key: Key) {
        if case .sharedStore(let shared) = self { shared.flightEnded(key) }
    }

    /// The entry in the backing, fresh or stale, for a read without a fetch.
    ///
    /// An entry that has arrived in memory in the meantime takes precedence over an entry on disk.
    func loadEntry(_ key: Key) async -> MuxEntry<Value>? {
        switch self {
        case .none: nil
        case .disk(let disk): await disk.loadEntry(key)
        case .sharedStore(let shared): await shared.loadEntry(key)
        }
    }

    /// Removes the entry of `key`, or all entries of the domain if `key` is `nil`, after `forget` has removed
    /// the same entries from memory.
    ///
    /// - Returns: The failures.
    func clear(_ key: Key?, after forget: @escaping @Sendable () -> Void) async -> MuxRepository.ClearReport {
        switch self {
        case .none:
            forget()
            return MuxRepository.ClearReport()
        case .disk(let disk):
            return await disk.memory.repository.performClear(forget) {
                if let key { await disk.remove([key]) } else { await disk.removeDomain() }
            }
        case .sharedStore(let shared):
            let entry = key.map { MuxShared.Scope.entry(shared.persistence.name(of: $0)) }
            let scope = entry ?? .domain(shared.persistence.domain)
            return .init(failures: await shared.client.invalidate([scope], after: forget))
        }
    }
}

/// The result of a flight's look-up in the backing.
@usableFromInline
struct LookUp<Value: Sendable>: Sendable {
    /// Whether the flight has ended.
    @usableFromInline let isOver: Bool
    /// The slot with the found entry, retained here because the table may have had no room; an empty slot if
    /// the disk may have an entry that was not read or not used.
    @usableFromInline let loaded: FormerSlot<Value>?
    /// The right to fetch for all machines; `nil` to fetch for this machine only.
    @usableFromInline let claim: FetchClaim?

    @inlinable
    init(isOver: Bool = false, loaded: FormerSlot<Value>? = nil, claim: FetchClaim? = nil) {
        self.isOver = isOver
        self.loaded = loaded
        self.claim = claim
    }
}

/// The slot of a flight's key before the fetch.
///
/// The flight retains the slot, because the table may evict the slot during the fetch.
///
/// A class, so that the frame of the asynchronous fetch contains only a reference during the entire fetch.
@usableFromInline
final class FormerSlot<Value: Sendable>: Sendable {
    @usableFromInline let slot: Slot<Value>
    /// Whether a read of the disk failed, or the read entry was not used, so the disk may have an entry.
    @usableFromInline let isUnread: Bool

    @inlinable
    init(_ slot: Slot<Value>, isUnread: Bool = false) {
        self.slot = slot
        self.isUnread = isUnread
    }

    /// The revision of the entry; `nil` without an entry.
    @inlinable var revision: UInt64? { self.slot.entry?.revision }

    /// Whether the disk may have the entry: saves include the entry, or an entry on disk was not read.
    @inlinable var mayBeOnDisk: Bool { self.slot.entry?.isPersistent ?? self.isUnread }

    /// This object if the entry has no condition; otherwise an object with ``Slot/current``.
    @inlinable var current: FormerSlot {
        self.slot.entry?.condition == nil ? self : FormerSlot(self.slot.current, isUnread: self.isUnread)
    }
}

extension SlotMemory {
    /// Stores an entry for a flight, and resumes callers of the flight.
    ///
    /// Resumes the callers that may use the entry, and all callers with tickets up to `last`. If the flight
    /// was fenced, the entry is not stored, and no caller is resumed.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - flight: The flight.
    ///   - source: The source of the entry.
    ///   - last: The last ticket of the callers to resume regardless of the entry's age; 0 for no such
    ///     caller.
    ///   - adopt: Stores the entry under the lock; returns the slot, `nil` without a usable entry.
    /// - Returns: Whether the flight has ended, and, if not, the slot. No slot if `adopt` returned no slot or
    ///   a slot without an entry, or if the flight was fenced before this call.
    @inlinable
    @inline(never)
    func resumeCallers(
        of key: Key,
        _ flight: FlightID,
        source: MuxEntry<Value>.Source,
        upTo last: Ticket = 0,
        _ adopt: (inout State) -> Slot<Value>?
    ) -> LookUp<Value> {
        let now = self.repository.time.now
        var loaded: Slot<Value>?
        var replaced: [Slot<Value>?] = []  // released outside the lock
        var work: State.PendingWork?
        let isOver = self.engine.answerEarly(flight, of: key) { state, tickets in
            defer { work = state.takePendingWork() }
            var early = FlightEngine<Key, MuxEntry<Value>, State>.EarlyAnswers()
            guard let slot = adopt(&state), let found = slot.snapshot(at: now, source: source) else { return early }
            loaded = slot
            let isFresh = slot.freshness(at: now, self.usualLimits) == .fresh(renews: false)
            early.isOver = !tickets.isEmpty || isFresh
            early.isRenewed = isFresh && source == .sharedStore
            for ticket in tickets {
                guard ticket > last else {
                    early.outputs[ticket] = found
                    continue
                }
                let waiter = state.waiterOptions[ticket]
                let limits = waiter?.limits ?? self.usualLimits
                var served = slot.served(on: .arrival, at: now, limits, source: source)
                if served == nil, let end = waiter?.waitLimitEnds, end <= now {
                    served = slot.served(on: .waitLimit, at: now, limits, source: source)
                }
                if let served {
                    early.outputs[ticket] = served.entry
                    if served.renews { early.isOver = false }
                } else if waiter != nil {
                    replaced.append(waiter?.loaded)
                    state.waiterOptions[ticket]?.loaded = slot
                }
            }
            if isFresh { state.recordOutcome(of: key, error: nil) }
            if tickets.isEmpty ? early.isOver : !early.outputs.isEmpty {
                state.countHit(in: source, isOver: early.isOver)
            }
            return early
        }
        withExtendedLifetime(replaced) {}
        self.watchers.send(.entry, to: key)
        self.release(work)
        return LookUp(isOver: isOver, loaded: isOver ? nil : loaded.map { FormerSlot($0) })
    }
}
