/// Where the index keeps an entry: a hash of its domain and one of its key.
///
/// Two names may share one: what is found under it is compared with the name asked for.
package struct EntryDigest: Sendable, Hashable {
    package var domain: UInt64
    package var key: UInt64

    package init(domain: UInt64, key: UInt64) {
        self.domain = domain
        self.key = key
    }

    /// The digest that journals use.
    package init(_ name: MuxStoreKey) {
        var domain = FNV()
        domain.combine(field: name.domain)
        var key = FNV()
        if let text = name.key { key.combine(field: text) }
        self.init(domain: domain.value, key: key.value)
    }
}
