/// The selection of entries by more than their keys, as with HTTP's `Vary` (RFC 9111, section 4.1).
///
/// The entry's validator contains the facts for the selection.
@usableFromInline
package struct EntrySelection<Key: Sendable>: Sendable {
    /// Whether the selection of an entry with this validator depends on more than the key.
    let concerns: @Sendable (_ validator: String) -> Bool
    /// Whether a present request of the key may use an entry with this validator.
    let selects: @Sendable (_ key: Key, _ validator: String) -> Bool

    package init(
        concerns: @escaping @Sendable (_ validator: String) -> Bool,
        selects: @escaping @Sendable (_ key: Key, _ validator: String) -> Bool
    ) {
        self.concerns = concerns
        self.selects = selects
    }

    /// Whether a present request of `key` may use an entry with or without a validator.
    func includes(_ key: Key, _ validator: String?) -> Bool {
        guard let validator, self.concerns(validator) else { return true }
        return self.selects(key, validator)
    }
}
