public import Foundation

/// A key of a ``MultiplexerMap`` whose values are kept on disk.
///
/// Strings, numbers, `Bool`, `UUID` and `URL` are keys. A type of your own that is `LosslessStringConvertible` becomes one
/// by saying so, another by giving its text:
///
/// ```swift
/// extension UserID: MuxKey { var keyText: String { self.rawValue } }
/// ```
///
/// **Equality.** Two keys are the same to a map, a batch and the disk if they are equal *and* their texts consist of the same bytes. To Swift, strings
/// that differ only in Unicode form (`é` as one scalar or as two) are equal, and so are types that wrap them; to a server they are different
/// keys, and each has a value of its own. A dictionary that a request for many keys returns has the first of such keys only.
///
/// Equality, hash and text of a key are computed within calls of the map, under a lock: they must not use the map.
public protocol MuxKey: Hashable, Sendable {
    /// The key as text: the same in every launch, and different for different keys.
    ///
    /// Any text will do. Computed for the disk, and to compare a key with an equal one that is stored differently in memory.
    var keyText: String { get }
}

extension MuxKey where Self: LosslessStringConvertible {
    /// The key's description, from which it could be made again.
    public var keyText: String { self.description }
}

extension String: MuxKey {
    /// The string itself.
    public var keyText: String { self }
}
extension Substring: MuxKey {}
extension Character: MuxKey {}
extension Bool: MuxKey {}
extension Int: MuxKey {}
extension Int8: MuxKey {}
extension Int16: MuxKey {}
extension Int32: MuxKey {}
extension Int64: MuxKey {}
extension UInt: MuxKey {}
extension UInt8: MuxKey {}
extension UInt16: MuxKey {}
extension UInt32: MuxKey {}
extension UInt64: MuxKey {}

extension Float: MuxKey {
    /// The number's description; that of zero has no sign, for zeros are equal.
    public var keyText: String { self == 0 ? "0.0" : self.description }
}

extension Double: MuxKey {
    /// The number's description; that of zero has no sign, for zeros are equal.
    public var keyText: String { self == 0 ? "0.0" : self.description }
}

extension UUID: MuxKey {
    /// The identifier in its usual form.
    public var keyText: String { self.uuidString }
}

extension URL: MuxKey {
    /// The locator, followed by its base if it has one: locators with different bases are different.
    public var keyText: String {
        guard let base = self.baseURL else { return self.absoluteString }
        return self.relativeString + " " + base.absoluteString  // a blank is in no locator
    }
}

/// A key as the tables store it: strings, and texts of ``MuxKey`` types, are compared by their bytes.
///
/// To Swift, strings that differ only in Unicode form are equal; to a server they are different keys.
@usableFromInline
package struct ExactKey<Key: Hashable & Sendable>: Hashable, Sendable {
    @usableFromInline package let key: Key

    @inlinable
    package init(_ key: Key) { self.key = key }

    @inlinable
    package static func == (a: ExactKey, b: ExactKey) -> Bool {
        if let a = a.key as? String, let b = b.key as? String { return Self.haveSameBytes(a, b) }
        guard a.key == b.key else { return false }
        return Self.isExact || Self.haveSameText(a, b)
    }

    /// Whether equal keys of the type have one text; known to the compiler where the type is.
    @inlinable static var isExact: Bool {
        Key.self == Int.self || Key.self == UUID.self || Key.self == URL.self || Key.self == Int64.self
            || Key.self == UInt64.self || Key.self == Int32.self || Key.self == UInt32.self || Key.self == UInt.self
            || Key.self == Double.self || Key.self == Bool.self
    }

    /// Whether equal keys have one text, byte for byte; `true` for keys without a text.
    @usableFromInline
    static func haveSameText(_ a: ExactKey, _ b: ExactKey) -> Bool {
        // What is the same in memory has the same text, which takes an allocation where it is made of others.
        let isSame = unsafe withUnsafeBytes(of: a.key) { a in
            unsafe withUnsafeBytes(of: b.key) { b in unsafe a.elementsEqual(b) }
        }
        guard !isSame, !(Key.self is any ExactlyEqual.Type), let type = Key.self as? any MuxKey.Type else {
            return true
        }
        return self.haveSameText(a.key, b.key, as: type)
    }

    private static func haveSameText<Other: MuxKey>(_ a: Key, _ b: Key, as type: Other.Type) -> Bool {
        guard let a = a as? Other, let b = b as? Other else { return true }
        return Self.haveSameBytes(a.keyText, b.keyText)
    }

    /// Whether two strings consist of the same bytes; does not compute canonical equivalence.
    @inlinable
    static func haveSameBytes(_ a: String, _ b: String) -> Bool {
        let answer = unsafe a.utf8.withContiguousStorageIfAvailable { a in
            unsafe b.utf8.withContiguousStorageIfAvailable { b in unsafe a.count == b.count && a.elementsEqual(b) }
        }
        return answer.flatMap(\.self) ?? a.utf8.elementsEqual(b.utf8)
    }

    @inlinable
    package func hash(into hasher: inout Hasher) { self.key.hash(into: &hasher) }

    /// That of the key, which may have a shorter way to it.
    @inlinable
    package var hashValue: Int { self.key.hashValue }
}

/// A key whose equality is that of its text: equal keys have the same text, byte for byte.
package protocol ExactlyEqual: MuxKey {}
