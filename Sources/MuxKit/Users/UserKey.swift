/// A key among the values of one user of a ``MuxSessions``, such as a page of the user's orders.
///
/// ```swift
/// let order = try await orders.request(key: .init(alice, id))
/// ```
public struct UserKey<UserID: MuxKey, Key: MuxKey>: MuxKey {
    @usableFromInline let exactUser: ExactKey<UserID>
    @usableFromInline let exactKey: ExactKey<Key>

    /// Makes a key of a user and a key.
    @inlinable
    public init(_ user: UserID, _ key: Key) {
        self.exactUser = ExactKey(user)
        self.exactKey = ExactKey(key)
    }

    /// The user.
    public var user: UserID { self.exactUser.key }

    /// The key among the user's values.
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
