import MuxKit
import Testing

/// A reference that a closure needs before there is anything to refer to; it keeps nothing alive.
struct Later<Object: AnyObject & Sendable>: Sendable {
    private struct Reference: Sendable {
        weak let object: Object?
    }

    private let reference = Locked(Reference(object: nil))

    /// Has it refer to `object` from now on.
    func set(_ object: Object) { self.reference.withLock { $0 = Reference(object: object) } }

    /// What it refers to.
    func callAsFunction() throws -> Object { try #require(self.reference.withLock { $0.object }) }
}
