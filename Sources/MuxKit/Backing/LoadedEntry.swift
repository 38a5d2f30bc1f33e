import Foundation

/// An entry that was loaded from the backing.
@usableFromInline
struct LoadedEntry<Value: Sendable>: Sendable {
    @usableFromInline var entry: Slot<Value>.Entry
    /// The entry before the decoding; for an entry of a shared store, the time of the fetch is a placeholder.
    let stored: MuxStoredEntry
    /// The app's changes of the key at the end of the load, applied to the entry; `nil` without changes.
    @usableFromInline var layers: Layers<Value>?
}

extension SlotMemory {
    /// Decodes a stored entry.
    ///
    /// - Parameters:
    ///   - stored: The stored entry.
    ///   - key: The key.
    ///   - persistence: Decodes the value.
    ///   - isPersistent: Whether saves include the entry.
    ///   - start: The time at the start of the read.
    ///   - known: The age of the entry at `start`; if `nil`, the wall-clock time determines the age.
    /// - Returns: The entry; `nil` if the entry cannot be used.
    @usableFromInline
    func loaded(
        _ stored: MuxStoredEntry,
        _ key: Key,
        _ persistence: Persistence<Key, Value>,
        isPersistent: Bool,
        since start: Moment,
        age known: Duration? = nil
    ) async -> LoadedEntry<Value>? {
        func failed(because reason: MuxEvent.Reason) -> LoadedEntry<Value>? {
            guard self.isObserved else { return nil }
            self.sendEvent(.loadFailed, key, self.repository.time.now.duration(since: start), because: reason)
            return nil
        }
        guard self.policy.canRead(stored.schemaVersion) else {
            // Written by a later version of the program: neither read nor overwritten.
            self.engine.withState { _ = $0.disk.newer.insert(key) }
            return failed(because: .other("later version"))
        }
        let policy = self.policy
        let isMigrated = self.policy.migrates(stored.schemaVersion)
        // The validator also identifies the requests that may use the value. Migration drops the validator,
        // so a migrated value that depends on the request is unusable.
        let needsSelection = self.needsSelection(stored.validator)
        guard !(isMigrated && needsSelection), self.selection?.includes(key, stored.validator) ?? true else {
            return nil
        }
        // With a number greater than the last number of the log, later changes of tags would not apply to the
        // entry.
        let number = min(stored.tagNumber ?? 0, self.repository.tagLog.lastNumber)
        let condition = self.condition(stored.tags, of: key, since: number)
        guard condition?.removesEntry != true else { return nil }
        let decoded = await Self.decoded(stored.payload.count) { () -> Value? in
            let payload = try? policy.migrate(stored.payload, from: stored.schemaVersion)
            return payload.flatMap { try? persistence.decode($0) }
        }
        guard let value = decoded else {
            self.repository.misuseLog?.write(.undecodable(persistence.domain, type: "\(Value.self)"))
            return failed(because: .decoding)
        }
        let now = self.repository.time.now
        self.tell(.loaded, key, now.duration(since: start))
        let age: Duration
        if let known {
            age = .sum(known, now.duration(since: start))
        } else {
            let seconds = self.repository.wallTime().timeIntervalSince(stored.fetchedAt)
            // If the clock was set back, the age is unknown. The entry counts as just expired; otherwise the
            // entry could stay fresh for an unlimited time.
            age = seconds >= 0 ? Duration.saturating(seconds: seconds) : max(stored.timeToLive, .zero)
        }
        var entry = Slot<Value>.Entry(
            value: value,
            fetchedAt: now.advanced(by: .zero - age),
            timeToLive: stored.timeToLive,
            renewalAge: self.renewalAge(stored.timeToLive),
            stale: StaleLimits(whileRevalidate: stored.staleWhileRevalidate, ifError: stored.staleIfError),
            // A migrated value differs from the server's value, and cannot be revalidated.
            validator: isMigrated ? nil : stored.validator,
            revision: 0,
            isDirty: isMigrated && isPersistent,
            isPersistent: isPersistent
        )
        if let changed = persistence.changedAt?(key), entry.fetchedAt <= changed {
            entry.timeToLive = .zero
            entry.stale.whileRevalidate = .zero
            entry.isDirty = isPersistent
        }
        entry.condition = condition
        entry.needsSelection = needsSelection
        var loaded = LoadedEntry(entry: entry, stored: stored)
        loaded.layers = self.engine.withState { $0.layers[key] }
        loaded.layers?.base = entry
        loaded.layers?.show()
        return loaded
    }

    /// The maximum size in bytes of a small payload.
    ///
    /// A small payload is decoded without a change of threads, which would take longer than the decoding.
    @inlinable static var smallPayload: Int { 1 << 14 }

    /// Decodes a payload of `count` bytes, never in the caller's isolation.
    @concurrent
    private static func decoded(_ count: Int, _ decode: @escaping @Sendable () -> Value?) async -> Value? {
        count <= Self.smallPayload ? decode() : await BlockingWork.run(decode)
    }
}
