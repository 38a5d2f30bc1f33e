/// Decides for which requests an entry is, where that depends on more than its key, as HTTP's `Vary` says.
///
/// What it depends on is noted with the entry, in its validator.
@usableFromInline
package struct EntrySelection<Key: Sendable>: Sendable {
    /// Whether an entry with this validator depends on more than its key.
    let concerns: @Sendable (_ validator: String) -> Bool
    /// Whether an entry with this validator is for a request that is made now.
    let selects: @Sendable (_ key: Key, _ validator: String) -> Bool

    package init(
        concerns: @escaping @Sendable (_ validator: String) -> Bool,
        selects: @escaping @Sendable (_ key: Key, _ validator: String) -> Bool
    ) {
        self.concerns = concerns
        self.selects = selects
    }

    /// Whether an entry with this validator, or without one, is for a request of `key` that is made now.
    func includes(_ key: Key, _ validator: String?) -> Bool {
        guard let validator, self.concerns(validator) else { return true }
        return self.selects(key, validator)
    }
}

extension MultiplexerCore {
    /// Whether the entry in memory is for another request than one that is made now.
    @usableFromInline
    func isForAnother(_ key: Key) -> Bool {
        guard let selection else { return false }
        // Outside the lock, for it runs code of the app.
        let validator = self.engine.withState { $0.slots.slot(of: key)?.entry?.validator }
        return !selection.includes(key, validator)
    }

    /// The age from which an entry is renewed ahead of time; `nil` for never, which makes the fastest hits.
    @usableFromInline
    func renewalAge(_ timeToLive: Duration, _ validator: String?) -> Duration? {
        if let age = self.policy.renewalAge(timeToLive, random: self.repository.random()) { return age }
        // Each hit has to be looked at.
        return validator.flatMap { self.selection?.concerns($0) } ?? false ? .longest : nil
    }
}
