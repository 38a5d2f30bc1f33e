public import Synchronization

#if MUX_TSAN
import Foundation
#endif

/// Counts the acquisitions of all locks in a debug build.
@usableFromInline
package enum LockCount: Sendable {
    #if DEBUG
    @usableFromInline static let acquisitions = Atomic(0)
    #endif

    /// The number of acquisitions since the start of the process; `nil` in a release build, which does not
    /// count.
    package static var total: Int? {
        #if DEBUG
        self.acquisitions.load(ordering: .relaxed)
        #else
        nil
        #endif
    }
}

/// State behind a lock: the only lock of the package, so the sanitizer build can replace the lock in this
/// file.
///
/// ThreadSanitizer does not support `Mutex` on Linux, and reports false races (Swift 6.3.1). ThreadSanitizer
/// supports `NSLock`, which builds with `-DMUX_TSAN` use instead.
@usableFromInline
package final class Locked<State> {
    #if DEBUG
    @usableFromInline let acquisitions = Atomic(0)
    #endif

    #if MUX_TSAN
    private let lock = NSLock()
    /// The state with a filler byte: the sanitizer would report a change of a zero-sized state as a change of
    /// the object's header, which every call reads.
    private var content: (state: State, filler: UInt8)

    @usableFromInline
    package init(_ state: sending State) { self.content = (state, 0) }

    @usableFromInline
    package func withLock<R, E: Error>(_ body: (inout State) throws(E) -> sending R) throws(E) -> sending R {
        self.countAcquisition()
        self.lock.lock()
        defer { self.lock.unlock() }
        return try body(&self.content.state)
    }

    package func withLockIfAvailable<R>(_ body: (inout State) -> sending R) -> sending R? {
        guard self.lock.try() else { return nil }
        defer { self.lock.unlock() }
        self.countAcquisition()
        return body(&self.content.state)
    }
    #else
    @usableFromInline let mutex: Mutex<State>

    @usableFromInline
    package init(_ state: sending State) { self.mutex = Mutex(state) }

    @inlinable
    package func withLock<R, E: Error>(_ body: (inout State) throws(E) -> sending R) throws(E) -> sending R {
        self.countAcquisition()
        return try self.mutex.withLock { (state: inout sending State) throws(E) -> sending R in try body(&state) }
    }

    /// Like ``withLock(_:)``; returns `nil` without calling `body` if the lock is taken.
    package func withLockIfAvailable<R>(_ body: (inout State) -> sending R) -> sending R? {
        self.mutex.withLockIfAvailable { (state: inout sending State) -> sending R in
            self.countAcquisition()
            return body(&state)
        }
    }
    #endif

    /// The number of acquisitions; `nil` in a release build, which does not count.
    package var acquisitionCount: Int? {
        #if DEBUG
        self.acquisitions.load(ordering: .relaxed)
        #else
        nil
        #endif
    }

    @inlinable
    func countAcquisition() {
        #if DEBUG
        self.acquisitions.wrappingAdd(1, ordering: .relaxed)
        LockCount.acquisitions.wrappingAdd(1, ordering: .relaxed)
        #endif
    }
}

/// Objects that were removed under a lock, for release after the lock.
///
/// The `deinit` of a key, a value, an error or a closure may be user code, and may call the owner of the
/// lock.
///
/// A closure of ``Locked/withLock(_:)`` returns a removed object, or adds removed objects here and returns
/// the result of ``take()``.
@usableFromInline
package struct Released<Object: Sendable>: Sendable {
    /// Most critical sections remove a single object, which needs no array.
    @usableFromInline var first: Object?
    @usableFromInline var others: [Object] = []

    @inlinable
    package init() {}

    @inlinable
    package mutating func add(_ object: Object) {
        if self.first == nil { self.first = object } else { self.others.append(object) }
    }

    /// Takes all objects.
    @inlinable
    package mutating func take() -> Released {
        guard self.first != nil else { return Released() }
        defer { self = Released() }
        return self
    }
}

#if MUX_TSAN
/// `@unchecked` only in the sanitizer build, where the compiler cannot see that the lock guards every access.
extension Locked: @unchecked Sendable {}

/// As with `Mutex`, the state is not printed.
extension Locked: CustomReflectable {
    @usableFromInline
    package var customMirror: Mirror { Mirror(self, children: [:]) }
}
#else
extension Locked: Sendable {}
#endif
