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

/// A list that stores a single element inline, so that a list of at most one element allocates nothing.
///
/// Most flights have a single caller, and most critical sections remove at most one object. Objects that were
/// removed under a lock are released after the lock: the `deinit` of a key, a value, an error or a closure
/// may be user code, and may call the owner of the lock.
@usableFromInline
package enum Few<Element: Sendable>: Sendable {
    case none
    case one(Element)
    /// Two elements or more.
    case many([Element])

    @inlinable
    package init(_ elements: [Element]) {
        switch elements.count {
        case 0: self = .none
        case 1: self = .one(elements[0])
        default: self = .many(elements)
        }
    }

    @inlinable
    package mutating func append(_ element: Element) {
        switch self {
        case .none: self = .one(element)
        case .one(let first): self = .many([first, element])
        case .many(var elements):
            self = .none  // releases the second reference, so that the array is not copied
            elements.append(element)
            self = .many(elements)
        }
    }

    /// Removes and returns all elements.
    @inlinable
    package mutating func take() -> Few {
        defer { self = .none }
        return self
    }
}

extension Few: RandomAccessCollection, RangeReplaceableCollection, MutableCollection {
    @inlinable
    package init() { self = .none }

    @inlinable package var startIndex: Int { 0 }

    @inlinable package var endIndex: Int {
        switch self {
        case .none: 0
        case .one: 1
        case .many(let elements): elements.count
        }
    }

    @inlinable
    package subscript(position: Int) -> Element {
        get {
            switch self {
            // `[][position]` stops the program, as an array does for an index out of range.
            case .none: return [][position]
            case .one(let element): return position == 0 ? element : [][position]
            case .many(let elements): return elements[position]
            }
        }
        set {
            guard case .many(var elements) = self else {
                self = .one(newValue)
                return
            }
            self = .none  // as in ``append(_:)``
            elements[position] = newValue
            self = .many(elements)
        }
    }

    @inlinable
    package mutating func replaceSubrange(_ range: Range<Int>, with elements: some Collection<Element>) {
        var array: [Element] = []
        switch self {
        case .none: break
        case .one(let element): array = [element]
        case .many(let elements): array = elements
        }
        self = .none
        array.replaceSubrange(range, with: elements)
        self = Few(array)
    }
}

extension Few: ExpressibleByArrayLiteral {
    @inlinable
    package init(arrayLiteral elements: Element...) { self.init(elements) }
}

extension Few: Equatable where Element: Equatable {}

extension Few: Hashable where Element: Hashable {}

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
