/// Identifies a value of a user in a ``MuxSessions``, such as an order of the user.
///
/// ```swift
/// let order = try await orders.request(key: .init(alice, id))
/// ```
public struct UserKey<UserID: MuxKey, Key: MuxKey>: MuxKey {
    @usableFromInline let exactUser: ExactKey<UserID>
    @usableFromInline let exactKey: ExactKey<Key>

    /// Makes the key of a value.
    ///
    /// - Parameters:
    ///   - user: The owner of the value.
    ///   - key: Distinguishes the values of the user.
    @inlinable
    public init(_ user: UserID, _ key: Key) {
        self.exactUser = ExactKey(user)
        self.exactKey = ExactKey(key)
    }

    /// The user.
    public var user: UserID { self.exactUser.key }

    /// Distinguishes the values of the user.
    public var key: Key { self.exactKey.key }

    /// The length of the user's text in bytes, a colon, the user's text, and the text of the key.
    ///
    /// Different keys have different texts.
    public var keyText: String {
        let user = self.user.keyText
        return "\(user.utf8.count):\(user)\(self.key.keyText)"
    }
}

extension UserKey: ExactlyEqual {}

extension UserKey: CustomStringConvertible {
    /// The user and the key.
    public var description: String { "\(self.user), \(self.key)" }
}
