import Foundation

/// How the entries of one multiplexer become entries of a store, and back.
@usableFromInline
package struct Persistence<Key: Sendable, Value: Sendable>: Sendable {
    /// The multiplexer's `cacheKey`.
    @usableFromInline package var domain: String
    /// The entry's own key as text; `nil` for a ``Multiplexer``.
    let text: @Sendable (Key) -> String?
    let encode: @Sendable (Value) throws -> Data
    let decode: @Sendable (Data) throws -> Value
    /// When something outside changed what the entry says, if that is known: one that was fetched before is stale.
    package var changedAt: (@Sendable (Key) -> Moment?)?
    /// What an entry belongs to, in a store that several machines share.
    var tags: (@Sendable (Key) -> [String])?
    /// Whether other machines may have the entries, too.
    var isShared = false

    @usableFromInline
    func name(of key: Key) -> MuxStoreKey { MuxStoreKey(domain: self.domain, key: self.text(key)) }

    /// Where a map's last refresh of everything is noted: no entry of a map has this name.
    var refreshName: MuxStoreKey { MuxStoreKey(domain: self.domain) }
}

extension Persistence where Value: Codable {
    /// JSON, with the coders' own defaults.
    init(domain: String, text: @escaping @Sendable (Key) -> String?) {
        self.domain = domain
        self.text = text
        self.encode = { try JSONEncoder().encode($0) }
        self.decode = { try JSONDecoder().decode(Value.self, from: $0) }
    }
}
