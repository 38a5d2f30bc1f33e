/// The keys of each user that have an entry or a remembered failure in one map, so that the end of one user's session need not look at
/// the others.
@usableFromInline
package struct UserIndex<Key: Hashable & Sendable>: Sendable {
    /// Most users have one key, which takes no set.
    private enum Keys: Sendable {
        case one(Key)
        case many(Set<Key>)
    }

    /// By the hash of the user: keys of several users may stand together.
    private var keys: [Int: Keys] = [:]
    private let userHash: @Sendable (Key) -> Int

    init(userHash: @escaping @Sendable (Key) -> Int) { self.userHash = userHash }

    /// An empty index of the same users.
    var emptied: UserIndex { UserIndex(userHash: self.userHash) }

    /// All keys.
    var all: Set<Key> { self.keys.values.reduce(into: []) { $0.formUnion(Self.keys($1)) } }

    /// The keys of the users with that hash.
    func keys(ofHash hash: Int) -> Set<Key> { self.keys[hash].map(Self.keys) ?? [] }

    private static func keys(_ keys: Keys) -> Set<Key> {
        switch keys {
        case .one(let key): [key]
        case .many(let keys): keys
        }
    }

    mutating func insert(_ key: Key) {
        let hash = self.userHash(key)
        // Removed while it is changed, so that the set is not copied.
        switch self.keys.removeValue(forKey: hash) {
        case nil: self.keys[hash] = .one(key)
        case .one(let known)?: self.keys[hash] = known == key ? .one(known) : .many([known, key])
        case .many(var keys)?:
            keys.insert(key)
            self.keys[hash] = .many(keys)
        }
    }

    /// Removes a key.
    ///
    /// - Returns: The key as the index had it, to be released outside the lock.
    mutating func remove(_ key: Key) -> Key? {
        let hash = self.userHash(key)
        switch self.keys.removeValue(forKey: hash) {
        case nil: return nil
        case .one(let known)?:
            if known == key { return known }
            self.keys[hash] = .one(known)
            return nil
        case .many(var keys)?:
            let known = keys.remove(key)
            // A set keeps its capacity.
            if keys.capacity > 16, keys.count < keys.capacity / 8 { keys = Set(Array(keys)) }
            if let sole = keys.first { self.keys[hash] = keys.count == 1 ? .one(sole) : .many(keys) }
            return known
        }
    }
}

extension ExactKey where Key: MuxKey {
    /// Whether this is the key's text, byte for byte.
    func hasText(_ text: String) -> Bool { self.key.keyText.utf8.elementsEqual(text.utf8) }
}

/// How the keys of a map belong to the users of a ``MuxSessions``.
@usableFromInline
package struct UsersOfKeys<Key: Hashable & Sendable>: Sendable {
    private let group: UserGroup
    /// An index for the map; `nil` if each user has one key, which is known.
    let index: UserIndex<Key>?
    private let soleKey: @Sendable (EndedUser) -> Key?
    private let belongs: @Sendable (Key, EndedUser) -> Bool
    private let userWithText: @Sendable ([Key], String) -> EndedUser?

    /// Users of a map whose keys are the users.
    init<UserID: MuxKey>(of group: UserGroup) where Key == ExactKey<UserID> {
        self.init(of: group, index: nil, soleKey: { $0 }, user: { $0 })
    }

    /// Users of a map whose keys are of a user each.
    init<UserID: MuxKey>(of group: UserGroup, user: @escaping @Sendable (Key) -> ExactKey<UserID>) {
        self.init(of: group, index: UserIndex { user($0).hashValue }, soleKey: { _ in nil }, user: user)
    }

    private init<UserID: MuxKey>(
        of group: UserGroup,
        index: UserIndex<Key>?,
        soleKey: @escaping @Sendable (ExactKey<UserID>) -> Key?,
        user: @escaping @Sendable (Key) -> ExactKey<UserID>
    ) {
        self.group = group
        self.index = index
        self.soleKey = { ($0.user as? ExactKey<UserID>).flatMap(soleKey) }
        self.belongs = { $1.user as? ExactKey<UserID> == user($0) }
        self.userWithText = { keys, text in
            keys.lazy.map(user).first { $0.hasText(text) }.map { EndedUser($0, of: group) }
        }
    }

    /// Whether these are users of that group.
    func are(of group: UserGroup) -> Bool { group === self.group }

    /// Whether a user is one of these.
    func include(_ user: EndedUser) -> Bool { user.group === self.group }

    /// A user of one of the keys, with that text.
    func user(of keys: [Key], withText text: String) -> EndedUser? { self.userWithText(keys, text) }

    /// Whether a key is one of that user.
    func key(_ key: Key, isOf user: EndedUser) -> Bool { self.belongs(key, user) }

    /// The keys of a user that have an entry or a remembered failure, and perhaps one that has not.
    func keys(of user: EndedUser, in index: UserIndex<Key>?) -> [Key] {
        guard let index else { return self.soleKey(user).map { [$0] } ?? [] }
        return index.keys(ofHash: user.hash).filter { self.belongs($0, user) }
    }
}
