/// An index of one map's keys by user; contains the keys with an entry or a remembered failure.
///
/// The index finds the entries of a user without an examination of all entries.
@usableFromInline
package struct UserIndex<Key: Hashable & Sendable>: Sendable {
    /// Most users have one key, which needs no set.
    private enum Keys: Sendable {
        case one(Key)
        case many(Set<Key>)
    }

    /// The keys by the hash of their user; several users may have the same hash.
    private var keys: [Int: Keys] = [:]
    private let userHash: @Sendable (Key) -> Int

    init(userHash: @escaping @Sendable (Key) -> Int) { self.userHash = userHash }

    /// An empty index with the same hash function for users.
    var emptied: UserIndex { UserIndex(userHash: self.userHash) }

    /// All keys.
    var all: Set<Key> { self.keys.values.reduce(into: []) { $0.formUnion(Self.keys($1)) } }

    /// The keys of the users with hash `hash`.
    func keys(ofHash hash: Int) -> Set<Key> { self.keys[hash].map(Self.keys) ?? [] }

    private static func keys(_ keys: Keys) -> Set<Key> {
        switch keys {
        case .one(let key): [key]
        case .many(let keys): keys
        }
    }

    mutating func insert(_ key: Key) {
        let hash = self.userHash(key)
        // The set is removed from the dictionary during the change, so that the change does not copy the set.
        switch self.keys.removeValue(forKey: hash) {
        case nil: self.keys[hash] = .one(key)
        case .one(let member)?: self.keys[hash] = member == key ? .one(member) : .many([member, key])
        case .many(var keys)?:
            keys.insert(key)
            self.keys[hash] = .many(keys)
        }
    }

    /// Removes a key.
    ///
    /// - Returns: The index's copy of the key, to be released outside the lock; `nil` for an unknown key.
    mutating func remove(_ key: Key) -> Key? {
        let hash = self.userHash(key)
        switch self.keys.removeValue(forKey: hash) {
        case nil: return nil
        case .one(let member)?:
            if member == key { return member }
            self.keys[hash] = .one(member)
            return nil
        case .many(var keys)?:
            let removed = keys.remove(key)
            // A set never reduces its capacity.
            if keys.capacity > 16, keys.count < keys.capacity / 8 { keys = Set(Array(keys)) }
            if let sole = keys.first { self.keys[hash] = keys.count == 1 ? .one(sole) : .many(keys) }
            return removed
        }
    }
}

extension ExactKey where Key: MuxKey {
    /// Whether the text of the key is `text`, byte for byte.
    func hasText(_ text: String) -> Bool { self.key.keyText.utf8.elementsEqual(text.utf8) }
}

/// The relation between the keys of a map and the users of a ``MuxSessions``.
@usableFromInline
package struct UsersOfKeys<Key: Hashable & Sendable>: Sendable {
    private let group: UserGroup
    /// An index for the map; `nil` if the users are the keys.
    let index: UserIndex<Key>?
    private let belongs: @Sendable (Key, EndedUser) -> Bool
    private let userWithText: @Sendable ([Key], String) -> EndedUser?

    /// The relation of a map whose keys are the users.
    init<UserID: MuxKey>(of group: UserGroup) where Key == ExactKey<UserID> {
        self.init(of: group, index: nil, user: { $0 })
    }

    /// The relation of a map in which `user` returns the user of a key.
    init<UserID: MuxKey>(of group: UserGroup, user: @escaping @Sendable (Key) -> ExactKey<UserID>) {
        self.init(of: group, index: UserIndex { user($0).hashValue }, user: user)
    }

    private init<UserID: MuxKey>(
        of group: UserGroup,
        index: UserIndex<Key>?,
        user: @escaping @Sendable (Key) -> ExactKey<UserID>
    ) {
        self.group = group
        self.index = index
        self.belongs = { $1.user as? ExactKey<UserID> == user($0) }
        self.userWithText = { keys, text in
            keys.lazy.map(user).first { $0.hasText(text) }.map { EndedUser($0, of: group) }
        }
    }

    /// Whether the users belong to `group`.
    func are(of group: UserGroup) -> Bool { group === self.group }

    /// The first of the users of `keys` whose text is `text`.
    func user(of keys: [Key], withText text: String) -> EndedUser? { self.userWithText(keys, text) }

    /// Whether `key` belongs to `user`.
    func key(_ key: Key, isOf user: EndedUser) -> Bool { self.belongs(key, user) }

    /// The keys of `user` that have an entry or a remembered failure.
    ///
    /// If the users are the keys, returns the key even without an entry or a failure.
    func keys(of user: EndedUser, in index: UserIndex<Key>?) -> [Key] {
        guard let index else { return (user.user as? Key).map { [$0] } ?? [] }
        return index.keys(ofHash: user.hash).filter { self.belongs($0, user) }
    }
}
