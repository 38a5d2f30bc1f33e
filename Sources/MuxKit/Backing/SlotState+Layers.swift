/// The server's value of a key, and the app's changes that this value may lack.
@usableFromInline
struct Layers<Value: Sendable>: Sendable {
    struct Change: Sendable {
        let id: Ticket
        let transform: @Sendable (inout Value) throws -> Void
        var isCommitted = false
        /// Whether the change was certainly not sent to the server, so that no response includes the change.
        var isUnsent = false
        /// Whether the change belongs to an outbox: until its commit, the change stays after a removal of the
        /// value.
        var isOverlay = false
    }

    /// The server's entry; `nil` if the value is unknown.
    var base: Slot<Value>.Entry?
    /// ``base`` with the changes.
    var shown: Slot<Value>.Entry?
    /// The changes, in the order of their beginnings.
    var changes: [Change] = []
    /// Identifies this state of the changes.
    var version: UInt64 = 0

    /// Whether a change is being sent, so that a response of the server may or may not include the change.
    var isSending: Bool { self.changes.contains { !$0.isCommitted && !$0.isUnsent } }

    var hasUncommitted: Bool { self.changes.contains { !$0.isCommitted } }

    /// Applies the changes to ``base``, and skips each change that throws.
    mutating func show() {
        self.shown = self.base
        for change in self.changes {
            guard var value = self.shown?.value, (try? change.transform(&value)) != nil else { continue }
            self.shown?.value = value
        }
    }

    /// The uncommitted changes, applied to a new entry of the server; `nil` without uncommitted changes.
    func replaced(by entry: Slot<Value>.Entry) -> Layers? {
        guard self.hasUncommitted else { return nil }
        var layers = Layers(base: entry)
        layers.changes = self.changes.filter { !$0.isCommitted }
        layers.show()
        return layers
    }
}

/// The uncommitted changes of a key, applied to a fetched entry; an object, because few keys have changes.
@usableFromInline
final class ChangesOfFetch<Value: Sendable>: Sendable {
    fileprivate let version: UInt64
    fileprivate let remaining: Layers<Value>?

    fileprivate init(version: UInt64, remaining: Layers<Value>?) {
        self.version = version
        self.remaining = remaining
    }

    /// The fetched value with the changes; `nil` without uncommitted changes.
    @usableFromInline var shownValue: Value? { self.remaining?.shown?.value }
}

extension SlotMemory {
    /// The uncommitted changes of a key, applied to a fetched entry; `nil` without changes.
    ///
    /// The closures of the changes run outside the lock.
    @usableFromInline
    func changes(of key: Key, on entry: Slot<Value>.Entry) -> ChangesOfFetch<Value>? {
        guard let layers = self.engine.withState({ $0.layers[key] }) else { return nil }
        return ChangesOfFetch(version: layers.version, remaining: layers.replaced(by: entry))
    }
}

extension SlotState {
    /// Whether the key still has these changes.
    @usableFromInline
    func has(_ changes: ChangesOfFetch<Value>, _ key: Key) -> Bool { self.layers[key]?.version == changes.version }

    /// Shows uncommitted changes, if any, on top of a fetched entry; a call of ``takePendingWork()`` must
    /// follow.
    @usableFromInline
    mutating func put(_ changes: ChangesOfFetch<Value>, on entry: Slot<Value>.Entry, of key: Key) {
        if let remaining = changes.remaining { self.put(remaining, on: entry, of: key) }
    }

    /// The entry in memory, or otherwise the entry that the changes show; `nil` without an entry.
    func shownEntry(_ key: Key) -> Slot<Value>.Entry? { self.slots.slot(of: key)?.entry ?? self.layers[key]?.shown }

    /// The revision of the value with changes; `nil` without changes or without a value.
    @usableFromInline
    func shownRevision(of key: Key) -> UInt64? { self.layers[key]?.shown?.revision }

    /// The entry without changes; `nil` without an entry.
    @usableFromInline
    func serverEntry(_ key: Key) -> Slot<Value>.Entry? {
        if let layers = self.layers[key] { layers.base } else { self.slots.slot(of: key)?.entry }
    }

    /// The slot with the entry without changes, for a fetch.
    @usableFromInline
    func serverSlot(of key: Key) -> Slot<Value> {
        var slot = self.slots.slot(of: key) ?? Slot()
        if let entry = self.serverEntry(key) { slot.replaceEntry(with: entry) }
        return slot
    }

    /// The entry with changes, for the callers of a fetch whose response is not kept.
    ///
    /// `nil` without changes, and without an entry. A call of ``takePendingWork()`` must follow.
    @usableFromInline
    mutating func shown(_ key: Key, at now: Moment) -> MuxEntry<Value>? {
        guard self.layers[key] != nil else { return nil }
        self.showLayers(of: key)
        return self.slots.slot(of: key)?.snapshot(at: now, source: .memory)?.served(because: .fenced)
    }

    /// Whether a change of the key is being sent, so that a response of the server must not be kept.
    @usableFromInline
    func isSending(_ key: Key) -> Bool { self.layers[key]?.isSending ?? false }

    /// Whether the key has an uncommitted change, which an entry of the server must not replace.
    func hasUncommitted(_ key: Key) -> Bool { self.layers[key]?.hasUncommitted ?? false }

    /// Stores a new entry, and drops the changes of its key; a call of ``takePendingWork()`` must follow.
    ///
    /// - Returns: The previous entry, for the caller to release outside its lock.
    @inlinable
    mutating func commit(_ entry: Slot<Value>.Entry, of key: Key) -> Slot<Value>.Entry? {
        if !self.layers.isEmpty { self.dropLayers(of: key) }
        return self.withSlots(changing: key) { $0.commit(entry, of: key, evicted: $1) }
    }

    /// Removes the changes of a key, to be released outside the lock.
    @usableFromInline
    mutating func dropLayers(of key: Key) {
        guard let place = self.layers.index(forKey: key) else { return }
        // The table's own key is also released outside the lock, because its `deinit` may call this
        // multiplexer.
        let former = self.layers.remove(at: place)
        self.dropped.append((former.key, former.value))
    }

    /// Drops the server's entry and the committed changes of a key, after a removal of the entry.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - keepsChanges: Whether all uncommitted changes stay; otherwise, only uncommitted overlays of an
    ///     outbox stay.
    mutating func loseBase(of key: Key, keepsChanges: Bool) {
        guard var layers = self.layers[key] else { return }
        self.dropLayers(of: key)
        layers.changes.removeAll { $0.isCommitted || !(keepsChanges || $0.isOverlay) }
        guard !layers.changes.isEmpty else { return }
        (layers.base, layers.shown, layers.version) = (nil, nil, self.nextRevision())
        self.layers[key] = layers
    }

    /// After an eviction, drops the committed changes of `key` if the value is unknown, or if ``layers`` has
    /// more than ``maximumLayers`` keys.
    ///
    /// An entry on disk then counts as stale, because the entry may lack the changes.
    @usableFromInline
    mutating func dropEvictedLayers(of key: Key) {
        guard let layers = self.layers[key], !layers.hasUncommitted, self.slots.slot(of: key)?.entry == nil else {
            return
        }
        // With a refresh mark, the disk may have a value.
        let isAbsent = layers.shown == nil && !(self.slots.slot(of: key)?.isRefreshed ?? false)
        guard isAbsent || self.layers.count > Self.maximumLayers else { return }
        self.dropLayers(of: key)
        if layers.base?.isPersistent ?? false { self.withSlot(of: key) { $0.markRefreshed() } }
    }

    /// The number of ``layers`` above which evictions drop committed changes.
    private static var maximumLayers: Int { 1_000 }

    /// After an eviction, stores the entry with the changes of `key` again, as stale.
    ///
    /// A call of ``takePendingWork()`` must follow.
    @usableFromInline
    mutating func showLayers(of key: Key) {
        guard let shown = self.layers[key]?.shown, self.slots.slot(of: key)?.entry == nil else { return }
        self.put(shown, of: key)
    }

    /// Replaces the entry of a slot; the new entry is unsaved if the former entry was unsaved.
    ///
    /// Without a former entry, such as after an eviction, the new entry is stale.
    private mutating func put(_ entry: Slot<Value>.Entry, of key: Key) {
        let former = self.slots.slot(of: key)?.entry
        var entry = entry
        entry.isDirty = former?.isDirty ?? false
        entry.isPersistent = former?.isPersistent ?? entry.isPersistent
        entry.isExpendable = former?.isExpendable ?? entry.isExpendable
        if self.disk.newer.contains(key) { (entry.isDirty, entry.isPersistent) = (false, false) }
        self.withSlot(of: key) { slot in
            slot.replaceEntry(with: entry)
            if former == nil { slot.markRefreshed() }
        }
    }

    /// Replaces the changes of a key; a call of ``takePendingWork()`` must follow.
    ///
    /// - Parameters:
    ///   - layers: The changes; `nil` for the server's entry.
    ///   - key: The key.
    ///   - isNew: Whether the shown value differs from the value shown before.
    mutating func setLayers(_ layers: Layers<Value>?, of key: Key, isNew: Bool) {
        let base = self.layers[key]?.base
        self.dropLayers(of: key)
        guard var layers else {
            guard let base else { return }
            // After an eviction, memory does not need the entry, which the shared store has. A key without a
            // fact (``SharedEntries``) gets no reports of the store, so an outdated entry would stay.
            let isGone =
                self.shared.hasHadFacts && (self.slots.slot(of: key)?.entry == nil || !self.shared.hasFact(key))
            guard isGone else { return self.put(base, of: key) }
            // A change after the eviction has stored the entry again.
            let former = self.withSlot(of: key) { $0.dropSavedEntry(keepingMark: false) }
            self.dropped.append(former)
            return
        }
        layers.version = self.nextRevision()
        if isNew { layers.shown?.revision = layers.version }
        self.layers[key] = layers
        if isNew, let shown = layers.shown { self.put(shown, of: key) }
    }

    /// Adds a change; a call of ``takePendingWork()`` must follow.
    ///
    /// - Parameters:
    ///   - change: The change.
    ///   - entry: The entry that requests got before the change.
    ///   - shown: `entry` with the change.
    ///   - key: The key.
    /// - Complexity: O(1), amortised.
    mutating func append(
        _ change: Layers<Value>.Change,
        to entry: Slot<Value>.Entry?,
        showing shown: Slot<Value>.Entry?,
        of key: Key
    ) {
        guard let place = self.layers.index(forKey: key) else {
            var layers = Layers(base: entry)
            layers.shown = shown
            layers.changes = [change]
            return self.setLayers(layers, of: key, isNew: true)
        }
        self.dropped.append(self.layers.values[place].shown)
        self.layers.values[place].changes.append(change)
        let version = self.nextRevision()
        var shown = shown
        shown?.revision = version
        self.layers.values[place].version = version
        self.layers.values[place].shown = shown
        if let shown { self.put(shown, of: key) }
    }

    /// Stores a new entry of the server, and shows the entry with uncommitted changes; a call of
    /// ``takePendingWork()`` must follow.
    mutating func put(_ layers: Layers<Value>, on entry: Slot<Value>.Entry, of key: Key) {
        var layers = layers
        layers.base = entry
        layers.shown?.sequence = entry.sequence
        layers.shown?.condition = entry.condition
        self.setLayers(layers, of: key, isNew: true)
    }

    /// Stores an entry from disk as the server's entry of a key with changes, unless memory has the server's
    /// entry.
    ///
    /// A call of ``takePendingWork()`` must follow.
    ///
    /// - Parameters:
    ///   - entry: The entry.
    ///   - fromBeforeRefresh: See ``Slot/adoptLoaded(_:fromBeforeRefresh:)``.
    ///   - layers: The changes, applied to `entry`.
    ///   - key: The key.
    /// - Returns: The slot; `nil` if the table has no room, or if `layers` are outdated (then nothing is
    ///   stored).
    @usableFromInline
    mutating func storeLoaded(
        _ entry: Slot<Value>.Entry,
        fromBeforeRefresh: Bool,
        _ layers: Layers<Value>?,
        of key: Key
    ) -> Slot<Value>? {
        if let current = self.layers[key], current.base == nil {
            guard let layers, layers.version == current.version else { return nil }
            self.withSlot(of: key) { $0.adoptLoaded(entry, fromBeforeRefresh: fromBeforeRefresh) }
            self.put(layers, on: entry, of: key)
        }
        self.showLayers(of: key)
        return self.slots.slot(of: key)
    }
}
