/// The selection of entries by more than their keys, as with HTTP's `Vary` (RFC 9111, section 4.1).
///
/// The validator of an entry also encodes the data for the selection, such as the request fields in `Vary`.
@usableFromInline
package struct EntrySelection<Key: Sendable>: Sendable {
    /// Whether the selection of an entry with this validator depends on more than the key.
    let concerns: @Sendable (_ validator: String) -> Bool
    /// Whether a request of the key may use an entry with this validator now.
    let selects: @Sendable (_ key: Key, _ validator: String) -> Bool
    /// Called outside the lock, before the app stores a value of the key.
    @usableFromInline let willStore: @Sendable (_ key: Key) -> Void

    package init(
        concerns: @escaping @Sendable (_ validator: String) -> Bool,
        selects: @escaping @Sendable (_ key: Key, _ validator: String) -> Bool,
        willStore: @escaping @Sendable (_ key: Key) -> Void
    ) {
        self.concerns = concerns
        self.selects = selects
        self.willStore = willStore
    }

    /// Whether a request of `key` may use an entry with this validator, or without a validator, now.
    func includes(_ key: Key, _ validator: String?) -> Bool {
        guard let validator, self.concerns(validator) else { return true }
        return self.selects(key, validator)
    }
}
