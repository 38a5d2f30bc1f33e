import Foundation

/// The conversions between the entries of one multiplexer and the entries of a store.
@usableFromInline
package struct Persistence<Key: Sendable, Value: Sendable>: Sendable {
    /// The multiplexer's `cacheKey`.
    @usableFromInline package var domain: String
    /// The entry's key as text; `nil` for a ``Multiplexer``.
    let text: @Sendable (Key) -> String?
    let encode: @Sendable (Value) throws -> Data
    let decode: @Sendable (Data) throws -> Value
    /// The time of the last known external change of a key's value.
    ///
    /// An entry that was not fetched after this time is stale when loaded.
    package var changedAt: (@Sendable (Key) -> Moment?)?
    /// The tags of a key's entry, which do not depend on the value.
    var tags: (@Sendable (Key) -> [String])?
    /// Whether the entries may be shared with other machines.
    package var isShared = false

    @usableFromInline
    func name(of key: Key) -> MuxStoreKey { MuxStoreKey(domain: self.domain, key: self.text(key)) }

    /// The name of the mark of a map's last refresh; no entry of a map has this name.
    var refreshName: MuxStoreKey { MuxStoreKey(domain: self.domain) }
}

extension Persistence where Key == SoleKey {
    /// The persistence of a value without a key, with the domain, the coding and ``isShared`` of another
    /// persistence, and without ``changedAt`` and ``tags``.
    init(ofSole other: Persistence<ExactKey<Never>, Value>) {
        self.domain = other.domain
        self.text = { _ in nil }
        self.encode = other.encode
        self.decode = other.decode
        self.isShared = other.isShared
    }
}

extension Persistence where Value: Codable {
    /// JSON, with the default settings of `JSONEncoder` and `JSONDecoder`.
    init(domain: String, text: @escaping @Sendable (Key) -> String?) {
        self.domain = domain
        self.text = text
        self.encode = { try JSONEncoder().encode($0) }
        self.decode = { try JSONDecoder().decode(Value.self, from: $0) }
    }
}
