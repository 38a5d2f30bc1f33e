import MuxKit
import Testing

/// A weak reference that a closure captures before its object exists.
struct Later<Object: AnyObject & Sendable>: Sendable {
    private struct Reference: Sendable {
        weak var object: Object?
    }

    private let reference = Locked(Reference(object: nil))

    func set(_ object: Object) { self.reference.withLock { $0 = Reference(object: object) } }

    func callAsFunction() throws -> Object { try #require(self.reference.withLock { $0.object }) }
}
