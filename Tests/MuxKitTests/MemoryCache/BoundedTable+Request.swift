import MuxKit

extension BoundedTable<Int, Int> {
    /// Looks up `key`, and inserts a missing `key`; returns whether `key` was present.
    mutating func request(_ key: Int) -> Bool {
        if self.lookup(key) != nil { return true }
        self.insert(key, of: key)
        return false
    }
}
