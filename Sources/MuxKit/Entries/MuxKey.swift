public import Foundation

/// A key of a ``MultiplexerMap`` with values on disk.
///
/// Strings, characters, `Float`, `Double`, `Bool`, `UUID`, `URL` and integers of at most 64 bits are keys. A
/// custom type needs a conformance and a ``keyText``.
/// The default ``keyText`` is the description of a `LosslessStringConvertible` type, otherwise the text of a
/// raw value:
///
/// ```swift
/// enum Language: String, MuxKey { case german, english }
/// ```
///
/// **Equality.** Maps, batches and the disk treat two keys as the same key if the keys are equal *and* their
/// texts consist of the same bytes. In Swift, strings that differ only in Unicode normalization (`é` as one
/// scalar or as two) are equal, and so are types that wrap such strings. For a server these strings are
/// different keys, so each string has a separate value. The dictionary of a request for many keys contains
/// only the first of several equal keys.
///
/// The map may compute the equality, hash and text of a key under a lock: these computations must not call
/// the map.
public protocol MuxKey: Hashable, Sendable {
    /// The key as text: the same text in every launch, and different texts for different keys.
    ///
    /// Any text is permitted. The map computes the text for stores and events, and to compare two keys that
    /// are equal but not bitwise identical.
    var keyText: String { get }
}

extension MuxKey where Self: LosslessStringConvertible {
    /// The key's lossless description.
    public var keyText: String { self.description }
}

extension MuxKey where Self: RawRepresentable, RawValue: MuxKey {
    /// The text of the raw value.
    public var keyText: String { self.rawValue.keyText }
}

extension MuxKey where Self: RawRepresentable & LosslessStringConvertible, RawValue: MuxKey {
    /// The key's lossless description.
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
    /// The number's description; `0.0` for both zeros, which are equal.
    public var keyText: String { self == 0 ? "0.0" : self.description }
}

extension Double: MuxKey {
    /// The number's description; `0.0` for both zeros, which are equal.
    public var keyText: String { self == 0 ? "0.0" : self.description }
}

extension UUID: MuxKey {
    /// The UUID string.
    public var keyText: String { self.uuidString }
}

extension URL: MuxKey {
    /// The absolute string; with a base URL, the relative string and the base URL.
    ///
    /// URLs with different base URLs are different keys.
    public var keyText: String {
        guard let base = self.baseURL else { return self.absoluteString }
        return self.relativeString + " " + base.absoluteString  // no URL contains a space
    }
}

/// A key in the tables; strings, and the texts of ``MuxKey`` types, are compared byte for byte.
///
/// In Swift, strings that differ only in Unicode normalization are equal; for a server these strings are
/// different keys.
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

    /// Whether equal keys of the type are known to have the same text; a constant in specialised code.
    @inlinable static var isExact: Bool {
        Key.self == Int.self || Key.self == UUID.self || Key.self == URL.self || Key.self == Int64.self
            || Key.self == UInt64.self || Key.self == Int32.self || Key.self == UInt32.self || Key.self == UInt.self
            || Key.self == Double.self || Key.self == Bool.self
    }

    /// Whether equal keys have the same text, byte for byte; `true` for keys without a text.
    @usableFromInline
    static func haveSameText(_ a: ExactKey, _ b: ExactKey) -> Bool {
        // Keys with the same bytes in memory have the same text. The comparison avoids an allocation for the
        // texts.
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

    /// The hash value of the key; some key types compute this value faster than a `Hasher` does.
    @inlinable
    package var hashValue: Int { self.key.hashValue }
}

/// A key type whose equal keys always have the same text, byte for byte.
package protocol ExactlyEqual: MuxKey {}
