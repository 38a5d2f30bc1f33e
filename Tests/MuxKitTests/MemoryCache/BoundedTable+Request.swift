import MuxKit

extension BoundedTable<Int, Int> {
    /// Asks for `key`, which is let in if it is not there; returns whether it was.
    mutating func request(_ key: Int) -> Bool {
        if self.lookup(key) != nil { return true }
        self.insert(key, of: key)
        return false
    }
}
